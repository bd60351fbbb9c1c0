/** Parts of the row of buttons below a proposal. */
import { button, html } from "../../core/page/dom.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { isAllowed } from "../capabilities/capability-match.js";
import { hasRejected, hasVoted, votesMissingFor, voteText } from "../../core/state/proposal-life.js";
import { holdButton } from "../parts/hold-button.js";
import { icon } from "../parts/icons.js";
import { mayChange } from "./changed-call.js";
import { offersTask } from "./task-approval.js";
import { originCautions } from "../proposals/proposal-origins.js";
import { againPayload, settledText, titleOf } from "../proposals/proposal-decisions.js";
import { settleDialog } from "./approvals-dialogs.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("./approvals-actions.js").Confirmed} Confirmed */

const MAX_STEPS = 10;

/** Asked once more before it is sent. @param {Proposal} proposal @param {Confirmed} what @param {string[]} hosts @param {boolean} isLastVote */
function questionOf(proposal, what, hosts, isLastVote) {
  const call = html.bdi({ class: "mono" }, oneLine(titleOf(proposal), 60));
  return {
    approve: !isLastVote
      ? ["Vote for ", call, " exactly as shown?"]
      : ["Run ", call, " on ", hosts.map((id, index) => [index > 0 && ", ", nameOf(id)]), " once, exactly as shown?"],
    again: [
      ["Run ", call, ", and approve exactly this call from now on"],
      proposal.origins?.again ? ` (${oneLine(proposal.origins.again.text, 120)})?` : "?",
    ],
    reject: ["Reject ", call, "? Everyone sees it; others can still approve it."],
    vote: ["Vote for ", call, " exactly as shown?"],
    withdraw: ["Withdraw ", call, "?"],
  }[what];
}

const CONFIRMED = /** @type {const} */ ({
  approve: ["Yes, approve", "a", "good"],
  again: ["Yes, and again", "s", "good"],
  reject: ["Yes, reject", "n", "danger"],
  vote: ["Yes, vote", "v", "good"],
  withdraw: ["Yes, withdraw", "w", "danger"],
});

/**
 * The second of two presses.
 * @param {Context} context @param {Proposal} proposal @param {Confirmed} what
 * @param {{hosts: string[], isPartlyHidden: () => boolean, cancel: () => void, hold: (() => void) | null, act: () => void}} options `hold`: it counts only when it is held
 */
export function confirmationRow(context, proposal, what, { hosts, isPartlyHidden, cancel, hold, act }) {
  const isLastVote = votesMissingFor(proposal, context.state.me.id) <= 1;
  const [text, shortcut, tone] =
    what === "approve" && votesMissingFor(proposal, context.state.me.id) > 0
      ? /** @type {const} */ (["Yes, vote", "a", "good"])
      : CONFIRMED[what];
  const runs = what === "approve" || what === "again" || what === "vote";
  return html.div(
    { class: "action-row armed" },
    html.p(
      { class: "grow", role: "status" },
      icon("warning", 16),
      html.span(
        {},
        questionOf(proposal, what, hosts, isLastVote),
        runs &&
          [...repeatsOf(proposal), ...originCautions(proposal)]
            .slice(0, 1)
            .map((why) => html.strong({ class: "origin-asked" }, " ", html.bdi({}, `${oneLine(why, 200)}.`))),
        runs && isPartlyHidden() && html.strong({ class: "unread" }, " Part of it is still hidden."),
      ),
    ),
    button("Cancel", cancel, { class: "quiet", shortcut: "Esc" }),
    hold
      ? holdButton(text.replace("Yes,", "Hold to"), hold, { class: tone, shortcut, data: { first: "true" } })
      : button(text, act, { class: tone, shortcut, data: { first: "true" } }),
  );
}

/** That it was done before, in the gateway’s words: who approves says that it is done again. @param {Proposal} proposal */
function repeatsOf({ effects }) {
  return (effects ?? [])
    .filter(({ earlier }) => earlier)
    .map(({ text }) => String(text).replace(/: do it again\?$/, ""));
}

/** Somebody who has looked can say what came of it. @param {Context} context @param {Proposal} proposal */
export function settleButtons(context, proposal) {
  const { state } = context;
  const able = isAllowed(state, "moot/settle");
  const ask = (/** @type {"done" | "failed"} */ outcome) => settleDialog(context, proposal, outcome);
  return [
    html.p(
      { class: "settled-text" },
      escapeHidden(capitalize(settledText(proposal, state.me.id))),
      ". Look before you propose it again.",
    ),
    html.div(
      { class: "action-row" },
      button("It was done…", () => ask("done"), { disabled: !able, data: { first: "true" } }),
      button("It was not done…", () => ask("failed"), { disabled: !able }),
      !able && html.p({ class: "soft" }, "Your permissions do not allow you to settle this."),
    ),
  ];
}

/** What "again" would mean; null if nobody offers it, or it is not for us to ask for. @param {Context} context @param {Proposal} proposal */
export function offerOf({ state }, proposal) {
  const offer = proposal.origins?.again;
  if (!offer || proposal.status !== "pending" || proposal.from === state.me.id) return null;
  if (votesMissingFor(proposal, state.me.id) > 0) return null;
  return isAllowed(state, "trust/accept", againPayload(proposal.id, offer)) ? offer : null;
}

/** Approve, reject, and what lies between. @param {Context} context @param {Proposal} proposal @param {import("./approvals-actions.js").ApprovalActions} actions @param {Record<string, boolean>} able */
export function decideRow(context, proposal, actions, able) {
  const { state } = context;
  const offer = offerOf(context, proposal);
  const missing = votesMissingFor(proposal, state.me.id);
  return [
    missing > 0 &&
      html.p(
        { class: "soft vote-line" },
        voteSteps(proposal),
        hasVoted(proposal, state.me.id) ? `You voted: ${voteText(proposal)}.` : neededText(proposal),
      ),
    !able.approve &&
      !(missing > 0 && hasVoted(proposal, state.me.id)) &&
      html.p(
        { class: "soft" },
        missing > 0
          ? "Your permissions do not allow votes (moot/approve)."
          : proposal.to.length === 0 && !actions.chosenHost
            ? "No host is named: choose who runs it."
            : "Your permissions do not allow this call, so you cannot approve it.",
      ),
    hasRejected(proposal, state.me.id) &&
      html.p(
        { class: "soft" },
        `You rejected it. Others can still approve it${able.approve ? ", and so can you" : ""}.`,
      ),
    html.div(
      { class: "action-row decide" },
      proposal.to.length === 0 && hostChoice(context, actions.chosenHost, (host) => actions.choose(host)),
      !(missing > 0 && hasVoted(proposal, state.me.id)) &&
        button(missing > 0 ? "Vote" : "Approve once", () => actions.approve(false), {
          class: "good",
          shortcut: "a",
          disabled: !able.approve,
          data: { first: "true" },
        }),
      foldedWays(actions, [
        offer &&
          button("Approve, and again", () => actions.approveAgain(false), {
            shortcut: "s",
            disabled: !able.approve,
            title: `Approve exactly this call from now on, too: ${offer.text}`,
          }),
        button("Approve and grant…", () => actions.grant(), {
          shortcut: "A",
          disabled: !able.grant,
          title: able.grant ? undefined : "Your permissions do not allow this grant",
        }),
        missing === 0 &&
          able.approve &&
          offersTask(context, proposal) &&
          button("Same for this task…", () => actions.approveTask(), {
            shortcut: "t",
            title: "Approve it, and calls like it for the rest of this task",
          }),
        mayChange(context, proposal) &&
          button("Change…", () => actions.change(), {
            shortcut: "e",
            title: `${missing > 0 ? "Vote for it" : "Approve"} with changes: edit the arguments before it runs`,
          }),
      ]),
      !hasRejected(proposal, state.me.id) && [
        button("Reject", () => actions.rejectPlainly(), { class: "danger", shortcut: "n", disabled: !able.reject }),
        button("Reject because…", () => actions.reject(), {
          class: "danger quiet",
          shortcut: "r",
          disabled: !able.reject,
        }),
      ],
    ),
  ];
}

/** Where the page is narrow, other ways to say yes are behind a button. @param {import("./approvals-actions.js").ApprovalActions} actions @param {(HTMLElement | false | null)[]} all */
function foldedWays(actions, all) {
  const ways = all.filter((each) => each instanceof HTMLElement);
  if (ways.length < 2) return ways;
  const more = button("Other ways", () => show(!actions.isUnfolded), { class: "more-ways", icon: icon("right", 14) });
  const show = (/** @type {boolean} */ unfolded) => {
    actions.isUnfolded = unfolded;
    more.setAttribute("aria-expanded", String(unfolded));
  };
  show(actions.isUnfolded);
  return [more, html.span({ class: "other-ways" }, ways)];
}

/** @param {Proposal} proposal */
function neededText({ votesNeeded: needed, votesMissing: missing, passkey }) {
  return `Needs ${needed} ${needed === 1 ? "approval" : "approvals"}${passkey ? " with a passkey" : ""}, ${needed - missing} so far: vote`;
}

/** A dot for each vote that is needed. @param {Proposal} proposal */
function voteSteps({ votesNeeded, votesMissing, approvals }) {
  const steps = Array.from({ length: Math.min(votesNeeded, MAX_STEPS) }, (_, index) =>
    html.span({
      class: ["vote-step", index < votesNeeded - votesMissing && "given"],
      title: approvals[index] ? `Vote of ${oneLine(approvals[index].by, 40)}` : "missing",
    }),
  );
  return html.span({ class: "vote-steps", "aria-hidden": "true" }, steps);
}

/** For a proposal that does not say who should execute it. @param {Context} context @param {string} host @param {(host: string) => void} choose */
function hostChoice(context, host, choose) {
  const { state } = context;
  const others = state.roster.present().filter((each) => each.id !== state.me.id);
  const choice = html.select(
    { class: "field host-choice", "aria-label": "Host", value: host, on: { change: () => choose(choice.value) } },
    html.option({ value: "" }, "Choose a host…"),
    others.map((each) => html.option({ value: each.id }, oneLine(each.id, 60))),
  );
  return choice;
}

/** @param {string} text */
export function capitalize(text) {
  return !/^(you|it) /.test(text) ? text : text.charAt(0).toUpperCase() + text.slice(1);
}
