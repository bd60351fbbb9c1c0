/** Requests to a member that it answers itself, and what the gateway adds to a revocation. */
import { oneLine } from "../../core/page/text.js";
import { refusalText, runAndNotify } from "../parts/action-dialog.js";

/** @typedef {import("../../app.js").Context} Context */

// The SDK's time limit for answering a control message.
const ANSWER_MILLISECONDS = 10_000;
// The gateway sends its addition directly after a revocation (D-18).
const ADDED_MILLISECONDS = 2_000;

/**
 * Send a member a request that it answers, and show the answer.
 * @param {Context} context @param {string} kind @param {any} payload @param {string} to @param {string} what
 */
export async function requestFromMember(context, kind, payload, to, what) {
  const doing = context.send(kind, payload, { to: [to] });
  const id = doing.id;
  if ((await runAndNotify(context, doing)) === null) return null;
  const answer = await waitForAnswer(context, id, to);
  if (answer === null) {
    const refusal = context.state.refusalOf(id);
    context.notify(
      refusal ? refusalText(refusal) : `${oneLine(to, 40)} was asked ${what} but has not replied.`,
      refusal ? "bad" : "info",
    );
    return null;
  }
  context.notify(`${oneLine(to, 40)} replied: ${answerText(answer.payload)}`, "good");
  return answer;
}

/**
 * The envelope with which a member answers another one; null when it was refused, or no answer came in time.
 * @param {Context} context @param {string} id @param {string} from @param {number} [milliseconds] @returns {Promise<any>}
 */
export function waitForAnswer(context, id, from, milliseconds = ANSWER_MILLISECONDS) {
  return new Promise((resolve) => {
    const look = () => {
      const row = context.state.envelopes.effectsOf(id).find((each) => each.from === from);
      if (row || context.state.refusalOf(id)) end(row ? context.state.envelopes.envelope(row) : null);
    };
    const end = (/** @type {any} */ answer) => {
      stop();
      clearTimeout(timer);
      resolve(answer);
    };
    const timer = setTimeout(() => end(null), milliseconds);
    const stop = context.state.on(["envelopes", "refusals"], look);
    look();
  });
}

/** A status or a compact-done in one line. @param {any} payload */
function answerText(payload) {
  const text = Object.entries(payload ?? {})
    .filter(([, value]) => value === null || typeof value !== "object")
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`);
  return oneLine(text.join(", ") || "done", 200);
}

/** D-18: the gateway reports the permissions that a revocation did not remove directly after it. @param {Context} context @param {string} id @param {(refusal: any) => void} report */
export function watchForRemaining(context, id, report) {
  const look = () => {
    const refusal = context.state.refusalOf(id);
    if (!refusal) return;
    stop();
    clearTimeout(timer);
    report(refusal);
  };
  const stop = context.state.on("refusals", look);
  const timer = setTimeout(stop, ADDED_MILLISECONDS);
  look();
}
