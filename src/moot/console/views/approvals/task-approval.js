/** "The same for the rest of this task": approve a call, and calls like it until its agent is written to again. */
import { html } from "../../core/page/dom.js";
import { escapeHidden, nameOf, oneLine } from "../../core/page/text.js";
import { isAllowed } from "../capabilities/capability-match.js";
import { openDialog } from "../parts/dialog.js";
import { actionDialog } from "../parts/action-dialog.js";
import { mayAllow } from "../capabilities/capability-covers.js";
import { sendCommand } from "../rules/rule-commands.js";
import { approve } from "../proposals/proposal-decisions.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../proposals/proposal-decisions.js").ReviewedProposal} ReviewedProposal @typedef {import("../proposals/proposal-decisions.js").Outcome} Outcome */

const ANSWER_MILLISECONDS = 10_000;

/** Who makes rules here, by rights alone: nobody is asked before somebody presses the button. @param {Context} context */
function approverOf(context) {
  const { roster } = context.state;
  const able = roster
    .present()
    .filter((each) => roster.keepsRules(each.id) && !mayAllow(each.capabilities, "space/kick"));
  return able.find((each) => each.name === "approver") ?? able[0];
}

/** Whether it is offered: by an approver that is here, for a plain call. @param {Context} context @param {Proposal} proposal */
export function offersTask(context, proposal) {
  return (
    proposal.call.method === "tools/call" &&
    proposal.to.length === 1 &&
    isAllowed(context.state, "trust/accept") &&
    approverOf(context) !== undefined
  );
}

/**
 * Show what would be allowed, in the approver's words; `decide` runs the approval.
 * @param {Context} context @param {Proposal} proposal @param {import("../../core/page/dom.js").Child} summary @param {(act: (shown: ReviewedProposal) => Promise<Outcome>) => void} decide
 */
export async function taskDialog(context, proposal, summary, decide) {
  const approver = approverOf(context);
  /** @type {any} */
  let same;
  try {
    const result = await context.call(
      approver?.id ?? "",
      "tools/call",
      { name: "trust_plans", arguments: { proposal: proposal.id } },
      { within: ANSWER_MILLISECONDS, background: true },
    );
    if (result?.isError) throw new Error(String(result.content?.[0]?.text ?? "the call failed"));
    same = result?.structuredContent?.same;
    if (!same) throw new Error("the approver does not know plans");
  } catch (fault) {
    openDialog("Not possible for this call", [
      html.p({}, escapeHidden(oneLine(fault instanceof Error ? fault.message : "The approver did not answer", 300))),
    ]);
    return;
  }
  actionDialog(
    "The same for the rest of this task?",
    [
      summary,
      html.p({}, "This call is approved. Without asking you again, ", nameOf(proposal.from), " may then do:"),
      html.p({ class: "plan-same" }, html.bdi({}, escapeHidden(String(same?.words?.[0] ?? "")))),
      html.p(
        { class: "soft" },
        `For ${Number(same?.hours)} hours at most, until somebody writes to `,
        nameOf(proposal.from),
        " again, it leaves, or you end it in Rules. Everything else asks.",
      ),
    ],
    {
      verb: "Approve, and the same again",
      act: async () => {
        decide(async (shown) => {
          const outcome = await approve(context, shown);
          if (outcome.status !== "done") return outcome;
          try {
            const told = { same: shown.id, fingerprint: same.fingerprint };
            await sendCommand(context, { approver, isOnline: true }, "trust/accept", told);
          } catch (fault) {
            const why = oneLine(fault instanceof Error ? fault.message : "no reply", 300);
            return { ...outcome, status: "refused", message: `Approved, but only this once: ${why}` };
          }
          return { ...outcome, granted: true, message: "Approved, and the same for the rest of this task" };
        });
        return true;
      },
    },
  );
}
