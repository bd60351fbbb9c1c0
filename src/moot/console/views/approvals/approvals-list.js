/**
 * What waits for this person, what waits for others, calls whose outcome nobody knows, and recent decisions. Rows do not
 * move or change while somebody points at them.
 */
import { countAlike } from "../../core/state/alike-proposals.js";
import { arrange, button, html, redraw, replace } from "../../core/page/dom.js";
import { membersOf, textAt } from "../../core/state/json-text.js";
import { referenceIn } from "../../core/connection/large-values.js";
import { formatNumber } from "../../core/page/numbers.js";
import { routeAddress } from "../../core/page/router.js";
import { voteText } from "../../core/state/proposal-life.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { ago } from "../../core/page/time.js";
import { settledText, titleOf } from "./proposal-decisions.js";
import { originCautions } from "./proposal-origins.js";
import { icon } from "../parts/icons.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {{node: HTMLElement, open: HTMLElement, box: HTMLInputElement, state: HTMLElement, why: HTMLElement, drawnFor: string}} Row */

// A member may have 256 open proposals; beyond this many rows only the number is shown.
const MAX_ROWS = 300;
const LINE = 140;
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
  /** @param {import("../../app.js").Context} context @param {{choose: (id: string) => void, mark: () => void}} acts */
  constructor(context, acts) {
    this._context = context;
    this._acts = acts;
    /** @type {Set<string>} */
    this.marked = new Set();
    /** @type {Map<string, Row>} */
    this._rows = new Map();
    /** @type {ReturnType<typeof countAlike>} */
    this._alike = new Map();
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
    const shown = waiting.slice(0, MAX_ROWS);
    this._alike = countAlike(this._context.state.proposals.pending.values());
    const focused = /** @type {HTMLElement | null} */ (document.activeElement);
    const lists = /** @type {[HTMLElement, Proposal[]][]} */ ([
      [this._waiting, shown],
      [this._others, others.slice(0, MAX_ROWS)],
      [this._unknown, unknown.slice(0, MAX_ROWS)],
      [this._decided, decided],
    ]);
    for (const [list, proposals] of lists) {
      arrange(
        list,
        proposals.map((each) => this._row(each, selected)),
      );
      if (list !== this._waiting) /** @type {HTMLElement} */ (list.parentElement).hidden = proposals.length === 0;
    }
    // A row that moves from one list to the other keeps the focus.
    if (focused && focused !== document.activeElement && this.node.contains(focused))
      focused.focus({ preventScroll: true });
    const kept = new Set(lists.flatMap(([, proposals]) => proposals.map((each) => each.id)));
    for (const id of this._rows.keys()) if (!kept.has(id)) this._rows.delete(id);
    this._drawKnowledge(waiting.length);
    this._drawElsewhere();
    this._more.hidden = waiting.length <= MAX_ROWS;
    this._more.textContent = `${waiting.length - MAX_ROWS} more; they appear as these are decided.`;
  }

  /** One queue over all spaces: those of others are links. */
  _drawElsewhere() {
    const found = [...this._context.session.openSpaces.values()]
      .filter((each) => each !== this._context.openSpace)
      .flatMap((each) =>
        each.state.proposals.toDecide(each.state.me.id).map((proposal) => ({ space: each.name, proposal })),
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
    const [waiting, unknown] = [others.filter((each) => each.count > 0), others.filter((each) => !each.isKnown)];
    const rest = (/** @type {Elsewhere[]} */ spaces) =>
      spaces.length > MAX_SPACES && ` and ${spaces.length - MAX_SPACES} more`;
    redraw(this._where, others, () => [
      waiting.length > 0 && html.span({}, `${totalText(waiting)}: `, links(waiting), rest(waiting), ". "),
      unknown.length > 0 &&
        html.span(
          { class: "soft" },
          "Not known in ",
          links(unknown.map((each) => ({ ...each, count: 0 }))),
          rest(unknown),
          ".",
        ),
    ]);
    redraw(
      this._elsewhere,
      found.map(({ space, proposal }) => [space, proposal.id]),
      () =>
        found.map(({ space, proposal }) =>
          html.li(
            { class: "approvals-row elsewhere" },
            html.a(
              { class: "approvals-row-open", href: routeAddress(space, "approvals", proposal.id) },
              html.span(
                { class: "approvals-row-what" },
                html.bdi({ class: "mono" }, oneLine(titleOf(proposal), 60)),
                html.span({ class: "faint" }, " in "),
                html.bdi({}, oneLine(space, 40)),
              ),
              html.bdi({ class: "approvals-row-arguments" }, argumentsLine(proposal)),
              html.span({ class: "approvals-row-who" }, nameOf(proposal.from)),
            ),
          ),
        ),
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
        button("Retry", () => void this._retry(), { class: "small" }),
      );
  }

  _retry() {
    const { connection, sync } = this._context.openSpace;
    if (connection.state === "live") void sync.refresh();
    else connection.retryNow();
  }

  /** @param {Proposal} proposal @param {string} selected */
  _row(proposal, selected) {
    let row = this._rows.get(proposal.id);
    if (!row) {
      row = this._build(proposal);
      this._rows.set(proposal.id, row);
    }
    const isSelected = proposal.id === selected;
    const drawnFor = [
      this._alike.get(proposal) ?? 1,
      proposal.status,
      proposal.rejections.length,
      proposal.approvals.length,
      voteText(proposal),
      proposal.uncertain,
      ...originCautions(proposal),
    ].join(" ");
    if (drawnFor !== row.drawnFor) {
      row.drawnFor = drawnFor;
      row.state.replaceChildren(...this._state(proposal));
      const [why] = proposal.status === "pending" ? originCautions(proposal) : [];
      row.why.hidden = why === undefined;
      replace(row.why, why && [icon("warning", 14), html.bdi({}, oneLine(why, LINE))]);
      row.node.dataset.status = proposal.status;
      row.box.hidden = proposal.status !== "pending";
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
    const state = html.span({ class: "approvals-row-state" });
    const why = html.span({ class: "approvals-row-why", hidden: true });
    const box = html.input({
      type: "checkbox",
      "aria-label": `Select ${what} from ${oneLine(proposal.from, 40)}`,
      tabindex: "-1",
      on: { change: () => this.toggle(proposal.id) },
    });
    const open = html.button(
      { type: "button", class: "approvals-row-open", on: { click: () => this._acts.choose(proposal.id) } },
      html.span(
        { class: "approvals-row-what" },
        html.bdi({ class: "mono" }, what),
        proposal.to.length > 0 && [html.span({ class: "faint" }, " on "), nameOf(proposal.to[0])],
      ),
      html.bdi({ class: "approvals-row-arguments" }, argumentsLine(proposal)),
      why,
      html.span(
        { class: "approvals-row-who" },
        nameOf(proposal.from, { you: proposal.from === this._context.state.me.id }),
        html.span({ class: "faint" }, " · "),
        html.time({ class: "since faint", data: { at: String(proposal.at) } }, ago(proposal.at)),
        state,
      ),
    );
    return {
      node: html.li(
        { class: "approvals-row", data: { id: proposal.id } },
        html.label({ class: "approvals-row-mark" }, box),
        open,
      ),
      open,
      box,
      state,
      why,
      drawnFor: "",
    };
  }

  /** @param {Proposal} proposal */
  _state(proposal) {
    const me = this._context.state.me.id;
    const found = [];
    const times = this._alike.get(proposal) ?? 1;
    if (times > 1)
      found.push(
        html.span(
          {
            class: "tag",
            data: { tone: "warn" },
            title: `The same call is pending ${times} times; each one that is approved is carried out`,
          },
          `same call, ${times} pending`,
        ),
      );
    if (proposal.rejections.length > 0)
      found.push(html.span({ class: "tag", data: { tone: "bad" } }, rejectedBy(proposal, me)));
    const votes = voteText(proposal);
    if (votes) found.push(html.span({ class: "tag", data: { tone: "accent" } }, votes));
    if (proposal.uncertain && proposal.status === "pending")
      found.push(html.span({ class: "tag", data: { tone: "warn" } }, "status unknown"));
    if (proposal.status === "fulfilled") found.push(html.span({ class: "tag", data: { tone: "accent" } }, "running"));
    if (proposal.status === "done")
      found.push(html.span({ class: "tag", data: { tone: "good" } }, approvedBy(proposal.fulfilledBy, me)));
    if (proposal.status === "failed")
      found.push(
        html.span({ class: "tag", data: { tone: "bad" }, title: escapeHidden(settledText(proposal, me)) }, "failed"),
      );
    if (proposal.status === "unknown")
      found.push(html.span({ class: "tag", data: { tone: "warn" } }, "outcome unknown"));
    if (proposal.ending) found.push(html.span({ class: "tag" }, proposal.ending));
    return found;
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
    const row = event.target instanceof Element ? event.target.closest(".approvals-row") : null;
    if (event.key !== " " || !(row instanceof HTMLElement) || !(event.target instanceof HTMLButtonElement)) return;
    event.preventDefault();
    if (!event.repeat) this.toggle(row.dataset.id ?? "");
  }
}

/** @param {string} title @param {HTMLElement[]} list */
function section(title, ...list) {
  return html.section({ hidden: true }, html.h2({ class: "approvals-heading" }, title), ...list);
}

/** "Approved by Ana"; who it was is not always told. @param {string} by @param {string} me */
export function approvedBy(by, me) {
  return by === me ? "Approved" : `Approved by ${oneLine(by, 24) || "someone"}`;
}

/** "Rejected by Ana", or by how many. @param {Proposal} proposal @param {string} me */
function rejectedBy(proposal, me) {
  const names = [...new Set(proposal.rejections.map((each) => each.by))];
  return `Rejected by ${names.length > 1 ? names.length : names[0] === me ? "you" : oneLine(names[0], 24)}`;
}

/** @param {string} text */
function lineOf(text) {
  const large = text.startsWith('{"moot/content"') ? referenceIn(JSON.parse(text)) : null;
  if (large) return `(${formatNumber(large.bytes)} bytes)`;
  return (text.startsWith('"') && text !== '""' ? String(JSON.parse(text)) : text).slice(0, LINE * 2);
}

/** The arguments on a line, digits as they were received. @param {Proposal} proposal */
function argumentsLine(proposal) {
  const given =
    textAt(proposal.call.bodyText, ["params", "arguments"]) ?? textAt(proposal.call.bodyText, ["params"]) ?? "";
  if (!given.startsWith("{")) return oneLine(given, LINE);
  const text = membersOf(given)
    .slice(0, 20)
    .map((each) => `${each.key}=${lineOf(each.text)}`);
  return oneLine(text.join(" "), LINE);
}
