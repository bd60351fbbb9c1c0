/** Decisions about several: the selected ones, all that are alike, all of one member. */
import { button, html, replace } from "../../core/page/dom.js";
import { approveSelected, rejectSelected } from "./approvals-bulk.js";
import { oneLine } from "../../core/page/text.js";
import { MAX_AT_ONCE, likeOnes } from "./inbox-order.js";
import { mayRejectAll, rejectAllDialog } from "./reject-all.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {{next: () => void, text: string}} NextGroup what is shown after this one */

export class BulkDecisions {
  /** @param {import("../../app.js").Context} context @param {{marked: Set<string>, markAll: (proposals: Proposal[]) => void, clear: () => void}} list @param {(done: string[]) => void} decided */
  constructor(context, list, decided) {
    this._context = context;
    this._list = list;
    this._decided = decided;
    this.node = html.div({ class: "approvals-bulk", role: "group", "aria-label": "Selected proposals", hidden: true });
  }

  /** @returns {Proposal[]} */
  _pending() {
    const { state } = this._context;
    return state.proposals.toDecide(state.me.id);
  }

  /** @returns {Proposal[]} */
  selected() {
    return this._pending().filter((each) => this._list.marked.has(each.id));
  }

  draw() {
    const count = this.selected().length;
    this.node.hidden = count === 0;
    if (this.node.dataset.count === String(count)) return;
    this.node.dataset.count = String(count);
    if (count === 0) return;
    const waiting = this._pending();
    replace(
      this.node,
      html.strong({}, `${count} selected`),
      button(`Approve ${count}…`, () => this.approve(), { class: "small", shortcut: "a" }),
      button(`Reject ${count}…`, () => this.reject(), { class: "small danger", shortcut: "r" }),
      count < waiting.length &&
        button("Select all", () => this._list.markAll(waiting.slice(0, MAX_AT_ONCE)), { class: "small quiet" }),
      button("Clear", () => this._list.clear(), { class: "small quiet", shortcut: "Esc" }),
    );
  }

  approve() {
    this._decide(approveSelected);
  }

  reject() {
    this._decide(rejectSelected);
  }

  /** @param {typeof approveSelected} decide */
  _decide(decide) {
    const marked = this.selected();
    if (marked.length > MAX_AT_ONCE)
      this._context.notify(`${marked.length} selected. Decide on at most ${MAX_AT_ONCE} at once.`, "bad");
    else this.decideOn(marked, decide);
  }

  /** The first of them that can be read at once. @param {Proposal[]} proposals @param {typeof approveSelected} [decide] @param {NextGroup} [follows] */
  decideOn(proposals, decide = approveSelected, follows) {
    const finished = (/** @type {string[]} */ done) => {
      this._list.clear();
      this._decided(done);
    };
    decide(this._context, proposals.slice(0, MAX_AT_ONCE), finished, follows);
  }

  /**
   * All of this member that are like this one; then the next that are alike, so that each group takes one press more.
   * @param {Proposal | undefined} proposal @param {Set<string>} [seen] what was shown before
   */
  decideAlike(proposal, seen = new Set()) {
    if (proposal?.status !== "pending") return;
    const rest = this._pending().filter((each) => !seen.has(each.id));
    const alike = likeOnes(rest, proposal).slice(0, MAX_AT_ONCE);
    if (alike.length === 0) return;
    for (const each of alike) seen.add(each.id);
    const others = rest.filter((each) => !seen.has(each.id));
    const next = others.find((each) => likeOnes(others, each).length > 1);
    const text = next && `Next: ${likeOnes(others, next).length} similar calls by ${oneLine(next.from, 40)}.`;
    this.decideOn(alike, approveSelected, next && { text: text ?? "", next: () => this.decideAlike(next, seen) });
  }

  /** @param {string | undefined} from */
  rejectAll(from) {
    if (!from) return;
    if (mayRejectAll(this._context, from)) rejectAllDialog(this._context, from);
    else this._context.notify("Your permissions do not allow you to reject and pause this member.", "bad");
  }
}
