/**
 * Capabilities as plain text where that is possible; the exact JSON is shown on demand. The
 * terminal uses the same texts (moot/operations/text/capability_text.py).
 */
import { NumberText, isObject, parseForDisplay } from "../../core/state/json-text.js";
import { mayAllow } from "./capability-covers.js";
import { globMatches } from "./capability-match.js";
import { urlPrefixOf } from "./url-prefix.js";

/** @type {Record<string, string>} */
const KINDS = {
  "*": "do everything",
  "mcp/request": "call",
  "mcp/proposal": "propose",
  "mcp/response": "answer requests",
  "mcp/withdraw": "withdraw proposals",
  "mcp/reject": "reject proposals",
  "mcp/cancel": "cancel calls",
  "mcp/*": "use all of MCP (call, propose, answer)",
  "moot/approve": "vote for proposals",
  "moot/plan": "lay out plans",
  "moot/assign": "assign proposals",
  "moot/delegate": "let others decide in their place",
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
export function describeCapability(given) {
  const capability = typeof given === "string" ? { kind: given } : given;
  if (!isObject(capability)) return spacedJson(capability);
  const kinds = (Array.isArray(capability.kind) ? capability.kind : [capability.kind]).map(String);
  const calls = kinds.every((/** @type {string} */ each) => CALLS.includes(each));
  const message = [
    kinds.map((/** @type {string} */ each) => (Object.hasOwn(KINDS, each) ? KINDS[each] : `send ${each}`)).join(" or "),
  ];
  if (isObject(capability.payload)) message.push(...describePayload(capability.payload));
  else if (calls) message.push("anything");
  const request = capability["x-moot-request"];
  if (isObject(request))
    message.push(
      `for ${[request.method, request.context]
        .filter((each) => each !== undefined)
        .map(text)
        .join(" ")}`,
    );
  const to = capability.to;
  if (Array.isArray(to) || typeof to === "string")
    message.push(`${calls ? "on" : "to"} ${(Array.isArray(to) ? to : [to]).map(String).join(" or ")}`);
  return message.join(" ");
}

/** @param {Record<string, any>} payload */
function describePayload(payload) {
  const { method, params, ...rest } = payload;
  const whole = isObject(params) && isObject(params.$exact) ? params.$exact : null;
  if (whole) return [`exactly ${text(whole.name ?? method)} without arguments`];
  const { name, uri, arguments: given, ...fields } = isObject(params) ? params : {};
  const target = name ?? uri;
  const message =
    method === "tools/call"
      ? [target === undefined ? "any tool" : text(target)]
      : [method, target].filter((each) => each !== undefined).map(text);
  if (isObject(given) && isObject(given.$exact))
    message.push(Object.keys(given.$exact).length > 0 ? `with exactly ${pairs(given.$exact)}` : "without arguments");
  else if (isObject(given)) message.push(`with ${pairs(given)}`);
  const left = { ...rest, ...fields };
  if (Object.keys(left).length > 0) message.push(`with ${spacedJson(left)}`);
  return message;
}

/** @param {Record<string, any>} given */
function pairs(given) {
  return Object.entries(given)
    .map(([key, value]) => `${key}=${text(value)}`)
    .join(", ");
}

/** @param {any} value @returns {string} */
function text(value) {
  const prefix = typeof value === "string" ? urlPrefixOf(value) : null;
  if (prefix !== null) return `anything below ${prefix}`;
  if (Array.isArray(value) && value.length > 0 && value.every((each) => typeof each === "string")) {
    const shown = value.map(text);
    const last = shown.pop() ?? "";
    return shown.length > 0 ? `${shown.join(", ")} or ${last}` : last;
  }
  return typeof value === "string" ? value : spacedJson(value);
}

/** JSON with a space after each comma and colon, which is easier to read. @param {any} value @returns {string} */
function spacedJson(value) {
  if (value instanceof NumberText) return value.text;
  if (Array.isArray(value)) return `[${value.map(spacedJson).join(", ")}]`;
  if (isObject(value))
    return `{${Object.entries(value)
      .map(([key, each]) => `${JSON.stringify(key)}: ${spacedJson(each)}`)
      .join(", ")}}`;
  return JSON.stringify(value) ?? "";
}

/** Whether one of them allows everything. @param {any[]} capabilities */
export function hasFullRights(capabilities) {
  return capabilities.some(
    (each) =>
      each === "*" || (isObject(each) && each.kind === "*" && each.payload === undefined && each.to === undefined),
  );
}

/** A pattern that says by itself what it matches: letters and stars. @param {any} pattern */
function isGlob(pattern) {
  return typeof pattern === "string" && /^[\w/*-]+$/.test(pattern);
}

/** Which tools a member can call by these: all, some, or none. @param {any[]} capabilities @returns {"all" | "some" | "none"} */
function callableTools(capabilities) {
  const methodsOf = (/** @type {any} */ each) =>
    isObject(each?.payload) && each.payload.method !== undefined ? [each.payload.method].flat() : ["*"];
  const requests = capabilities.filter((each) => mayAllow([each], "mcp/request"));
  const calls = requests.filter((each) =>
    methodsOf(each).some((pattern) => !isGlob(pattern) || globMatches(pattern, "tools/call")),
  );
  if (calls.length === 0) return "none";
  const isWhole = (/** @type {any} */ each) =>
    each?.to === undefined &&
    methodsOf(each).every(isGlob) &&
    Object.keys(each?.payload ?? {}).every((key) => key === "method");
  return calls.some(isWhole) ? "all" : "some";
}

/** What a member can do, in a few words for a list. @param {any[]} capabilities */
export function roleOf(capabilities) {
  if (hasFullRights(capabilities)) return "full rights";
  const tools = callableTools(capabilities);
  if (tools !== "none")
    return mayAllow(capabilities, "mcp/reject") ? "decides" : tools === "all" ? "calls tools" : "calls some tools";
  if (mayAllow(capabilities, "mcp/proposal")) return "proposes";
  if (mayAllow(capabilities, "mcp/response")) return "answers";
  if (mayAllow(capabilities, "chat")) return "chats";
  return "read-only";
}

const CHAT = { kind: "chat" };
const PROPOSE = { kind: "mcp/proposal" };
const RESPOND = { kind: "mcp/response" };
const READ = { kind: "mcp/request", payload: { method: "resources/read" } };
const LIST = { kind: "mcp/request", payload: { method: "*/list" } };
const TOOLS = { kind: "mcp/request", payload: { method: "tools/*" } };

/** The built-in profiles (moot/config/profiles.py), and two common ones. @type {{id: string, title: string, description: string, capabilities: any[]}[]} */
export const PROFILES = [
  {
    id: "agent",
    title: "New agent",
    description: "proposes, chats and shares reasoning; others decide",
    capabilities: [
      PROPOSE,
      { kind: "mcp/withdraw" },
      CHAT,
      { kind: "chat/acknowledge" },
      { kind: "reasoning/*" },
      { kind: "participant/status" },
    ],
  },
  {
    id: "person",
    title: "Person who approves",
    description: "all of MCP, chat, and control of members",
    capabilities: [{ kind: "mcp/*" }, CHAT, { kind: "chat/*" }, { kind: "reasoning/*" }, { kind: "participant/*" }],
  },
  {
    id: "response-only",
    title: "Tool server",
    description: "answers requests and chats",
    capabilities: [RESPOND, CHAT],
  },
  {
    id: "read-only",
    title: "Reader",
    description: "lists and reads resources",
    capabilities: [READ, LIST, RESPOND, CHAT],
  },
  {
    id: "trusted",
    title: "Trusted agent",
    description: "proposes, reads, and calls tools without approval",
    capabilities: [PROPOSE, CHAT, READ, TOOLS],
  },
  {
    id: "approver",
    title: "Approver of rules",
    description: "applies rules that people accepted; approves at most what you add below",
    capabilities: [
      LIST,
      { kind: "mcp/reject" },
      RESPOND,
      CHAT,
      { kind: "trust/suggestion" },
      { kind: "trust/rule" },
      { kind: "trust/dismiss" },
      { kind: "moot/origins" },
    ],
  },
  { id: "full", title: "Full", description: "all of MCP and chat", capabilities: [{ kind: "mcp/*" }, CHAT] },
  { id: "hand", title: "Custom", description: "only what you enter below", capabilities: [] },
];

/** D-23: what every inviter can give, even if they hold less; a space may configure another baseline. */
export const INVITE_BASELINE = [
  CHAT,
  { kind: "chat/acknowledge" },
  { kind: "chat/cancel" },
  PROPOSE,
  { kind: "mcp/withdraw" },
  RESPOND,
  { kind: "participant/status" },
  { kind: "reasoning/*" },
];

/**
 * Capabilities as a person types them: one kind or JSON object per line, or one JSON list.
 * @param {string} typed @returns {{capabilities: any[], fault: string}}
 */
export function readCapabilities(typed) {
  const whole = typed.trim();
  if (!whole) return { capabilities: [], fault: "" };
  const parsed = parseTyped(whole);
  if (Array.isArray(parsed)) return checkCapabilities(parsed);
  if (isObject(parsed)) return checkCapabilities([parsed]);
  const found = [];
  for (const line of whole
    .split("\n")
    .map((each) => each.trim())
    .filter(Boolean)) {
    if (line.startsWith("{")) {
      const one = parseTyped(line);
      if (one === undefined) return { capabilities: [], fault: `Invalid JSON in this line: ${line.slice(0, 80)}` };
      found.push(one);
    } else found.push({ kind: line });
  }
  return checkCapabilities(found);
}

/** With numbers as they were typed; undefined for what is not JSON. @param {string} text */
function parseTyped(text) {
  try {
    JSON.parse(text);
    return parseForDisplay(text);
  } catch {
    return undefined;
  }
}

/** @param {any[]} capabilities */
function checkCapabilities(capabilities) {
  const wrong = capabilities.find(
    (each) => !isObject(each) || (typeof each.kind !== "string" && !Array.isArray(each.kind)),
  );
  return wrong === undefined
    ? { capabilities, fault: "" }
    : {
        capabilities: [],
        fault: `A capability is an object with a kind, not: ${(JSON.stringify(wrong) ?? "").slice(0, 80)}`,
      };
}
