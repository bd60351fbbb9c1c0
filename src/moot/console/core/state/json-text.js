/**
 * JSON text as it was received, to the byte. `JSON.parse` rounds 9007199254740993 and loses how a string was
 * escaped; what is approved must be what was shown, so bodies are cut out of the text instead (D-28, D-83).
 */

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/y;
const WORD = /true|false|null/y;

/** @param {RegExp} pattern @param {string} text @param {number} at */
function end(pattern, text, at) {
  pattern.lastIndex = at;
  if (!pattern.test(text)) throw new SyntaxError(`not JSON at ${at}`);
  return pattern.lastIndex;
}

/** Where the string that starts at `at` ends. Not a regular expression: on a megabyte of text it would run out of stack. @param {string} text @param {number} at */
function endOfString(text, at) {
  for (let index = at + 1; ; index += 1) {
    index = text.indexOf('"', index);
    if (text[at] !== '"' || index < 0) throw new SyntaxError(`no string at ${at}`);
    let escapes = 0;
    while (text[index - 1 - escapes] === "\\") escapes += 1;
    if (escapes % 2 === 0) return index + 1;
  }
}

/** Where the value that starts at `at` ends. Not recursive: depth is the peer's choice. @param {string} text @param {number} at */
function endOfValue(text, at) {
  const open = text[at];
  if (open === '"') return endOfString(text, at);
  if (open !== "{" && open !== "[") return end(open === "t" || open === "f" || open === "n" ? WORD : NUMBER, text, at);
  let depth = 0;
  for (let index = at; index < text.length; ) {
    const each = text[index];
    if (each === '"') index = endOfString(text, index);
    else {
      if (each === "{" || each === "[") depth += 1;
      else if (each === "}" || each === "]") depth -= 1;
      index += 1;
      if (depth === 0) return index;
    }
  }
  throw new SyntaxError("JSON ends too early");
}

/**
 * The members of an object or the items of a list, each with its own text.
 * @param {string} text
 * @returns {{key: string, text: string}[]}
 */
export function membersOf(text) {
  let at = end(SPACE, text, 0);
  const isObject = text[at] === "{";
  if (!isObject && text[at] !== "[") throw new SyntaxError("neither an object nor a list");
  const close = isObject ? "}" : "]";
  const found = [];
  at = end(SPACE, text, at + 1);
  while (text[at] !== close) {
    /** @type {string} */
    let key = String(found.length);
    if (isObject) {
      const stop = endOfString(text, at);
      key = String(JSON.parse(text.slice(at, stop)));
      at = end(SPACE, text, stop);
      if (text[at] !== ":") throw new SyntaxError(`no colon at ${at}`);
      at = end(SPACE, text, at + 1);
    }
    const stop = endOfValue(text, at);
    found.push({ key, text: text.slice(at, stop) });
    at = end(SPACE, text, stop);
    if (text[at] === ",") at = end(SPACE, text, at + 1);
    else if (text[at] !== close) throw new SyntaxError(`no comma at ${at}`);
  }
  return found;
}

/**
 * The text of the value at a path, such as ["payload", "params"]; null when there is none.
 * @param {string} text @param {string[]} path @returns {string | null}
 */
export function textAt(text, path) {
  let current = text;
  for (const step of path) {
    let found = null;
    try {
      // The gateway rejects duplicate keys; JSON.parse would take the last one.
      for (const part of membersOf(current)) if (part.key === step) found = part.text;
    } catch {
      return null;
    }
    if (found === null) return null;
    current = found;
  }
  return current;
}

/**
 * What a request or proposal calls, as JSON text of exactly the received method and params.
 * @param {string} raw an envelope
 */
export function callBodyText(raw) {
  const payload = textAt(raw, ["payload"]) ?? "{}";
  const method = textAt(payload, ["method"]) ?? "null";
  const params = textAt(payload, ["params"]);
  return params === null ? `{"method":${method}}` : `{"method":${method},"params":${params}}`;
}

/**
 * The same JSON with line breaks and indents; digits and escapes stay as they are.
 * @param {string} text @param {string} [indent]
 */
function indentJson(text, indent = "  ") {
  const out = [];
  let depth = 0;
  for (let at = end(SPACE, text, 0); at < text.length; at = end(SPACE, text, at)) {
    const each = text[at];
    if (each === "{" || each === "[") {
      const next = end(SPACE, text, at + 1);
      if (text[next] === "}" || text[next] === "]") {
        out.push(each, text[next]);
        at = next + 1;
        continue;
      }
      depth += 1;
      out.push(each, "\n", indent.repeat(depth));
      at += 1;
    } else if (each === "}" || each === "]") {
      depth -= 1;
      out.push("\n", indent.repeat(Math.max(0, depth)), each);
      at += 1;
    } else if (each === ",") {
      out.push(",\n", indent.repeat(depth));
      at += 1;
    } else if (each === ":") {
      out.push(": ");
      at += 1;
    } else {
      const stop = endOfValue(text, at);
      out.push(text.slice(at, stop));
      at = stop;
    }
  }
  return out.join("");
}

/** The text with line breaks and indents, or as it is if it is not JSON. @param {string} text */
export function formatJson(text) {
  try {
    return indentJson(text);
  } catch {
    return text;
  }
}

/** The parsed value; undefined for what is not JSON. @param {string} text @returns {any} */
export function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** @param {any} value @returns {value is Record<string, any>} */
export function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof NumberText);
}

/** A number as it was written, where `JSON.parse` would change it: 9007199254740993, 1.0, 1e400. */
export class NumberText {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  /** To the last digit in `JSON.stringify`, where the browser can do that. */
  toJSON() {
    const { rawJSON } = /** @type {any} */ (JSON);
    return rawJSON ? rawJSON(this.text) : Number(this.text);
  }

  toString() {
    return this.text;
  }
}

/** The same value with numbers as JavaScript has them, for computing. @param {any} value @returns {any} */
export function withPlainNumbers(value) {
  if (value instanceof NumberText) return Number(value.text);
  if (Array.isArray(value)) return value.map(withPlainNumbers);
  return isObject(value)
    ? Object.fromEntries(Object.entries(value).map(([key, each]) => [key, withPlainNumbers(each)]))
    : value;
}

// Only where a number can stand, so that it is rarely found in a text.
const FRAGILE_NUMBER = /[:,[]\s*(?:-0[,}\]\s]|-?(?:\d[\d.]{15}|\d+\.\d*0(?!\d)|\d+(?:\.\d+)?[eE]|0\.0{6}))/;

/** Whether a JSON text may have numbers that `JSON.parse` would change. @param {string} text */
export function hasFragileNumbers(text) {
  return FRAGILE_NUMBER.test(text);
}

// What members compare and decide by, to the last digit; other numbers of a message are computed with.
const EXACT_MEMBERS = new Set([
  "capabilities",
  "your_capabilities",
  "arguments",
  "allows",
  "refuses",
  "default",
  "const",
  "enum",
  "examples",
]);
// Messages whose numbers are shown from what was parsed; the arguments of calls are taken from the text itself.
const EXACT_KINDS = /^(?:capability\/|system\/(?:welcome|presence|error)$|moot\/roster|space\/invite|trust\/)/;

/** @param {any} envelope */
function mayNeedExactNumbers(envelope) {
  if (typeof envelope?.kind !== "string") return false;
  // Of results, what an approver says of its rules, and what tools want. At a thousand a second, the others are not looked at.
  if (envelope.kind.startsWith("mcp/"))
    return (
      envelope.kind.startsWith("mcp/response") &&
      isObject(envelope.payload?.result) &&
      (envelope.payload.result.structuredContent !== undefined || envelope.payload.result.tools !== undefined)
    );
  return EXACT_KINDS.test(envelope.kind);
}

// Each level reads its text again, and others choose how long and how deep it is.
const MAX_EXACT_CHARACTERS = 256 * 1024;
const MAX_EXACT_DEPTH = 16;

/** An envelope with exact numbers in capabilities, patterns and schemas. Throws SyntaxError. @param {string} raw @returns {any} */
export function parseEnvelope(raw) {
  const envelope = JSON.parse(raw);
  if (!mayNeedExactNumbers(envelope) || raw.length > MAX_EXACT_CHARACTERS || !hasFragileNumbers(raw)) return envelope;
  const payload = textAt(raw, ["payload"]);
  return payload === null ? envelope : { ...envelope, payload: parseMembersExactly(payload, 0) };
}

/** @param {string} text @param {number} depth @returns {any} */
function parseMembersExactly(text, depth) {
  if (depth > MAX_EXACT_DEPTH || !/^[{[]/.test(text)) return JSON.parse(text);
  if (text.startsWith("[")) return membersOf(text).map((each) => parseMembersExactly(each.text, depth + 1));
  return Object.fromEntries(
    membersOf(text).map((each) => [
      each.key,
      EXACT_MEMBERS.has(each.key) ? parseForDisplay(each.text, depth + 1) : parseMembersExactly(each.text, depth + 1),
    ]),
  );
}

/** The parsed value for showing it: numbers that would be changed are `NumberText`. Throws SyntaxError. @param {string} text @param {number} [depth] @returns {any} */
export function parseForDisplay(text, depth = 0) {
  const trimmed = text.trim();
  if (depth <= 2 * MAX_EXACT_DEPTH && /^[{[]/.test(trimmed)) {
    const parts = membersOf(trimmed);
    return trimmed.startsWith("[")
      ? parts.map((each) => parseForDisplay(each.text, depth + 1))
      : Object.fromEntries(parts.map((each) => [each.key, parseForDisplay(each.text, depth + 1)]));
  }
  const value = JSON.parse(trimmed);
  return typeof value === "number" && String(value) !== trimmed ? new NumberText(trimmed) : value;
}
