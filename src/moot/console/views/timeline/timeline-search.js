/** What a filter finds in the timeline: among the loaded messages, in one conversation, and in what is older. */
import { isEmpty, parseFilter, Search } from "./timeline-filter.js";
import { OlderSearch } from "./older-search.js";

/** @typedef {import("./older-search.js").RowsWithOlder} Rows */

// Nobody types on meanwhile.
const GO_ON_MILLISECONDS = 700;

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
    clearTimeout(this._goingOn);
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  _goingOn = undefined;

  /** Where nothing is found, older messages are searched without being asked, until the first match. */
  _goOn() {
    const { older } = this._openSpace;
    if (!this._loaded?.done || this._loaded.count > 0 || this.older || this.root) return;
    if (older.status === "end" && older.reason !== "full") return;
    clearTimeout(this._goingOn);
    this._goingOn = setTimeout(() => {
      if (this._loaded?.count === 0 && !this.older) this.searchOlder(true);
      this._changed(true);
    }, GO_ON_MILLISECONDS);
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
    if (isEmpty(filter)) return;
    this._loaded = new Search(rows, filter, () => {
      if (!this._loaded) return;
      this._changed(false);
      this._goOn();
    });
    this._rows = rows;
    this._goOn();
  }

  update() {
    this._loaded?.update();
  }

  /** @type {Rows["loaded"] | null} */
  _rows = null;

  /** Look for what the filter wants in what is older than the loaded messages. @param {boolean} [untilMatch] */
  searchOlder(untilMatch = false) {
    if (!this._loaded) return;
    if (this.older?.status === "paused") return this.older.resume();
    this.older?.stop();
    this.older = new OlderSearch(this._openSpace, this._loaded.filter, () => this._changed(true), untilMatch);
  }

  get isOn() {
    return this._loaded !== null || this.root !== "";
  }

  get isDone() {
    return this._loaded?.done ?? true;
  }

  /** For the line above the oldest message; null without a filter. */
  get olderState() {
    if (!this._loaded) return null;
    const none = this._loaded.done && this._loaded.count === 0 ? (this._rows?.size ?? 0) : 0;
    return { older: this.older, found: this.older?.store.size ?? 0, none };
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
