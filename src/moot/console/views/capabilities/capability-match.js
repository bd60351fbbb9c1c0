/**
 * Whether a set of capabilities allows an envelope, as far as the browser can tell (docs/topics/capabilities.md).
 *
 * The gateway decides; this only chooses which button is offered. So there are three answers: "yes", "no" and
 * "perhaps", for patterns that are not evaluated here: JSONPath, searches at any depth, and regular expressions that
 * might be slow. Capabilities are untrusted input too (grants), and none of them may block the page.
 */

import { NumberText, withPlainNumbers } from "../../core/state/json-text.js";
import { urlPrefixOf } from "./url-prefix.js";

/** @typedef {"yes" | "no" | "perhaps"} Allowed */

// The gateway's limits for the length of text that a wildcard matches and the nesting of a pattern.
const MAX_TEXT = 64 * 1024;
const MAX_DEPTH = 16;
// With one unbounded repetition an expression costs at most the square of the first, with two the cube of the second.
const ONE_END_TEXT = 2_000;
const TWO_ENDS_TEXT = 200;
// Each alternative may double the number of paths.
const MAX_ALTERNATIVES = 4;

/**
 * @param {any[]} capabilities @param {string} kind @param {any} payload @param {string[]} to logical names
 * @returns {Allowed}
 */
export function anyAllows(capabilities, kind, payload, to) {
  /** @type {Allowed} */
  let found = "no";
  for (const each of capabilities) {
    const answer = matches(each, kind, payload, to);
    if (answer === "yes") return "yes";
    if (answer === "perhaps") found = "perhaps";
  }
  return found;
}

/** One capability against one envelope. @param {any} capability @param {string} kind @param {any} payload @param {string[]} to @returns {Allowed} */
export function matches(capability, kind, payload, to) {
  if (typeof capability === "string") return stringMatches(capability, kind);
  if (capability === null || typeof capability !== "object" || capability["x-moot-request"] !== undefined) return "no";
  const answers = [valueMatches(capability.kind, kind, 0)];
  if (capability.to !== undefined) {
    const names = Array.isArray(capability.to) ? capability.to : [capability.to];
    // D-13: a broadcast has no addressee, so no list of addressees covers it.
    answers.push(
      to.length > 0 &&
        to.every((name) => names.some((/** @type {any} */ glob) => typeof glob === "string" && globMatches(glob, name)))
        ? "yes"
        : "no",
    );
  }
  if (capability.payload !== undefined) answers.push(valueMatches(capability.payload, payload, 1));
  return combine(answers);
}

/** @param {Allowed[]} answers @returns {Allowed} */
function combine(answers) {
  return answers.includes("no") ? "no" : answers.includes("perhaps") ? "perhaps" : "yes";
}

/** @param {any} pattern @param {any} value @param {number} depth @returns {Allowed} */
export function valueMatches(pattern, value, depth) {
  if (depth > MAX_DEPTH) return "perhaps";
  if (typeof pattern === "string") return typeof value === "string" ? stringMatches(pattern, value) : "no";
  // The value has been parsed here, so its last digits are not known.
  if (pattern instanceof NumberText) return Number(pattern.text) === value ? "perhaps" : "no";
  if (Array.isArray(pattern)) {
    const answers = pattern.map((each) => valueMatches(each, value, depth + 1));
    return answers.includes("yes") ? "yes" : answers.includes("perhaps") ? "perhaps" : "no";
  }
  if (pattern === null || typeof pattern !== "object") return pattern === value ? "yes" : "no";
  // 1 and 1.0 are different for the gateway, but not any more when they have been parsed here.
  if (Object.hasOwn(pattern, "$exact"))
    return canonical(withPlainNumbers(pattern.$exact)) !== canonical(value)
      ? "no"
      : hasNumber(value)
        ? "perhaps"
        : "yes";
  if (value === null || typeof value !== "object" || Array.isArray(value)) return "no";
  return combine(
    Object.entries(pattern).map(([key, each]) => {
      if (key.startsWith("$") || /[*?]/.test(key)) return "perhaps";
      return Object.hasOwn(value, key) ? valueMatches(each, value[key], depth + 1) : "no";
    }),
  );
}

/** @param {any} value @returns {boolean} */
function hasNumber(value) {
  return (
    typeof value === "number" || (value !== null && typeof value === "object" && Object.values(value).some(hasNumber))
  );
}

/** JSON text that is equal for equal values, whatever the order of members. @param {any} value @returns {string} */
function canonical(value) {
  return (
    JSON.stringify(value, (_key, each) =>
      each !== null && typeof each === "object" && !Array.isArray(each)
        ? Object.fromEntries(Object.entries(each).sort(([a], [b]) => (a < b ? -1 : 1)))
        : each,
    ) ?? ""
  );
}

/** @param {string} pattern @param {string} text @returns {Allowed} */
function stringMatches(pattern, text) {
  if (isRegex(pattern)) return regexMatches(pattern.slice(1, -1), text);
  if (negatesNothing(pattern)) return "no";
  if (pattern.startsWith("!")) return globMatches(pattern.slice(1), text) ? "no" : "yes";
  return globMatches(pattern, text) ? "yes" : "no";
}

/** @param {string} text */
export function isRegex(text) {
  return text.length > 2 && text.startsWith("/") && text.endsWith("/");
}

/** Whether a negation leaves open what it negates, so that it matches nothing. @param {string} text */
export function negatesNothing(text) {
  const negated = text.slice(1);
  return (
    text.startsWith("!") && (!negated || negated.startsWith("!") || isRegex(negated) || negated !== negated.trim())
  );
}

/** @param {string} text */
export function isWild(text) {
  return text.includes("*") || text.includes("?");
}

/**
 * Whether an untrusted regular expression is surely fast in the browser's backtracking engine: few unbounded repetitions, few
 * alternatives, and no repeated group.
 * @param {string} source @param {number} length of the text
 */
export function isSafeRegex(source, length) {
  const plain = source.replace(/\\[\s\S]/g, "x").replace(/\[[^\]]*\]/g, "x");
  const ends = (plain.match(/[*+?{]/g) ?? []).length;
  const forks = (plain.match(/\|/g) ?? []).length;
  return (
    !/\)[*+?{]/.test(plain) &&
    forks <= MAX_ALTERNATIVES &&
    (ends === 0 || (ends === 1 && length <= ONE_END_TEXT) || (ends === 2 && length <= TWO_ENDS_TEXT))
  );
}

/** The gateway uses RE2, the browser its own engine: only expressions that mean the same in both and are surely fast are evaluated. @param {string} source @param {string} text @returns {Allowed} */
function regexMatches(source, text) {
  // Made by us, without a place to backtrack to.
  if (text.length <= MAX_TEXT && urlPrefixOf(`/${source}/`) !== null)
    return new RegExp(source).test(text) ? "yes" : "no";
  if (
    text.length > MAX_TEXT ||
    !isSafeRegex(source, text.length) ||
    source.includes("(?") ||
    /\\[1-9kKpPABbzCQE]/.test(source)
  )
    return "perhaps";
  try {
    return new RegExp(source, "s").test(text) ? "yes" : "no";
  } catch {
    return "perhaps";
  }
}

/**
 * D-11: `*` alone matches every string, at the end it matches the rest, elsewhere it stays in one segment; `**` crosses segments;
 * `?` matches one character except a slash. No wildcard matches a segment `..`.
 * @param {string} glob @param {string} text
 */
export function globMatches(glob, text) {
  if (!isWild(glob)) return glob === text;
  if (/^\*+$/.test(glob)) return true;
  if (text.length > MAX_TEXT) return false;
  /** @type {string[]} */
  const tokens = [];
  for (let at = 0; at < glob.length; at += 1) {
    if (glob[at] !== "*") {
      tokens.push(glob[at]);
      continue;
    }
    let end = at + 1;
    while (glob[end] === "*") end += 1;
    tokens.push(end - at > 1 || end === glob.length ? "**" : "*");
    at = end - 1;
  }
  const parents = dotsOfParents(text);
  // All positions of the glob that the text so far can reach, at once: no backtracking.
  let positions = skip(new Set([0]), tokens);
  for (let at = 0; at < text.length && positions.size > 0; at += 1) {
    const next = new Set();
    for (const position of positions) {
      const token = tokens[position];
      if (token === undefined) continue;
      const isStar = token === "*" || token === "**";
      if (!isStar && token !== "?" && token === text[at]) next.add(position + 1);
      else if (parents.has(at)) continue;
      else if (token === "?" && text[at] !== "/") next.add(position + 1);
      else if (token === "**" || (token === "*" && text[at] !== "/")) next.add(position);
    }
    positions = skip(next, tokens);
  }
  return positions.has(tokens.length);
}

/** A star may match nothing. @param {Set<number>} positions @param {string[]} tokens */
function skip(positions, tokens) {
  for (const position of positions)
    if (tokens[position] === "*" || tokens[position] === "**") positions.add(position + 1);
  return positions;
}

/** @param {string} text */
function dotsOfParents(text) {
  const found = new Set();
  let at = 0;
  for (const segment of text.split("/")) {
    if (segment === "..") {
      found.add(at);
      found.add(at + 1);
    }
    at += segment.length + 1;
  }
  return found;
}

/**
 * Whether we, or a member, may request or propose a call.
 * @param {any[]} capabilities
 * @param {import("../../core/state/state.js").State} state
 * @param {string[]} to runtime ids
 * @param {{method: string, params: any}} call
 */
export function callPermissions(capabilities, state, to, call) {
  const names = to.map((id) => state.roster.get(id)?.name ?? id);
  const body = call.params === undefined ? { method: call.method } : { method: call.method, params: call.params };
  return {
    request: anyAllows(capabilities, "mcp/request", { jsonrpc: "2.0", id: 0, ...body }, names),
    propose: anyAllows(capabilities, "mcp/proposal", body, names),
  };
}

/** @param {import("../../core/state/state.js").State} state @param {string} kind @param {any} [payload] @param {string[]} [to] runtime ids */
export function isAllowed(state, kind, payload = {}, to = []) {
  return (
    anyAllows(
      state.me.capabilities,
      kind,
      payload,
      to.map((id) => state.roster.get(id)?.name ?? id),
    ) !== "no"
  );
}
