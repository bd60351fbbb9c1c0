/**
 * The short fields of an envelope: its kind, the MCP method and the operation's name (D002).
 * The kind of a response contains the operation in some dialects (`mcp/response:tools/call:read_file`,
 * `mcp.response.tools/call:read_file`, or `x_origin.kind` of a translated copy); otherwise it is looked up.
 */

import { callBodyText, hasFragileNumbers, membersOf, textAt } from "./json-text.js";
import { referenceIn } from "../connection/large-values.js";
import { formatNumber } from "../page/numbers.js";

/** @typedef {{base: string, method: string, name: string}} Operation */

const SLASHED = /^(mcp\/(?:request|response|proposal)):([^:]+)(?::([\s\S]+))?$/;
const DOTTED = /^mcp\.(request|response|proposal)\.([^:]+)(?::([\s\S]+))?$/;

/** The operation that a kind names by itself, in any dialect. @param {unknown} kind @returns {Operation | null} */
function operationOfKind(kind) {
  if (typeof kind !== "string") return null;
  let found = SLASHED.exec(kind);
  if (found) return exceptUnknown({ base: found[1], method: found[2], name: found[3] ?? "" });
  found = DOTTED.exec(kind);
  return found ? exceptUnknown({ base: `mcp/${found[1]}`, method: found[2], name: found[3] ?? "" }) : null;
}

/** dialects.md section 2: an unknown method is written as `unknown`. @param {Operation} operation */
function exceptUnknown(operation) {
  return operation.method === "unknown" ? null : operation;
}

/** D-49: which field of the parameters names the operation. @param {string} method @param {any} params */
function contextOf(method, params) {
  if (params === null || typeof params !== "object") return "";
  const text = (/** @type {any} */ each) => (typeof each === "string" ? each : "");
  if (method === "tools/call" || method === "prompts/get") return text(params.name);
  if (method.startsWith("resources/")) return text(params.uri);
  if (method === "completion/complete") return text(params.ref?.name) || text(params.ref?.uri);
  return "";
}

/**
 * The operation of an envelope; `requestOperation` finds the operation of an earlier request by its id.
 * @param {any} envelope @param {(id: string) => Operation | undefined} requestOperation @returns {Operation}
 */
export function operationOf(envelope, requestOperation) {
  const named = operationOfKind(envelope.kind) ?? operationOfKind(envelope.x_origin?.kind);
  if (named) return named;
  const payload = envelope.payload ?? {};
  const method = typeof payload.method === "string" ? payload.method : "";
  if (method && envelope.kind.startsWith("mcp/"))
    return { base: envelope.kind, method, name: contextOf(method, payload.params) };
  if (
    envelope.kind === "mcp/response" ||
    envelope.kind === "mcp/withdraw" ||
    envelope.kind === "mcp/reject" ||
    envelope.kind === "moot/approve"
  ) {
    for (const id of correlations(envelope)) {
      const found = requestOperation(id);
      if (found) return { base: envelope.kind, method: found.method, name: found.name };
    }
  }
  return { base: envelope.kind, method: "", name: "" };
}

/** `tools/call:read_file`. @param {Operation} operation */
export function formatOperation(operation) {
  return operation.name ? `${operation.method}:${operation.name}` : operation.method;
}

/** @param {any} envelope @returns {string[]} */
export function correlations(envelope) {
  const about = envelope.correlation_id;
  if (typeof about === "string") return [about];
  return Array.isArray(about) ? about.filter((each) => typeof each === "string") : [];
}

/** @param {any} envelope @returns {string[]} */
export function addressees(envelope) {
  return Array.isArray(envelope.to) ? envelope.to.filter((/** @type {any} */ each) => typeof each === "string") : [];
}

/** What a message of a reasoning sequence says: its `message`, or what agents of the reference implementation write. @param {any} payload @returns {string} */
export function reasoningText(payload) {
  for (const name of ["message", "reasoning", "input", "reason"]) {
    const text = payload?.[name];
    if (typeof text !== "string" || text === "") continue;
    return name === "reasoning" && typeof payload.action === "string" && payload.action
      ? `${text} → ${payload.action}`
      : text;
  }
  return "";
}

/** A chat message in a line of a list: Markdown without its marks. @param {any} chat */
export function chatLine({ text, format }) {
  if (typeof text !== "string") return "";
  return format === "markdown" ? text.replace(/(`{1,3}|\*\*|__|~~)([^`*~\n]{1,500})\1/g, "$2") : text;
}

/** A one-line summary of an envelope. @param {any} envelope @param {Operation} operation @param {string} [raw] as it was received */
export function summary(envelope, operation, raw = "") {
  const payload = envelope.payload ?? {};
  const kind = envelope.kind;
  const text = (/** @type {any} */ each) => (typeof each === "string" ? each : "");
  if (kind === "chat") return chatLine(payload);
  if (kind.startsWith("reasoning/")) return reasoningText(payload);
  if (kind === "mcp/response")
    return payload.error
      ? `${saysUnknown(payload.error) ? "not known" : "error"}: ${text(payload.error.message) || payload.error.code}`
      : resultSummary(payload.result, raw);
  if (kind.startsWith("mcp/") && operation.method && payload.params !== undefined)
    return argumentsSummary(payload.params, raw);
  if (/^mcp\/(request|proposal)/.test(kind) && operation.method) return "";
  if (kind === "system/presence")
    return `${payload.participant?.id ?? "someone"} ${{ join: "joined", leave: "left", invited: "was invited" }[String(payload.event)] ?? payload.event}${payload.reason ? `: ${text(payload.reason)}` : ""}`;
  if (kind === "system/error") return text(payload.message) || text(payload.error);
  if (kind === "system/welcome")
    return `you are ${payload.you?.id}; ${payload.participants?.length ?? 0} others online`;
  if (kind === "capability/grant" || kind === "capability/revoke")
    return `${payload.recipient ?? ""} ${payload.capabilities ? JSON.stringify(payload.capabilities) : ""}`;
  if (kind.startsWith("stream/")) return [payload.description, payload.reason].filter(Boolean).join(" · ");
  if (kind.startsWith("trust/")) return trustSummary(payload);
  const notes = [payload.effects, payload.budgets].filter(Array.isArray).flat();
  if (kind === "moot/votes" && !payload.approvals_needed && notes.length)
    return notes.map((each) => text(each?.text)).join("; ");
  if (kind === "moot/delegate")
    return `${text(payload.to)} decides in their place${payload.reason ? `: ${text(payload.reason)}` : ""}`;
  if (kind === "moot/end-delegation") return `ends with ${text(payload.to ?? payload.from)}`;
  if (kind === "moot/assign") return Array.isArray(payload.to) ? payload.to.join(", ") || "everybody" : "";
  if (kind === "moot/votes" && !payload.approvals_needed && Array.isArray(payload.counters))
    return "a changed version of another proposal";
  if (kind === "moot/votes")
    return `${Number(payload.approvals_needed) - Number(payload.approvals_missing)} of ${Number(payload.approvals_needed)} ${payload.approvals_needed === 1 ? "approval" : "approvals"}${payload.not_carried_out ? `; not carried out: ${text(payload.not_carried_out.message)}` : ""}`;
  if (kind === "moot/approve") return payload.passkey ? "a vote, confirmed with a passkey" : "a vote";
  if (kind === "moot/origins") return text(payload.why);
  if (kind === "moot/preview" && Array.isArray(payload.text)) return payload.text.map(text).join("; ");
  if (kind === "moot/opinion")
    return `in a model's words: ${payload.says === "no" ? "no" : "ask a person"}, because ${text(payload.because)}`;
  if (kind === "moot/endorse")
    return payload.revoke
      ? "revokes an endorsement"
      : payload.source
        ? "what a message says"
        : `“${String(payload.value)}”`;
  if (kind === "moot/plan") return payload.withdraw ? "withdraws a plan" : text(payload.task);
  if (kind === "moot/outcome") return unknownReason(text(payload.reason));
  if (kind === "moot/settle")
    return `${{ done: "it was done", failed: "it was not done" }[String(payload.outcome)] ?? ""}${payload.note ? `: ${text(payload.note)}` : ""}`;
  if (kind.startsWith("participant/") || kind.startsWith("space/"))
    return [payload.participant_id, payload.status, payload.reason]
      .filter((each) => typeof each === "string")
      .join(" · ");
  const first = payload.reason ?? payload.text ?? payload.message;
  return typeof first === "string"
    ? first
    : envelope.payload === undefined
      ? ""
      : exactText(payload, raw, ["payload"]).slice(0, 400);
}

/** JSON of a part of an envelope, to the last digit. @param {any} value @param {string} raw @param {string[]} path */
function exactText(value, raw, path) {
  return (raw.length <= MAX_EXACT && hasFragileNumbers(raw) ? textAt(raw, path) : null) ?? JSON.stringify(value) ?? "";
}

/** D-92: a rule's name and state, or a suggestion's text. @param {any} payload */
function trustSummary(payload) {
  const rule = typeof payload.rule === "string" ? payload.rule : payload.rule?.name;
  const named = [
    payload.state ? rule : payload.suggestion,
    payload.lift && `resume ${payload.lift}`,
    payload.resume && "resume all rules",
    !payload.state && payload.granted && "granted instead",
    payload.state,
  ];
  const more = payload.why ?? payload.words ?? payload.reason ?? "";
  return (
    `${named.filter((each) => typeof each === "string").join(" ")}${typeof more === "string" && more ? `: ${more}` : ""}` ||
    "all rules"
  );
}

/** @param {any} result @param {string} raw */
function resultSummary(result, raw) {
  if (result === null || typeof result !== "object")
    return result === undefined ? "" : exactText(result, raw, ["payload", "result"]);
  if (Array.isArray(result.content)) {
    const text = result.content
      .map((/** @type {any} */ each) =>
        typeof each?.text === "string" ? each.text.slice(0, 400) : `[${each?.type ?? "?"}]`,
      )
      .join(" ");
    return result.isError ? `failed: ${text}` : text;
  }
  for (const list of ["tools", "resources", "prompts"])
    if (Array.isArray(result[list])) return `${result[list].length} ${list}`;
  return exactText(result, raw, ["payload", "result"]).slice(0, 400);
}

// Looking for them in more text than this would take longer than a summary is worth.
const MAX_EXACT = 20_000;

/** @type {Map<string, string>} */
const NO_TEXTS = new Map();

/** The texts of arguments with such numbers, by name. @param {any} params @param {string} raw @returns {Map<string, string>} */
function fragileTexts(params, raw) {
  const at = raw.indexOf('"params"');
  if (at < 0 || raw.length - at > MAX_EXACT || !hasFragileNumbers(raw.slice(at))) return NO_TEXTS;
  const text = textAt(
    raw,
    params?.arguments === undefined ? ["payload", "params"] : ["payload", "params", "arguments"],
  );
  return text?.startsWith("{") ? new Map(membersOf(text).map((each) => [each.key, each.text])) : NO_TEXTS;
}

/** @param {any} params @param {string} raw */
function argumentsSummary(params, raw) {
  const given = params?.arguments ?? params;
  if (given === null || typeof given !== "object") return JSON.stringify(given) ?? "";
  /** @type {Map<string, string> | undefined} */
  let exact;
  let text = "";
  // One pass without lists in between: this runs for every call of a busy space.
  for (const key of Object.keys(given)) {
    if (key === "name" && params?.arguments === undefined) continue;
    const value = given[key];
    const isExact = typeof value === "number" || (value !== null && typeof value === "object");
    if (isExact) exact ??= fragileTexts(params, raw);
    const large = referenceIn(value);
    const shown = large
      ? `(${formatNumber(large.bytes)} bytes)`
      : typeof value === "string"
        ? value
        : (isExact && exact?.get(key)) || (JSON.stringify(value) ?? "");
    text += `${text && " "}${key}=${shown.slice(0, 200)}`;
  }
  return text;
}

/** What a page says of calls of which nobody knows what came (D-99, docs/topics/proposals.md). @type {Record<string, string>} */
const REASONS = {
  host_left: "its host disconnected before it answered",
  timed_out: "no answer came in time",
  cancelled: "it was cancelled",
  gateway_restarted: "the gateway restarted in between",
  host_removed: "its host was removed",
  host_does_not_know: "its host got no answer that it could read",
};

/** Why the outcome of a call is unknown. @param {string} reason */
export function unknownReason(reason) {
  return Object.hasOwn(REASONS, reason) ? REASONS[reason] : reason;
}

/** Whether a host says in its error that it does not know what came of the call. @param {any} error */
export function saysUnknown(error) {
  return error?.data?.["moot/outcome"] === "unknown";
}

/** What is to be called. A class, since a thousand of them a second are made of one shape. */
class EnvelopeCall {
  /** @param {string} method @param {string} name @param {any} params @param {string} raw */
  constructor(method, name, params, raw) {
    this.method = method;
    this.name = name;
    this.params = params;
    this._raw = raw;
    this._bodyText = "";
  }

  /** Extracted on demand: most requests are never approved by hand. */
  get bodyText() {
    this._bodyText ||= callBodyText(this._raw);
    return this._bodyText;
  }
}

/** @param {any} envelope @param {string} raw @returns {import("./state-proposals.js").Call} */
export function callOf(envelope, raw) {
  const operation = operationOf(envelope, () => undefined);
  const method = typeof envelope.payload?.method === "string" ? envelope.payload.method : operation.method;
  const params = envelope.payload?.params;
  return new EnvelopeCall(method, contextOf(method, params) || operation.name, params, raw);
}
