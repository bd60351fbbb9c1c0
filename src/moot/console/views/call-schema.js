// @ts-check
/**
 * Reading a tool's JSON Schema. The schema is untrusted: references are followed only within the schema and only up to
 * a certain depth; what is not understood is left to the JSON editor and to the tool itself.
 */

import { isObject } from "../core/json-text.js";

// A form deeper than this is edited as JSON; this also ends circular references.
export const MAX_DEPTH = 8;
const MAX_REFERENCES = 32;

/** @typedef {Record<string, any>} Schema */

/**
 * The schema with references resolved and `allOf` merged.
 * @param {any} schema @param {any} root @returns {Schema} an empty one for what is none
 */
export function resolveSchema(schema, root) {
  let current = schema;
  for (let count = 0; isObject(current) && typeof current.$ref === "string"; count += 1) {
    const { $ref, ...beside } = current;
    const target = count < MAX_REFERENCES ? at(root, $ref) : undefined;
    if (!isObject(target)) return { ...beside, "x-unresolved": $ref };
    current = { ...target, ...beside };
  }
  if (!isObject(current)) return {};
  if (!Array.isArray(current.allOf) || current.allOf.length === 0 || current.allOf.length > MAX_REFERENCES) return current;
  const { allOf, ...own } = current;
  return allOf.map((/** @type {any} */ each) => (isObject(each) && typeof each.$ref === "string" ? at(root, each.$ref) : each)).filter(isObject).reduce(mergeSchemas, own);
}

/** @param {Schema} one @param {Schema} other @returns {Schema} */
function mergeSchemas(one, other) {
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
  let current = root;
  for (const step of reference.slice(2).split("/")) {
    let key = step.replaceAll("~1", "/").replaceAll("~0", "~");
    try {
      key = decodeURIComponent(key);
    } catch {
      // A literal percent sign.
    }
    if (current === null || typeof current !== "object" || !Object.hasOwn(current, key)) return undefined;
    current = current[key];
  }
  return current;
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
  return given.slice(0, 50).map((/** @type {any} */ each) => resolveSchema(each, root));
}

/** The label of a field. @param {Schema} schema @param {string} name */
export function titleOfSchema(schema, name) {
  return typeof schema.title === "string" && schema.title ? schema.title : name;
}

/** A short name for what a schema accepts, for a choice between several. @param {Schema} schema */
export function schemaLabel(schema) {
  if (typeof schema.title === "string" && schema.title) return schema.title;
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (Array.isArray(schema.enum)) return "one of several values";
  const types = typesOf(schema);
  if (types.length === 0) return "any value";
  return types.map((each) => ({ string: "text", integer: "whole number", number: "number", boolean: "yes or no", array: "list", object: "object", null: "nothing (null)" })[each] ?? each).join(" or ");
}
