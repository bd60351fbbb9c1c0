// @ts-check
/** Why something was or was not done: asked of the approver, which knows its rules (trust_explain). */
import { el, replace } from "../core/dom.js";
import { oneLine, visible } from "../core/text.js";
import { openDialog } from "./dialog.js";
import { icon } from "./icons.js";

/** @typedef {import("../app.js").Context} Context @typedef {import("./trust-state.js").Trust} Trust */

/** @param {Context} context @param {Trust} trust @param {string} id of a proposal, its fulfilment or its answer @param {() => void} [closed] */
export function whyDialog(context, trust, id, closed) {
  const answer = el("div", { class: "why-answer", role: "status" }, el("p", { class: "soft" }, "Asking the approver…"));
  openDialog("Why?", [
    el("p", {}, "About ", el("a", { href: context.link("timeline", id) }, el("bdi", { class: "mono" }, oneLine(id, 60)))),
    answer,
  ], { closed });
  void fill();
  async function fill() {
    try {
      const told = await trust.ask("trust_explain", { id });
      const lines = (Array.isArray(told.lines) ? told.lines : []).map(String);
      const [done, now, ...others] = lines;
      replace(answer,
        el("p", {}, el("strong", {}, "What happened. "), el("bdi", {}, visible(done ?? ""))),
        el("p", {}, el("strong", {}, "What the rules say. "), el("bdi", {}, visible(now ?? ""))),
        others.length > 0 && el("div", {}, el("strong", {}, "Why other rules do not decide it"), el("ul", { class: "losses" }, others.map((each) => el("li", {}, el("bdi", {}, visible(each.trim())))))));
    } catch (fault) {
      const words = trust.here ? oneLine(fault instanceof Error ? fault.message : String(fault), 300) : "No approver is here.";
      replace(answer, el("div", { class: "refusal-box", role: "alert" }, icon("warning", 16), el("div", {}, el("p", {}, words), el("p", {}, "Where the journal is: ", el("code", {}, `moot proposal explain ${oneLine(id, 60)}`)))));
    }
  }
}
