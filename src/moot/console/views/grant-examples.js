// @ts-check
/**
 * Calls much like the proposed one, and whether a capability would allow them, so that a person sees what a grant means.
 *
 * Nothing here says by itself what is allowed: each call is held against the capability. One about which the browser
 * is not sure is left out; that the proposed call itself is allowed was checked before.
 */
import { isObject } from "../core/json-text.js";
import { matches } from "./capability-match.js";
import { toolCatalogueOf } from "./tool-catalogue.js";
import { PATHS, TEXTS } from "./text-diff.js";
import { isAddress, urlPrefixes } from "./url-prefix.js";

/** @typedef {import("../core/state-proposals.js").Proposal} Proposal */
/** @typedef {{text: string, params: any, to: string[]}} ExampleCall */

const MAX_EXAMPLES = 4;
const MAX_TEXT = 60;

/**
 * @param {import("../app.js").Context} context @param {Proposal} proposal @param {any} capability
 * @returns {{allowed: string[], refused: string[]}} in words; the first allowed one is the call itself
 */
export function grantExamples(context, proposal, capability) {
  const { state } = context;
  const allowed = ["this call again"];
  const refused = [];
  for (const each of similarCalls(context, proposal)) {
    const names = each.to.map((id) => state.roster.get(id)?.name ?? id);
    const answer = matches(capability, "mcp/request", { jsonrpc: "2.0", id: 0, method: proposal.call.method, params: each.params }, names);
    if (answer === "yes") allowed.push(each.text);
    else if (answer === "no") refused.push(each.text);
  }
  return { allowed: allowed.slice(0, MAX_EXAMPLES), refused: refused.slice(0, MAX_EXAMPLES) };
}

/** The most telling ones first. @param {import("../app.js").Context} context @param {Proposal} proposal @returns {ExampleCall[]} */
function similarCalls(context, proposal) {
  const { params } = proposal.call;
  const given = isObject(params) && isObject(params.arguments) ? params.arguments : {};
  /** @type {ExampleCall[]} */
  const found = [];
  const change = (/** @type {string} */ key, /** @type {any} */ value, /** @type {string} */ text) => found.push({ text, params: { ...params, arguments: { ...given, [key]: value } }, to: proposal.to });
  const address = Object.keys(given).find((key) => !TEXTS.includes(key) && isAddress(given[key]));
  if (address !== undefined) for (const value of otherAddresses(given[address])) change(address, value, `${address} = ${short(value)}`);
  const path = PATHS.find((key) => key !== address && typeof given[key] === "string");
  if (path !== undefined) for (const value of otherPaths(given[path])) change(path, value, `${path} = ${short(value)}`);
  for (const [key, value] of Object.entries(given)) {
    if (key === path || key === address) continue;
    // Beyond that, one more is not what it seems.
    if (Number.isSafeInteger(value)) change(key, value + 1, `${key} = ${value + 1}`);
    else if (typeof value === "boolean") change(key, !value, `${key} = ${!value}`);
    else if (typeof value === "string") change(key, `${value} (changed)`, TEXTS.includes(key) || value.length > MAX_TEXT ? `another ${short(key)}` : `another value for ${short(key)}`);
  }
  const extra = ["force", "recursive", "extra"].find((key) => !Object.hasOwn(given, key)) ?? "another";
  change(extra, true, `one more argument, ${extra} = true`);
  const [host] = proposal.to;
  const tools = (host && toolCatalogueOf(context).of(host)?.tools) || [];
  const other = tools.find((each) => each.name !== proposal.call.name)?.name ?? `not_${proposal.call.name}`;
  if (proposal.call.method === "tools/call") found.push({ text: tools.length > 1 ? `another tool, such as ${short(other)}` : "another tool", params: { ...params, name: other }, to: proposal.to });
  const elsewhere = context.state.roster.present().find((each) => !proposal.to.includes(each.id) && each.id !== context.state.me.id && each.id !== proposal.from);
  found.push({ text: elsewhere ? `the same call on ${short(elsewhere.id)}` : "the same call on another host", params, to: [elsewhere?.id ?? "another-host"] });
  return found;
}

/** Below its folder, on the same host, on a host that begins alike, and without encryption. @param {string} address */
function otherAddresses(address) {
  const prefixes = urlPrefixes(address);
  if (prefixes.length === 0) return [];
  const [folder] = prefixes;
  const site = prefixes[prefixes.length - 1];
  const host = site.slice(0, -1);
  const path = folder.slice(host.length);
  return [`${folder}another`, `${site}elsewhere`, `${host.replace(/(:\d+)?$/, ".example.net$1")}${path}another`, host.startsWith("https:") ? `http${host.slice(5)}${path}another` : `${folder}%2e%2e/another`].filter((each) => each !== address);
}

/** Beside it, below its folder, outside of it, and out of it through its parent. @param {string} path */
function otherPaths(path) {
  const at = path.lastIndexOf("/");
  const folder = path.slice(0, Math.max(0, at));
  const file = path.slice(at + 1);
  const ending = file.includes(".") ? file.slice(file.lastIndexOf(".")) : "";
  const beside = `another${ending}` === file ? `one-more${ending}` : `another${ending}`;
  const inFolder = (/** @type {string} */ name) => (at < 0 ? name : `${folder}/${name}`);
  return [inFolder(beside), inFolder(`sub/${file}`), `${path.startsWith("/") ? "/" : ""}elsewhere/${file}`, inFolder(`../${file}`)];
}

/** @param {string} text */
function short(text) {
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}
