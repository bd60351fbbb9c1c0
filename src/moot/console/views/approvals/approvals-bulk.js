/**
 * Several decisions in one dialog. It shows all proposals, each with its whole call and all its warnings, those that are
 * alike in a table of what differs; exactly those are decided. One that is too long to be read in a list is left out, to
 * be decided on its own.
 */
import { button, html, replace } from "../../core/page/dom.js";
import { textAt } from "../../core/state/json-text.js";
import { textBlock, escapeHidden, nameOf } from "../../core/page/text.js";
import { cautionsView } from "./proposal-view.js";
import { knownLossView, row } from "../proposals/proposal-content.js";
import { hasVoted, votesMissingFor } from "../../core/state/proposal-life.js";
import { giverFor } from "./delegation.js";
import { callPermissions, isAllowed } from "../capabilities/capability-match.js";
import { argumentView, differencesTable, plainArguments } from "../proposals/differences-table.js";
import { likenessOf } from "./inbox-order.js";
import { aboutProposal, approve, reject, reviewedProposal, obstacleText } from "../proposals/proposal-decisions.js";
import { toneOf } from "../proposals/proposal-sentence.js";
import { afterDelay, onCtrlEnter, rejectDialog, summaryOf, watchProposals } from "./approvals-dialogs.js";
import { openDialog } from "../parts/dialog.js";
import { holdButton } from "../parts/hold-button.js";
import { icon } from "../parts/icons.js";
import { hold } from "./take-back.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../../app.js").Context} Context */

// A call longer than this is read on its own page.
const MAX_CALL_CHARACTERS = 2_000;

// Of those that failed, this many are named.
const MAX_NAMED = 3;

/** Every argument whole; the exact text where names and values would not tell everything. @param {Proposal} proposal */
function callView(proposal) {
  const { bodyText } = proposal.call;
  const params = textAt(bodyText, ["params"]) ?? "";
  const parts = bodyText.length > MAX_CALL_CHARACTERS ? null : plainArguments(proposal);
  if (!parts)
    return params && textBlock(params, { maxCharacters: MAX_CALL_CHARACTERS, class: "bulk-call", label: "arguments" });
  return html.dl(
    { class: "arguments" },
    parts.map((each) => row(each.key, argumentView(each.text))),
  );
}

/** What else is to be read about it; amounts are among its arguments. @param {Context} context @param {Proposal} proposal */
function remarksOf(context, proposal) {
  const cautions = cautionsView(context, proposal).filter((each) => each.dataset.amount === undefined);
  return [rejectionsView(proposal), knownLossView(context, proposal), ...cautions];
}

/** All of them, those that are alike as one table. @param {Context} context @param {Proposal[]} proposals */
function listView(context, proposals) {
  /** @type {Map<string, Proposal[]>} */
  const alike = new Map();
  for (const each of proposals) {
    const isPlain = each.call.bodyText.length <= MAX_CALL_CHARACTERS && plainArguments(each) !== null;
    const key = isPlain ? likenessOf(each) : `alone ${each.id}`;
    alike.set(key, [...(alike.get(key) ?? []), each]);
  }
  return html.div(
    { class: "decision-list" },
    [...alike.values()].map((group) =>
      group.length > 1
        ? differencesTable(group, (each) => remarksOf(context, each))
        : html.div(
            { class: "decision-alone", data: { id: group[0].id } },
            summaryOf(group[0], [callView(group[0]), ...remarksOf(context, group[0])]),
            html.p({ class: "fault" }),
          ),
    ),
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
  const isVote = votesMissingFor(proposal, state.me.id) > 0;
  if (isVote && hasVoted(proposal, state.me.id)) return "You have voted for it.";
  const may = isVote
    ? isAllowed(state, "moot/approve")
    : callPermissions(state.me.capabilities, state, proposal.to, proposal.call).request !== "no";
  return may || giverFor(state, proposal, isVote ? "moot/approve" : "mcp/request")
    ? ""
    : "Your permissions do not allow this call.";
}

/** @param {Context} context @param {Proposal[]} proposals @param {(done: string[]) => void} finished @param {import("./bulk-decisions.js").NextGroup} [follows] */
export function approveSelected(context, proposals, finished, follows) {
  const able = proposals.filter((each) => obstacle(context, each) === "");
  const shown = able.map((each) => reviewedProposal(each, context.state));
  const list = listView(context, proposals);
  const mark = () => {
    for (const item of /** @type {NodeListOf<HTMLElement>} */ (list.querySelectorAll("[data-id]"))) {
      const proposal = proposals.find((each) => each.id === item.dataset.id);
      const text = proposal ? obstacle(context, proposal) || obstacleText(context, reviewedProposal(proposal)) : "";
      item.classList.toggle("left-out", text !== "");
      replace(/** @type {Element} */ (item.querySelector(".fault")), text ? `Skipped: ${escapeHidden(text)}` : "");
    }
    const left = shown.filter((each) => obstacleText(context, each) === "").length;
    const verb = isVote ? "Vote for" : "Approve";
    label.textContent = `${isRed ? `Hold to ${verb.toLowerCase()}` : verb} ${left === 1 ? "1 call" : `${left} calls`}`;
    yes.disabled = left === 0;
  };
  const act = afterDelay(async () => {
    if (yes.disabled) return;
    dialog.close();
    const send = async () =>
      report(
        context,
        isVote ? "voted for" : "approved",
        shown,
        await Promise.all(shown.map((each) => approve(context, each))),
        proposals.length,
      );
    const calls = shown.length === 1 ? "1 call" : `${shown.length} calls`;
    const undone = `${calls} ${shown.length === 1 ? "was" : "were"} not ${isVote ? "voted for" : "approved"}`;
    const isHeld = hold(context, "", `${isVote ? "Voting for" : "Approving"} ${calls}`, undone, send);
    const sent = isHeld ? undefined : send();
    // Nobody has to wait for answers to read on.
    follows?.next();
    await sent;
    finished(shown.map((each) => each.id));
  });
  const isRed = able.some((each) => toneOf(each) === "bad");
  // Where the space asks for several approvals, one person's is a vote.
  const isVote = able.length > 0 && able.every((each) => votesMissingFor(each, context.state.me.id) > 0);
  const yes = (isRed ? holdButton : button)("Approve", act, { class: "good", shortcut: "Ctrl+Enter" });
  const label = /** @type {HTMLElement} */ (yes.querySelector("span"));
  const no = () => {
    dialog.close();
    rejectSelected(context, proposals, finished, follows);
  };
  const dialog = openDialog(
    proposals.length === 1 ? "Decide on 1 proposal" : `Decide on ${proposals.length} proposals`,
    [
      html.p(
        {},
        isVote
          ? "Your vote is for each of these calls exactly as shown; the last vote that is needed runs it once."
          : "Each of these calls runs once, exactly as shown.",
        follows && ` ${follows.text}`,
      ),
      list,
    ],
    {
      class: "decide wide",
      actions: [
        button("Cancel", () => dialog.close(), { class: "quiet" }),
        button(`Reject ${proposals.length}…`, no, { class: "danger" }),
        yes,
      ],
      closed: () => stop(),
    },
  );
  onCtrlEnter(dialog.node, () => (isRed ? /** @type {any} */ (yes).holdUntilKeyUp() : act()));
  const stop = watchProposals(context, shown, mark);
  mark();
  return dialog;
}

/** @param {Context} context @param {Proposal[]} proposals @param {(done: string[]) => void} finished @param {import("./bulk-decisions.js").NextGroup} [follows] */
export function rejectSelected(context, proposals, finished, follows) {
  const shown = proposals.map((each) => reviewedProposal(each));
  return rejectDialog(context, shown, [listView(context, proposals)], async (reason, explanation) => {
    const sent = Promise.all(shown.map((each) => reject(context, each, reason, explanation)));
    follows?.next();
    report(context, "rejected", shown, await sent, proposals.length);
    finished(shown.map((each) => each.id));
  });
}

/** @param {Context} context @param {string} word @param {import("../proposals/proposal-decisions.js").ReviewedProposal[]} shown @param {import("../proposals/proposal-decisions.js").Outcome[]} outcomes of each @param {number} request */
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
