// @ts-check
/**
 * Whether a value fits a JSON Schema, in words for the field that does not. The tool has the last word: keywords
 * that are not known here are passed over, so nothing is refused that the tool would take.
 */
import { isTame } from "./call-rights.js";
import { MOST_DEPTH, isObject, resolved, strings, typesOf } from "./call-schema.js";

/** @typedef {{path: string[], words: string}} Fault */

// More would not be read; checking ends there.
const MOST_FAULTS = 30;
const MOST_PATTERN = 500;
const MOST_UNIQUE = 2_000;

/** @type {Record<string, [RegExp, string]>} plain enough to be certain; other formats are the tool's to check */
const FORMATS = {
  email: [/^[^\s@]+@[^\s@]+$/, "an address such as name@example.org"],
  uri: [/^[A-Za-z][A-Za-z0-9+.-]*:\S*$/, "an address such as https://example.org/"],
  date: [/^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$/, "a date such as 2026-11-15"],
  time: [/^([01]\d|2[0-3]):[0-5]\d:[0-6]\d(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):[0-5]\d)?$/, "a time such as 09:30:00Z"],
  "date-time": [/^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-6]\d(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):[0-5]\d)$/, "a time such as 2026-11-15T09:30:00Z"],
  uuid: [/^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/, "an id such as 123e4567-e89b-12d3-a456-426614174000"],
  ipv4: [/^((25[0-5]|2[0-4]\d|1?\d?\d)(\.(?!$)|$)){4}$/, "an address such as 192.0.2.1"],
};

/** @param {any} schema @param {any} value @returns {Fault[]} */
export function faultsOf(schema, value) {
  /** @type {Fault[]} */
  const faults = [];
  check(schema, value, [], schema, faults, 0);
  return faults;
}

/** @param {any} schema @param {any} value @param {string[]} path @param {any} root @param {Fault[]} faults @param {number} depth */
function check(schema, value, path, root, faults, depth) {
  if (depth > MOST_DEPTH * 4 || faults.length >= MOST_FAULTS || schema === true) return;
  const say = (/** @type {string} */ words) => faults.push({ path, words });
  if (schema === false) {
    say("is not allowed here");
    return;
  }
  const here = resolved(schema, root);
  const types = typesOf(here);
  if (types.length > 0 && (here.type !== undefined || isObject(value) || Array.isArray(value)) && !types.some((type) => isOf(value, type))) {
    if (here.type !== undefined) {
      say(`must be ${types.map(typeWords).join(" or ")}`);
      return;
    }
  }
  if (here.const !== undefined && !same(here.const, value)) say(`must be ${JSON.stringify(here.const)}`);
  if (Array.isArray(here.enum) && !here.enum.some((/** @type {any} */ each) => same(each, value))) say(`must be one of ${here.enum.slice(0, 8).map((/** @type {any} */ each) => JSON.stringify(each)).join(", ")}${here.enum.length > 8 ? ", …" : ""}`);
  if (typeof value === "string") checkText(here, value, say);
  else if (typeof value === "number") checkNumber(here, value, say);
  else if (Array.isArray(value)) checkList(here, value, path, root, faults, depth, say);
  else if (isObject(value)) checkObject(here, value, path, root, faults, depth, say);
  for (const word of ["anyOf", "oneOf"]) {
    if (!Array.isArray(here[word]) || here[word].length === 0) continue;
    const tried = here[word].slice(0, 50).map((/** @type {any} */ each) => {
      /** @type {Fault[]} */
      const found = [];
      check(each, value, path, root, found, depth + 1);
      return found;
    });
    const fitting = tried.filter((/** @type {Fault[]} */ found) => found.length === 0).length;
    if (fitting === 0) {
      // The nearest miss tells most: the one that got deepest.
      const nearest = tried.reduce((/** @type {Fault[]} */ best, /** @type {Fault[]} */ found) => ((found[0]?.path.length ?? 0) > (best[0]?.path.length ?? 0) ? found : best));
      if (nearest.length > 0 && nearest[0].path.length > path.length) faults.push(...nearest.slice(0, 3));
      else say("fits none of the choices");
    } else if (word === "oneOf" && fitting > 1) say("fits more than one of the choices");
  }
  if (here.not !== undefined) {
    /** @type {Fault[]} */
    const found = [];
    check(here.not, value, path, root, found, depth + 1);
    if (found.length === 0) say("is what it must not be");
  }
}

/** @param {any} schema @param {string} value @param {(words: string) => void} say */
function checkText(schema, value, say) {
  const length = [...value].length;
  if (typeof schema.minLength === "number" && length < schema.minLength) say(length === 0 ? "must not be empty" : `must have ${schema.minLength} characters or more`);
  if (typeof schema.maxLength === "number" && length > schema.maxLength) say(`must have ${schema.maxLength} characters or fewer`);
  if (typeof schema.pattern === "string" && patternFails(schema.pattern, value)) say(`must match ${schema.pattern.slice(0, 80)}`);
  const format = typeof schema.format === "string" && Object.hasOwn(FORMATS, schema.format) ? FORMATS[schema.format] : null;
  if (format && !format[0].test(value)) say(`must be ${format[1]}`);
}

/** Only patterns that cannot run away are tried. @param {string} pattern @param {string} value */
function patternFails(pattern, value) {
  if (pattern.length > MOST_PATTERN || !isTame(pattern, value.length) || /\\[1-9]/.test(pattern)) return false;
  try {
    return !new RegExp(pattern, "u").test(value);
  } catch {
    return false;
  }
}

/** @param {any} schema @param {number} value @param {(words: string) => void} say */
function checkNumber(schema, value, say) {
  if (typeof schema.minimum === "number" && value < schema.minimum) say(`must be ${schema.minimum} or more`);
  if (typeof schema.maximum === "number" && value > schema.maximum) say(`must be ${schema.maximum} or less`);
  if (typeof schema.exclusiveMinimum === "number" && value <= schema.exclusiveMinimum) say(`must be more than ${schema.exclusiveMinimum}`);
  if (typeof schema.exclusiveMaximum === "number" && value >= schema.exclusiveMaximum) say(`must be less than ${schema.exclusiveMaximum}`);
  if (typeof schema.multipleOf === "number" && schema.multipleOf > 0) {
    const times = value / schema.multipleOf;
    if (Math.abs(times - Math.round(times)) > 1e-9 * Math.max(1, Math.abs(times))) say(`must be a multiple of ${schema.multipleOf}`);
  }
}

/** @param {any} schema @param {any[]} value @param {string[]} path @param {any} root @param {Fault[]} faults @param {number} depth @param {(words: string) => void} say */
function checkList(schema, value, path, root, faults, depth, say) {
  if (typeof schema.minItems === "number" && value.length < schema.minItems) say(`must have ${schema.minItems} or more`);
  if (typeof schema.maxItems === "number" && value.length > schema.maxItems) say(`must have ${schema.maxItems} or fewer`);
  if (schema.uniqueItems === true && value.length <= MOST_UNIQUE && new Set(value.map((each) => JSON.stringify(each))).size < value.length) say("must not hold the same twice");
  const first = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  value.forEach((each, index) => {
    const of = index < first.length ? first[index] : schema.items;
    if (of !== undefined && !Array.isArray(of)) check(of, each, [...path, String(index)], root, faults, depth + 1);
  });
}

/** @param {any} schema @param {Record<string, any>} value @param {string[]} path @param {any} root @param {Fault[]} faults @param {number} depth @param {(words: string) => void} say */
function checkObject(schema, value, path, root, faults, depth, say) {
  for (const name of strings(schema.required)) if (!Object.hasOwn(value, name)) faults.push({ path: [...path, name], words: "is needed" });
  const known = isObject(schema.properties) ? schema.properties : {};
  for (const [name, each] of Object.entries(value)) {
    if (Object.hasOwn(known, name)) check(known[name], each, [...path, name], root, faults, depth + 1);
    else if (schema.patternProperties === undefined && schema.additionalProperties === false) faults.push({ path: [...path, name], words: "is not known to the tool" });
    else if (schema.patternProperties === undefined && isObject(schema.additionalProperties)) check(schema.additionalProperties, each, [...path, name], root, faults, depth + 1);
  }
  const count = Object.keys(value).length;
  if (typeof schema.minProperties === "number" && count < schema.minProperties) say(`must have ${schema.minProperties} fields or more`);
  if (typeof schema.maxProperties === "number" && count > schema.maxProperties) say(`must have ${schema.maxProperties} fields or fewer`);
}

/** @param {any} value @param {string} type */
function isOf(value, type) {
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
function typeWords(type) {
  return { string: "a text", integer: "a whole number", number: "a number", boolean: "yes or no", array: "a list", object: "an object", null: "null" }[type] ?? type;
}

/** @param {any} one @param {any} other */
function same(one, other) {
  return one === other || (typeof one === "object" && typeof other === "object" && JSON.stringify(one) === JSON.stringify(other));
}
