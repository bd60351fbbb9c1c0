// @ts-check
/**
 * Reading a tool's JSON Schema. It comes from a stranger: references are followed within the schema alone and only
 * so deep, and what is not understood is left to the raw editor and to the tool itself.
 */

// A form deeper than this is edited as JSON; a reference that leads to itself ends here, too.
export const MOST_DEPTH = 8;
const MOST_REFERENCES = 32;

/** @typedef {Record<string, any>} Schema */

/** @param {any} value @returns {value is Schema} */
export function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/**
 * The schema itself, with references followed and `allOf` put together.
 * @param {any} schema @param {any} root @returns {Schema} an empty one for what is none
 */
export function resolved(schema, root) {
  let here = schema;
  for (let count = 0; isObject(here) && typeof here.$ref === "string"; count += 1) {
    const { $ref, ...beside } = here;
    const target = count < MOST_REFERENCES ? at(root, $ref) : undefined;
    if (!isObject(target)) return { ...beside, "x-unresolved": $ref };
    here = { ...target, ...beside };
  }
  if (!isObject(here)) return {};
  if (!Array.isArray(here.allOf) || here.allOf.length === 0 || here.allOf.length > MOST_REFERENCES) return here;
  const { allOf, ...own } = here;
  return allOf.map((/** @type {any} */ each) => (isObject(each) && typeof each.$ref === "string" ? at(root, each.$ref) : each)).filter(isObject).reduce(merged, own);
}

/** @param {Schema} one @param {Schema} other @returns {Schema} */
function merged(one, other) {
  return {
    ...other,
    ...one,
    ...(one.properties || other.properties ? { properties: { ...(isObject(other.properties) ? other.properties : {}), ...(isObject(one.properties) ? one.properties : {}) } } : {}),
    ...(one.required || other.required ? { required: [...new Set([...strings(one.required), ...strings(other.required)])] } : {}),
  };
}

/** @param {any} given @returns {string[]} */
export function strings(given) {
  return Array.isArray(given) ? given.filter((each) => typeof each === "string") : [];
}

/** `#/$defs/Thing` within the schema. @param {any} root @param {string} reference @returns {any} */
function at(root, reference) {
  if (reference === "#") return root;
  if (!reference.startsWith("#/")) return undefined;
  let here = root;
  for (const step of reference.slice(2).split("/")) {
    let key = step.replaceAll("~1", "/").replaceAll("~0", "~");
    try {
      key = decodeURIComponent(key);
    } catch {
      // A percent sign that stands for itself.
    }
    if (here === null || typeof here !== "object" || !Object.hasOwn(here, key)) return undefined;
    here = here[key];
  }
  return here;
}

/** The types that a schema names. @param {Schema} schema @returns {string[]} */
export function typesOf(schema) {
  if (typeof schema.type === "string") return [schema.type];
  if (Array.isArray(schema.type)) return strings(schema.type);
  if (isObject(schema.properties) || schema.required) return ["object"];
  if (schema.items !== undefined || schema.prefixItems !== undefined) return ["array"];
  return [];
}

/** Alternatives of anyOf or oneOf. @param {Schema} schema @param {any} root @returns {Schema[]} */
export function alternatives(schema, root) {
  const given = Array.isArray(schema.anyOf) ? schema.anyOf : Array.isArray(schema.oneOf) ? schema.oneOf : [];
  return given.slice(0, 50).map((/** @type {any} */ each) => resolved(each, root));
}

/** What a field is called. @param {Schema} schema @param {string} name */
export function titleOfSchema(schema, name) {
  return typeof schema.title === "string" && schema.title ? schema.title : name;
}

/** A word for what a schema takes: for a choice between several. @param {Schema} schema */
export function shapeWords(schema) {
  if (typeof schema.title === "string" && schema.title) return schema.title;
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (Array.isArray(schema.enum)) return "one of a list";
  const types = typesOf(schema);
  if (types.length === 0) return "anything";
  return types.map((each) => ({ string: "text", integer: "whole number", number: "number", boolean: "yes or no", array: "list", object: "object", null: "nothing (null)" })[each] ?? each).join(" or ");
}
