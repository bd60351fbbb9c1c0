// @ts-check
/** What a rule decided and nobody has reviewed: a person says that it was right, or objects to a decision (trust_reviews). */
import { button, el, replace } from "../core/dom.js";
import { nameOf, oneLine, escapeHidden } from "../core/text.js";
import { openDialog } from "./dialog.js";
import { icon } from "./icons.js";
import { objectDialog, runCommand } from "./rule-commands.js";

/** @typedef {import("../app.js").Context} Context @typedef {import("./approver-state.js").ApproverState} ApproverState */

/** @param {Context} context @param {ApproverState} approverState @param {string} rule @param {boolean} mayObject */
export function reviewDialog(context, approverState, rule, mayObject) {
  const list = el("div", { class: "review-list", role: "status" }, el("p", { class: "soft" }, "Loading…"));
  /** @type {string[]} */
  let shown = [];
  const confirm = button("All correct", () => void run(), { class: "primary", disabled: true });
  const dialog = openDialog(`Review ${oneLine(rule, 60)}`, [el("p", {}, "The rule decided these by itself. If one was wrong, object to it: the rule is suspended, and learns from it."), list], {
    actions: [button("Cancel", () => dialog.close(), { class: "quiet" }), confirm],
  });
  async function run() {
    confirm.disabled = true;
    // Only what was shown: the rule may have decided more meanwhile.
    if (await runCommand(context, approverState, "trust/accept", { reviewed: shown })) dialog.close();
    else confirm.disabled = false;
  }
  void fill();
  async function fill() {
    try {
      const known = await approverState.query("trust_reviews");
      const found = (Array.isArray(known.reviews) ? known.reviews : []).find((/** @type {any} */ each) => each?.rule === rule);
      const decisions = Array.isArray(found?.decisions) ? found.decisions : [];
      shown = decisions.map((/** @type {any} */ each) => String(each?.id));
      confirm.disabled = shown.length === 0;
      replace(list, shown.length === 0 ? el("p", { class: "soft" }, "Nothing to review.") : el("ul", { class: "rule-decisions" }, decisions.map((/** @type {any} */ each) => line(each))));
    } catch (fault) {
      const text = approverState.isOnline ? oneLine(fault instanceof Error ? fault.message : String(fault), 300) : "No approver is online.";
      replace(list, el("div", { class: "refusal-box", role: "alert" }, icon("warning", 16), el("p", {}, text)));
    }
  }
  /** @param {any} each */
  function line(each) {
    const id = String(each.id);
    const object = () => {
      dialog.close();
      objectDialog(context, approverState, { proposal: id, id, n: 0, rule, at: 0, from: "", tool: String(each.tool ?? ""), approved: true });
    };
    return el("li", {},
      el("span", { class: "grow" }, el("a", { href: context.link("timeline", id) }, el("bdi", {}, oneLine(String(each.tool ?? id), 60))), each.proposer && [" from ", nameOf(String(each.proposer))],
        el("small", { class: "act-summary" }, el("bdi", {}, escapeHidden(oneLine(JSON.stringify(each.arguments ?? {}), 300))))),
      button("Object…", object, { class: "quiet small", disabled: !mayObject, data: { focus: `review-object-${id}` }, aria: { label: `Object to ${oneLine(String(each.tool ?? id), 60)}` } }));
  }
}
