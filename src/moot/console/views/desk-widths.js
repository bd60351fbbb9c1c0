// @ts-check
/**
 * How wide a grant is that follows an approval, always shown as the capability that it creates.
 *
 *     exact    this very call: the tool, the host and all arguments as they were proposed
 *     tool     this tool at this host, with any arguments
 *     pattern  something between, to be edited: folders for paths, anything for long texts
 *
 * A capability cannot forbid arguments that it does not name, so even the exact one says so. It is written as
 * JSON text from the proposal's own text: no number is rounded on the way. What cannot be written as a pattern
 * that matches the proposal itself is not offered, with the reason.
 */
import { parts, textAt } from "../core/exact.js";
import { isRegex, isWild, matches } from "./call-rights.js";
import { PATHS, TEXTS } from "./desk-diff.js";

/** @typedef {{name: "exact" | "tool" | "pattern", title: string, words: string, text: string, whyNot: string}} Width */

// A text longer than this is what a tool is given to work on, not what tells one call from another.
const LONG = 60;
// What a pattern's string may have.
const STRING_BYTES = 1024;

class Inexpressible extends Error {}

/**
 * The three choices for a proposal, narrowest first.
 * @param {import("../core/state.js").State} state
 * @param {import("../core/state-proposals.js").Proposal} proposal
 * @returns {Width[]}
 */
export function widthsOf(state, proposal) {
  const what = proposal.call.method === "tools/call" && proposal.call.name ? `the tool ${proposal.call.name}` : `the method ${proposal.call.method}`;
  return [
    width(state, proposal, "exact", "This exact call", "this very call again (arguments it does not name stay free)"),
    width(state, proposal, "tool", proposal.call.method === "tools/call" ? "This tool" : "This method", `${what}, whatever the arguments`),
    width(state, proposal, "pattern", "A pattern", "a pattern of your own: edit it below"),
  ];
}

/** @param {import("../core/state.js").State} state @param {import("../core/state-proposals.js").Proposal} proposal @param {Width["name"]} name @param {string} title @param {string} words @returns {Width} */
function width(state, proposal, name, title, words) {
  try {
    const method = literalText(proposal.call.method);
    const params = paramsText(textAt(proposal.call.bodyText, ["params"]), name);
    const payload = `{"method":${method}${params === "{}" ? "" : `,"params":${params}`}}`;
    const hosts = proposal.to.map((id) => state.roster.get(id)?.name ?? id).map((each) => JSON.stringify(noWildcard(each)));
    const text = `{"kind":"mcp/request","payload":${payload}${hosts.length > 0 ? `,"to":[${hosts.join(",")}]` : ""}}`;
    const wrong = faultOf(state, proposal, text);
    return wrong ? { name, title, words, text: "", whyNot: wrong } : { name, title, words, text, whyNot: "" };
  } catch (fault) {
    if (fault instanceof Inexpressible) return { name, title, words, text: "", whyNot: fault.message };
    throw fault;
  }
}

/**
 * What is wrong with a capability that somebody wrote for this proposal; empty if nothing is.
 * @param {import("../core/state.js").State} state @param {import("../core/state-proposals.js").Proposal} proposal @param {string} text
 */
export function faultOf(state, proposal, text) {
  let capability;
  try {
    capability = JSON.parse(text);
  } catch (fault) {
    return `This is no JSON: ${fault instanceof Error ? fault.message : ""}`;
  }
  if (capability === null || typeof capability !== "object" || Array.isArray(capability)) return 'A capability is an object, such as {"kind": "mcp/request"}.';
  if (capability.kind === undefined) return 'It has no kind: write {"kind": "mcp/request", …}.';
  const unknown = Object.keys(capability).find((key) => !["kind", "payload", "to", "id", "description"].includes(key) && !key.startsWith("x-"));
  if (unknown !== undefined) return `${unknown} is no part of a capability.`;
  const { method, params } = proposal.call;
  const body = params === undefined ? { method } : { method, params };
  const names = proposal.to.map((id) => state.roster.get(id)?.name ?? id);
  // "perhaps" is let through: the gateway reads it, and says so if it cannot.
  return matches(capability, "mcp/request", { jsonrpc: "2.0", id: 0, ...body }, names) === "no" ? "This would not allow the call that was proposed." : "";
}

/** @param {string | null} text @param {Width["name"]} name */
function paramsText(text, name) {
  if (text === null) return "{}";
  if (!text.startsWith("{")) throw new Inexpressible("its parameters are no object, which no capability states");
  const found = [];
  for (const part of parts(text)) {
    if (part.key === "_meta") continue; // progress tokens and the like: another one each time
    if (part.key === "arguments" && part.text.startsWith("{")) {
      if (name === "tool") continue;
      const stated = argumentsText(part.text, name);
      if (stated !== "{}") found.push(`"arguments":${stated}`);
    } else if (name !== "tool" || part.key === "name" || part.key === "uri") found.push(`${keyText(part.key)}:${exactly(part.text)}`);
  }
  return `{${found.join(",")}}`;
}

/** @param {string} text @param {Width["name"]} name */
function argumentsText(text, name) {
  const found = [];
  for (const part of parts(text)) {
    if (name === "exact") found.push(`${keyText(part.key)}:${exactly(part.text)}`);
    else if (part.text.startsWith('"')) {
      const value = JSON.parse(part.text);
      if (PATHS.includes(part.key) && value.replace(/^\/+|\/+$/g, "").includes("/")) found.push(`${keyText(part.key)}:${JSON.stringify(`${noWildcard(value.slice(0, value.lastIndexOf("/")))}/**`)}`);
      else if (!TEXTS.includes(part.key) && value.length <= LONG && !value.includes("\n")) found.push(`${keyText(part.key)}:${literalText(value)}`);
    } else if (!part.text.startsWith("{") && !part.text.startsWith("[")) found.push(`${keyText(part.key)}:${part.text}`);
  }
  return `{${found.join(",")}}`;
}

/** A value as a pattern that only it matches. Depth is bounded by the gateway's 16. @param {string} text @param {number} [depth] @returns {string} */
function exactly(text, depth = 0) {
  if (depth > 16) throw new Inexpressible("its arguments are nested deeper than a capability may be");
  if (text.startsWith('"')) return literalText(JSON.parse(text));
  if (text.startsWith("[")) throw new Inexpressible("its arguments hold a list, which no capability states exactly");
  if (!text.startsWith("{")) return text;
  return `{${parts(text).map((part) => `${keyText(part.key)}:${exactly(part.text, depth + 1)}`).join(",")}}`;
}

/** A text that matches itself and nothing else, though it may hold signs of the pattern language. @param {string} text */
function literalText(text) {
  const written = isSign(text) ? `/^${text.replace(/[^A-Za-z0-9_\u0080-\uffff]/g, (each) => (each === "\0" ? "\\x00" : `\\${each}`))}$/` : text;
  if (new TextEncoder().encode(written).length > STRING_BYTES) throw new Inexpressible(`an argument has more than the ${STRING_BYTES} bytes that a pattern may have`);
  return JSON.stringify(written);
}

/** @param {string} text */
function noWildcard(text) {
  if (isSign(text)) throw new Inexpressible(`${JSON.stringify(text)} holds signs that mean something in a pattern`);
  return text;
}

/** @param {string} text */
function isSign(text) {
  return isWild(text) || text.startsWith("!") || isRegex(text);
}

/** @param {string} name */
function keyText(name) {
  if (name.startsWith("$") || isWild(name)) throw new Inexpressible(`the argument name ${JSON.stringify(name)} means something else in a pattern`);
  return JSON.stringify(name);
}
