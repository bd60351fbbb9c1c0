/** All messages of the space, live. */
import { html } from "../../core/page/dom.js";
import { registerView } from "../../core/page/router.js";
import { inputDelay } from "../../core/page/input-priority.js";
import { formatNumber } from "../../core/page/numbers.js";
import { jumpTo, TimelineDetails } from "./timeline-details.js";
import { includesHousekeeping } from "./timeline-filter.js";
import { OlderBar, RowsWithOlder } from "./older-search.js";
import { TimelineSearch } from "./timeline-search.js";
import { FILTER_ROUTE, TimelineBar } from "./timeline-bar.js";
import { Folds, Grouping } from "./timeline-groups.js";
import { countText, drawItem, emptyNotice, pauseAfter, shapeOf } from "./timeline-drawing.js";
import { VirtualList } from "../parts/virtual-list.js";

/** @typedef {import("./timeline-groups.js").Item} Item */

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
    this._search = new TimelineSearch(context.openSpace, (older) => this._searched(older));
    this.store = new RowsWithOlder(context.state.activity, () => this._search.older?.store ?? null);
    this.grouped = true;
    this._folds = new Folds();
    this._grouping = new Grouping(/** @type {any} */ (this.store), (root) => this._folds.has(root));
    /** @type {Item[] | null} null: every row, one after the other */
    this._items = null;
    this._first = 0;
    this._next = 0;
    this._builtAt = 0;
    this._pause = 0;
    this._seen = 0;
    this.list = new VirtualList("Timeline", {
      length: () => (this._items === null ? this._next - this._first : this._items.length),
      at: (index) => (this._items === null ? this._first + index : this._items[index]),
      stamp: (item) => (typeof item === "number" ? (this.store.at(item)?.verdict?.length ?? 0) : item.rows.length),
      shape: (item) => shapeOf(this.store, item),
      draw: (element, item) =>
        drawItem(element, item, this.store, context.state.me.id, this.grouped ? this._folds : null),
      chosen: (index, event) => this._choose(index, event),
      folded: (index, open) => this._collapseOne(index, open),
      complete: () => void this._complete(),
    });
    this.list.onFollow = () => this._drawCounts();
    this._details = new TimelineDetails(context, {
      close: () => this._closeDetails(),
      filter: (text) => this._bar.setFilter(text),
      loadGap: (id) => void this._loadGap(id),
    });
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
    this._empty = emptyNotice();
    this._main = html.div({ class: "tl-main" }, this.list.node, this._empty, this._newer);
    outlet.append(this._bar.node, html.div({ class: "tl-split" }, this._main, this._details.node));
    this._olderBar = new OlderBar(
      () => this._loadOlder(),
      () => {
        this._search.searchOlder();
        this._drawOlder();
      },
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
      "[": ["Jump to the cause", () => this._jump("cause")],
      "]": ["Jump to the result", () => this._jump("effect")],
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
    this._search.stop();
    this._bar.close();
    this.list.close();
    this._stops.forEach((stop) => stop());
  }

  // What is shown

  _apply() {
    const filter = this._search.read(this._bar.filter);
    this._useStore(this.showsAll || this._search.root !== "" || includesHousekeeping(filter));
    this._search.start(this.store.loaded, filter);
    this.list.following = true;
    this.rebuild();
    this.list.redraw();
    this._drawOlder();
  }

  /** @param {boolean} all whether housekeeping is among the rows */
  _useStore(all) {
    const rows = all ? this.context.state.envelopes : this.context.state.activity;
    if (this.store.loaded === rows) return;
    this.store = new RowsWithOlder(rows, () => this._search.older?.store ?? null);
    this._grouping = new Grouping(/** @type {any} */ (this.store), (each) => this._folds.has(each));
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
      !this._search.isOn &&
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
    if (added === 0 || this._search.isOn) return;
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

  _drawOlder() {
    this._olderBar.draw(this.older, this._search.olderState, this._search.root !== "");
  }

  /** @param {boolean} [older] it was searched in the journal. Another slice was searched. Shown only from time to time, because the matches are sorted each time. */
  _searched(older = false) {
    if (older) this._drawOlder();
    if (this._search.isDone || performance.now() >= this._builtAt + this._pause) this.rebuild();
  }

  toggleGroups() {
    const chosen = this.store.byId(this._details.chosen);
    this.grouped = !this.grouped;
    this._drawModes();
    this.rebuild();
    this.list.redraw();
    if (chosen) this._selectRow(chosen.n);
    this.context.announce(this.grouped ? "grouped by conversation" : "not grouped");
  }

  _collapseAll() {
    this._folds.turnAll();
    this._drawModes();
    this.rebuild();
    this.list.redraw();
  }

  _onEnvelopes() {
    this._search.update();
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
    const found = this._search.found(this.store);
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
    this._pause = pauseAfter(this._builtAt - begun, added, found !== null ? this.store.size : 0);
    this._empty.hidden = this._next > this._first;
    this._drawCounts();
    this.list.refresh(onlyNew);
  }

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
    return this.grouped && this._items !== null && !this._search.isOn;
  }

  /** Sort all older rows now. @returns {boolean} whether any was still to come */
  _complete() {
    if (!this._isInOrder() || this._grouping.whole) return false;
    this._grouping.rebuild(null);
    this._items = this._grouping.items;
    this.list.redraw();
    return true;
  }

  _drawCounts() {
    const added = this.list.following ? 0 : this.store.next - (this.grouped ? this._next : this._seen);
    if (this.list.following) this._seen = this.store.next;
    if (this._newer.hidden !== this.list.following) this._newer.hidden = this.list.following;
    const newer = added > 0 ? `${formatNumber(added)} new ↓` : "Newest ↓";
    if (this._newer.textContent !== newer) this._newer.textContent = newer;
    this._bar.drawCount(countText(this.store.size, this._search.count(this.store), this._search.isDone));
  }

  _drawModes() {
    this._bar.drawModes({ grouped: this.grouped, collapsed: this._folds.isAll, all: this.showsAll });
  }

  // The selected message

  /** @param {number} step */
  _move(step) {
    const length = this._items === null ? this._next - this._first : this._items.length;
    this.list.select(this.list.selected < 0 ? length - 1 : this.list.selected + step);
    const row = this._selectedRow();
    if (this._details.isOpen && row) this._details.show(row);
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
    if (root === undefined || !this.grouped || this._folds.has(root) === !open) return;
    this._toggleCollapsed(root);
    const head = this._items?.findIndex((each) => typeof each === "object" && each.root === root) ?? -1;
    if (head >= 0) this.list.select(head);
  }

  /** @param {string} root */
  _toggleCollapsed(root) {
    this._folds.turn(root);
    this.list.following = false;
    this.rebuild();
    this.list.redraw();
  }

  /** Open the envelope in the address, or apply the filter in it. @param {string[]} rest */
  openRoute(rest) {
    const id = rest[0] ?? "";
    if (id === FILTER_ROUTE || (id === "" && this._isRouted)) {
      this._isRouted = id === FILTER_ROUTE;
      this._details.hide();
      if (this._bar.filter !== (rest[1] ?? "")) this._bar.setFilter(rest[1] ?? "");
      return;
    }
    this._details.chosen = id;
    const row = id ? (this.store.byId(id) ?? this._details.find(id)) : undefined;
    if (row) this._openRow(row);
    else if (!id) this._details.hide();
    else void this._details.load(id).then((found) => found && this._openRow(found));
  }

  /** Whether the filter came from the address. */
  _isRouted = false;

  /** @param {import("../../core/state/envelopes.js").Row} row */
  _openRow(row) {
    this._details.show(row);
    const here = this.store.byId(row.id);
    if (here) this._selectRow(here.n);
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
    if (row && this.grouped && this._folds.has(row.root)) this._folds.turn(row.root);
    this.rebuild();
    this.list.redraw();
    return find();
  }

  /** The envelope in the address is shown in the list no more. */
  _closeDetails() {
    if (this._details.close()) this.list.node.focus();
  }

  _selectedRow() {
    const item = this._items === null ? this._first + this.list.selected : this._items[this.list.selected];
    return item === undefined ? undefined : this.store.at(typeof item === "number" ? item : item.rows[0]);
  }

  /** @param {"cause" | "effect"} way */
  _jump(way) {
    const row = this.store.byId(this._details.chosen) ?? this._selectedRow();
    if (row) jumpTo(this.context, row, way);
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
