/**
 * Searches messages that are older than the loaded ones, in the gateway's journal. What is found is kept in a store of its own,
 * under numbers far below those of the page, so that a list can show both.
 */
import { Envelopes } from "../../core/state/envelopes.js";
import { matches } from "./timeline-filter.js";
import { button, html, redraw } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { END_TEXTS } from "../../core/connection/older-messages.js";
import { oneLine } from "../../core/page/text.js";

// More than anybody reads.
const MAX_FOUND = 5_000;
const FAR_BELOW = -1_000_000_000;

export class OlderSearch {
  /** @param {import("../../core/connection/open-space.js").OpenSpace} openSpace @param {import("./timeline-filter.js").Parsed} filter @param {() => void} changed @param {boolean} untilMatch whether it waits after the first match */
  constructor(openSpace, filter, changed, untilMatch) {
    this._untilMatch = untilMatch;
    this._pages = openSpace.older.search(filter.query);
    this._openSpace = openSpace;
    this._filter = filter;
    this._changed = changed;
    this._isStopped = false;
    this.store = new Envelopes(MAX_FOUND, FAR_BELOW);
    /** @type {"searching" | "paused" | "done" | "failed"} */
    this.status = "searching";
    /** Why it ended, or failed. */
    this.reason = "";
    void this._run();
  }

  async _run() {
    try {
      for (;;) {
        const { value: page, done } = await this._pages.next();
        if (this._isStopped) return;
        if (done) break;
        const rows = page.raws.map((raw) => this._openSpace.state.readOlder(raw)).filter((row) => row !== null);
        this.store.prepend(rows.filter((row) => matches(row, this._filter)));
        this.reason = page.end ?? "";
        this._changed();
        if (this.store.size >= MAX_FOUND) break;
        if (this._untilMatch && this.store.size > 0 && page.before !== null) {
          this.status = "paused";
          this._changed();
          return;
        }
      }
      this.status = "done";
    } catch (fault) {
      this.status = "failed";
      this.reason = fault instanceof Error ? fault.message : "no answer";
    }
    if (!this._isStopped) this._changed();
  }

  stop() {
    this._isStopped = true;
  }

  /** Behind the first match, to the beginning. */
  resume() {
    this._untilMatch = false;
    this.status = "searching";
    this._changed();
    void this._run();
  }

  /** What was found and is not among the loaded rows, oldest first. @param {Envelopes} loaded @returns {number[]} */
  found(loaded) {
    const found = [];
    for (let n = this.store.first; n < this.store.next; n += 1)
      if (!loaded.has(/** @type {import("../../core/state/envelopes.js").Row} */ (this.store.at(n)).id)) found.push(n);
    return found;
  }
}

/** The rows of a page, and those of a search in what is older: the part of a store that lists need. */
export class RowsWithOlder {
  /** @param {Envelopes} loaded @param {() => Envelopes | null} older */
  constructor(loaded, older) {
    this.loaded = loaded;
    this._older = older;
  }

  get first() {
    return this.loaded.first;
  }

  get next() {
    return this.loaded.next;
  }

  get size() {
    return this.loaded.size;
  }

  get conversations() {
    return this.loaded.conversations;
  }

  /** @param {number} n */
  at(n) {
    return n < FAR_BELOW / 2 ? this._older()?.at(n) : this.loaded.at(n);
  }

  /** @param {string} id */
  byId(id) {
    return this.loaded.byId(id) ?? this._older()?.byId(id);
  }
}

/** @typedef {{older: OlderSearch | null, found: number, none: number}} OlderState `none`: in so many loaded messages nothing was found; else 0 */

/** The line above the oldest message: whether there is more before it, and the way to it. */
export class OlderBar {
  /** @param {() => void} load @param {() => void} search */
  constructor(load, search) {
    this._load = load;
    this._search = search;
    this._isSearch = false;
    this._isInSight = true;
    this.node = html.div({ class: "tl-older", role: "status", hidden: true });
  }

  /** Whether the oldest line is in sight; a search is told about wherever one is. @param {boolean} inSight */
  setInSight(inSight) {
    if (this._isInSight === inSight) return;
    this._isInSight = inSight;
    this._hide();
  }

  _hide() {
    const hidden = this.node.childElementCount === 0 || (!this._isInSight && !this._isSearch);
    if (this.node.hidden !== hidden) this.node.hidden = hidden;
  }

  /**
   * @param {import("../../core/connection/older-messages.js").OlderMessages} older
   * @param {OlderState | null} search
   * @param {boolean} isConversation only one conversation is shown
   */
  draw(older, search, isConversation) {
    this._isSearch = search !== null;
    const facts = [
      older.status,
      older.reason,
      search?.older?.status,
      search?.older?.reason,
      search?.found,
      search?.none,
      search !== null,
      isConversation,
    ].join("\n");
    redraw(this.node, facts, () =>
      isConversation ? [] : search ? this._searchParts(older, search) : this._loadParts(older),
    );
    this._hide();
  }

  /** @param {import("../../core/connection/older-messages.js").OlderMessages} older */
  _loadParts(older) {
    if (older.status === "loading") return [html.span({ class: "soft" }, "Loading older messages…")];
    if (older.status === "failed")
      return [
        html.span({ class: "fault" }, `Older messages could not be loaded: ${oneLine(older.reason, 120)}`),
        button("Retry", () => this._load(), { class: "small" }),
      ];
    if (older.status === "end") return [html.span({ class: "soft" }, END_TEXTS[older.reason] ?? END_TEXTS.unknown)];
    return [button("Load older messages", () => this._load(), { class: "small quiet" })];
  }

  /** @param {import("../../core/connection/older-messages.js").OlderMessages} older @param {OlderState} state */
  _searchParts(older, { older: search, found, none }) {
    const latest = none ? `No match in the latest ${formatNumber(none)}. ` : "";
    if (older.status === "end" && older.reason !== "full" && !search)
      return [
        html.span(
          { class: "soft" },
          none ? "No match. " : "",
          older.reason === "beginning"
            ? "All messages were searched. "
            : "All messages that can be loaded were searched. ",
          END_TEXTS[older.reason] ?? "",
        ),
      ];
    if (!search)
      return [
        html.span({ class: "soft" }, latest || "Searched the messages that are loaded."),
        button("Search older messages", () => this._search(), { class: "small" }),
      ];
    const count = `${formatNumber(found)} found in older messages.`;
    if (search.status === "searching")
      return [html.span({ class: "soft" }, `${latest}Searching older messages… ${found > 0 ? count : ""}`)];
    if (search.status === "paused")
      return [
        html.span({ class: "soft" }, `${latest}${count}`),
        button("Search further", () => this._search(), { class: "small" }),
      ];
    if (search.status === "failed")
      return [
        html.span({ class: "fault" }, `The search stopped: ${oneLine(search.reason, 120)}`),
        button("Retry", () => this._search(), { class: "small" }),
      ];
    const outcome = none && found === 0 ? "No match." : count;
    return [html.span({ class: "soft" }, `${outcome} ${END_TEXTS[search.reason] ?? ""}`)];
  }
}
