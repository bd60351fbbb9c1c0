/** Why a proposal was or was not decided by a rule; the approver explains it (trust_explain). */
import { el, replace } from "../../core/page/dom.js";
import { oneLine, escapeHidden } from "../../core/page/text.js";
import { openDialog } from "../parts/dialog.js";
import { icon } from "../parts/icons.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("./approver-state.js").ApproverState} ApproverState */

/** @param {Context} context @param {ApproverState} approverState @param {string} id of a proposal, its fulfilment or its answer @param {() => void} [closed] */
export function explanationDialog(context, approverState, id, closed) {
  const answer = el("div", { class: "explanation", role: "status" }, el("p", { class: "soft" }, "Loading…"));
  openDialog(
    "Explanation",
    [
      el(
        "p",
        {},
        "About ",
        el("a", { href: context.link("timeline", id) }, el("bdi", { class: "mono" }, oneLine(id, 60))),
      ),
      answer,
    ],
    { closed },
  );
  void fill();
  async function fill() {
    try {
      const known = await approverState.query("trust_explain", { id });
      /** @type {string[]} */
      const lines = (Array.isArray(known.lines) ? known.lines : []).map(String);
      const [done, now, ...others] = lines;
      replace(
        answer,
        el("p", {}, el("strong", {}, "What happened: "), el("bdi", {}, escapeHidden(done ?? ""))),
        el("p", {}, el("strong", {}, "What the rules say: "), el("bdi", {}, escapeHidden(now ?? ""))),
        others.length > 0 &&
          el(
            "div",
            {},
            el("strong", {}, "Why other rules do not apply"),
            el(
              "ul",
              { class: "losses" },
              others.map((each) => el("li", {}, el("bdi", {}, escapeHidden(each.trim())))),
            ),
          ),
      );
    } catch (fault) {
      const text = approverState.isOnline
        ? oneLine(fault instanceof Error ? fault.message : String(fault), 300)
        : "No approver is online.";
      replace(
        answer,
        el(
          "div",
          { class: "refusal-box", role: "alert" },
          icon("warning", 16),
          el(
            "div",
            {},
            el("p", {}, text),
            el(
              "p",
              {},
              "On the machine with the journal, run: ",
              el("code", {}, `moot proposal explain ${oneLine(id, 60)}`),
            ),
          ),
        ),
      );
    }
  }
}
