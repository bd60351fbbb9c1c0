/**
 * Notifies subscribers of changes. A thousand envelopes a second change the state a thousand times; subscribers
 * are called once per frame with all topics that changed since, and in a burst ten times a second. Input has priority.
 */
import { inputDelay } from "./input-priority.js";

// A page in the background gets no frames, but badges and notifications go on.
const HIDDEN_MILLISECONDS = 250;
// More changes than this between two frames are a burst: nobody reads sixty states a second.
const RUSH = 12;
const RUSH_MILLISECONDS = 100;

export class ChangeFeed {
  constructor() {
    /** @type {Map<string, Set<(topics: Set<string>) => void>>} */
    this._subscribers = new Map();
    /** @type {Set<string>} */
    this._changed = new Set();
    this._waiting = false;
    this._count = 0;
    this._rushing = false;
    this._flushedAt = -Infinity;
  }

  /**
   * Call `subscriber` after any of these topics changed ("*" for all); returns a function that unsubscribes.
   * @param {string | string[]} topics @param {(topics: Set<string>) => void} subscriber
   */
  on(topics, subscriber) {
    const names = Array.isArray(topics) ? topics : [topics];
    for (const name of names) {
      if (!this._subscribers.has(name)) this._subscribers.set(name, new Set());
      this._subscribers.get(name)?.add(subscriber);
    }
    return () => names.forEach((name) => this._subscribers.get(name)?.delete(subscriber));
  }

  /** @param {string} topic */
  publish(topic) {
    this._changed.add(topic);
    this._count += 1;
    if (this._waiting) return;
    this._waiting = true;
    this._schedule();
    // Also when the page is hidden while it waits for its frame.
    this._hiddenTimer = setTimeout(() => this.flush(), HIDDEN_MILLISECONDS);
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  _hiddenTimer = undefined;

  _schedule() {
    const rest = Math.max(inputDelay(), this._rushing ? this._flushedAt + RUSH_MILLISECONDS - performance.now() : 0);
    if (rest > 0) setTimeout(() => this._waiting && this._schedule(), rest);
    else if (!document.hidden)
      requestAnimationFrame(() => (inputDelay() > 0 ? this._waiting && this._schedule() : this.flush()));
  }

  /** Notify the subscribers now. */
  flush() {
    if (!this._waiting) return;
    this._waiting = false;
    clearTimeout(this._hiddenTimer);
    this._rushing = this._count > RUSH;
    this._count = 0;
    this._flushedAt = performance.now();
    const changed = this._changed;
    this._changed = new Set();
    /** @type {Set<(topics: Set<string>) => void>} */
    const notified = new Set();
    for (const topic of [...changed, "*"])
      for (const watcher of this._subscribers.get(topic) ?? []) notified.add(watcher);
    for (const watcher of notified) {
      try {
        watcher(changed);
      } catch (fault) {
        // One view that fails does not keep the others from being notified.
        console.error("a view failed", fault);
      }
    }
  }
}
