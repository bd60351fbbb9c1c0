/** Dialogs before a decision: the reason of a rejection, and what came of a call. Exactly what the dialog shows is sent. */
import { button, html, newId, replace } from "../../core/page/dom.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { settle, titleOf, obstacleText } from "../proposals/proposal-decisions.js";
import { actionDialog, labelledField } from "../parts/action-dialog.js";
import { openDialog } from "../parts/dialog.js";
import { describeRejection, reasonText } from "../parts/error-text.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../proposals/proposal-decisions.js").ReviewedProposal} Shown */

// Longer than a late key press that was meant for something else; the same as in the terminal.
export const SETTLE_MILLISECONDS = 400;

// MEW 3.3.3, in the order in which people need them: five at hand, the others on demand.
const REASONS = ["disagree", "unsafe", "inappropriate", "duplicate", "policy"];
const MORE_REASONS = ["busy", "incapable", "invalid", "timeout", "resource_limit", "no_longer_needed", "other"];

/** "No longer needed". @param {string} reason */
function reasonTitle(reason) {
  return reason.charAt(0).toUpperCase() + reasonText(reason).slice(1);
}

/** A press counts only after the dialog has been open for a moment. @param {() => void} act */
export function afterDelay(act) {
  const opened = performance.now();
  return () => {
    if (performance.now() - opened >= SETTLE_MILLISECONDS) act();
  };
}

/** Follow a proposal while a dialog about it is open; shows a message when it is settled. @param {import("../../app.js").Context} context @param {Shown[]} shown @param {() => void} changed */
export function watchProposals(context, shown, changed) {
  const before = new Set(shown.filter((each) => obstacleText(context, each) === "").map((each) => each.id));
  return context.state.on("proposals", () => {
    if (shown.some((each) => before.has(each.id) && obstacleText(context, each) !== "")) changed();
  });
}

/** Ctrl+Enter anywhere in a dialog means its main button. @param {HTMLElement} node @param {() => void} act */
export function onCtrlEnter(node, act) {
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    act();
  });
}

/**
 * Reject with one reason for all shown proposals.
 * @param {import("../../app.js").Context} context @param {Shown[]} shown @param {Node[]} list what it is about
 * @param {(reason: string, explanation: string) => void} decide
 */
export function rejectDialog(context, shown, list, decide) {
  const group = newId("reason");
  const text = html.textarea({
    class: "field",
    id: newId("comment"),
    rows: "2",
    placeholder: "What should be different? Sent to the proposer as a chat message",
    maxlength: "4000",
  });
  const status = html.p({ class: "fault", role: "status" });
  const radios = [...REASONS, ...MORE_REASONS].map((reason, index) => {
    const radio = html.input({ type: "radio", name: group, value: reason, checked: index === 0 });
    return {
      radio,
      node: html.label({ class: "reason-chip", title: describeRejection(reason) }, radio, reasonTitle(reason)),
    };
  });
  const nodes = radios.map((each) => each.node);
  const act = afterDelay(() => {
    const reason = radios.find((each) => each.radio.checked)?.radio.value ?? "disagree";
    dialog.close();
    decide(reason, text.value.trim());
  });
  const yes = button(shown.length > 1 ? `Reject ${shown.length}` : "Reject", act, {
    class: "danger",
    shortcut: "Ctrl+Enter",
  });
  const dialog = openDialog(
    shown.length > 1 ? `Reject ${shown.length} proposals` : "Reject",
    [
      html.div({ class: "decision-list" }, list),
      html.fieldset(
        { class: "reasons" },
        html.legend({}, "Reason"),
        html.div({ class: "reason-chips" }, nodes.slice(0, REASONS.length)),
        html.details(
          {},
          html.summary({}, "More reasons"),
          html.div({ class: "reason-chips" }, nodes.slice(REASONS.length)),
        ),
      ),
      html.div({ class: "labelled" }, html.label({ for: text.id }, "Comment (optional)"), text),
      html.p({ class: "soft" }, "Everyone sees this. Others can still approve it."),
      status,
    ],
    {
      class: "decide",
      actions: [button("Cancel", () => dialog.close(), { class: "quiet" }), yes],
      closed: () => stop(),
    },
  );
  onCtrlEnter(dialog.node, act);
  const stop = watchProposals(context, shown, () => {
    replace(status, escapeHidden(shown.map((each) => obstacleText(context, each)).find(Boolean) ?? ""));
    yes.disabled = shown.every((each) => obstacleText(context, each) !== "");
  });
  text.focus();
  return dialog;
}

/**
 * Say what came of a call whose outcome nobody knows.
 * @param {import("../../app.js").Context} context @param {Proposal} proposal @param {"done" | "failed"} outcome
 */
export function settleDialog(context, proposal, outcome) {
  const note = labelledField(
    "How do you know? (optional)",
    { tag: "textarea", rows: "2", maxlength: "1000" },
    "Everyone in the space can read it.",
  );
  return actionDialog(
    outcome === "done" ? "It was done" : "It was not done",
    [summaryOf(proposal), html.p({}, "If its host answers later, that answer counts."), note.node],
    {
      verb: outcome === "done" ? "Record as done" : "Record as not done",
      act: () => settle(context, proposal.id, outcome, note.value()),
      done: () => context.notify("Recorded", "good"),
    },
  );
}

/** A line about a proposal, for a dialog. @param {Proposal} proposal @param {any} [more] */
export function summaryOf(proposal, more) {
  return html.div(
    { class: "decision-summary" },
    html.p(
      {},
      nameOf(proposal.from),
      " proposes ",
      html.strong({ class: "mono" }, oneLine(titleOf(proposal), 80)),
      " on ",
      proposal.to.length > 0 ? proposal.to.map((id) => nameOf(id)) : "any host",
    ),
    more,
  );
}
