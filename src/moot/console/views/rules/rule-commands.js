/** Commands about rules: accept, dismiss, grant, stop, resume; and the approver's answers. */
import { html, replace } from "../../core/page/dom.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { describeCapability } from "../capabilities/capability-text.js";
import { coveredBy } from "../capabilities/capability-covers.js";
import { icon } from "../parts/icons.js";
import { actionDialog, runAndNotify, labelledField, reasonField } from "../parts/action-dialog.js";
import { waitForAnswer } from "../members/member-requests.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("./approver-state.js").ApproverState} ApproverState @typedef {import("./rule-record.js").Suggestion} Suggestion */

// It answers at once, unless it is computing suggestions or is offline.
const ANSWER_MILLISECONDS = 8_000;
const STATE_TEXTS = {
  active: "is active",
  lifted: "is resumed",
  suspended: "is suspended",
  removed: "is removed",
  stopped: "All rules are stopped",
  resumed: "Rules are resumed",
};

/** The approver refused; the message is its own. */
export class CommandRejected extends Error {}

/**
 * Send a command to the approver and wait for its answer; rejects with Refused or NotDone.
 * @param {Context} context @param {Pick<ApproverState, "approver" | "isOnline">} approverState @param {string} kind @param {any} payload @param {string} [about]
 * @returns {Promise<any>} its answer, null if it gave none
 */
export async function sendCommand(context, approverState, kind, payload, about) {
  const sent = context.send(kind, payload, about ? { about } : {});
  await sent;
  const answer = await waitForAnswer(
    context,
    sent.id,
    approverState.approver?.id ?? "",
    approverState.isOnline ? ANSWER_MILLISECONDS : 0,
  );
  if (answer?.kind === "chat") throw new CommandRejected(String(answer.payload?.text ?? ""));
  return answer;
}

/** The approver's answer in one sentence. @param {any} answer @param {string} otherwise */
function answerText(answer, otherwise) {
  if (answer?.kind === "trust/suggestion")
    return `Accepted by you. ${Number(answer.payload?.accepting_people)} people have to accept it; until then it decides nothing`;
  if (Array.isArray(answer?.payload?.resumed_by))
    return `Resumed by you. ${Number(answer.payload.accepting_people)} people have to resume it; until then it decides nothing`;
  if (answer?.kind === "trust/rule" && answer.payload?.review) return "Reviewed";
  const state = String(answer?.payload?.state ?? "");
  const rule = answer?.payload?.rule;
  const name = oneLine(typeof rule === "string" ? rule : (rule?.name ?? ""), 60);
  const text = Object.hasOwn(STATE_TEXTS, state) ? STATE_TEXTS[/** @type {keyof typeof STATE_TEXTS} */ (state)] : "";
  if (!text) return otherwise;
  return name && state !== "stopped" && state !== "resumed" ? `${name} ${text}` : text;
}

/**
 * Run a command and report the outcome.
 * @param {Context} context @param {ApproverState} approverState @param {string} kind @param {any} payload @param {{about?: string, done?: string}} [options]
 */
export async function runCommand(context, approverState, kind, payload, options = {}) {
  try {
    const answer = await sendCommand(context, approverState, kind, payload, options.about);
    if (answer === null && !options.done)
      context.notify(
        `Sent; ${approverState.isOnline ? "the approver has not replied" : "the approver is offline and will apply it when it joins"}`,
        "info",
      );
    else context.notify(answerText(answer, options.done ?? "Done"), "good");
    return true;
  } catch (fault) {
    if (fault instanceof CommandRejected) context.notify(`Approver: ${oneLine(fault.message, 300)}`, "bad");
    else await runAndNotify(context, Promise.reject(fault));
    return false;
  }
}

/** A box for the approver's refusal. @param {Error} fault */
export function rejectionBox(fault) {
  return html.div(
    { class: "refusal-box", role: "alert" },
    icon("warning", 16),
    html.div({}, html.p({}, html.strong({}, "Approver: "), html.bdi({}, escapeHidden(fault.message)))),
  );
}

/** @param {Context} context @param {ApproverState} _approverState @param {Suggestion} suggestion */
export function dismissDialog(context, _approverState, suggestion) {
  const reason = reasonField();
  actionDialog(
    "Dismiss this suggestion?",
    [html.p({}, "It is not suggested again. People keep deciding these proposals."), reason.node],
    {
      verb: "Dismiss",
      safe: true,
      act: () =>
        context.send("trust/dismiss", {
          suggestion: suggestion.suggestion,
          ...(reason.value() ? { reason: reason.value() } : {}),
        }),
      done: () => context.notify("Dismissed", "good"),
    },
  );
}

/**
 * Grant the agent the permission itself (MEW 9.2). We send the grant; the approver is only informed.
 * @param {Context} context @param {ApproverState} approverState @param {Suggestion} suggestion
 */
export function grantDialog(context, approverState, suggestion) {
  const grant = suggestion.grant;
  if (!grant) return;
  const held = coveredBy(grant.capability, context.state.me.capabilities);
  const fault = html.div({});
  actionDialog(
    `Grant this to ${oneLine(grant.participant, 40)}?`,
    [
      html.p({}, html.bdi({}, escapeHidden(grant.words)), ". Neither rules nor people are asked any more."),
      html.div(
        { class: "cascade" },
        html.p({}, html.strong({}, "Limits of the rule that a grant cannot keep:")),
        html.ul(
          { class: "losses" },
          grant.loses.map((each) => html.li({}, escapeHidden(each))),
          html.li({}, "no sample is left to people, and no tripwire suspends it"),
        ),
      ),
      html.p({}, "Permission: ", html.bdi({}, oneLine(describeCapability(grant.capability), 300))),
      !held &&
        html.p(
          { class: "warn-text" },
          "You do not seem to have this permission yourself, so the gateway will probably refuse.",
        ),
      html.p({ class: "soft" }, "To revoke it, press ", html.kbd({}, "u"), " here, or use Revoke in Members."),
      fault,
    ],
    {
      verb: "Grant",
      danger: true,
      act: async () => {
        const given = await context.send(
          "capability/grant",
          {
            recipient: grant.participant,
            capabilities: [grant.capability],
            reason: `suggestion ${suggestion.suggestion}`,
          },
          { to: [context.state.roster.get(grant.participant)?.id ?? grant.participant] },
        );
        try {
          await sendCommand(context, approverState, "trust/accept", {
            suggestion: suggestion.suggestion,
            granted: true,
            grant: given.id,
          });
        } catch (error) {
          if (!(error instanceof CommandRejected)) throw error;
          replace(fault, rejectionBox(error));
          return undefined;
        }
        return given;
      },
      done: () => context.notify(`Granted to ${oneLine(grant.participant, 40)}`, "good"),
    },
  );
}

/** @param {Context} context @param {ApproverState} approverState @param {string} rule */
export function suspendDialog(context, approverState, rule) {
  const reason = reasonField();
  actionDialog(
    `Suspend ${oneLine(rule, 60)}?`,
    [html.p({}, "You are asked instead, until someone resumes the rule."), reason.node],
    {
      verb: "Suspend",
      danger: true,
      safe: true,
      act: () =>
        runCommand(context, approverState, "trust/stop", {
          rule,
          ...(reason.value() ? { reason: reason.value() } : {}),
        }),
    },
  );
}

/** @param {Context} context @param {ApproverState} approverState @param {string} rule @param {boolean} isRemembered one exact call */
export function removeDialog(context, approverState, rule, isRemembered) {
  actionDialog(
    isRemembered ? "Forget this call?" : `Remove ${oneLine(rule, 60)}?`,
    [
      html.p(
        {},
        isRemembered ? "You are asked about it again." : "It decides nothing any more, and is not suggested again.",
      ),
    ],
    {
      verb: isRemembered ? "Forget" : "Remove",
      danger: true,
      safe: true,
      act: () => runCommand(context, approverState, "trust/accept", { remove: rule }),
    },
  );
}

/**
 * An argument of a tool that does not matter to people.
 * @param {Context} context @param {ApproverState} approverState @param {string} tool `host/tool` @param {string} name
 */
export function ignoreDialog(context, approverState, tool, name) {
  actionDialog(
    `${oneLine(name, 40)} does not matter?`,
    [
      html.p(
        {},
        "Rules and remembered calls of ",
        html.bdi({ class: "mono" }, oneLine(tool, 80)),
        ` no longer compare ${oneLine(name, 40)}: in its place they match with any plain text, up to 4,000 characters.`,
      ),
      html.p(
        { class: "soft" },
        "Still asked about: code, addresses, long numbers, keys, words such as password, and a call without it.",
      ),
    ],
    {
      verb: "It does not matter",
      act: () =>
        runCommand(
          context,
          approverState,
          "trust/accept",
          { ignore: { [tool]: [name] } },
          { done: "It does not matter from now on" },
        ),
    },
  );
}

/** Object to a decision by a rule: that rule is suspended. @param {Context} context @param {ApproverState} approverState @param {import("./rule-record.js").RuleDecision} done */
export function objectDialog(context, approverState, done) {
  const reason = labelledField("What was wrong (optional)", { maxlength: 500 }, "Everyone in the space can read it.");
  actionDialog(
    "Object to this decision?",
    [
      html.p(
        {},
        "The rule ",
        html.bdi({ class: "mono" }, oneLine(done.rule, 80)),
        " decided what ",
        nameOf(context.state.proposals.byId.get(done.proposal)?.from ?? "someone"),
        " proposed. The rule is suspended at once; the decision itself is not undone.",
      ),
      reason.node,
    ],
    {
      verb: "Object",
      danger: true,
      safe: true,
      act: () =>
        runCommand(context, approverState, "trust/stop", reason.value() ? { reason: reason.value() } : {}, {
          about: done.proposal,
        }),
    },
  );
}
