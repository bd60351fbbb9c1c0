/** What happened to a proposal so far: rejections, votes, decision, progress, result. Each step links to the timeline. */
import { button, html } from "../../core/page/dom.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { duration, formatTime } from "../../core/page/time.js";
import { voteText } from "../../core/state/proposal-life.js";
import { unknownReason } from "../../core/state/envelope-fields.js";
import { answerView, progressOf, progressView } from "../parts/call-result.js";
import { reasonText } from "../parts/error-text.js";
import { icon } from "../parts/icons.js";
import { changesView } from "./changed-call.js";
import { compensationView } from "../proposals/compensation.js";
import { receiptButton } from "../proposals/receipt-button.js";
import { isOrphaned, recordText } from "../proposals/proposal-decisions.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */

// Of what somebody wrote; the timeline has all of it.
const MAX_WORDS = 2_000;

/** @param {import("../../app.js").Context} context @param {Proposal} proposal */
export function proposalHistory(context, proposal) {
  const add = stepsOf(context, proposal);
  const { from, status, ending, settledAt, id } = proposal;
  const votes = voteText(proposal);
  const exempt = proposal.exempt.map((each, index) => [index > 0 && ", ", nameNode(context, each)]);
  const middle = [...proposal.rejections, ...proposal.approvals].sort((a, b) => a.at - b.at);
  return html.section(
    { class: "proposal-history", "aria-label": "History" },
    html.h3({}, "History"),
    html.ol(
      { class: "history-steps" },
      add("made", proposal.at, id, "Proposed by ", nameNode(context, from)),
      middle.map((each) =>
        "comments" in each
          ? add("no", each.at, each.id, rejectionWords(context, /** @type {Proposal["rejections"][number]} */ (each)))
          : add("yes", each.at, each.id, voteWords(context, proposal, each.by)),
      ),
      votes && waitingStep(votes, exempt.length > 0 && ["; exempt: ", exempt]),
      ending
        ? add("over", settledAt, id, endingWords(context, proposal))
        : status !== "pending" && decisionSteps(context, proposal),
    ),
    resultView(context, proposal),
    compensationView(context, proposal),
    (status !== "pending" || proposal.rejections.length > 0) &&
      ending !== "expired" &&
      receiptButton(context, proposal.id),
  );
}

/** @param {import("../../app.js").Context} context @param {Proposal["rejections"][number]} rejection */
function rejectionWords(context, { by, reason, comments }) {
  return [
    nameNode(context, by),
    ` rejected it${reason ? `: ${escapeHidden(reasonText(reason))}` : ""}`,
    comments.map((text) => html.q({}, escapeHidden(text.slice(0, MAX_WORDS)))),
  ];
}

/** How one ended that nobody approved. @param {import("../../app.js").Context} context @param {Proposal} proposal */
function endingWords(context, proposal) {
  const { from, ending, reason } = proposal;
  if (isOrphaned(proposal)) return ["Withdrawn, because ", nameNode(context, from), " was removed"];
  if (ending === "withdrawn")
    return [nameNode(context, from), ` withdrew it${reason ? `: ${escapeHidden(reasonText(reason))}` : ""}`];
  return ending === "expired" ? "Expired" : "Not pending any more; the gateway does not remember what became of it";
}

/** Something that is not over. @param {...any} content */
function waitingStep(...content) {
  return html.li(
    { class: "history-step", data: { tone: "wait" } },
    html.span({ class: "history-dot" }),
    html.span({ class: "grow" }, content),
  );
}

/** @param {import("../../app.js").Context} context @param {string} id */
function nameNode(context, id) {
  return nameOf(id, { you: id === context.state.me.id });
}

/** @param {import("../../app.js").Context} context @param {Proposal} proposal @param {string} by */
function voteWords(context, { delegatedVotes, passkey }, by) {
  const delegate = delegatedVotes[by];
  return [
    nameNode(context, delegate ?? by),
    " voted for it",
    delegate && [" in the place of ", nameNode(context, by)],
    passkey && ", confirmed with a passkey",
  ];
}

/** @param {import("../../app.js").Context} context @param {Proposal} proposal */
function decisionSteps(context, proposal) {
  const { state } = context;
  const request = state.proposals.requests.get(proposal.requestId);
  const counter = state.proposals.byId.get(proposal.changedBy);
  const { id, from, note, undone, outcomeAt, fulfilledBy } = proposal;
  const failed = proposal.status === "failed";
  const answer = request?.answer;
  const progress = request && !answer ? progressOf(state, request.id) : null;
  const add = stepsOf(context, proposal);
  const name = (/** @type {string} */ each) => nameNode(context, each);
  return [
    add("yes", proposal.settledAt, proposal.requestId || id, [
      fulfilledBy ? name(fulfilledBy) : "Someone",
      proposal.changedBy ? " approved it with changes" : " approved it",
      byRule(context, proposal),
      counter && changesView(proposal.call.bodyText, counter.call.bodyText),
    ]),
    proposal.inputs.map((each) => {
      const given = escapeHidden(JSON.stringify(each.given).slice(0, MAX_WORDS));
      return add("yes", each.at, each.id, name(from), " answered: ", html.q({}, given));
    }),
    request &&
      (proposal.assessedBy
        ? add(failed ? "no" : "yes", outcomeAt, id, [
            name(proposal.assessedBy),
            failed ? " found that it was not done" : " found that it was done",
            note && html.q({}, escapeHidden(note.slice(0, MAX_WORDS))),
          ])
        : proposal.status === "unknown" &&
          add("over", outcomeAt, id, `Outcome unknown: ${escapeHidden(unknownReason(proposal.reason))}`)),
    answer &&
      add(failed ? "no" : "yes", answer.at, answer.id, [
        name(answer.from),
        failed
          ? " reported an error"
          : answer.result?.resultType === "input_required"
            ? [" asks ", name(from), " for input"]
            : " replied",
      ]),
    request && !answer && proposal.status === "fulfilled" && waitingStep("Running", progress && progressView(progress)),
    undone && add("over", undone.at, undone.id, name(undone.by), " undid it: files are as before"),
  ];
}

/** A fulfilment by a rule names it in its context (D-92). @param {import("../../app.js").Context} context @param {Proposal} proposal */
function byRule(context, proposal) {
  const sent = context.state.envelopes.byId(proposal.requestId)?.context ?? "";
  if (!sent.startsWith("trust/rule/")) return null;
  return [
    " by rule ",
    html.a(
      { href: context.link("rules", "explain", proposal.id) },
      escapeHidden(sent.slice("trust/rule/".length, 200)),
    ),
  ];
}

/** @param {import("../../app.js").Context} context @param {Proposal} proposal */
function resultView(context, proposal) {
  const { state } = context;
  const answer = state.proposals.requests.get(proposal.requestId)?.answer;
  return answer
    ? html.div(
        { class: "history-result" },
        html.h4({}, "Result"),
        answerView(answer, context, state.envelopes.byId(answer.id)?.raw),
      )
    : null;
}

/** Makes its steps, each with a link into the timeline. @param {import("../../app.js").Context} context @param {Proposal} proposal */
function stepsOf(context, proposal) {
  return (
    /** @type {string} */ tone,
    /** @type {number} */ at,
    /** @type {string} */ id,
    /** @type {any[]} */ ...text
  ) =>
    html.li(
      { class: "history-step", data: { tone } },
      html.span({ class: "history-dot", "aria-hidden": "true" }),
      html.span({ class: "grow" }, text),
      html.a(
        { class: "history-link faint", href: context.link("timeline", id), title: "Show in timeline" },
        tone === "made" ? formatTime(at) : at - proposal.at < 1 ? "at once" : `+${duration(at - proposal.at)}`,
        icon("right", 12),
        html.span({ class: "sr" }, " show in timeline"),
      ),
    );
}

/** What the gateway remembers of a proposal that was not received here. @param {string} id @param {{problem?: string, told?: any}} found @param {() => void} retry */
export function notReceived(id, found, retry) {
  if (found.problem)
    return [
      html.strong({}, "Could not load this proposal"),
      html.p({}, escapeHidden(found.problem)),
      button("Retry", retry, { class: "small" }),
    ];
  if (!found.told)
    return [
      html.strong({}, "Unknown proposal"),
      html.p({}, "It may be too old, or from another space: ", html.bdi({ class: "mono" }, oneLine(id, 60))),
    ];
  return [
    html.strong({ class: "mono" }, oneLine(found.told.name || found.told.method || id, 60)),
    html.p({}, "Proposed by ", nameOf(String(found.told.proposer)), ": ", escapeHidden(recordText(found.told)), "."),
    html.p({ class: "soft" }, "Its arguments are in the journal."),
  ];
}
