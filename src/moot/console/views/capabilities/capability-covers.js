/**
 * Whether one capability covers another, as the gateway compares them (docs/topics/capabilities.md). This is for
 * showing beforehand what would be refused or revoked; the gateway decides. If it cannot be proved, the answer is "no".
 *
 * Globs are matched token by token, all positions at once: patterns are untrusted, and a regular
 * expression made from one could backtrack for ever.
 */

import { globMatches, isRegex, isWild, negatesNothing, valueMatches } from "./capability-match.js";

/** @typedef {string | {kind?: any, payload?: any, to?: any, [more: string]: any}} Capability */

// The gateway's limit for the nesting of capabilities; it accepts no deeper ones.
const MAX_DEPTH = 16;

/** @param {string} source @returns {string[]} characters, "?", "*" within a segment, "**" across */
function tokensOf(source) {
  const tokens = [];
  for (let at = 0; at < source.length; at += 1) {
    if (source[at] !== "*") tokens.push(source[at] === "?" ? "?" : `=${source[at]}`);
    else {
      const start = at;
      while (source[at + 1] === "*") at += 1;
      // A star at the end matches the rest, including slashes.
      tokens.push(at > start || at === source.length - 1 ? "**" : "*");
    }
  }
  return tokens;
}

/** Whether `wide` matches every text that `read` matches. @param {string[]} wide @param {string[]} read */
function tokensCover(wide, read) {
  const skip = (/** @type {Set<number>} */ positions) => {
    for (const position of positions)
      if (wide[position] === "*" || wide[position] === "**") positions.add(position + 1);
    return positions;
  };
  let current = skip(new Set([0]));
  for (const token of read) {
    /** @type {Set<number>} */
    const next = new Set();
    for (const position of current) {
      const by = wide[position];
      if (by === undefined) continue;
      if (by === token && token.startsWith("=")) next.add(position + 1);
      else if (by === "?" && token !== "=/" && token !== "*" && token !== "**") next.add(position + 1);
      else if (by === "**" || (by === "*" && token !== "=/" && token !== "**")) next.add(position);
    }
    current = skip(next);
    if (current.size === 0) return false;
  }
  return current.has(wide.length);
}

/** @param {string} wide @param {string} narrow */
function globCovers(wide, narrow) {
  if (wide === narrow || /^\*+$/.test(wide)) return true;
  if (/^\*+$/.test(narrow)) return false;
  return isWild(narrow) ? tokensCover(tokensOf(wide), tokensOf(narrow)) : globMatches(wide, narrow);
}

/** @param {string} pattern */
const isPlain = (pattern) => !pattern.startsWith("!") && !isRegex(pattern);

/** @param {any} pattern */
const isExact = (pattern) => pattern !== null && typeof pattern === "object" && Object.hasOwn(pattern, "$exact");

/** @param {any} held @param {any} wanted @param {number} depth @returns {boolean} */
function valueCovers(held, wanted, depth) {
  if (depth > MAX_DEPTH) return false;
  if (JSON.stringify(held) === JSON.stringify(wanted)) return true;
  // One value only, so matching it is the proof.
  if (isExact(wanted))
    return Array.isArray(held)
      ? held.some((each) => valueCovers(each, wanted, depth + 1))
      : valueMatches(held, wanted.$exact, depth) === "yes";
  if (isExact(held)) return typeof wanted === "string" && isPlain(wanted) && !isWild(wanted) && held.$exact === wanted;
  if (Array.isArray(wanted)) return wanted.length > 0 && wanted.every((each) => valueCovers(held, each, depth + 1));
  if (Array.isArray(held)) return held.some((each) => valueCovers(each, wanted, depth + 1));
  if (typeof held === "string" && typeof wanted === "string") {
    if (negatesNothing(held) || negatesNothing(wanted)) return false;
    if (isPlain(held) && isPlain(wanted)) return globCovers(held, wanted);
    if (/^\*+$/.test(held)) return true;
    if (held.startsWith("!") && wanted.startsWith("!")) return globCovers(wanted.slice(1), held.slice(1));
    return held.startsWith("!") && isPlain(wanted) && !isWild(wanted) && !globMatches(held.slice(1), wanted);
  }
  if (held !== null && wanted !== null && typeof held === "object" && typeof wanted === "object") {
    return Object.entries(held).every(
      ([key, value]) => Object.hasOwn(wanted, key) && valueCovers(value, wanted[key], depth + 1),
    );
  }
  return false;
}

/** @param {Capability} capability @returns {any} */
function asObject(capability) {
  return typeof capability === "string" ? { kind: capability } : (capability ?? {});
}

/** Whether `held` certainly allows everything that `wanted` allows. @param {Capability} held @param {Capability} wanted */
export function covers(held, wanted) {
  const wide = asObject(held);
  const narrow = asObject(wanted);
  if (wide.kind === undefined || narrow.kind === undefined || !valueCovers(wide.kind, narrow.kind, 0)) return false;
  for (const field of ["payload", "x-moot-request"]) {
    if (wide[field] !== undefined && (narrow[field] === undefined || !valueCovers(wide[field], narrow[field], 0)))
      return false;
  }
  return wide.to === undefined || (narrow.to !== undefined && valueCovers(list(wide.to), list(narrow.to), 0));
}

/** @param {any} given */
function list(given) {
  return Array.isArray(given) ? given : [given];
}

/** D-16: by one held capability, never by several together. @param {Capability} wanted @param {Capability[]} held */
export function coveredBy(wanted, held) {
  return held.some((each) => covers(each, wanted));
}

/**
 * Whether one of these capabilities may allow a kind; "no" is certain, "yes" may depend on the payload.
 * @param {Capability[]} capabilities @param {string} kind
 */
export function mayAllow(capabilities, kind) {
  return capabilities.some((each) =>
    list(asObject(each).kind).some(
      (pattern) => typeof pattern === "string" && (isPlain(pattern) ? globMatches(pattern, kind) : true),
    ),
  );
}
