/** What a filter finds in the timeline: among the loaded messages, in one conversation, and in what is older. */
import { isEmpty, parseFilter, Search } from "./timeline-filter.js";
import { OlderSearch } from "./older-search.js";

/** @typedef {import("./older-search.js").RowsWithOlder} Rows */

export class TimelineSearch {
  /** @param {import("../../core/connection/open-space.js").OpenSpace} openSpace @param {(older: boolean) => void} changed more was searched; `older` in the journal */
  constructor(openSpace, changed) {
    this._openSpace = openSpace;
    this._changed = changed;
    /** @type {Search | null} */
    this._loaded = null;
    /** @type {OlderSearch | null} */
    this.older = null;
    /** The conversation that alone is shown. */
    this.root = "";
  }

  stop() {
    this._loaded?.stop();
    this._loaded = null;
    this.older?.stop();
    this.older = null;
  }

  /** Read a filter as it was typed; what was searched before ends. @param {string} source */
  read(source) {
    this.stop();
    this.root = /(?:^|\s)is-root:(\S+)/.exec(source)?.[1] ?? "";
    return parseFilter(source.replace(/(^|\s)is-root:\S+/, " "));
  }

  /** @param {Rows["loaded"]} rows @param {import("./timeline-filter.js").Parsed} filter */
  start(rows, filter) {
    // The first slice is searched before there is somebody to tell.
    if (!isEmpty(filter)) this._loaded = new Search(rows, filter, () => this._loaded && this._changed(false));
  }

  update() {
    this._loaded?.update();
  }

  /** Look for what the filter wants in what is older than the loaded messages. */
  searchOlder() {
    if (!this._loaded) return;
    this.older?.stop();
    this.older = new OlderSearch(this._openSpace, this._loaded.filter, () => this._changed(true));
  }

  get isOn() {
    return this._loaded !== null || this.root !== "";
  }

  get isDone() {
    return this._loaded?.done ?? true;
  }

  /** For the line above the oldest message; null without a filter. */
  get olderState() {
    return this._loaded ? { older: this.older, found: this.older?.store.size ?? 0 } : null;
  }

  /** Numbers of rows, oldest first; null if all are shown. @param {Rows} store @returns {number[] | null} */
  found(store) {
    if (this.root) {
      const rows = store.conversations.get(this.root)?.rows ?? [];
      const within = new Set(rows);
      return this._loaded ? this._loaded.found().filter((n) => within.has(n)) : [...rows];
    }
    if (!this._loaded) return null;
    return this.older ? this.older.found(store.loaded).concat(this._loaded.found()) : this._loaded.found();
  }

  /** How many; undefined if all are shown. @param {Rows} store */
  count(store) {
    if (this._loaded) return this._loaded.count + (this.older?.store.size ?? 0);
    return this.root ? (store.conversations.get(this.root)?.rows.length ?? 0) : undefined;
  }
}
