/**
 * What waits for this person, as they want to see it, what waits for others, calls whose outcome nobody knows, and recent
 * decisions. Rows do not change while somebody points at them; new ones come at the end unless another order was chosen.
 */
import { countAlike } from "../../core/state/alike-proposals.js";
import { arrange, button, html, redraw, replace } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { routeAddress } from "../../core/page/router.js";
import { oneLine, escapeHidden } from "../../core/page/text.js";
import { MAX_AT_ONCE, arrangeInbox } from "./inbox-order.js";
import { InboxBar } from "./inbox-bar.js";
import { buildRow, drawRow, tickRow } from "./proposal-row.js";
import { toneOf } from "../proposals/proposal-sentence.js";
import { knownTexts } from "../parts/text-diff.js";
import { icon } from "../parts/icons.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal @typedef {import("./proposal-row.js").Row} Row */
/** @typedef {import("./inbox-order.js").InboxGroup} InboxGroup */

// A member may have 256 open proposals; beyond this many rows only the number is shown.
const MAX_ROWS = 300;
// Of a group that is not unfolded.
const GROUP_ROWS = 4;
// As `--calm`.
const LEAVING_MILLISECONDS = 220;
// So many spaces are named in the line about others.
const MAX_SPACES = 12;

/** @typedef {{space: string, count: number, isKnown: boolean}} Elsewhere */

/** What is pending in the other spaces of this person, as far as it is known. @param {import("../../app.js").Context} context @returns {Elsewhere[]} */
function pendingElsewhere({ session, openSpace }) {
  return session.logins
    .filter((login) => login.space !== openSpace.name)
    .map(({ space }) => ({ space, ...session.pendingIn(space) }))
    .filter((each) => each.count > 0 || !each.isKnown);
}

/** "30 pending in 10 other spaces"; empty if there is nothing to say. @param {import("../../app.js").Context} context */
export function elsewhereText(context) {
  const others = pendingElsewhere(context);
  const waiting = others.filter((each) => each.count > 0);
  if (waiting.length > 0) return totalText(waiting);
  return others.length > 0
    ? `What is pending in ${others.length} other ${others.length === 1 ? "space" : "spaces"} is not known`
    : "";
}

/** @param {Elsewhere[]} waiting */
function totalText(waiting) {
  const count = waiting.reduce((sum, each) => sum + each.count, 0);
  return `${waiting.every((each) => each.isKnown) ? "" : "At least "}${formatNumber(count)} pending in ${waiting.length} other ${waiting.length === 1 ? "space" : "spaces"}`;
}

export class ProposalList {
  /**
   * @param {import("../../app.js").Context} context
   * @param {{mark: () => void, change: () => void, decide: (proposals: Proposal[]) => void, rejectAll: (from: string) => void}} acts
   */
  constructor(context, acts) {
    this._context = context;
    this._acts = acts;
    /** @type {Set<string>} */
    this.marked = new Set();
    /** What is shown of the pending ones, in its order. @type {Proposal[]} */
    this.listed = [];
    /** @type {Map<string, Row>} */
    this._rows = new Map();
    /** Of other spaces. @type {Map<Proposal, Row>} */
    this._distantRows = new Map();
    /** @type {Map<string, {node: HTMLElement, drawnFor: string}>} */
    this._heads = new Map();
    /** @type {Set<string>} */
    this._unfolded = new Set();
    /** @type {ReturnType<typeof countAlike>} */
    this._alike = new Map();
    /** Looked up once for a drawing. @type {ReturnType<typeof knownTexts> | null} */
    this._texts = null;
    this.bar = new InboxBar(() => acts.change());
    this._waiting = html.ul({ class: "approvals-rows", "aria-label": "Pending proposals" });
    this._others = html.ul({ class: "approvals-rows", "aria-label": "Waiting for others" });
    this._unknown = html.ul({ class: "approvals-rows", "aria-label": "Outcome unknown" });
    this._decided = html.ul({ class: "approvals-rows decided", "aria-label": "Recent decisions" });
    this._more = html.p({ class: "soft approvals-more", hidden: true });
    this._knowledge = html.div({ class: "approvals-none", role: "status" });
    this._knowledgeDrawnFor = "";
    this._where = html.p({ class: "approvals-where" });
    this._elsewhere = html.ul({ class: "approvals-rows", "aria-label": "Pending in other spaces" });
    this._lists = [
      section("In other spaces", this._where, this._elsewhere),
      section("Waiting for others", this._others),
      section("Outcome unknown", this._unknown),
      section("Recent decisions", this._decided),
    ];
    this.node = html.div(
      { class: "approvals-list", on: { keydown: (/** @type {KeyboardEvent} */ event) => this._key(event) } },
      this.bar.node,
      this._knowledge,
      this._waiting,
      this._more,
      this._lists,
    );
  }

  /**
   * @param {{waiting: Proposal[], others: Proposal[], unknown: Proposal[], decided: Proposal[]}} proposals @param {string} selected
   */
  draw({ waiting, others, unknown, decided }, selected) {
    for (const id of this.marked)
      if (this._context.state.proposals.byId.get(id)?.status !== "pending") this.marked.delete(id);
    const { groups, listed } = arrangeInbox(waiting, this.bar.choice);
    this.listed = listed;
    this.bar.draw(waiting.length, listed.length);
    this._texts = null;
    this._alike = countAlike(this._context.state.proposals.pending.values());
    const focused = /** @type {HTMLElement | null} */ (document.activeElement);
    const shown = this._grouped(groups, selected);
    leave(this._waiting, new Set(waiting.map((each) => each.id)));
    const kept = new Set(shown.flatMap((each) => (each instanceof HTMLElement ? [] : [each.id])));
    arrange(
      this._waiting,
      shown.map((each) => (each instanceof HTMLElement ? each : this._row(each, selected))),
    );
    const lists = /** @type {[HTMLElement, Proposal[]][]} */ ([
      [this._others, others.slice(0, MAX_ROWS)],
      [this._unknown, unknown.slice(0, MAX_ROWS)],
      [this._decided, decided],
    ]);
    for (const [list, proposals] of lists) {
      arrange(
        list,
        proposals.map((each) => this._row(each, selected)),
      );
      /** @type {HTMLElement} */ (list.parentElement).hidden = proposals.length === 0;
      for (const each of proposals) kept.add(each.id);
    }
    // A row that moves from one list to the other keeps the focus.
    if (focused && focused !== document.activeElement && this.node.contains(focused))
      focused.focus({ preventScroll: true });
    this._drawElsewhere();
    for (const id of this._rows.keys()) if (!kept.has(id)) this._rows.delete(id);
    this._drawKnowledge(waiting.length);
    this._more.hidden = listed.length <= MAX_ROWS;
    redraw(this._more, [listed.length, this.bar.choice.sort], () => [
      `${formatNumber(listed.length - MAX_ROWS)} more; they appear as these are decided. `,
      this.bar.choice.sort === "oldest" &&
        button(`Show the last ${formatNumber(MAX_ROWS)} first`, () => this.bar.showNewest(), { class: "quiet small" }),
    ]);
  }

  /** The rows, each group below its head; of a large one the first rows. @param {InboxGroup[]} groups @param {string} selected @returns {(Proposal | HTMLElement)[]} */
  _grouped(groups, selected) {
    if (groups.length === 1 && groups[0].title === "") return groups[0].proposals.slice(0, MAX_ROWS);
    for (const key of this._heads.keys()) if (!groups.some((each) => each.key === key)) this._heads.delete(key);
    return groups
      .flatMap((group) => {
        const isFolded = !this._unfolded.has(group.key) && group.proposals.length > GROUP_ROWS + 1;
        const rows = group.proposals.filter(
          (each, index) => !isFolded || index < GROUP_ROWS || each.id === selected || this.marked.has(each.id),
        );
        return [this._head(group, rows.length), ...rows];
      })
      .slice(0, MAX_ROWS);
  }

  /** @param {InboxGroup} group @param {number} shown */
  _head(group, shown) {
    let head = this._heads.get(group.key);
    if (!head) this._heads.set(group.key, (head = { node: html.li({ class: "approvals-group" }), drawnFor: "" }));
    const { proposals, title, from } = group;
    const red = proposals.filter((each) => toneOf(each) === "bad").length;
    const hidden = proposals.length - shown;
    const atOnce = proposals.length > MAX_AT_ONCE ? `the first ${MAX_AT_ONCE}` : proposals.length;
    const isUnfolded = this._unfolded.has(group.key);
    const drawnFor = [proposals.map((each) => each.id).join(), red, hidden, isUnfolded].join(" ");
    if (drawnFor === head.drawnFor) return head.node;
    head.drawnFor = drawnFor;
    const fold = () => {
      if (!this._unfolded.delete(group.key)) this._unfolded.add(group.key);
      this._acts.change();
    };
    // One alone is decided on its page.
    const several = proposals.length > 1;
    replace(
      head.node,
      html.div(
        { class: "approvals-group-title" },
        html.h2({}, html.bdi({}, title)),
        html.span({ class: "tag" }, formatNumber(proposals.length)),
        red > 0 && html.span({ class: "tag", data: { tone: "bad" } }, `${formatNumber(red)} red`),
        html.span({ class: "grow" }),
        (hidden > 0 || isUnfolded) &&
          button(isUnfolded ? "Show fewer" : `Show ${formatNumber(hidden)} more`, fold, {
            class: "small quiet",
            aria: { expanded: String(isUnfolded) },
          }),
      ),
      several &&
        html.div(
          { class: "approvals-group-acts" },
          button(`Decide on ${atOnce}…`, () => this._acts.decide(proposals), { class: "small" }),
          from !== "" &&
            button("Reject all and pause…", () => this._acts.rejectAll(from), { class: "small quiet danger" }),
        ),
    );
    return head.node;
  }

  /** One queue over all spaces: those of others are links, in the same order. */
  _drawElsewhere() {
    const { choice } = this.bar;
    const found = [...this._context.session.openSpaces.values()]
      .filter((each) => each !== this._context.openSpace)
      .flatMap((each) =>
        arrangeInbox(each.state.proposals.toDecide(each.state.me.id), { ...choice, group: "none" }).listed.map(
          (proposal) => ({ space: each.name, me: each.state.me.id, proposal }),
        ),
      )
      .slice(0, MAX_ROWS);
    const others = pendingElsewhere(this._context);
    /** @type {HTMLElement} */ (this._elsewhere.parentElement).hidden = elsewhereText(this._context) === "";
    const links = (/** @type {Elsewhere[]} */ spaces) =>
      spaces
        .slice(0, MAX_SPACES)
        .map(({ space, count }, index) => [
          index > 0 && ", ",
          html.a({ href: routeAddress(space, "approvals") }, html.bdi({}, oneLine(space, 40))),
          count > 0 && ` ${formatNumber(count)}`,
        ]);
    const [waiting, unknown] = [others.filter((each) => each.count > 0), others.filter((each) => each.count === 0)];
    const rest = (/** @type {Elsewhere[]} */ spaces) =>
      spaces.length > MAX_SPACES && ` and ${spaces.length - MAX_SPACES} more`;
    redraw(this._where, others, () => [
      waiting.length > 0 && html.span({}, `${totalText(waiting)}: `, links(waiting), rest(waiting), ". "),
      unknown.length > 0 && html.span({ class: "soft" }, "Not known in ", links(unknown), rest(unknown), "."),
    ]);
    const kept = new Set(found.map(({ proposal }) => proposal));
    for (const each of this._distantRows.keys()) if (!kept.has(each)) this._distantRows.delete(each);
    arrange(
      this._elsewhere,
      found.map(({ space, me, proposal }) => {
        const facts = { me, space, isHere: false, alike: 1, knownText: () => undefined };
        const row = this._distantRows.get(proposal) ?? buildRow(proposal, facts, () => {});
        this._distantRows.set(proposal, row);
        drawRow(row, proposal, facts);
        return row.node;
      }),
    );
  }

  /** That nothing is pending is said only when the gateway said so. @param {number} count */
  _drawKnowledge(count) {
    const { knowledge, problem } = this._context.openSpace.sync;
    this._knowledge.hidden = count > 0 && knowledge === "known";
    const isElsewhere = elsewhereText(this._context) !== "";
    const now = [knowledge, problem, count > 0, isElsewhere].join("\n");
    if (now === this._knowledgeDrawnFor) return;
    this._knowledgeDrawnFor = now;
    if (knowledge === "known")
      replace(
        this._knowledge,
        html.p({ class: "soft" }, `No pending proposals${isElsewhere ? " in this space" : ""}.`),
      );
    else if (knowledge === "asking")
      replace(
        this._knowledge,
        html.p(
          { class: "soft loading" },
          html.span({ class: "spinner", "aria-hidden": "true" }),
          count > 0 ? "Loading more…" : "Loading what is pending…",
        ),
      );
    else
      replace(
        this._knowledge,
        html.p(
          { class: "caution" },
          icon("warning", 16),
          html.span(
            {},
            `${count > 0 ? "There may be more" : "What is pending is not known"}: ${escapeHidden(problem)}.`,
          ),
        ),
        !this._context.openSpace.connection.isVoid && button("Retry", () => void this._retry(), { class: "small" }),
      );
  }

  _retry() {
    const { connection, sync } = this._context.openSpace;
    if (connection.state === "live") void sync.refresh();
    else connection.retryNow();
  }

  /** @param {Proposal} proposal @param {string} selected */
  _row(proposal, selected) {
    const { state, openSpace } = this._context;
    const facts = {
      me: state.me.id,
      space: openSpace.name,
      isHere: true,
      alike: this._alike.get(proposal) ?? 1,
      knownText: (/** @type {string} */ host, /** @type {string} */ path) => {
        this._texts ??= knownTexts(state.proposals);
        return this._texts(host, path);
      },
    };
    const row = this._rows.get(proposal.id) ?? buildRow(proposal, facts, () => this.toggle(proposal.id));
    this._rows.set(proposal.id, row);
    drawRow(row, proposal, facts);
    const isSelected = proposal.id === selected;
    row.box.checked = this.marked.has(proposal.id);
    row.node.classList.toggle("marked", row.box.checked);
    row.node.classList.toggle("selected", isSelected);
    if (isSelected) row.open.setAttribute("aria-current", "true");
    else row.open.removeAttribute("aria-current");
    row.open.tabIndex = isSelected || selected === "" ? 0 : -1;
    return row.node;
  }

  /** What the clock changes. */
  tick() {
    for (const [id, row] of this._rows) tickRow(row.node, this._context.state.proposals.byId.get(id));
    for (const [proposal, row] of this._distantRows) tickRow(row.node, proposal);
  }

  /** @param {string} id */
  toggle(id) {
    if (this._context.state.proposals.byId.get(id)?.status !== "pending") return;
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
    const open = event.target instanceof Element ? event.target.closest(".approvals-row-open") : null;
    const row = open?.closest(".approvals-row");
    if (event.key !== " " || !(row instanceof HTMLElement)) return;
    event.preventDefault();
    if (!event.repeat) this.toggle(row.dataset.id ?? "");
  }
}

// More than this at a time is a change of the list, not a row that leaves.
const MAX_LEAVING = 4;

/** What was decided leaves a gap that closes, so that eyes can follow where the list went. @param {HTMLElement} list @param {Set<string>} ids that stay */
function leave(list, ids) {
  const rows = /** @type {HTMLElement[]} */ ([...list.children]);
  const gone = rows.filter((each) => each.dataset.id && !ids.has(each.dataset.id));
  if (gone.length > MAX_LEAVING || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const node of gone) {
    const next = rows[rows.indexOf(node) + 1];
    if (node.offsetHeight === 0 || !next || gone.includes(next)) continue;
    // With what is between the two: the row below begins exactly where it was.
    const gap = next.offsetTop - node.offsetTop;
    next.animate([{ marginTop: `${gap}px` }, { marginTop: "0" }], {
      duration: LEAVING_MILLISECONDS,
      easing: "ease-out",
    });
  }
}

/** @param {string} title @param {HTMLElement[]} list */
function section(title, ...list) {
  return html.section({ hidden: true }, html.h2({ class: "approvals-heading" }, title), ...list);
}
