// @ts-check
/** What a page says of calls of which nobody knows what came (D-99, docs/topics/proposals.md). */

/** @type {Record<string, string>} */
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
