// @ts-check
/**
 * What a timeline hides until somebody asks for it: who comes and goes, receipts, lists of tools, and the questions that
 * pages like this one ask by themselves.
 *
 * It goes by the kind and the method, never by a mark that a sender could put on a call to hide it: every call of a tool is
 * shown to everybody. Only a page's own questions are hidden by their ids, in that page, also when they failed: the view
 * that asked tells of it. Nothing else that failed is hidden.
 */

const KINDS = new Set(["system/presence", "system/welcome", "chat/acknowledge", "participant/status", "participant/request-status", "capability/grant-ack", "moot/list-proposals", "moot/roster", "moot/list-owners"]);
const OPERATIONS = new Set([
  "tools/list", "resources/list", "resources/templates/list", "prompts/list", "ping",
  "notifications/tools/list_changed", "notifications/resources/list_changed", "notifications/prompts/list_changed", "notifications/resources/updated", "notifications/progress",
]);

/** @param {import("./envelopes.js").Row} row @param {(id: string) => boolean} isOwn whether an id is of a question that this page asked by itself */
export function isHousekeeping(row, isOwn) {
  if (row.type === "gap") return false;
  const isCall = row.kind.startsWith("mcp/request") || row.kind.startsWith("mcp/response");
  if (isCall && (isOwn(row.id) || row.about.some(isOwn))) return true;
  if (row.failed) return false;
  return KINDS.has(row.kind) || (isCall && OPERATIONS.has(row.operation));
}
