// @ts-check
/** Pending proposals, oldest first, and recent decisions. Rows do not move or change while somebody points at them. */
import { arrange, el } from "../core/dom.js";
import { membersOf, textAt } from "../core/json-text.js";
import { nameOf, oneLine, escapeHidden } from "../core/text.js";
import { ago } from "../core/time.js";
import { settledText, titleOf } from "./proposal-decisions.js";
import { voteCount } from "./proposal-history.js";

/** @typedef {import("../core/state-proposals.js").Proposal} Proposal */
/** @typedef {{node: HTMLElement, open: HTMLElement, box: HTMLInputElement, state: HTMLElement, drawnFor: string}} Row */

// A member may have 256 open proposals; beyond this many rows only the number is shown.
const MAX_ROWS = 300;
const LINE = 140;

export class ProposalList {
  /** @param {import("../app.js").Context} context @param {{choose: (id: string) => void, mark: () => void}} acts */
  constructor(context, acts) {
    this._context = context;
    this._acts = acts;
    /** @type {Set<string>} */
    this.marked = new Set();
    /** @type {Map<string, Row>} */
    this._rows = new Map();
    this._waiting = el("ul", { class: "approvals-rows", "aria-label": "Pending proposals" });
    this._decided = el("ul", { class: "approvals-rows decided", "aria-label": "Recent decisions" });
    this._more = el("p", { class: "soft approvals-more", hidden: true });
    this._none = el("p", { class: "soft approvals-none" }, "No pending proposals.");
    this._heading = el("h2", { class: "approvals-heading" }, "Recent decisions");
    this.node = el("div", { class: "approvals-list", on: { keydown: (/** @type {KeyboardEvent} */ event) => this._key(event) } }, this._none, this._waiting, this._more, this._heading, this._decided);
  }

  /** @param {Proposal[]} waiting @param {Proposal[]} decided @param {string} selected */
  draw(waiting, decided, selected) {
    for (const id of this.marked) if (this._context.state.proposals.byId.get(id)?.status !== "open") this.marked.delete(id);
    const shown = waiting.slice(0, MAX_ROWS);
    const focused = /** @type {HTMLElement | null} */ (document.activeElement);
    arrange(this._waiting, shown.map((each) => this._row(each, selected)));
    arrange(this._decided, decided.map((each) => this._row(each, selected)));
    // A row that moves from one list to the other keeps the focus.
    if (focused && focused !== document.activeElement && this.node.contains(focused)) focused.focus({ preventScroll: true });
    const kept = new Set([...shown, ...decided].map((each) => each.id));
    for (const id of this._rows.keys()) if (!kept.has(id)) this._rows.delete(id);
    this._none.hidden = waiting.length > 0;
    this._heading.hidden = decided.length === 0;
    this._more.hidden = waiting.length <= MAX_ROWS;
    this._more.textContent = `${waiting.length - MAX_ROWS} more; they appear as these are decided.`;
  }

  /** @param {Proposal} proposal @param {string} selected */
  _row(proposal, selected) {
    let row = this._rows.get(proposal.id);
    if (!row) {
      row = this._build(proposal);
      this._rows.set(proposal.id, row);
    }
    const isSelected = proposal.id === selected;
    const drawnFor = [proposal.status, proposal.rejections.length, proposal.approvals.length, proposal.uncertain].join(" ");
    if (drawnFor !== row.drawnFor) {
      row.drawnFor = drawnFor;
      row.state.replaceChildren(...this._state(proposal));
      row.node.dataset.status = proposal.status;
      row.box.hidden = proposal.status !== "open";
    }
    row.box.checked = this.marked.has(proposal.id);
    row.node.classList.toggle("marked", row.box.checked);
    row.node.classList.toggle("selected", isSelected);
    if (isSelected) row.open.setAttribute("aria-current", "true");
    else row.open.removeAttribute("aria-current");
    row.open.tabIndex = isSelected || selected === "" ? 0 : -1;
    return row.node;
  }

  /** @param {Proposal} proposal @returns {Row} */
  _build(proposal) {
    const what = oneLine(titleOf(proposal), 60);
    const state = el("span", { class: "approvals-row-state" });
    const box = el("input", { type: "checkbox", "aria-label": `Select ${what} from ${oneLine(proposal.from, 40)}`, tabindex: "-1", on: { change: () => this.toggle(proposal.id) } });
    const open = el(
      "button",
      { type: "button", class: "approvals-row-open", on: { click: () => this._acts.choose(proposal.id) } },
      el("span", { class: "approvals-row-what" }, el("bdi", { class: "mono" }, what), proposal.to.length > 0 && [el("span", { class: "faint" }, " on "), nameOf(proposal.to[0])]),
      el("bdi", { class: "approvals-row-arguments" }, argumentsLine(proposal)),
      el("span", { class: "approvals-row-who" }, nameOf(proposal.from, { you: proposal.from === this._context.state.me.id }), el("span", { class: "faint" }, " · "), el("time", { class: "since faint", data: { at: String(proposal.at) } }, ago(proposal.at)), state),
    );
    return { node: el("li", { class: "approvals-row", data: { id: proposal.id } }, el("label", { class: "approvals-row-mark" }, box), open), open, box, state, drawnFor: "" };
  }

  /** @param {Proposal} proposal */
  _state(proposal) {
    const me = this._context.state.me.id;
    const found = [];
    if (proposal.rejections.length > 0) found.push(el("span", { class: "tag", data: { tone: "bad" } }, rejectedBy(proposal, me)));
    if (proposal.approvals.length > 0) found.push(el("span", { class: "tag", data: { tone: "accent" } }, `${voteCount(proposal)} ${voteCount(proposal) === 1 ? "vote" : "votes"}`));
    if (proposal.uncertain && proposal.status === "open") found.push(el("span", { class: "tag", data: { tone: "warn" } }, "status unknown"));
    if (proposal.status === "fulfilled") found.push(el("span", { class: "tag", data: { tone: "accent" } }, "running"));
    if (proposal.status === "done") found.push(el("span", { class: "tag", data: { tone: "good" } }, proposal.fulfilledBy === me ? "Approved" : `Approved by ${oneLine(proposal.fulfilledBy, 24)}`));
    if (proposal.status === "failed") found.push(el("span", { class: "tag", data: { tone: "bad" }, title: escapeHidden(settledText(proposal, me)) }, "failed"));
    if (proposal.status === "withdrawn" || proposal.status === "expired") found.push(el("span", { class: "tag" }, proposal.status));
    return found;
  }

  /** @param {string} id */
  toggle(id) {
    if (this._context.state.proposals.byId.get(id)?.status !== "open") return;
    if (!this.marked.delete(id)) this.marked.add(id);
    this._showMarks();
  }

  /** @param {Proposal[]} proposals */
  markAll(proposals) {
    for (const each of proposals) this.marked.add(each.id);
    this._showMarks();
  }

  clear() {
    this.marked.clear();
    this._showMarks();
  }

  _showMarks() {
    for (const [id, row] of this._rows) {
      row.box.checked = this.marked.has(id);
      row.node.classList.toggle("marked", row.box.checked);
    }
    this._acts.mark();
  }

  /** @param {string} id */
  focus(id) {
    const row = this._rows.get(id);
    row?.open.focus({ preventScroll: true });
    row?.node.scrollIntoView({ block: "nearest" });
  }

  /** Space marks, Enter opens as on any button. @param {KeyboardEvent} event */
  _key(event) {
    const row = event.target instanceof Element ? event.target.closest(".approvals-row") : null;
    if (event.key !== " " || !(row instanceof HTMLElement) || !(event.target instanceof HTMLButtonElement)) return;
    event.preventDefault();
    if (!event.repeat) this.toggle(row.dataset.id ?? "");
  }
}

/** "Rejected by Ana", or by how many. @param {Proposal} proposal @param {string} me */
function rejectedBy(proposal, me) {
  const names = [...new Set(proposal.rejections.map((each) => each.by))];
  return `Rejected by ${names.length > 1 ? names.length : names[0] === me ? "you" : oneLine(names[0], 24)}`;
}

/** The arguments on a line, digits as they were received. @param {Proposal} proposal */
function argumentsLine(proposal) {
  const given = textAt(proposal.call.bodyText, ["params", "arguments"]) ?? textAt(proposal.call.bodyText, ["params"]) ?? "";
  if (!given.startsWith("{")) return oneLine(given, LINE);
  const text = membersOf(given).slice(0, 20).map((each) => `${each.key}=${each.text.startsWith('"') ? JSON.parse(each.text).slice(0, LINE * 2) : each.text.slice(0, LINE * 2)}`);
  return oneLine(text.join(" "), LINE);
}
