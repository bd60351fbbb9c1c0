// @ts-check
/**
 * Capabilities in plain words, as far as they are plain; the exact JSON is shown on demand beside them. The
 * terminal says the same words (moot/tui/capability_words.py).
 */
import { mayAllow } from "./grants-covers.js";

/** @type {Record<string, string>} */
const KINDS = {
  "*": "do everything",
  "mcp/request": "call",
  "mcp/proposal": "propose",
  "mcp/response": "answer requests",
  "mcp/withdraw": "withdraw proposals",
  "mcp/reject": "reject proposals",
  "mcp/*": "use all of MCP (call, propose, answer)",
  "moot/approve": "vote for proposals",
  chat: "chat",
  "chat/*": "acknowledge and cancel messages",
  "chat/acknowledge": "acknowledge messages",
  "chat/cancel": "cancel messages",
  "reasoning/*": "share reasoning",
  "reasoning/cancel": "stop the reasoning of others",
  "stream/*": "use streams",
  "stream/request": "open streams",
  "capability/grant": "grant permissions",
  "capability/revoke": "revoke permissions",
  "capability/*": "grant and revoke permissions",
  "space/invite": "invite members",
  "space/kick": "remove members",
  "space/*": "invite and remove members",
  "participant/*": "pause, resume and control members",
  "participant/status": "report its status",
  "participant/pause": "pause members",
  "participant/resume": "resume members",
};
const CALLS = ["mcp/request", "mcp/proposal"];

/** A capability as what its holder can do: "call write_file with path=notes/** on files". Not escaped yet. @param {any} given @returns {string} */
export function inWords(given) {
  const capability = typeof given === "string" ? { kind: given } : given;
  if (!isObject(capability)) return spaced(capability);
  const kinds = (Array.isArray(capability.kind) ? capability.kind : [capability.kind]).map(String);
  const calls = kinds.every((/** @type {string} */ each) => CALLS.includes(each));
  const words = [kinds.map((/** @type {string} */ each) => (Object.hasOwn(KINDS, each) ? KINDS[each] : `send ${each}`)).join(" or ")];
  if (isObject(capability.payload)) words.push(...payloadWords(capability.payload));
  else if (calls) words.push("anything");
  const asked = capability["x-moot-request"];
  if (isObject(asked)) words.push(`for ${[asked.method, asked.context].filter((each) => each !== undefined).map(text).join(" ")}`);
  const to = capability.to;
  if (Array.isArray(to) || typeof to === "string") words.push(`${calls ? "on" : "to"} ${(Array.isArray(to) ? to : [to]).map(String).join(" or ")}`);
  return words.join(" ");
}

/** @param {Record<string, any>} payload */
function payloadWords(payload) {
  const { method, params, ...rest } = payload;
  const { name, uri, arguments: given, ...fields } = isObject(params) ? params : {};
  const target = name ?? uri;
  const words = method === "tools/call" ? [target === undefined ? "any tool" : text(target)] : [method, target].filter((each) => each !== undefined).map(text);
  if (isObject(given)) words.push(`with ${Object.entries(given).map(([key, value]) => `${key}=${text(value)}`).join(", ")}`);
  const left = { ...rest, ...fields };
  if (Object.keys(left).length > 0) words.push(`with ${spaced(left)}`);
  return words;
}

/** @param {any} value */
function text(value) {
  return typeof value === "string" ? value : spaced(value);
}

/** JSON with a space after each sign, which is easier to read. @param {any} value @returns {string} */
function spaced(value) {
  if (Array.isArray(value)) return `[${value.map(spaced).join(", ")}]`;
  if (isObject(value)) return `{${Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${spaced(each)}`).join(", ")}}`;
  return JSON.stringify(value) ?? "";
}

/** @param {any} value */
function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** Whether one of them allows everything. @param {any[]} capabilities */
export function hasFullRights(capabilities) {
  return capabilities.some((each) => each === "*" || (isObject(each) && each.kind === "*" && each.payload === undefined && each.to === undefined));
}

/** What a member is able to do, in two words for a list. @param {any[]} capabilities */
export function standing(capabilities) {
  if (hasFullRights(capabilities)) return "full rights";
  if (mayAllow(capabilities, "mcp/request")) return mayAllow(capabilities, "mcp/reject") ? "decides" : "calls tools";
  if (mayAllow(capabilities, "mcp/proposal")) return "proposes";
  if (mayAllow(capabilities, "mcp/response")) return "answers";
  if (mayAllow(capabilities, "chat")) return "talks";
  return "listens";
}

const CHAT = { kind: "chat" };
const PROPOSE = { kind: "mcp/proposal" };
const RESPOND = { kind: "mcp/response" };
const READ = { kind: "mcp/request", payload: { method: "resources/read" } };
const LIST = { kind: "mcp/request", payload: { method: "*/list" } };
const TOOLS = { kind: "mcp/request", payload: { method: "tools/*" } };

/** The built-in profiles (moot/config/profiles.py), and two that people ask for. @type {{id: string, title: string, words: string, capabilities: any[]}[]} */
export const PROFILES = [
  { id: "agent", title: "New agent", words: "proposes, withdraws, chats and thinks aloud; somebody else decides", capabilities: [PROPOSE, { kind: "mcp/withdraw" }, CHAT, { kind: "chat/acknowledge" }, { kind: "reasoning/*" }, { kind: "participant/status" }] },
  { id: "person", title: "Person who decides", words: "everything that has to do with MCP, and chat; stops and pauses members", capabilities: [{ kind: "mcp/*" }, CHAT, { kind: "chat/*" }, { kind: "reasoning/*" }, { kind: "participant/*" }] },
  { id: "response-only", title: "Tool server", words: "answers requests, and chats", capabilities: [RESPOND, CHAT] },
  { id: "read-only", title: "Reader", words: "lists and reads resources", capabilities: [READ, LIST, RESPOND, CHAT] },
  { id: "trusted", title: "Trusted agent", words: "proposes, reads, and calls tools without asking", capabilities: [PROPOSE, CHAT, READ, TOOLS] },
  { id: "full", title: "Full", words: "all of MCP, and chat", capabilities: [{ kind: "mcp/*" }, CHAT] },
  { id: "hand", title: "By hand", words: "only what is written below", capabilities: [] },
];

/** D-23: what anybody who may invite can give, though they hold less; a space may set another. */
export const INVITE_BASELINE = [CHAT, { kind: "chat/acknowledge" }, { kind: "chat/cancel" }, PROPOSE, { kind: "mcp/withdraw" }, RESPOND, { kind: "participant/status" }, { kind: "reasoning/*" }];

/**
 * Capabilities as a person types them: a kind or a JSON object a line, or one JSON list.
 * @param {string} typed @returns {{capabilities: any[], fault: string}}
 */
export function readCapabilities(typed) {
  const whole = typed.trim();
  if (!whole) return { capabilities: [], fault: "" };
  const parsed = safely(whole);
  if (Array.isArray(parsed)) return checked(parsed);
  if (isObject(parsed)) return checked([parsed]);
  const found = [];
  for (const line of whole.split("\n").map((each) => each.trim()).filter(Boolean)) {
    if (line.startsWith("{")) {
      const one = safely(line);
      if (one === undefined) return { capabilities: [], fault: `This line is not JSON: ${line.slice(0, 80)}` };
      found.push(one);
    } else found.push({ kind: line });
  }
  return checked(found);
}

/** @param {any[]} capabilities */
function checked(capabilities) {
  const wrong = capabilities.find((each) => !isObject(each) || (typeof each.kind !== "string" && !Array.isArray(each.kind)));
  return wrong === undefined ? { capabilities, fault: "" } : { capabilities: [], fault: `A capability is an object with a kind; this is none: ${(JSON.stringify(wrong) ?? "").slice(0, 80)}` };
}

/** @param {string} source @returns {any} undefined for what is no JSON */
function safely(source) {
  try {
    return JSON.parse(source);
  } catch {
    return undefined;
  }
}
