/**
 * Approvals: the pending proposals, the selected one in full, and the decisions about it.
 *
 * Nothing is approved by accident. An approval takes two presses, the second no sooner than SETTLE_MILLISECONDS after
 * the first and never by a key that is held down. When a proposal is shown that the person did not select, keys and
 * buttons do nothing for as long. New ones are added at the end, so that nothing moves under the pointer.
 */
import { alikeOf } from "../../core/state/alike-proposals.js";
import { button, html, redraw, replace } from "../../core/page/dom.js";
import { waitsForOthers } from "../../core/state/proposal-life.js";
import { registerView } from "../../core/page/router.js";
import { oneLine } from "../../core/page/text.js";
import { ago } from "../../core/page/time.js";
import { ApprovalActions } from "./approvals-actions.js";
import { alertSwitches, alertInAllSpaces, alertNewProposals } from "./approvals-alerts.js";
import { BulkDecisions } from "./bulk-decisions.js";
import { delegationNotice } from "./delegation.js";
import { settledText, titleOf } from "../proposals/proposal-decisions.js";
import { emptyInbox } from "./empty-inbox.js";
import { ProposalList, elsewhereText } from "./approvals-list.js";
import { changeText, wishText } from "../proposals/proposal-sentence.js";
import { proposalComments } from "../proposals/proposal-comments.js";
import { proposalView } from "./proposal-view.js";
import { proposalHistory, notReceived } from "./proposal-history.js";
import { onHeldChange, takeBackChoice } from "./take-back.js";
import { planNotice } from "../rules/plan-list.js";
import { icon } from "../parts/icons.js";
import { moreBelow } from "../parts/more-below.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../../app.js").Context} Context */

// Decided proposals that are still shown, so that their results can be followed.
const MAX_DECIDED = 20;

class ApprovalsView {
  /** @param {HTMLElement} outlet @param {Context} context */
  constructor(outlet, context) {
    this._context = context;
    this._proposals = context.state.proposals;
    this.selected = "";
    /** The id in the address, if that proposal was not received yet. */
    this._wanted = "";
    /** The index of the selected proposal among the pending ones, and whether it was decided while it was shown. */
    this._position = 0;
    this._justDecided = false;
    /** @type {{proposal: Proposal, view: ReturnType<typeof proposalView>, drawnFor: string, history: HTMLElement, told: any[]} | null} */
    this._shown = null;
    /** @type {Set<string>} */
    this._announced = new Set(this._proposals.open().map((each) => each.id));
    this._list = new ProposalList(context, {
      mark: () => this._bulk.draw(),
      change: () => this.draw(),
      decide: (proposals) => this._bulk.decideOn(proposals),
      rejectAll: (from) => this._bulk.rejectAll(from),
    });
    this._actions = new ApprovalActions(
      context,
      () => this.move(1, "wait"),
      (id) => this._advance(id),
    );
    this._count = html.span({ class: "soft" });
    this._empty = html.div({ class: "inbox-empty" });
    /** @type {ReturnType<typeof proposalComments> | null} */
    this._talk = null;
    this._bulk = new BulkDecisions(context, this._list, (done) => {
      if (done.includes(this.selected)) this._advance(this.selected);
    });
    this._body = html.div({
      class: "approvals-body",
      on: {
        "moot:change": () => this._list.draw(this._listed(), this.selected),
        "moot:grant": () => this._actions.grant(),
        "moot:alike": () => this._bulk.decideAlike(this._shown?.proposal),
        "moot:reject-all": () => this._bulk.rejectAll(this._shown?.proposal.from),
      },
    });
    this._fold = moreBelow(this._body);
    this._detail = html.section(
      { class: "approvals-detail", "aria-label": "Proposal" },
      html.div(
        { class: "approvals-back" },
        button("All proposals", () => context.go("approvals"), { class: "quiet small", icon: icon("up", 16) }),
      ),
      this._body,
      this._fold.node,
      this._actions.node,
    );
    this._planNotice = html.div({}, planNotice(context));
    this._away = html.div({});
    this._root = html.div({ class: "approvals" }, html.div({ class: "approvals-side" }, this._list.node), this._detail);
    outlet.append(
      html.div(
        { class: "view-head" },
        html.h1({}, "Inbox"),
        this._count,
        html.span({ class: "grow" }),
        takeBackChoice(),
        alertSwitches(context),
      ),
      this._planNotice,
      this._away,
      this._bulk.node,
      this._root,
    );
    this._clock = setInterval(() => this._tick(), 1000);
    this._stops = [
      context.state.on("proposals", () => this.draw()),
      context.state.on("trust", () => replace(this._planNotice, planNotice(context))),
      // Of a thousand requests a second, only those about the shown proposal change its progress.
      context.state.on("requests", () => this._drawHistory()),
      context.state.on(["tools", "roster", "reasoning"], () => {
        this._shown?.view.refresh();
        this._actions.draw();
      }),
      onHeldChange(() => this._actions.draw()),
      context.session.on("spaces", () => {
        this._list.draw(this._listed(), this.selected);
        if (!this.selected && !this._wanted) this._drawEmpty();
      }),
      context.keys.add("Approvals", {
        j: ["Next", () => this.move(1)],
        k: ["Previous", () => this.move(-1)],
        ArrowDown: ["Next", () => this.move(1)],
        ArrowUp: ["Previous", () => this.move(-1)],
        a: ["Yes: approve (press twice), or approve the selected ones", (event) => this._approve(event)],
        y: ["Yes, the same", (event) => this._approve(event)],
        s: ["Yes, and the same call again (press twice)", (event) => this._actions.approveAgain(event.repeat)],
        n: ["No: reject (press twice), or reject the selected ones", (event) => this._rejectPlainly(event)],
        r: ["No, with words: reject with a reason, or reject the selected ones", () => this._reject()],
        A: ["Approve and grant", () => this._actions.grant()],
        "g g": ["Approve and grant", () => this._actions.grant()],
        e: ["Approve with changes", () => this._actions.change()],
        t: ["The same for the rest of this task", () => this._actions.approveTask()],
        v: ["Vote (press twice)", (event) => event.repeat || this._actions.vote()],
        w: ["Withdraw your own (press twice)", (event) => event.repeat || this._actions.withdraw()],
        x: ["Select or deselect", () => this._list.toggle(this.selected)],
        l: ["Decide on all that are like this one", () => this._bulk.decideAlike(this._shown?.proposal)],
        X: ["Reject all of this member and pause it", () => this._bulk.rejectAll(this._shown?.proposal.from)],
        c: ["Comment", () => this._talk?.focus()],
        u: ["Group in another way", () => context.announce(this._list.bar.cycle())],
        "/": ["Search", () => this._list.bar.focus()],
        Escape: ["Cancel; clear the selection", () => this._escape()],
      }),
    ];
    this.draw();
  }

  /** What waits for this person. @returns {Proposal[]} */
  _pending() {
    return this._proposals.toDecide(this._context.state.me.id);
  }

  /** The lists that are shown. */
  _listed() {
    const me = this._context.state.me.id;
    const settled = [...this._proposals.byId.values()].filter((each) => each.status !== "pending");
    return {
      waiting: this._pending(),
      others: this._proposals.open().filter((each) => waitsForOthers(each, me)),
      unknown: settled.filter((each) => each.status === "unknown"),
      decided: settled
        .filter((each) => each.status !== "unknown")
        .sort((a, b) => b.settledAt - a.settledAt)
        .slice(0, MAX_DECIDED),
    };
  }

  draw() {
    const listed = this._listed();
    const { waiting } = listed;
    replace(this._count, this._countText(waiting.length));
    redraw(this._away, this._proposals.delegations.living(), () => delegationNotice(this._context));
    this._announce(waiting);
    this._list.draw(listed, this.selected);
    this._bulk.draw();
    const at = this._list.listed.findIndex((each) => each.id === this.selected);
    if (at >= 0) this._position = at;
    if (this._wanted && this._proposals.byId.has(this._wanted)) this.select(this._wanted, false);
    else if (this._isReplaced()) this._reselect();
    // While the page still learns what is pending, the first that it heard of may have been decided long ago.
    else if (
      !this.selected &&
      !this._wanted &&
      this._list.listed.length > 0 &&
      this._context.openSpace.sync.knowledge !== "asking"
    )
      this.select(this._list.listed[0].id, false);
    else if (!this.selected && !this._wanted) this._drawEmpty();
    this._talk?.draw();
    this._drawAlike();
    this._drawHistory();
  }

  /** What may become known while somebody reads: the same call once more, where its values came from, its file. */
  _drawAlike() {
    if (!this._shown) return;
    const { proposal, view } = this._shown;
    const now =
      proposal.status === "pending"
        ? [
            ...proposal.counters,
            ...alikeOf(this._proposals.pending.values(), proposal).map((each) => each.id),
            ...this._proposals.open().flatMap((each) => (each.counters.includes(proposal.id) ? [`~${each.id}`] : [])),
          ].join(" ")
        : "";
    const { origins, opinions, budgets, effects, previews, status } = proposal;
    const told = [
      now,
      origins,
      opinions,
      budgets,
      wishText(proposal),
      changeText(proposal),
      `${status} ${proposal.undone?.id}`,
      previews,
      effects,
    ];
    const before = this._shown.told;
    if (before.length > 0 && told.some((each, index) => each !== before[index])) view.refresh();
    // Whoever was about to press has not read that it was done before, or another preview.
    const isOther = effects !== before.at(-1) || previews !== before.at(-2);
    if (before.length > 0 && isOther) this._actions.show(proposal, view.unread, false);
    this._shown.told = told;
  }

  /**
   * Show a proposal. `chosen`: the person selected it just now; otherwise it is guarded for a moment.
   * @param {string} id @param {boolean} chosen
   */
  select(id, chosen) {
    const proposal = this._proposals.byId.get(id);
    if (!proposal) {
      this._wanted = id;
      return;
    }
    this._wanted = "";
    this._root.classList.remove("nothing");
    if (this.selected === id) return;
    this.selected = id;
    this._justDecided = false;
    const view = proposalView(this._context, proposal);
    const historyNode = html.div({});
    this._shown = { proposal, view, drawnFor: "", history: historyNode, told: [] };
    this._talk = proposalComments(this._context, proposal);
    replace(this._body, view.node, this._talk.node, historyNode);
    this._fold.watch([view.node, historyNode]);
    this._body.scrollTop = 0;
    this._actions.show(proposal, view.unread, chosen);
    this._list.draw(this._listed(), id);
    const at = this._list.listed.findIndex((each) => each.id === id);
    if (at >= 0) this._position = at;
    this._drawAlike();
    this._drawHistory();
  }

  /** D-94: a sender that was restarted may use an id again; what is shown is then another proposal. */
  _isReplaced() {
    const now = this._proposals.byId.get(this.selected);
    return this._shown !== null && now !== undefined && now !== this._shown.proposal;
  }

  _reselect() {
    const id = this.selected;
    this.selected = "";
    this.select(id, false);
  }

  /** @param {number} count */
  _countText(count) {
    const { knowledge } = this._context.openSpace.sync;
    if (knowledge === "known") return `${count || "none"} pending`;
    if (count > 0) return `at least ${count} pending`;
    return knowledge === "asking" ? "loading" : "pending: not known";
  }

  /** @param {number} step @param {"any" | "wait"} [among] */
  move(step, among = "any") {
    const waiting = this._list.listed;
    const listed = this._listed();
    const rows = among === "wait" ? waiting : [...waiting, ...listed.others, ...listed.unknown, ...listed.decided];
    if (rows.length === 0) return;
    const current = rows.findIndex((each) => each.id === this.selected);
    // After a decision, go on to the proposal that took its place, so that one can be decided after the other.
    const from =
      (this._justDecided || current < 0) && waiting.length > 0
        ? Math.min(this._position, waiting.length) - (step > 0 ? 1 : 0)
        : current;
    const next =
      (this._justDecided || current < 0) && waiting.length > 0
        ? Math.min(from + step, waiting.length - 1)
        : current + step;
    const proposal = rows[Math.max(0, Math.min(rows.length - 1, next))];
    history.replaceState(null, "", this._context.link("approvals", proposal.id));
    this.select(proposal.id, true);
    this._list.focus(proposal.id);
  }

  /** After a decision the next one is shown, so that many can be decided one after the other. @param {string} id */
  _advance(id) {
    const pending = new Set(this._pending());
    const rest = this._list.listed.filter((each) => each.id !== id && pending.has(each));
    if (this.selected !== id || rest.length === 0) return;
    const next = rest[Math.min(this._position, rest.length - 1)];
    history.replaceState(null, "", this._context.link("approvals", next.id));
    // Nobody selected it: keys and buttons do nothing for a moment.
    this.select(next.id, false);
    const at = document.activeElement;
    const row = /** @type {HTMLElement | null | undefined} */ (at?.closest(".approvals-row"));
    const hadFocus = at === document.body || this._detail.contains(at) || row?.dataset.id === id;
    if (hadFocus && this._list.node.checkVisibility()) this._list.focus(next.id);
  }

  /** @param {KeyboardEvent} event */
  _approve(event) {
    if (this._bulk.selected().length === 0) this._actions.approve(event.repeat);
    else if (!event.repeat) this._bulk.approve();
  }

  _reject() {
    if (this._bulk.selected().length === 0) this._actions.reject();
    else this._bulk.reject();
  }

  /** @param {KeyboardEvent} event */
  _rejectPlainly(event) {
    if (event.repeat) return;
    if (this._bulk.selected().length === 0) this._actions.rejectPlainly();
    else this._bulk.reject();
  }

  _escape() {
    if (!this._actions.disarm()) this._list.clear();
  }

  _drawEmpty() {
    this._shown = null;
    this._root.classList.add("nothing");
    this._actions.show(null, () => false, true);
    const { knowledge } = this._context.openSpace.sync;
    redraw(this._empty, [knowledge, elsewhereText(this._context)], () => emptyInbox(this._context));
    if (this._empty.parentElement !== this._body) replace(this._body, this._empty);
  }

  /** The history of the selected proposal; redrawn only when it changed. */
  _drawHistory() {
    if (!this._shown) return;
    const { proposal, history: historyNode } = this._shown;
    const request = this._proposals.requests.get(proposal.requestId);
    const progress = request && !request.answer ? this._context.state.envelopes.effectsOf(request.id).length : 0;
    const rejections = proposal.rejections.map((each) => `${each.id}:${each.comments.length}`);
    const now = [
      proposal.status,
      ...rejections,
      proposal.approvals.length,
      Boolean(request?.answer),
      progress,
      proposal.votesNeeded,
      proposal.votesMissing,
      proposal.inputs.length,
      proposal.undone?.id,
    ].join(" ");
    this._actions.draw();
    if (now === this._shown.drawnFor) return;
    const wasOpen = this._shown.drawnFor.startsWith("pending");
    this._shown.drawnFor = now;
    replace(historyNode, proposalHistory(this._context, proposal));
    if (wasOpen && proposal.status !== "pending") {
      this._justDecided = true;
      const outcome = settledText(proposal, this._context.state.me.id);
      if (proposal.fulfilledBy !== this._context.state.me.id)
        this._context.announce(`${oneLine(titleOf(proposal), 60)}: ${oneLine(outcome, 120)}`);
    }
  }

  /** @param {Proposal[]} waiting */
  _announce(waiting) {
    const added = waiting.filter((each) => !this._announced.has(each.id));
    for (const each of added) this._announced.add(each.id);
    const others = added.filter((each) => each.from !== this._context.state.me.id);
    if (others.length === 1) this._context.announce(`${oneLine(others[0].from, 40)} ${wishText(others[0])}`);
    else if (others.length > 1) this._context.announce(`${others.length} new proposals`);
  }

  _tick() {
    for (const node of /** @type {NodeListOf<HTMLElement>} */ (this._root.querySelectorAll("time.since"))) {
      const text = ago(Number(node.dataset.at));
      if (node.textContent !== text) node.textContent = text;
    }
    this._list.tick();
    this._actions.draw();
  }

  /** @param {string[]} rest */
  openRoute(rest) {
    const id = rest[0] ?? "";
    const wasOpened = this._root.classList.contains("opened");
    this._root.classList.toggle("opened", id !== "");
    if (!id && wasOpened) this._list.focus(this.selected);
    // What was asked for before is not wanted any more.
    if (!id) this._wanted = "";
    if (!id) return this.draw();
    this.select(id, true);
    if (this._wanted === id) void this._find(id);
    // On a phone the list is hidden now; elsewhere the focus stays in the list.
    if (getComputedStyle(this._list.node).display === "none" || !this._list.node.checkVisibility())
      this._body.querySelector("h2")?.focus();
  }

  /** A link to a proposal that was not received here: the gateway remembers what became of it. @param {string} id */
  async _find(id) {
    const show = (/** @type {any[]} */ ...content) => {
      if (this._wanted !== id) return;
      this._shown = null;
      this.selected = "";
      this._actions.show(null, () => false, true);
      replace(this._body, html.div({ class: "empty" }, content));
    };
    show(html.strong({}, "Loading"), html.p({}, html.bdi({ class: "mono" }, oneLine(id, 60))));
    const found = await this._context.openSpace.sync.find(id);
    if (this._wanted !== id || this._proposals.byId.has(id)) return;
    show(notReceived(id, found, () => void this._find(id)));
  }

  close() {
    this._fold.watch([]);
    clearInterval(this._clock);
    this._actions.close();
    this._stops.forEach((stop) => stop());
  }
}

registerView({
  id: "approvals",
  title: "Inbox",
  icon: "inbox",
  order: 10,
  key: "a",
  badge: (state, session) => {
    // Called in every view, so that alerts work before the approvals are opened.
    alertNewProposals(state);
    // The inbox lists those of other spaces, too.
    return session.pendingCount;
  },
  mount(outlet, context) {
    alertInAllSpaces(context.session);
    const view = new ApprovalsView(outlet, context);
    return { unmount: () => view.close(), openRoute: (rest) => view.openRoute(rest) };
  },
});
