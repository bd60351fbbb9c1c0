/** What happened to a proposal so far: rejections, votes, decision, progress, result. Each step links to the timeline. */
import { button, html } from "../../core/page/dom.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { duration, formatTime } from "../../core/page/time.js";
import { voteText } from "../../core/state/proposal-life.js";
import { unknownReason } from "../../core/state/envelope-fields.js";
import { answerView, progressOf, progressView } from "../parts/call-result.js";
import { icon } from "../parts/icons.js";
import { changesView } from "./changed-call.js";
import { compensationView } from "./compensation.js";
import { receiptButton } from "./receipt-button.js";
import { isOrphaned, recordText } from "./proposal-decisions.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */

/** @param {import("../../app.js").Context} context @param {Proposal} proposal */
export function proposalHistory(context, proposal) {
  const steps = [
    step(context, "made", proposal.at, proposal.id, ["Proposed by ", nameNode(context, proposal.from)], proposal),
  ];
  const middle = [
    ...proposal.rejections.map((each) => ({
      at: each.at,
      node: () =>
        step(
          context,
          "no",
          each.at,
          each.id,
          [
            nameNode(context, each.by),
            ` rejected it${each.reason ? `: ${escapeHidden(each.reason)}` : ""}`,
            each.comments.map((text) => html.q({}, escapeHidden(text.slice(0, 2000)))),
          ],
          proposal,
        ),
    })),
    ...proposal.approvals.map((each) => ({
      at: each.at,
      node: () => step(context, "yes", each.at, each.id, voteWords(context, proposal, each.by), proposal),
    })),
  ].sort((a, b) => a.at - b.at);
  steps.push(...middle.map((each) => each.node()));
  const votes = voteText(proposal);
  if (votes)
    steps.push(
      html.li(
        { class: "history-step", data: { tone: "wait" } },
        html.span({ class: "history-dot" }),
        html.span(
          { class: "grow" },
          votes,
          proposal.exempt.length > 0 && [
            "; exempt: ",
            proposal.exempt.map((id, index) => [index > 0 && ", ", nameNode(context, id)]),
          ],
        ),
      ),
    );
  if (proposal.ending === "withdrawn")
    steps.push(
      step(
        context,
        "over",
        proposal.settledAt,
        proposal.id,
        isOrphaned(proposal)
          ? ["Withdrawn, because ", nameNode(context, proposal.from), " was removed"]
          : [
              nameNode(context, proposal.from),
              ` withdrew it${proposal.reason ? `: ${escapeHidden(proposal.reason)}` : ""}`,
            ],
        proposal,
      ),
    );
  else if (proposal.ending)
    steps.push(
      step(
        context,
        "over",
        proposal.settledAt,
        proposal.id,
        [
          proposal.ending === "expired"
            ? "Expired"
            : "Not pending any more; the gateway does not remember what became of it",
        ],
        proposal,
      ),
    );
  else if (proposal.status !== "pending") steps.push(...decisionSteps(context, proposal));
  return html.section(
    { class: "proposal-history", "aria-label": "History" },
    html.h3({}, "History"),
    html.ol({ class: "history-steps" }, steps),
    resultView(context, proposal),
    compensationView(context, proposal),
    (proposal.status !== "pending" || proposal.rejections.length > 0) &&
      proposal.ending !== "expired" &&
      receiptButton(context, proposal.id),
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
  const request = context.state.proposals.requests.get(proposal.requestId);
  const counter = context.state.proposals.byId.get(proposal.changedBy);
  const steps = [
    step(
      context,
      "yes",
      proposal.settledAt,
      proposal.requestId || proposal.id,
      [
        proposal.fulfilledBy ? nameNode(context, proposal.fulfilledBy) : "Someone",
        proposal.changedBy ? " approved it with changes" : " approved it",
        byRule(context, proposal),
        counter && changesView(proposal.call.bodyText, counter.call.bodyText),
      ],
      proposal,
    ),
  ];
  steps.push(
    ...proposal.inputs.map((each) =>
      step(
        context,
        "yes",
        each.at,
        each.id,
        [
          nameNode(context, proposal.from),
          " answered: ",
          html.q({}, escapeHidden(JSON.stringify(each.given).slice(0, 2000))),
        ],
        proposal,
      ),
    ),
  );
  if (!request) return steps;
  if (proposal.assessedBy) {
    steps.push(
      step(
        context,
        proposal.status === "failed" ? "no" : "yes",
        proposal.outcomeAt,
        proposal.id,
        [
          nameNode(context, proposal.assessedBy),
          proposal.status === "failed" ? " found that it was not done" : " found that it was done",
          proposal.note && html.q({}, escapeHidden(proposal.note.slice(0, 2000))),
        ],
        proposal,
      ),
    );
  } else if (proposal.status === "unknown") {
    steps.push(
      step(
        context,
        "over",
        proposal.outcomeAt,
        proposal.id,
        [`Outcome unknown: ${escapeHidden(unknownReason(proposal.reason))}`],
        proposal,
      ),
    );
  }
  if (request.answer) {
    const failed = proposal.status === "failed";
    const asks =
      request.answer.result?.resultType === "input_required"
        ? [" asks ", nameNode(context, proposal.from), " for input"]
        : " replied";
    steps.push(
      step(
        context,
        failed ? "no" : "yes",
        request.answer.at,
        request.answer.id,
        [nameNode(context, request.answer.from), failed ? " reported an error" : asks],
        proposal,
      ),
    );
  } else if (proposal.status === "fulfilled") {
    const progress = progressOf(context.state, request.id);
    steps.push(
      html.li(
        { class: "history-step", data: { tone: "wait" } },
        html.span({ class: "history-dot" }),
        html.span({ class: "grow" }, "Running", progress && progressView(progress)),
      ),
    );
  }
  if (proposal.undone) {
    const { by, at, id } = proposal.undone;
    steps.push(step(context, "over", at, id, [nameNode(context, by), " undid it: files are as before"], proposal));
  }
  return steps;
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

/** @param {import("../../app.js").Context} context @param {string} tone @param {number} at @param {string} id @param {any[]} text @param {Proposal} proposal */
function step(context, tone, at, id, text, proposal) {
  const when = tone === "made" ? formatTime(at) : `+${duration(Math.max(0, at - proposal.at))}`;
  return html.li(
    { class: "history-step", data: { tone } },
    html.span({ class: "history-dot", "aria-hidden": "true" }),
    html.span({ class: "grow" }, text),
    html.a(
      { class: "history-link faint", href: context.link("timeline", id), title: "Show in timeline" },
      when,
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
