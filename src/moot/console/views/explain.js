// @ts-check
/** Why something was refused, in plain words, and what can be done (docs/reference/errors.md). */

/** @type {Record<string, [string, string]>} code → what it means, what to do */
const CODES = {
  invalid_json: ["What was sent is not JSON that every reader reads alike.", "Send one JSON object without duplicate keys or broken text."],
  invalid_envelope: ["A field of the envelope is missing or has the wrong shape.", "The message names the field."],
  protocol_mismatch: ["It was written in another protocol or version than this connection speaks.", "Send protocol mew/v0.4, or connect in the other dialect."],
  rate_limited: ["Too much was said in too short a time.", "Wait as long as the message says, then send it again."],
  auth_violation: ["It claimed to come from somebody else.", "Leave out from, or use your own id."],
  participant_paused: ["The sender is paused, and a paused member may say very little.", "Somebody else can resume it; or wait until the pause runs out."],
  participant_shutdown: ["The sender was shut down.", "It may join again."],
  duplicate_id: ["An envelope with this id was seen before.", "Send it again under a fresh id."],
  capability_violation: ["None of the sender's capabilities allows this.", "Propose it instead, or ask somebody who may to grant the capability."],
  kind_payload_mismatch: ["The kind names another operation than the payload holds.", "Make kind and payload say the same."],
  unauthorized: ["The capability is there, but the thing belongs to somebody else.", "Ask its owner, or whoever was asked."],
  proposal_settled: ["Somebody decided on the proposal before, or it was withdrawn or ran out of time.", "Nothing was run twice. Look at what came of it; propose again if it is still wanted."],
  proposal_mismatch: ["The request is not exactly what was proposed.", "Send it without naming the proposal if you want to run another version: then it is your own call."],
  approval_required: ["This space asks for more approvals before anybody may run it.", "Let the others approve first."],
  invalid_request: ["The payload has the wrong shape for what the gateway does with it.", "The message names the field."],
  invalid_operation: ["It is well formed but makes no sense, such as kicking oneself.", "Look whom or what it is about."],
  participant_not_found: ["Nobody of that name is in this space.", "Look at the list of participants."],
  target_not_found: ["A receiver that the stream names is not here.", "Leave the target out, or wait until it is here."],
  stream_not_found: ["The stream is closed, or never was.", "Open another."],
  unauthorized_stream_write: ["The sender may not write to this stream.", "Its owner can let it."],
  unavailable: ["The gateway cannot write its journal, so nothing that must be audited happens.", "Tell whoever runs it. Stopping members still works."],
  resource_limit: ["A limit of the configuration is reached.", "The message names the limit."],
  revoke_incomplete: ["It was carried out, but rights that overlap remain.", "Revoke those that are listed, too."],
  unsupported_by_recipient: ["It was relayed, but whom it is for speaks a dialect that does not know it.", "Do not wait for an answer."],
  lost: ["The connection was gone.", "It is not known whether it was heard: look at the timeline before you do it again."],
};

/** @type {Record<string, string>} MEW 3.3.3 */
const REJECTIONS = {
  disagree: "does not agree with the action",
  inappropriate: "finds it does not fit the situation",
  unsafe: "thinks it may do harm",
  busy: "is occupied with other work",
  incapable: "lacks the tools or the access",
  policy: "says it breaks a rule",
  duplicate: "says somebody else is on it",
  invalid: "finds it malformed or impossible",
  timeout: "finds it too old",
  resource_limit: "says it would take too much",
  no_longer_needed: "says it is not needed any more",
  other: "gives no particular reason",
};

/** @param {string} code @returns {{means: string, todo: string}} */
export function explain(code) {
  const [means, todo] = CODES[code] ?? ["The gateway did not let it pass.", "The message says why."];
  return { means, todo };
}

/** What a reason of a rejection means; an unknown one is shown as it is (MEW 3.3.3). @param {string} reason */
export function explainRejection(reason) {
  return REJECTIONS[reason] ?? "";
}
