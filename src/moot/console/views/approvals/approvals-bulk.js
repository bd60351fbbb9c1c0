/**
 * Several decisions in one dialog. It lists all proposals, each with its whole call and all its warnings; exactly those
 * are decided. One that is too long to be read in a list is left out, to be decided on its own.
 */
import { button, html, replace } from "../../core/page/dom.js";
import { formatJson, membersOf, textAt } from "../../core/state/json-text.js";
import { textBlock, escapeHidden, nameOf } from "../../core/page/text.js";
import { cautionsView } from "./proposal-view.js";
import { knownLossView, row, valueView } from "./proposal-content.js";
import { callPermissions } from "../capabilities/capability-match.js";
import { aboutProposal, approve, reject, reviewedProposal, obstacleText } from "./proposal-decisions.js";
import { afterDelay, rejectDialog, summaryOf, watchProposals } from "./approvals-dialogs.js";
import { openDialog } from "../parts/dialog.js";
import { icon } from "../parts/icons.js";
import { hold } from "./take-back.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../../app.js").Context} Context */

// A list longer than this is not read; decide on part of it first.
export const MAX_AT_ONCE = 50;

// A call longer than this is read on its own page.
const MAX_CALL_CHARACTERS = 2_000;

// Of those that failed, this many are named.
const MAX_NAMED = 3;

// A longer name of an argument would be cut.
const MAX_NAME_CHARACTERS = 100;

/** Every argument whole; the exact text where names and values would not tell everything. @param {Proposal} proposal */
function callView(proposal) {
  const { bodyText, method } = proposal.call;
  const params = textAt(bodyText, ["params"]) ?? "";
  if (bodyText.length > MAX_CALL_CHARACTERS)
    return textBlock(params, { maxCharacters: MAX_CALL_CHARACTERS, class: "bulk-call", label: "arguments" });
  const given = textAt(bodyText, ["params", "arguments"]) ?? "";
  const parts = given.startsWith("{") ? membersOf(given) : [];
  const isPlain =
    method === "tools/call" &&
    parts.length > 0 &&
    membersOf(params).length === 2 &&
    parts.every((each) => each.key.length <= MAX_NAME_CHARACTERS);
  if (!isPlain)
    return params && textBlock(params, { maxCharacters: MAX_CALL_CHARACTERS, class: "bulk-call", label: "arguments" });
  return html.dl(
    { class: "arguments" },
    parts.map((each) =>
      row(
        each.key,
        each.text.startsWith('"')
          ? valueView(each.text)
          : html.span({ class: "argument-text" }, escapeHidden(formatJson(each.text))),
      ),
    ),
  );
}

/** @param {Context} context @param {Proposal} proposal */
function entry(context, proposal) {
  return html.li(
    { data: { id: proposal.id } },
    summaryOf(proposal, [
      callView(proposal),
      rejectionsView(proposal),
      knownLossView(context, proposal),
      ...cautionsView(context, proposal),
    ]),
    html.p({ class: "fault" }),
  );
}

/** Who rejected it, and why. @param {Proposal} proposal */
function rejectionsView(proposal) {
  if (proposal.rejections.length === 0) return null;
  return html.p(
    { class: "caution" },
    icon("warning", 16),
    html.span(
      {},
      "Rejected by ",
      proposal.rejections.map((each, index) => [index > 0 && ", ", nameOf(each.by)]),
    ),
  );
}

/** Why one of them cannot be approved from here. @param {Context} context @param {Proposal} proposal */
function obstacle(context, proposal) {
  const { state } = context;
  if (proposal.from === state.me.id) return "It is your own proposal.";
  if (proposal.to.length === 0) return "It names no host: decide on it separately.";
  if (proposal.call.bodyText.length > MAX_CALL_CHARACTERS)
    return "It is too long to be read here: decide on it separately.";
  return callPermissions(state.me.capabilities, state, proposal.to, proposal.call).request === "no"
    ? "Your permissions do not allow this call."
    : "";
}

/** @param {Context} context @param {Proposal[]} proposals @param {(done: string[]) => void} finished */
export function approveSelected(context, proposals, finished) {
  const able = proposals.filter((each) => obstacle(context, each) === "");
  const shown = able.map(reviewedProposal);
  const list = html.ul(
    { class: "decision-list" },
    proposals.map((each) => entry(context, each)),
  );
  const mark = () => {
    for (const item of /** @type {NodeListOf<HTMLElement>} */ (list.querySelectorAll(":scope > [data-id]"))) {
      const proposal = proposals.find((each) => each.id === item.dataset.id);
      const text = proposal ? obstacle(context, proposal) || obstacleText(context, reviewedProposal(proposal)) : "";
      item.classList.toggle("left-out", text !== "");
      replace(
        /** @type {Element} */ (item.querySelector(":scope > .fault")),
        text ? `Skipped: ${escapeHidden(text)}` : "",
      );
    }
    const left = shown.filter((each) => obstacleText(context, each) === "").length;
    replace(yes, html.span({}, left === 1 ? "Approve 1 call" : `Approve ${left} calls`));
    yes.disabled = left === 0;
  };
  const act = afterDelay(async () => {
    if (yes.disabled) return;
    dialog.close();
    const send = async () =>
      report(
        context,
        "approved",
        shown,
        await Promise.all(shown.map((each) => approve(context, each))),
        proposals.length,
      );
    if (!hold(context, "", `Approving ${shown.length === 1 ? "1 call" : `${shown.length} calls`}`, send)) await send();
    finished(shown.map((each) => each.id));
  });
  const yes = button("Approve", act, { class: "good" });
  const dialog = openDialog(
    `Approve ${proposals.length} proposals`,
    [html.p({}, "Each of these calls runs once, exactly as shown."), list],
    {
      class: "decide wide",
      actions: [button("Cancel", () => dialog.close(), { class: "quiet" }), yes],
      closed: () => stop(),
    },
  );
  const stop = watchProposals(context, shown, mark);
  mark();
  return dialog;
}

/** @param {Context} context @param {Proposal[]} proposals @param {(done: string[]) => void} finished */
export function rejectSelected(context, proposals, finished) {
  const shown = proposals.map(reviewedProposal);
  return rejectDialog(
    context,
    shown,
    [
      html.ul(
        { class: "decision-list" },
        proposals.map((each) => entry(context, each)),
      ),
    ],
    async (reason, explanation) => {
      report(
        context,
        "rejected",
        shown,
        await Promise.all(shown.map((each) => reject(context, each, reason, explanation))),
        proposals.length,
      );
      finished(shown.map((each) => each.id));
    },
  );
}

/** @param {Context} context @param {string} word @param {import("./proposal-decisions.js").ReviewedProposal[]} shown @param {import("./proposal-decisions.js").Outcome[]} outcomes of each @param {number} request */
function report(context, word, shown, outcomes, request) {
  const done = outcomes.filter((each) => each.status === "done").length;
  const rest = shown.flatMap(({ id }, index) =>
    outcomes[index].status === "done"
      ? []
      : [aboutProposal(context.state.proposals.byId.get(id), outcomes[index].message)],
  );
  const more = rest.length > MAX_NAMED ? ` And ${rest.length - MAX_NAMED} more.` : "";
  context.notify(
    `${done} of ${request} ${word}${rest.length > 0 ? `. ${rest.slice(0, MAX_NAMED).join(" ")}${more}` : ""}`,
    rest.length > 0 || done < request ? "bad" : "good",
  );
}
