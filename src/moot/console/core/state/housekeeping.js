/**
 * What a timeline hides until somebody asks for it: who comes and goes, receipts, lists of tools, and the questions that
 * pages like this one ask by themselves.
 *
 * It goes by the kind and the method, never by a mark that a sender could put on a call to hide it: every call of a tool is
 * shown to everybody, except the questions about rules that change nothing, to a member whom the space lets keep rules.
 * Only a page's own questions are hidden by their ids, in that page, also when they failed: the view that asked tells of
 * it. Nothing else that failed is hidden.
 */

const KINDS = new Set([
  "system/presence",
  "system/welcome",
  "chat/acknowledge",
  "participant/status",
  "participant/request-status",
  "capability/grant-ack",
  "moot/list-proposals",
  "moot/roster",
  "moot/list-owners",
]);
const OPERATIONS = new Set([
  "tools/list",
  "resources/list",
  "resources/templates/list",
  "prompts/list",
  "ping",
  "notifications/tools/list_changed",
  "notifications/resources/list_changed",
  "notifications/prompts/list_changed",
  "notifications/resources/updated",
  "notifications/progress",
]);
const RULE_QUESTIONS = new Set(
  ["trust_rules", "trust_suggestions", "trust_report", "trust_reviews", "trust_explain"].map(
    (name) => `tools/call:${name}`,
  ),
);

/**
 * @param {import("./envelopes.js").Row} row @param {(id: string) => boolean} isOwn whether an id is of a question that this page asked by itself
 * @param {(id: string) => boolean} [keepsRules] whether a member may
 */
export function isHousekeeping(row, isOwn, keepsRules = () => false) {
  if (row.type === "gap") return false;
  const isCall = row.kind.startsWith("mcp/request") || row.kind.startsWith("mcp/response");
  if (isCall && (isOwn(row.id) || row.about.some(isOwn))) return true;
  if (row.failed) return false;
  if (isCall && RULE_QUESTIONS.has(row.operation))
    return row.kind.startsWith("mcp/request") ? row.to.length > 0 && row.to.every(keepsRules) : keepsRules(row.from);
  return KINDS.has(row.kind) || (isCall && OPERATIONS.has(row.operation));
}
