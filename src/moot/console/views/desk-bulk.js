// @ts-check
/** Several decisions with one question. The question lists them all, each with its call; that is what is decided. */
import { button, el, replace } from "../core/dom.js";
import { textAt } from "../core/exact.js";
import { block, visible } from "../core/text.js";
import { mayCall } from "./call-rights.js";
import { approve, reject, shownOf, whyNot } from "./desk-decide.js";
import { afterReading, rejectDialog, summaryOf, whileOpen } from "./desk-dialogs.js";
import { openDialog } from "./dialog.js";

/** @typedef {import("../core/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../app.js").Context} Context */

// A list longer than this is not read; decide on part of it first.
export const MOST_AT_ONCE = 50;

/** @param {Proposal} proposal */
function entry(proposal) {
  const given = textAt(proposal.call.bodyText, ["params", "arguments"]) ?? textAt(proposal.call.bodyText, ["params"]) ?? "";
  return el("li", { data: { id: proposal.id } }, summaryOf(proposal, given && block(given, { most: 300, class: "bulk-call", label: "arguments" })), el("p", { class: "fault" }));
}

/** Why one of them cannot be approved from here. @param {Context} context @param {Proposal} proposal */
function obstacle(context, proposal) {
  const { state } = context;
  if (proposal.from === state.me.id) return "It is your own.";
  if (proposal.to.length === 0) return "It names no host: decide on it by itself.";
  return mayCall(state.me.capabilities, state, proposal.to, proposal.call).request === "no" ? "Your rights do not allow this call." : "";
}

/** @param {Context} context @param {Proposal[]} proposals @param {(done: string[]) => void} finished */
export function approveSeveral(context, proposals, finished) {
  const able = proposals.filter((each) => obstacle(context, each) === "");
  const shown = able.map(shownOf);
  const list = el("ul", { class: "decision-list" }, proposals.map(entry));
  const mark = () => {
    for (const item of list.children) {
      const proposal = proposals.find((each) => each.id === item.dataset.id);
      const words = proposal ? obstacle(context, proposal) || whyNot(context, shownOf(proposal)) : "";
      item.classList.toggle("left-out", words !== "");
      replace(item.querySelector(":scope > .fault"), words ? `Left out: ${visible(words)}` : "");
    }
    const left = shown.filter((each) => whyNot(context, each) === "").length;
    replace(yes, el("span", {}, left === 1 ? "Approve 1 call" : `Approve ${left} calls`));
    yes.disabled = left === 0;
  };
  const act = afterReading(async () => {
    if (yes.disabled) return;
    dialog.close();
    report(context, "approved", await Promise.all(shown.map((each) => approve(context, each))), proposals.length);
    finished(shown.map((each) => each.id));
  });
  const yes = button("Approve", act, { class: "good" });
  const dialog = openDialog(`Approve ${proposals.length} proposals`, [el("p", {}, "Each of these calls is made once, exactly as it stands here."), list], {
    class: "decide wide", actions: [button("Not now", () => dialog.close(), { class: "quiet" }), yes], closed: () => stop(),
  });
  const stop = whileOpen(context, shown, mark);
  mark();
  return dialog;
}

/** @param {Context} context @param {Proposal[]} proposals @param {(done: string[]) => void} finished */
export function rejectSeveral(context, proposals, finished) {
  const shown = proposals.map(shownOf);
  return rejectDialog(context, shown, [el("ul", { class: "decision-list" }, proposals.map(entry))], async (reason, explanation) => {
    report(context, "rejected", await Promise.all(shown.map((each) => reject(context, each, reason, explanation))), proposals.length);
    finished(shown.map((each) => each.id));
  });
}

/** @param {Context} context @param {string} word @param {import("./desk-decide.js").Outcome[]} outcomes @param {number} asked */
function report(context, word, outcomes, asked) {
  const done = outcomes.filter((each) => each.status === "done").length;
  const rest = outcomes.filter((each) => each.status !== "done");
  context.notify(`${done} of ${asked} ${word}${rest.length > 0 ? `. ${[...new Set(rest.map((each) => each.words))].slice(0, 3).join(" ")}` : ""}`, rest.length > 0 || done < asked ? "bad" : "good");
}
