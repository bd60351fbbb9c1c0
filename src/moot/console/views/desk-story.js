// @ts-check
/** What happened to a proposal so far: said no, voted, decided, under way, result. Each step leads to the timeline. */
import { el } from "../core/dom.js";
import { nameOf, visible } from "../core/text.js";
import { duration, shortTime } from "../core/time.js";
import { answerView, progressOf, progressView } from "./call-result.js";
import { explainRejection } from "./explain.js";
import { icon } from "./icons.js";

/** @typedef {import("../core/state-proposals.js").Proposal} Proposal */

/** @param {import("../app.js").Context} context @param {Proposal} proposal @param {number} needed approvals that the space asks for, if known */
export function storyView(context, proposal, needed) {
  const { state } = context;
  const steps = [step(context, "made", proposal.at, proposal.id, ["Proposed by ", who(context, proposal.from)], proposal)];
  const middle = [
    ...proposal.rejections.map((each) => ({ at: each.at, node: () => step(context, "no", each.at, each.id, [who(context, each.by), ` said no: ${visible(explainRejection(each.reason) ? each.reason : each.reason || "no reason")}`, each.words.map((words) => el("q", {}, visible(words.slice(0, 2000))))], proposal) })),
    ...proposal.approvals.map((each) => ({ at: each.at, node: () => step(context, "yes", each.at, each.id, [who(context, each.by), " voted for it"], proposal) })),
  ].sort((a, b) => a.at - b.at);
  steps.push(...middle.map((each) => each.node()));
  if (proposal.status === "open" && needed > 0) steps.push(el("li", { class: "story-step", data: { tone: "wait" } }, el("span", { class: "story-dot" }), el("span", { class: "grow" }, `${votes(proposal)} of ${needed} votes`)));
  if (proposal.status === "withdrawn") steps.push(step(context, "over", proposal.settledAt, proposal.id, [who(context, proposal.from), ` withdrew it${proposal.reason ? `: ${visible(proposal.reason)}` : ""}`], proposal));
  else if (proposal.status === "expired") steps.push(step(context, "over", proposal.settledAt, proposal.id, ["It ran out of time"], proposal));
  else if (proposal.status !== "open") steps.push(...decided(context, proposal));
  return el("section", { class: "story", "aria-label": "What happened" }, el("h3", {}, "What happened"), el("ol", { class: "story-steps" }, steps), resultView(state, proposal));
}

/** One member counts once. @param {Proposal} proposal */
export function votes(proposal) {
  return new Set(proposal.approvals.map((each) => each.by)).size;
}

/** @param {import("../app.js").Context} context @param {string} id */
function who(context, id) {
  return nameOf(id, { you: id === context.state.me.id });
}

/** @param {import("../app.js").Context} context @param {Proposal} proposal */
function decided(context, proposal) {
  const asked = context.state.proposals.requests.get(proposal.requestId);
  const steps = [step(context, "yes", proposal.settledAt, proposal.requestId || proposal.id, [proposal.fulfilledBy ? who(context, proposal.fulfilledBy) : "Somebody", " approved it", byRule(context, proposal)], proposal)];
  if (!asked) return steps;
  if (asked.answer) {
    const failed = proposal.status === "failed";
    steps.push(step(context, failed ? "no" : "yes", asked.answer.at, asked.answer.id, [who(context, asked.answer.from), failed ? " says that it failed" : " answered"], proposal));
  } else {
    const progress = progressOf(context.state, asked.id);
    steps.push(el("li", { class: "story-step", data: { tone: "wait" } }, el("span", { class: "story-dot" }), el("span", { class: "grow" }, "Under way", progress && progressView(progress))));
  }
  return steps;
}

/** A fulfilment by a rule names it in its context (D-92). @param {import("../app.js").Context} context @param {Proposal} proposal */
function byRule(context, proposal) {
  const said = context.state.envelopes.byId(proposal.requestId)?.context ?? "";
  if (!said.startsWith("trust/rule/")) return null;
  return [" by rule ", el("a", { href: context.link("trust", "why", proposal.id) }, visible(said.slice("trust/rule/".length, 200)))];
}

/** @param {import("../core/state.js").State} state @param {Proposal} proposal */
function resultView(state, proposal) {
  const answer = state.proposals.requests.get(proposal.requestId)?.answer;
  return answer ? el("div", { class: "story-result" }, el("h4", {}, "Result"), answerView(answer)) : null;
}

/** @param {import("../app.js").Context} context @param {string} tone @param {number} at @param {string} id @param {any[]} words @param {Proposal} proposal */
function step(context, tone, at, id, words, proposal) {
  const when = tone === "made" ? shortTime(at) : `+${duration(Math.max(0, at - proposal.at))}`;
  return el(
    "li",
    { class: "story-step", data: { tone } },
    el("span", { class: "story-dot", "aria-hidden": "true" }),
    el("span", { class: "grow" }, words),
    el("a", { class: "story-link faint", href: context.link("timeline", id), title: "Show in the timeline" }, when, icon("right", 12), el("span", { class: "sr" }, " show in the timeline")),
  );
}
