/** Why something was refused, in plain words, and what can be done (docs/reference/errors.md). */

/** @type {Record<string, [string, string]>} code → what it means, what to do */
const CODES = {
  invalid_json: [
    "The message is not unambiguous JSON.",
    "Send one JSON object without duplicate keys or invalid text.",
  ],
  invalid_envelope: ["A field of the envelope is missing or invalid.", "The message names the field."],
  protocol_mismatch: [
    "The protocol or version differs from that of this connection.",
    "Send protocol mew/v0.4, or connect with the other dialect.",
  ],
  rate_limited: ["Too many messages in a short time.", "Wait as long as the message says, then retry."],
  auth_violation: ["The sender claimed to be someone else.", "Omit from, or use your own id."],
  participant_paused: [
    "The sender is paused and can send very little.",
    "Someone else can resume it, or wait until the pause ends.",
  ],
  participant_shutdown: ["The sender was shut down.", "It can join again."],
  duplicate_id: ["An envelope with this id was already sent.", "Send it again with a new id."],
  capability_violation: [
    "None of the sender's capabilities allows this.",
    "Propose it instead, or ask someone to grant the capability.",
  ],
  kind_payload_mismatch: [
    "The kind and the payload name different operations.",
    "Make the kind and the payload match.",
  ],
  unauthorized: ["The sender has the capability, but this belongs to someone else.", "Ask its owner."],
  proposal_settled: [
    "The proposal was already decided, withdrawn or expired.",
    "Nothing ran twice. Check the result; propose again if it is still needed.",
  ],
  proposal_mismatch: [
    "The request is not exactly what was proposed.",
    "To run a different version, send it without naming the proposal; then it is your own call.",
  ],
  approval_required: [
    "In this space the call needs approvals of others, whoever makes it.",
    "Propose it, or vote for the proposal.",
  ],
  passkey_required: [
    "This is approved with a passkey.",
    "Open the proposal here and approve it; add a passkey below the name of the space.",
  ],
  passkey_invalid: [
    "The passkey did not confirm this decision.",
    "Approve it again with a passkey of yours that you added here.",
  ],
  budget_exceeded: [
    "The call would pass a budget of this space, so nobody can make it now.",
    "The message says when the budget is free again.",
  ],
  invalid_request: ["The payload is not valid for this kind.", "The message names the field."],
  invalid_operation: ["The operation makes no sense, such as removing yourself.", "Check the target."],
  participant_not_found: ["No member of this space has that name.", "Check the list of members."],
  target_not_found: ["Nobody of that name is here.", "Check the list of members."],
  target_absent: ["The host is not connected, so nothing was carried out.", "Approve it again when the host is back."],
  stream_not_found: ["The stream is closed or does not exist.", "Open a new one."],
  unauthorized_stream_write: ["The sender is not a writer of this stream.", "The owner can add it as a writer."],
  unavailable: [
    "The gateway cannot write its journal, so it executes nothing that must be recorded.",
    "Tell the operator. Members can still be stopped.",
  ],
  outcome_unknown: [
    "The gateway’s disk failed before the message was stored.",
    "Look for the message before you send it again.",
  ],
  resource_limit: ["A limit of the configuration is reached.", "The message names the limit."],
  revoke_incomplete: [
    "The revocation took effect, but overlapping capabilities remain.",
    "Revoke the listed ones too.",
  ],
  unsupported_by_recipient: [
    "It was delivered, but the recipient’s dialect does not support it.",
    "Do not expect a reply.",
  ],
  not_on_disk: [
    "It took effect, but is not on disk: a restart of the gateway before its disk recovers would undo it.",
    "Tell the operator to free the disk.",
  ],
  lost: [
    "The connection was lost.",
    "It is unknown whether the message was delivered: check the timeline before you retry.",
  ],
};

/** @type {Record<string, string>} MEW 3.3.3 */
const REJECTIONS = {
  disagree: "disagrees with the action",
  inappropriate: "not appropriate here",
  unsafe: "could cause harm",
  busy: "busy with other work",
  incapable: "lacks the tools or access",
  policy: "violates a policy",
  duplicate: "someone else is doing it",
  invalid: "malformed or impossible",
  timeout: "too old",
  resource_limit: "needs too many resources",
  no_longer_needed: "no longer needed",
  other: "no particular reason",
};

/** @param {string} code @returns {{means: string, todo: string}} */
export function describeError(code) {
  const [means, todo] = CODES[code] ?? ["The gateway refused the message.", "See the message for the reason."];
  return { means, todo };
}

/** "no longer needed": a reason as people say it; what nobody has agreed on is shown as it is. @param {string} reason */
export function reasonText(reason) {
  return Object.hasOwn(REJECTIONS, reason) ? reason.replaceAll("_", " ") : reason;
}

/** The meaning of a rejection reason; an unknown one is shown as it is (MEW 3.3.3). @param {string} reason */
export function describeRejection(reason) {
  return REJECTIONS[reason] ?? "";
}
