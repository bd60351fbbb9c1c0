/** All messages of the space, live. */
import { html, replace } from "../../core/page/dom.js";
import { registerView } from "../../core/page/router.js";
import { inputDelay } from "../../core/page/input-priority.js";
import { Envelopes } from "../../core/state/envelopes.js";
import { formatNumber } from "../../core/page/numbers.js";
import { envelopeDetails } from "./envelope-details.js";
import { icon } from "../parts/icons.js";
import { isEmpty, includesHousekeeping, parseFilter, Search } from "./timeline-filter.js";
import { OlderSearch, RowsWithOlder, OlderBar } from "./older-search.js";
import { FILTER_ROUTE, TimelineBar } from "./timeline-bar.js";
import { Grouping } from "./timeline-groups.js";
import { drawHead, drawRow } from "./timeline-rows.js";
import { VirtualList } from "../parts/virtual-list.js";

/** @typedef {import("./timeline-groups.js").Item} Item */

// Sorting the matches of a filter takes a few milliseconds, so it is not done in every frame.
const MANY = 5_000;
const MANY_MILLISECONDS = 200;
// Fast lines cannot be read. From this many at a time on they are drawn ten times a second instead of sixty, and three
// times when a screenful arrives at once, so that clicks are still handled.
const RUSH = 4;
const RUSH_MILLISECONDS = 100;
const SCREENFUL = 24;
const SCREENFUL_MILLISECONDS = 300;
const LONGEST_MILLISECONDS = 1_000;
const MAX_LINKED = 100;
const FILL_MILLISECONDS = 150;
// So many lines from the top, the next older page is fetched.
const NEAR_TOP_ROWS = 20;

class Timeline {
  /** @param {HTMLElement} outlet @param {import("../../app.js").Context} context */
  constructor(outlet, context) {
    this.context = context;
    this.older = context.openSpace.older;
    /** Whether housekeeping is shown too. */
    this.showsAll = false;
    /** @type {OlderSearch | null} */
    this._olderSearch = null;
    /** Old messages that a link led to. @type {Envelopes} */
    this._linked = new Envelopes(MAX_LINKED, -3_000_000_000);
    this.store = new RowsWithOlder(context.state.activity, () => this._olderSearch?.store ?? null);
    this.grouped = true;
    /** @type {Set<string>} conversations whose folding was turned */
    this._toggled = new Set();
    this._allCollapsed = false;
    /** @type {Search | null} */
    this._search = null;
    this._root = "";
    this._grouping = new Grouping(/** @type {any} */ (this.store), (root) => this._isCollapsed(root));
    /** @type {Item[] | null} null: every row, one after the other */
    this._items = null;
    this._first = 0;
    this._next = 0;
    this._builtAt = 0;
    this._chosen = "";
    this.list = new VirtualList("Timeline", {
      length: () => (this._items === null ? this._next - this._first : this._items.length),
      at: (index) => (this._items === null ? this._first + index : this._items[index]),
      stamp: (item) => (typeof item === "number" ? 0 : item.rows.length),
      shape: (item) => this._shape(item),
      draw: (element, item) => this._draw(element, item),
      chosen: (index, event) => this._choose(index, event),
      folded: (index, open) => this._collapseOne(index, open),
      complete: () => void this._complete(),
    });
    this.list.onFollow = () => this._drawCounts();
    this._details = html.aside({ class: "tl-details", hidden: true, "aria-label": "Details" });
    this._bar = new TimelineBar(this.context, {
      apply: () => this._apply(),
      toggleGroups: () => this.toggleGroups(),
      collapseAll: () => this._collapseAll(),
      toggleAll: () => this.toggleAll(),
    });
    this._newer = html.button({
      type: "button",
      class: "button primary small tl-newer",
      hidden: true,
      on: { click: () => this._toEnd() },
    });
    this._empty = html.div(
      { class: "empty", hidden: true },
      icon("timeline", 28),
      html.strong({}, "Nothing has happened yet"),
      html.span(
        {},
        "What people, agents and tools say and do in this space appears here, and stays: proposals, calls and their results, chat, permissions.",
      ),
    );
    this._main = html.div({ class: "tl-main" }, this.list.node, this._empty, this._newer);
    outlet.append(this._bar.node, html.div({ class: "tl-split" }, this._main, this._details));
    this._olderBar = new OlderBar(
      () => this._loadOlder(),
      () => this._searchOlder(),
    );
    this._main.prepend(this._olderBar.node);
    this.list.node.addEventListener("scroll", () => this._scrolled(), { passive: true });
    this._stops = [
      context.state.on("older", () => this._drawOlder()),
      context.state.on("envelopes", () => this._onEnvelopes()),
      context.state.on("roster", () => this._bar.drawMembers()),
      this._keys(),
    ];
    this.rebuild();
    // A page that was just opened has what the gateway keeps in memory; that may be a few lines.
    if (this.store.size < NEAR_TOP_ROWS * 2) this._fillSoon();
  }

  _keys() {
    return this.context.keys.add("Timeline", {
      "/": ["Filter", () => this._bar.focus()],
      j: ["Next", () => this._move(1)],
      k: ["Previous", () => this._move(-1)],
      o: ["Open or collapse", () => this.list.selected >= 0 && this._choose(this.list.selected)],
      c: ["Group by conversation on or off", () => this.toggleGroups()],
      f: ["Collapse or expand all conversations", () => this._collapseAll()],
      "[": ["Jump to the cause", () => this._jumpBy("cause")],
      "]": ["Jump to the result", () => this._jumpBy("effect")],
      G: ["Jump to end", () => this._toEnd()],
      b: ["Background messages on or off", () => this.toggleAll()],
      x: ["Clear the filter", () => this._bar.setFilter("")],
      Escape: ["Close details", () => this._closeDetails()],
    });
  }

  close() {
    clearTimeout(this._building);
    clearTimeout(this._older);
    clearTimeout(this._filling);
    this._search?.stop();
    this._olderSearch?.stop();
    this._bar.close();
    this.list.close();
    this._stops.forEach((stop) => stop());
  }

  // What is shown

  _apply() {
    this._search?.stop();
    this._search = null;
    this._olderSearch?.stop();
    this._olderSearch = null;
    const source = this._bar.filter;
    const root = /(?:^|\s)is-root:(\S+)/.exec(source);
    this._root = root?.[1] ?? "";
    const filter = parseFilter(source.replace(/(^|\s)is-root:\S+/, " "));
    this._useStore(this.showsAll || this._root !== "" || includesHousekeeping(filter));
    if (!isEmpty(filter)) this._search = new Search(this.store.loaded, filter, () => this._searched());
    this.list.following = true;
    this.rebuild();
    this.list.redraw();
    this._drawOlder();
  }

  /** @param {boolean} all whether housekeeping is among the rows */
  _useStore(all) {
    const rows = all ? this.context.state.envelopes : this.context.state.activity;
    if (this.store.loaded === rows) return;
    this.store = new RowsWithOlder(rows, () => this._olderSearch?.store ?? null);
    this._grouping = new Grouping(/** @type {any} */ (this.store), (each) => this._isCollapsed(each));
    this._first = this._next = this._seen = rows.first;
    this.list.selected = -1;
  }

  toggleAll() {
    this.showsAll = !this.showsAll;
    this._drawModes();
    this._apply();
    this.context.announce(this.showsAll ? "background messages shown" : "background messages hidden");
  }

  // What is older than the page

  _scrolled() {
    const top = this.list.node.scrollTop;
    this._olderBar.setInSight(top < this.list.rowHeight);
    if (
      top < NEAR_TOP_ROWS * this.list.rowHeight &&
      !this.list.following &&
      !this._search &&
      !this._root &&
      this.older.status !== "failed" &&
      this.older.canLoad
    )
      void this._loadOlder();
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  _filling = undefined;

  /** Once the connection is there: fetch a page, if the lines do not fill the view. */
  _fillSoon() {
    clearTimeout(this._filling);
    this._filling = setTimeout(() => {
      if (this.context.openSpace.connection.state !== "live") this._fillSoon();
      else if (this.older.status === "unread" && this.store.size < NEAR_TOP_ROWS * 2) void this._loadOlder();
    }, FILL_MILLISECONDS);
  }

  async _loadOlder() {
    const before = this._items === null ? this._next - this._first : this._items.length;
    const added = await this.older.load();
    if (added === 0 || this._search || this._root) return;
    const at = this.list.following;
    this._grouping.rebuild(null);
    this._first = this.store.first;
    this._next = this.store.next;
    if (this.grouped) this._items = this._grouping.items;
    const after = this._items === null ? this._next - this._first : this._items.length;
    this.list.dropped(before - after);
    this.list.redraw();
    if (at) this.list.follow();
    this._empty.hidden = this._next > this._first;
    this._drawCounts();
  }

  /** @param {string} id */
  async _loadGap(id) {
    this._closeDetails();
    this.list.following = true;
    await this.context.openSpace.loadGap(id);
    this._apply();
  }

  /** Look for what the filter wants in what is older than the loaded messages. */
  _searchOlder() {
    if (!this._search) return;
    this._olderSearch?.stop();
    this._olderSearch = new OlderSearch(this.context.openSpace, this._search.filter, () => this._searched(true));
    this._drawOlder();
  }

  _drawOlder() {
    const search = this._search ? { older: this._olderSearch, found: this._olderSearch?.store.size ?? 0 } : null;
    this._olderBar.draw(this.older, search, this._root !== "");
  }

  /** @param {boolean} [older] it was searched in the journal. Another slice was searched. Shown only from time to time, because the matches are sorted each time. */
  _searched(older = false) {
    if (older) this._drawOlder();
    // The first slice is searched before `this` has the search.
    if (this._search && (this._search.done || performance.now() >= this._builtAt + this._pause)) this.rebuild();
  }

  toggleGroups() {
    const chosen = this.store.byId(this._chosen);
    this.grouped = !this.grouped;
    this._drawModes();
    this.rebuild();
    this.list.redraw();
    if (chosen) this._selectRow(chosen.n);
    this.context.announce(this.grouped ? "grouped by conversation" : "not grouped");
  }

  _collapseAll() {
    this._allCollapsed = !this._allCollapsed;
    this._toggled.clear();
    this._drawModes();
    this.rebuild();
    this.list.redraw();
  }

  /** @param {string} root */
  _isCollapsed(root) {
    return this._allCollapsed !== this._toggled.has(root);
  }

  _onEnvelopes() {
    this._search?.update();
    // By conversation, a new message moves its conversation down; not while somebody is reading.
    if (this.grouped && !this.list.following) {
      this._drawCounts();
      return;
    }
    const pause = this._builtAt + this._pause - performance.now();
    if (pause <= 0) this.rebuild(true);
    else if (this._building === undefined) this._buildIn(pause);
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  _building = undefined;

  /** @param {number} milliseconds */
  _buildIn(milliseconds) {
    this._building = setTimeout(() => {
      this._building = undefined;
      const more = inputDelay();
      if (more > 0) this._buildIn(more);
      else if (!this.grouped || this.list.following) this.rebuild(true);
    }, milliseconds);
  }

  /** @param {boolean} [onlyNew] nothing else has changed since the last time */
  rebuild(onlyNew = false) {
    const begun = performance.now();
    const added = this.store.next - this._next;
    const dropped = this.store.first - this._first;
    this._first = this.store.first;
    this._next = this.store.next;
    const found = this._found();
    if (this.grouped) {
      if (found === null && onlyNew) this._grouping.update();
      // At the end the oldest lines are not visible; elsewhere all must be there to keep the scroll position.
      else if (found === null && this.list.following) this._grouping.begin();
      else this._grouping.rebuild(found);
      if (!this._grouping.whole) this._older ??= setTimeout(() => this._takeOlder(), 0);
      this._items = this._grouping.items;
    } else if (found !== null) this._items = found;
    else {
      this._items = null;
      if (dropped > 0) this.list.dropped(dropped);
    }
    this._builtAt = performance.now();
    // Drawing takes at most a tenth of the time on a slow machine, but happens at least once a second.
    this._pause = Math.max(
      found !== null && this.store.size > MANY ? MANY_MILLISECONDS : 0,
      added > SCREENFUL ? SCREENFUL_MILLISECONDS : added > RUSH ? RUSH_MILLISECONDS : 0,
      Math.min(LONGEST_MILLISECONDS, (this._builtAt - begun) * 10),
    );
    this._empty.hidden = this._next > this._first;
    this._drawCounts();
    this.list.refresh(onlyNew);
  }

  _pause = 0;

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  _older = undefined;

  /** Add the older lines after sorting, a slice at a time; visible lines keep their position. */
  _takeOlder() {
    this._older = undefined;
    const more = inputDelay();
    const added = more > 0 ? 0 : this._grouping.older();
    if (!this._grouping.whole) this._older = setTimeout(() => this._takeOlder(), more);
    else if (added > 0 && this._isInOrder()) {
      this._items = this._grouping.items;
      this.list.dropped(-added);
      this.list.refresh();
    }
  }

  /** Whether all rows are shown, grouped by conversation. */
  _isInOrder() {
    return this.grouped && this._items !== null && !this._search && !this._root;
  }

  /** Sort all older rows now. @returns {boolean} whether any was still to come */
  _complete() {
    if (!this._isInOrder() || this._grouping.whole) return false;
    this._grouping.rebuild(null);
    this._items = this._grouping.items;
    this.list.redraw();
    return true;
  }

  /** @returns {number[] | null} */
  _found() {
    if (this._root) {
      const rows = this.store.conversations.get(this._root)?.rows ?? [];
      const within = new Set(rows);
      return this._search ? this._search.found().filter((n) => within.has(n)) : [...rows];
    }
    if (!this._search) return null;
    return this._olderSearch
      ? this._olderSearch.found(this.store.loaded).concat(this._search.found())
      : this._search.found();
  }

  _drawCounts() {
    const added = this.list.following ? 0 : this.store.next - (this.grouped ? this._next : this._seen);
    if (this.list.following) this._seen = this.store.next;
    if (this._newer.hidden !== this.list.following) this._newer.hidden = this.list.following;
    const newer = added > 0 ? `${formatNumber(added)} new ↓` : "Newest ↓";
    if (this._newer.textContent !== newer) this._newer.textContent = newer;
    const total = formatNumber(this.store.size);
    const found = this._search
      ? this._search.count + (this._olderSearch?.store.size ?? 0)
      : this._root
        ? (this.store.conversations.get(this._root)?.rows.length ?? 0)
        : undefined;
    const text =
      found === undefined
        ? `${total} ${this.store.size === 1 ? "message" : "messages"}`
        : `${formatNumber(found)} of ${total}${this._search && !this._search.done ? "…" : ""}`;
    this._bar.drawCount(text);
  }

  _seen = 0;

  _drawModes() {
    this._bar.drawModes({ grouped: this.grouped, collapsed: this._allCollapsed, all: this.showsAll });
  }

  // The selected message

  /** @param {Item} item */
  _shape(item) {
    const row = this.store.at(typeof item === "number" ? item : item.rows[0]);
    return row ? `${typeof item} ${row.kind} ${row.failed} ${row.from} ${row.to.join()}` : "";
  }

  /** @param {HTMLElement} element @param {Item} item */
  _draw(element, item) {
    if (typeof item === "number") {
      const row = this.store.at(item);
      if (!row) return;
      const group = this.grouped ? this.store.conversations.get(row.root) : undefined;
      drawRow(element, row, (group?.rows.length ?? 0) > 1, this.context.state.me.id);
    } else {
      const row = this.store.at(item.rows[0]);
      if (row) drawHead(element, row, item.rows.length, this._isCollapsed(item.root), this.context.state.me.id);
    }
  }

  /** @param {number} step */
  _move(step) {
    const length = this._items === null ? this._next - this._first : this._items.length;
    this.list.select(this.list.selected < 0 ? length - 1 : this.list.selected + step);
    const row = this._selectedRow();
    if (!this._details.hidden && row) this._showDetails(row);
  }

  /** @param {number} index @param {Event} [event] */
  _choose(index, event) {
    const item = this._items === null ? this._first + index : this._items[index];
    if (item === undefined) return;
    if (typeof item !== "number" && event?.target instanceof Element && event.target.closest(".fold-mark")) {
      this._toggleCollapsed(item.root);
      return;
    }
    const row = this.store.at(typeof item === "number" ? item : item.rows[0]);
    if (row) this.context.go("timeline", row.id);
  }

  /** @param {number} index @param {boolean} open */
  _collapseOne(index, open) {
    const item = this._items?.[index];
    const row = typeof item === "number" ? this.store.at(item) : undefined;
    const root = typeof item === "object" ? item.root : row?.root;
    if (root === undefined || !this.grouped || this._isCollapsed(root) === !open) return;
    this._toggleCollapsed(root);
    const head = this._items?.findIndex((each) => typeof each === "object" && each.root === root) ?? -1;
    if (head >= 0) this.list.select(head);
  }

  /** @param {string} root */
  _toggleCollapsed(root) {
    if (this._toggled.has(root)) this._toggled.delete(root);
    else this._toggled.add(root);
    this.list.following = false;
    this.rebuild();
    this.list.redraw();
  }

  /** Open the envelope in the address, or apply the filter in it. @param {string[]} rest */
  openRoute(rest) {
    const id = rest[0] ?? "";
    if (id === FILTER_ROUTE || (id === "" && this._isRouted)) {
      this._isRouted = id === FILTER_ROUTE;
      this._hide();
      if (this._bar.filter !== (rest[1] ?? "")) this._bar.setFilter(rest[1] ?? "");
      return;
    }
    this._chosen = id;
    const row = id
      ? (this.store.byId(id) ?? this.context.state.envelopes.byId(id) ?? this._linked.byId(id))
      : undefined;
    if (row) this._openRow(row);
    else if (!id) this._hide();
    else void this._openOld(id);
  }

  /** Whether the filter came from the address. */
  _isRouted = false;

  /** @param {import("../../core/state/envelopes.js").Row} row */
  _openRow(row) {
    this._showDetails(row);
    const here = this.store.byId(row.id);
    if (here) this._selectRow(here.n);
  }

  /** A message that this page does not have: the gateway may. @param {string} id */
  async _openOld(id) {
    try {
      // It may arrive in a moment with what the gateway keeps in memory.
      const raw = await this.older.find(id);
      if (this._chosen !== id) return;
      const known = this.context.state.envelopes.byId(id);
      const row = raw === null ? null : this.context.state.readOlder(raw);
      if (row && !known) this._linked.prepend([row]);
      const found = known ?? this._linked.byId(id);
      if (found) this._openRow(found);
      else
        this.context.notify("The gateway has no message of this address that you may read. It may be too old.", "bad");
    } catch {
      if (this._chosen === id)
        this.context.notify("The message of this address could not be loaded. Try again.", "bad");
    }
  }

  /** @param {number} n */
  _selectRow(n) {
    const index = this._indexOf(n);
    if (index < 0) return;
    if (index === this.list.selected) return;
    this.list.select(index, { into: Math.abs(index - this.list.selected) > 20 ? "middle" : "view" });
  }

  /** @param {number} n */
  _indexOf(n) {
    if (this._items === null) return n - this._first;
    const isIt = (/** @type {Item | undefined} */ item) =>
      item === n || (typeof item === "object" && item.rows[0] === n);
    // Usually the line that was just clicked; otherwise newer lines are more likely.
    if (isIt(this._items[this.list.selected])) return this.list.selected;
    const find = () => /** @type {Item[]} */ (this._items).findLastIndex(isIt);
    let index = find();
    // Older than the sorted part.
    if (index < 0 && this._complete()) index = find();
    if (index >= 0) return index;
    const row = this.store.at(n);
    if (row && this.grouped && this._isCollapsed(row.root)) {
      if (this._toggled.has(row.root)) this._toggled.delete(row.root);
      else this._toggled.add(row.root);
    }
    this.rebuild();
    this.list.redraw();
    return find();
  }

  /** @param {import("../../core/state/envelopes.js").Row} row */
  _showDetails(row) {
    this._chosen = row.id;
    // Before its content changes, which would force a layout.
    if (this._details.scrollTop > 0) this._details.scrollTop = 0;
    replace(
      this._details,
      envelopeDetails(row, this.context, {
        jump: (id) => this.context.go("timeline", id),
        close: () => this._closeDetails(),
        filter: (text) => this._bar.setFilter(text),
        loadGap: (id) => void this._loadGap(id),
      }),
    );
    this._details.hidden = false;
  }

  _hide() {
    if (this._details.hidden) return;
    this._details.scrollTop = 0;
    this._details.hidden = true;
    this._chosen = "";
  }

  _closeDetails() {
    if (this._details.hidden) return;
    this.context.go("timeline");
    this.list.node.focus();
  }

  /** @param {"cause" | "effect"} way */
  _jumpBy(way) {
    const row = this.store.byId(this._chosen) ?? this._selectedRow();
    if (!row) return;
    const id =
      way === "cause"
        ? this.context.state.envelopes.causesOf(row).find((each) => each.row)?.id
        : this.context.state.envelopes.effectsOf(row.id)[0]?.id;
    if (id) this.context.go("timeline", id);
    else this.context.announce(way === "cause" ? "no known cause" : "no result yet");
  }

  _selectedRow() {
    const item = this._items === null ? this._first + this.list.selected : this._items[this.list.selected];
    return item === undefined ? undefined : this.store.at(typeof item === "number" ? item : item.rows[0]);
  }

  _toEnd() {
    this.list.selected = -1;
    this.list.follow();
    this.rebuild(true);
  }
}

registerView({
  id: "timeline",
  title: "Timeline",
  icon: "timeline",
  order: 20,
  key: "t",
  mount(outlet, context) {
    const timeline = new Timeline(outlet, context);
    return { unmount: () => timeline.close(), openRoute: (rest) => timeline.openRoute(rest) };
  },
});
