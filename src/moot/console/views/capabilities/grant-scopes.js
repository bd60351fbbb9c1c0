/**
 * The scopes of a grant that follows an approval, always shown as the capability that it creates.
 *
 *     exact    exactly this call: the tool, the host and all arguments as they were proposed, and no others (`$exact`)
 *     folder   this tool on this host for everything in the folder of a path; short arguments as they are, texts may differ
 *     address  the same for everything below the folder of an address (scheme, whole host, path)
 *     site     the same for everything on the host of an address
 *     tool     this tool on this host, with any arguments
 *     pattern  whatever is typed, starting with the folder
 *
 * The capability is built as JSON text from the proposal's own text, so no number is rounded. A scope that cannot be written as a pattern
 * that matches the proposal itself is disabled, with the reason.
 */
import { membersOf, textAt } from "../../core/state/json-text.js";
import { isRegex, isWild, matches } from "./capability-match.js";
import { PATHS, TEXTS } from "../parts/text-diff.js";
import { isAddress, urlPrefixPattern, urlPrefixes } from "./url-prefix.js";

/** @typedef {{key: string, pattern: string}} AddressPattern the parameter or argument that has an address, and what it may be */
/** @typedef {{name: "exact" | "folder" | "address" | "site" | "tool" | "pattern", title: string, description: string, text: string, obstacle: string}} GrantScope */

// A longer text is content for the tool, not something that distinguishes one call from another.
const LONG = 60;
// The longest string in a pattern.
const STRING_BYTES = 1024;
// The gateway's limit, less what its own form of the text may have more.
const CAPABILITY_BYTES = 15 * 1024;

class NotExpressible extends Error {}

/**
 * The choices for a proposal, narrowest first; the last one is to be edited.
 * @param {import("../../core/state/state.js").State} state
 * @param {import("../../core/state/state-proposals.js").Proposal} proposal
 * @returns {GrantScope[]}
 */
export function grantScopes(state, proposal) {
  const what =
    proposal.call.method === "tools/call" && proposal.call.name
      ? `the tool ${proposal.call.name}`
      : `the method ${proposal.call.method}`;
  return [
    grantScope(state, proposal, "exact", "This exact call", "exactly these arguments, and no others"),
    ...placeScopes(state, proposal),
    grantScope(
      state,
      proposal,
      "tool",
      proposal.call.method === "tools/call" ? "This tool" : "This method",
      `${what}, with any arguments`,
    ),
    grantScope(state, proposal, "pattern", "Custom pattern", "edit the capability as JSON"),
  ];
}

/** The folder, the address and the site; the folder is named even if there is none, unless there is an address. @param {import("../../core/state/state.js").State} state @param {import("../../core/state/state-proposals.js").Proposal} proposal @returns {GrantScope[]} */
function placeScopes(state, proposal) {
  const folder = folderScope(state, proposal);
  const addresses = addressScopes(state, proposal);
  return addresses.length > 0 && folder.text === "" ? addresses : [folder, ...addresses];
}

/** Everything below the address that was proposed, and everything on its host. @param {import("../../core/state/state.js").State} state @param {import("../../core/state/state-proposals.js").Proposal} proposal @returns {GrantScope[]} */
function addressScopes(state, proposal) {
  const { params } = proposal.call;
  const given = { ...(isAddress(params?.uri) ? { uri: params.uri } : {}), ...(params?.arguments ?? {}) };
  const key = Object.keys(given).find((name) => !TEXTS.includes(name) && isAddress(given[name]));
  if (key === undefined) return [];
  const prefixes = urlPrefixes(given[key]);
  const others = params?.arguments === undefined ? "" : othersText(given, key);
  if (prefixes.length === 0)
    return [
      {
        name: "address",
        title: "This address",
        description: "",
        text: "",
        obstacle: `${key} is not written plainly: a scheme, a host in small letters, and a path without .. or hidden signs`,
      },
    ];
  return prefixes.map((prefix, index) => {
    const name = index === prefixes.length - 1 ? "site" : "address";
    const message = `${key} ${name === "site" ? "on" : "below"} ${prefix}${others}`;
    return grantScope(state, proposal, name, name === "site" ? "This site" : "This address", message, {
      key,
      pattern: urlPrefixPattern(prefix) ?? "",
    });
  });
}

/** Everything in the folder of the path that was proposed. @param {import("../../core/state/state.js").State} state @param {import("../../core/state/state-proposals.js").Proposal} proposal @returns {GrantScope} */
function folderScope(state, proposal) {
  const { params } = proposal.call;
  const given = params?.arguments ?? {};
  const key = PATHS.find((name) => folderOf(given[name]) !== "");
  if (key === undefined)
    return {
      name: "folder",
      title: "This folder",
      description: "",
      text: "",
      obstacle: "no argument names a file in a folder",
    };
  const folder = folderOf(given[key]);
  return grantScope(
    state,
    proposal,
    "folder",
    `This folder: ${folder}/`,
    `${proposal.call.name || proposal.call.method} with ${key} in ${folder}/ and below${othersText(given, key)}`,
  );
}

/** What else may be anything. @param {any} given @param {string} key the argument that is bounded */
function othersText(given, key) {
  const free = Object.keys(given).filter(
    (name) => name !== key && !isKept(name, given[name]) && !isPlace(name, given[name]),
  );
  return `; ${[free.join(", "), "further arguments can be anything"].filter(Boolean).join(" and ")}`;
}

/** The folder of a path; empty if it has none, is a URL, or leads out of itself. @param {unknown} value */
function folderOf(value) {
  if (
    typeof value !== "string" ||
    !value.replace(/^\/+|\/+$/g, "").includes("/") ||
    value.includes("://") ||
    value.split("/").includes("..")
  )
    return "";
  return value.slice(0, value.lastIndexOf("/"));
}

/** Whether an argument says where something is read or written, so that it is never left open beside another one. @param {string} key @param {any} value */
function isPlace(key, value) {
  return typeof value === "string" && !TEXTS.includes(key) && (isAddress(value) || PATHS.includes(key));
}

/** Whether an argument distinguishes one call from another, so that a pattern names it. @param {string} key @param {any} value */
function isKept(key, value) {
  if (typeof value === "string") return !TEXTS.includes(key) && value.length <= LONG && !value.includes("\n");
  return value === null || typeof value !== "object";
}

/** @param {import("../../core/state/state.js").State} state @param {import("../../core/state/state-proposals.js").Proposal} proposal @param {GrantScope["name"]} name @param {string} title @param {string} message @param {AddressPattern | null} [address] @returns {GrantScope} */
function grantScope(state, proposal, name, title, message, address = null) {
  try {
    const method = literalText(proposal.call.method);
    const params = paramsText(textAt(proposal.call.bodyText, ["params"]), name, address);
    const payload = `{"method":${method}${params === "{}" ? "" : `,"params":${params}`}}`;
    const hosts = proposal.to
      .map((id) => state.roster.get(id)?.name ?? id)
      .map((each) => JSON.stringify(literalName(each)));
    const text = `{"kind":"mcp/request","payload":${payload}${hosts.length > 0 ? `,"to":[${hosts.join(",")}]` : ""}}`;
    if (new TextEncoder().encode(text).length > CAPABILITY_BYTES)
      throw new NotExpressible("a capability has at most 16 KiB");
    const wrong = capabilityError(state, proposal, text);
    return wrong
      ? { name, title, description: message, text: "", obstacle: wrong }
      : { name, title, description: message, text, obstacle: "" };
  } catch (fault) {
    if (fault instanceof NotExpressible)
      return { name, title, description: message, text: "", obstacle: fault.message };
    throw fault;
  }
}

/**
 * What is wrong with a capability that was typed for this proposal; empty if nothing is.
 * @param {import("../../core/state/state.js").State} state @param {import("../../core/state/state-proposals.js").Proposal} proposal @param {string} text
 */
export function capabilityError(state, proposal, text) {
  let capability;
  try {
    capability = JSON.parse(text);
  } catch (fault) {
    return `Invalid JSON: ${fault instanceof Error ? fault.message : ""}`;
  }
  if (capability === null || typeof capability !== "object" || Array.isArray(capability))
    return 'A capability is an object, such as {"kind": "mcp/request"}.';
  if (capability.kind === undefined) return 'The kind is missing: write {"kind": "mcp/request", …}.';
  const unknown = Object.keys(capability).find(
    (key) => !["kind", "payload", "to", "id", "description"].includes(key) && !key.startsWith("x-"),
  );
  if (unknown !== undefined) return `A capability has no field ${unknown}.`;
  const { method, params } = proposal.call;
  const body = params === undefined ? { method } : { method, params };
  const names = proposal.to.map((id) => state.roster.get(id)?.name ?? id);
  // "perhaps" is accepted: the gateway checks it and refuses it if it is invalid.
  return matches(capability, "mcp/request", { jsonrpc: "2.0", id: 0, ...body }, names) === "no"
    ? "This does not allow the proposed call."
    : "";
}

/** @param {string | null} text @param {GrantScope["name"]} name @param {AddressPattern | null} address */
function paramsText(text, name, address) {
  if (text === null) return "{}";
  if (!text.startsWith("{")) throw new NotExpressible("its parameters are not an object");
  const found = [];
  const parts = membersOf(text);
  const named = new Set(parts.map((part) => part.key));
  // Without arguments, and no call with some.
  if (name === "exact" && named.has("name") && !named.has("arguments"))
    return `{"$exact":{${parts
      .filter((part) => part.key !== "_meta")
      .map((part) => `${JSON.stringify(part.key)}:${part.text}`)
      .join(",")}}}`;
  for (const part of parts) {
    if (part.key === "_meta") continue; // progress tokens and the like differ each time
    if (part.key === "arguments" && part.text.startsWith("{")) {
      if (name === "tool") continue;
      const stated = argumentsText(part.text, name, address);
      if (stated !== "{}") found.push(`"arguments":${stated}`);
    } else if (part.key === "uri" && address?.key === "uri") found.push(`"uri":${JSON.stringify(address.pattern)}`);
    else if (name !== "tool" || part.key === "name" || part.key === "uri")
      found.push(`${keyText(part.key)}:${exactPattern(part.text)}`);
  }
  return `{${found.join(",")}}`;
}

/** @param {string} text @param {GrantScope["name"]} name @param {AddressPattern | null} address */
function argumentsText(text, name, address) {
  if (name === "exact") return `{"$exact":${text}}`;
  const found = [];
  for (const part of membersOf(text)) {
    if (part.text.startsWith('"')) {
      const value = JSON.parse(part.text);
      if (part.key === address?.key) found.push(`${keyText(part.key)}:${JSON.stringify(address.pattern)}`);
      else if (!address && PATHS.includes(part.key) && folderOf(value))
        found.push(`${keyText(part.key)}:${JSON.stringify(`${literalName(folderOf(value))}/**`)}`);
      else if (isKept(part.key, value) || isPlace(part.key, value))
        found.push(`${keyText(part.key)}:${literalText(value)}`);
    } else if (!part.text.startsWith("{") && !part.text.startsWith("["))
      found.push(`${keyText(part.key)}:${part.text}`);
  }
  return `{${found.join(",")}}`;
}

/** A value as a pattern that only it matches. @param {string} text @returns {string} */
function exactPattern(text) {
  return text.startsWith('"') ? literalText(JSON.parse(text)) : `{"$exact":${text}}`;
}

/** A pattern that matches only this text, with the signs of the pattern language escaped. @param {string} text */
function literalText(text) {
  const written = hasPatternSyntax(text)
    ? `/^${text.replace(/[^A-Za-z0-9_\u0080-\uffff]/g, (each) => (each === "\0" ? "\\x00" : `\\${each}`))}$/`
    : text;
  if (new TextEncoder().encode(written).length > STRING_BYTES)
    throw new NotExpressible(`an argument is longer than ${STRING_BYTES} bytes`);
  return JSON.stringify(written);
}

/** @param {string} text */
function literalName(text) {
  if (hasPatternSyntax(text)) throw new NotExpressible(`${JSON.stringify(text)} contains pattern characters`);
  return text;
}

/** @param {string} text */
function hasPatternSyntax(text) {
  return isWild(text) || text.startsWith("!") || isRegex(text);
}

/** @param {string} name */
function keyText(name) {
  if (name.startsWith("$") || isWild(name))
    throw new NotExpressible(`the argument name ${JSON.stringify(name)} contains pattern characters`);
  return JSON.stringify(name);
}
