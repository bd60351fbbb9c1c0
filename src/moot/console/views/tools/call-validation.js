/**
 * Validates a value against a JSON Schema, with an error message per field. The tool has the last word: unknown keywords
 * are ignored here, so nothing is refused that the tool would accept.
 */
import { isObject, withPlainNumbers } from "../../core/state/json-text.js";
import { isSafeRegex } from "../capabilities/capability-match.js";

/** @typedef {{path: string[], message: string}} Fault */

// Nobody reads more errors; validation ends there.
const MAX_FAULTS = 30;
const MAX_PATTERN = 500;
const MAX_UNIQUE = 2_000;

/** @type {Record<string, [RegExp, string]>} plain enough to be certain; other formats are the tool's to check */
const FORMATS = {
  email: [/^[^\s@]+@[^\s@]+$/, "an address such as name@example.org"],
  uri: [/^[A-Za-z][A-Za-z0-9+.-]*:\S*$/, "an address such as https://example.org/"],
  date: [/^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$/, "a date such as 2026-11-15"],
  time: [/^([01]\d|2[0-3]):[0-5]\d:[0-6]\d(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):[0-5]\d)?$/, "a time such as 09:30:00Z"],
  "date-time": [
    /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-6]\d(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):[0-5]\d)$/,
    "a time such as 2026-11-15T09:30:00Z",
  ],
  uuid: [/^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/, "an id such as 123e4567-e89b-12d3-a456-426614174000"],
  ipv4: [/^((25[0-5]|2[0-4]\d|1?\d?\d)(\.(?!$)|$)){4}$/, "an address such as 192.0.2.1"],
};

/** @param {any} schema @param {any} value @returns {Fault[]} */
export function validate(schema, value) {
  /** @type {Fault[]} */
  const faults = [];
  check(schema, value, [], schema, faults, 0);
  return faults;
}

/** @param {any} schema @param {any} value @param {string[]} path @param {any} root @param {Fault[]} faults @param {number} depth */
function check(schema, value, path, root, faults, depth) {
  if (depth > MAX_DEPTH * 4 || faults.length >= MAX_FAULTS || schema === true) return;
  const report = (/** @type {string} */ text) => faults.push({ path, message: text });
  if (schema === false) {
    report("is not allowed here");
    return;
  }
  const current = resolveSchema(schema, root);
  const types = typesOf(current);
  if (
    types.length > 0 &&
    (current.type !== undefined || isObject(value) || Array.isArray(value)) &&
    !types.some((type) => hasType(value, type))
  ) {
    if (current.type !== undefined) {
      report(`must be ${types.map(typeText).join(" or ")}`);
      return;
    }
  }
  if (current.const !== undefined && !same(current.const, value)) report(`must be ${JSON.stringify(current.const)}`);
  if (Array.isArray(current.enum) && !current.enum.some((/** @type {any} */ each) => same(each, value)))
    report(
      `must be one of ${current.enum
        .slice(0, 8)
        .map((/** @type {any} */ each) => JSON.stringify(each))
        .join(", ")}${current.enum.length > 8 ? ", …" : ""}`,
    );
  if (typeof value === "string") checkText(current, value, report);
  else if (typeof value === "number") checkNumber(current, value, report);
  else if (Array.isArray(value)) checkList(current, value, path, root, faults, depth, report);
  else if (isObject(value)) checkObject(current, value, path, root, faults, depth, report);
  for (const word of ["anyOf", "oneOf"]) {
    if (!Array.isArray(current[word]) || current[word].length === 0) continue;
    const tried = current[word].slice(0, 50).map((/** @type {any} */ each) => {
      /** @type {Fault[]} */
      const found = [];
      check(each, value, path, root, found, depth + 1);
      return found;
    });
    const fitting = tried.filter((/** @type {Fault[]} */ found) => found.length === 0).length;
    if (fitting === 0) {
      // Report the alternative that matched deepest: it is the most informative.
      const nearest = tried.reduce((/** @type {Fault[]} */ best, /** @type {Fault[]} */ found) =>
        (found[0]?.path.length ?? 0) > (best[0]?.path.length ?? 0) ? found : best,
      );
      if (nearest.length > 0 && nearest[0].path.length > path.length) faults.push(...nearest.slice(0, 3));
      else report("matches none of the options");
    } else if (word === "oneOf" && fitting > 1) report("matches more than one of the options");
  }
  if (current.not !== undefined) {
    /** @type {Fault[]} */
    const found = [];
    check(current.not, value, path, root, found, depth + 1);
    if (found.length === 0) report("has a value that is not allowed");
  }
}

/** @param {any} schema @param {string} value @param {(message: string) => void} report */
function checkText(schema, value, report) {
  const length = [...value].length;
  if (typeof schema.minLength === "number" && length < schema.minLength)
    report(
      length === 0
        ? "must not be empty"
        : `must have at least ${schema.minLength} ${schema.minLength === 1 ? "character" : "characters"}`,
    );
  if (typeof schema.maxLength === "number" && length > schema.maxLength)
    report(`must have at most ${schema.maxLength} ${schema.maxLength === 1 ? "character" : "characters"}`);
  if (typeof schema.pattern === "string" && patternFails(schema.pattern, value))
    report(`must match ${schema.pattern.slice(0, 80)}`);
  const format =
    typeof schema.format === "string" && Object.hasOwn(FORMATS, schema.format) ? FORMATS[schema.format] : null;
  if (format && !format[0].test(value)) report(`must be ${format[1]}`);
}

/** Only patterns without catastrophic backtracking are evaluated. @param {string} pattern @param {string} value */
function patternFails(pattern, value) {
  if (pattern.length > MAX_PATTERN || !isSafeRegex(pattern, value.length) || /\\[1-9]/.test(pattern)) return false;
  try {
    return !new RegExp(pattern, "u").test(value);
  } catch {
    return false;
  }
}

/** @param {any} schema @param {number} value @param {(message: string) => void} report */
function checkNumber(schema, value, report) {
  if (typeof schema.minimum === "number" && value < schema.minimum) report(`must be at least ${schema.minimum}`);
  if (typeof schema.maximum === "number" && value > schema.maximum) report(`must be at most ${schema.maximum}`);
  if (typeof schema.exclusiveMinimum === "number" && value <= schema.exclusiveMinimum)
    report(`must be more than ${schema.exclusiveMinimum}`);
  if (typeof schema.exclusiveMaximum === "number" && value >= schema.exclusiveMaximum)
    report(`must be less than ${schema.exclusiveMaximum}`);
  if (typeof schema.multipleOf === "number" && schema.multipleOf > 0) {
    const times = value / schema.multipleOf;
    if (Math.abs(times - Math.round(times)) > 1e-9 * Math.max(1, Math.abs(times)))
      report(`must be a multiple of ${schema.multipleOf}`);
  }
}

/** @param {any} schema @param {any[]} value @param {string[]} path @param {any} root @param {Fault[]} faults @param {number} depth @param {(message: string) => void} report */
function checkList(schema, value, path, root, faults, depth, report) {
  if (typeof schema.minItems === "number" && value.length < schema.minItems)
    report(`must have at least ${schema.minItems} ${schema.minItems === 1 ? "item" : "items"}`);
  if (typeof schema.maxItems === "number" && value.length > schema.maxItems)
    report(`must have at most ${schema.maxItems} ${schema.maxItems === 1 ? "item" : "items"}`);
  if (
    schema.uniqueItems === true &&
    value.length <= MAX_UNIQUE &&
    new Set(value.map((each) => JSON.stringify(each))).size < value.length
  )
    report("must not contain duplicates");
  const first = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  value.forEach((each, index) => {
    const of = index < first.length ? first[index] : schema.items;
    if (of !== undefined && !Array.isArray(of)) check(of, each, [...path, String(index)], root, faults, depth + 1);
  });
}

/** @param {any} schema @param {Record<string, any>} value @param {string[]} path @param {any} root @param {Fault[]} faults @param {number} depth @param {(message: string) => void} report */
function checkObject(schema, value, path, root, faults, depth, report) {
  for (const name of strings(schema.required))
    if (!Object.hasOwn(value, name)) faults.push({ path: [...path, name], message: "is required" });
  const known = isObject(schema.properties) ? schema.properties : {};
  for (const [name, each] of Object.entries(value)) {
    if (Object.hasOwn(known, name)) check(known[name], each, [...path, name], root, faults, depth + 1);
    else if (schema.patternProperties === undefined && schema.additionalProperties === false)
      faults.push({ path: [...path, name], message: "is not an argument of this tool" });
    else if (schema.patternProperties === undefined && isObject(schema.additionalProperties))
      check(schema.additionalProperties, each, [...path, name], root, faults, depth + 1);
  }
  const count = Object.keys(value).length;
  if (typeof schema.minProperties === "number" && count < schema.minProperties)
    report(`must have at least ${schema.minProperties} ${schema.minProperties === 1 ? "field" : "fields"}`);
  if (typeof schema.maxProperties === "number" && count > schema.maxProperties)
    report(`must have at most ${schema.maxProperties} ${schema.maxProperties === 1 ? "field" : "fields"}`);
}

/** @param {any} value @param {string} type */
function hasType(value, type) {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return isObject(value);
    case "integer":
      return typeof value === "number" && Number.isInteger(value);
    default:
      return typeof value === type;
  }
}

/** @param {string} type */
function typeText(type) {
  return (
    {
      string: "text",
      integer: "a whole number",
      number: "a number",
      boolean: "yes or no",
      array: "a list",
      object: "an object",
      null: "null",
    }[type] ?? type
  );
}

/** @param {any} one @param {any} other */
function same(one, other) {
  one = withPlainNumbers(one);
  return (
    one === other ||
    (typeof one === "object" && typeof other === "object" && JSON.stringify(one) === JSON.stringify(other))
  );
}

// Reading a schema. It is untrusted: references are followed only within the schema and only up to a certain depth;
// what is not understood is left to the JSON editor and to the tool itself.

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
  if (!Array.isArray(current.allOf) || current.allOf.length === 0 || current.allOf.length > MAX_REFERENCES)
    return current;
  const { allOf, ...own } = current;
  return allOf
    .map((/** @type {any} */ each) => (isObject(each) && typeof each.$ref === "string" ? at(root, each.$ref) : each))
    .filter(isObject)
    .reduce(mergeSchemas, own);
}

/** @param {Schema} one @param {Schema} other @returns {Schema} */
function mergeSchemas(one, other) {
  return {
    ...other,
    ...one,
    ...(one.properties || other.properties
      ? {
          properties: {
            ...(isObject(other.properties) ? other.properties : {}),
            ...(isObject(one.properties) ? one.properties : {}),
          },
        }
      : {}),
    ...(one.required || other.required
      ? { required: [...new Set([...strings(one.required), ...strings(other.required)])] }
      : {}),
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
  return types
    .map(
      (each) =>
        ({
          string: "text",
          integer: "whole number",
          number: "number",
          boolean: "yes or no",
          array: "list",
          object: "object",
          null: "nothing (null)",
        })[each] ?? each,
    )
    .join(" or ");
}
