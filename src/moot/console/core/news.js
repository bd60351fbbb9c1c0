// @ts-check
/**
 * Who wants to know what changed. A thousand envelopes a second change the state a thousand times; watchers
 * are called once per frame, with all topics that changed since, and in a rush ten times a second. Somebody who
 * clicks comes first.
 */
import { wait } from "./turn.js";

// A page in the background gets no frames, but badges and notifications go on.
const HIDDEN_MILLISECONDS = 250;
// More changes than this between two frames are a rush: nobody reads sixty states a second.
const RUSH = 12;
const RUSH_MILLISECONDS = 100;

export class News {
  constructor() {
    /** @type {Map<string, Set<(topics: Set<string>) => void>>} */
    this._watchers = new Map();
    /** @type {Set<string>} */
    this._changed = new Set();
    this._waiting = false;
    this._count = 0;
    this._rushing = false;
    this._toldAt = -Infinity;
  }

  /**
   * Call `watcher` after any of these topics changed ("*" for all); returns how to stop.
   * @param {string | string[]} topics @param {(topics: Set<string>) => void} watcher
   */
  on(topics, watcher) {
    const names = Array.isArray(topics) ? topics : [topics];
    for (const name of names) {
      if (!this._watchers.has(name)) this._watchers.set(name, new Set());
      this._watchers.get(name)?.add(watcher);
    }
    return () => names.forEach((name) => this._watchers.get(name)?.delete(watcher));
  }

  /** @param {string} topic */
  changed(topic) {
    this._changed.add(topic);
    this._count += 1;
    if (this._waiting) return;
    this._waiting = true;
    this._soon();
    // Also when the page is hidden while it waits for its frame.
    this._late = setTimeout(() => this.flush(), HIDDEN_MILLISECONDS);
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  _late = undefined;

  _soon() {
    const rest = Math.max(wait(), this._rushing ? this._toldAt + RUSH_MILLISECONDS - performance.now() : 0);
    if (rest > 0) setTimeout(() => this._waiting && this._soon(), rest);
    else if (!document.hidden) requestAnimationFrame(() => (wait() > 0 ? this._waiting && this._soon() : this.flush()));
  }

  /** Tell now. */
  flush() {
    if (!this._waiting) return;
    this._waiting = false;
    clearTimeout(this._late);
    this._rushing = this._count > RUSH;
    this._count = 0;
    this._toldAt = performance.now();
    const changed = this._changed;
    this._changed = new Set();
    /** @type {Set<(topics: Set<string>) => void>} */
    const told = new Set();
    for (const topic of [...changed, "*"]) for (const watcher of this._watchers.get(topic) ?? []) told.add(watcher);
    for (const watcher of told) {
      try {
        watcher(changed);
      } catch (fault) {
        // One view that fails does not keep the others from being told.
        console.error("a view failed", fault);
      }
    }
  }
}
