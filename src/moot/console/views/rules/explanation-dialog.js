/** Why a proposal was or was not decided by a rule; the approver explains it (trust_explain). */
import { html, replace } from "../../core/page/dom.js";
import { oneLine, escapeHidden } from "../../core/page/text.js";
import { openDialog } from "../parts/dialog.js";
import { icon } from "../parts/icons.js";
import { proposalLink } from "./rule-suggestion.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("./approver-state.js").ApproverState} ApproverState */

/** @param {Context} context @param {ApproverState} approverState @param {string} id of a proposal, its fulfilment or its answer @param {() => void} [closed] */
export function explanationDialog(context, approverState, id, closed) {
  const answer = html.div({ class: "explanation", role: "status" }, html.p({ class: "soft" }, "Loading…"));
  openDialog("Explanation", [html.p({}, "About ", proposalLink(context, id)), answer], { closed });
  void fill();
  async function fill() {
    try {
      const known = await approverState.query("trust_explain", { id });
      /** @type {string[]} */
      const lines = (Array.isArray(known.lines) ? known.lines : []).map(String);
      const [done, now, ...others] = lines;
      replace(
        answer,
        html.p({}, html.strong({}, "What happened: "), html.bdi({}, escapeHidden(done ?? ""))),
        html.p({}, html.strong({}, "What the rules say: "), html.bdi({}, escapeHidden(now ?? ""))),
        others.length > 0 &&
          html.div(
            {},
            html.strong({}, "Why other rules do not apply"),
            html.ul(
              { class: "losses" },
              others.map((each) => html.li({}, html.bdi({}, escapeHidden(each.trim())))),
            ),
          ),
      );
    } catch (fault) {
      const text = approverState.isOnline
        ? oneLine(fault instanceof Error ? fault.message : String(fault), 300)
        : "No approver is online.";
      replace(
        answer,
        html.div(
          { class: "refusal-box", role: "alert" },
          icon("warning", 16),
          html.div(
            {},
            html.p({}, text),
            html.p(
              {},
              "On the machine with the journal, run: ",
              html.code({}, `moot proposal explain ${oneLine(id, 60)}`),
            ),
          ),
        ),
      );
    }
  }
}
