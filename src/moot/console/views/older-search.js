// @ts-check
/**
 * Searches messages that are older than the loaded ones, in the gateway's journal. What is found is kept in a store of its own,
 * under numbers far below those of the page, so that a list can show both.
 */
import { Envelopes } from "../core/envelopes.js";
import { matches } from "./timeline-filter.js";

// More than anybody reads.
const MAX_FOUND = 5_000;
const FAR_BELOW = -1_000_000_000;

export class OlderSearch {
  /** @param {import("../core/session.js").OpenSpace} openSpace @param {import("./timeline-filter.js").Parsed} filter @param {() => void} changed */
  constructor(openSpace, filter, changed) {
    this._openSpace = openSpace;
    this._filter = filter;
    this._changed = changed;
    this._isStopped = false;
    this.store = new Envelopes(MAX_FOUND, FAR_BELOW);
    /** @type {"searching" | "done" | "failed"} */
    this.status = "searching";
    /** Why it ended, or failed. */
    this.reason = "";
    void this._run();
  }

  async _run() {
    try {
      for await (const page of this._openSpace.older.search(this._filter.query)) {
        if (this._isStopped) return;
        const rows = page.raws.map((raw) => this._openSpace.state.readOlder(raw)).filter((row) => row !== null);
        this.store.prepend(rows.filter((row) => matches(row, this._filter)));
        this.reason = page.end ?? "";
        this._changed();
        if (this.store.size >= MAX_FOUND) break;
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

  /** What was found and is not among the loaded rows, oldest first. @param {Envelopes} loaded @returns {number[]} */
  found(loaded) {
    const found = [];
    for (let n = this.store.first; n < this.store.next; n += 1) if (!loaded.has(/** @type {import("../core/envelopes.js").Row} */ (this.store.at(n)).id)) found.push(n);
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
