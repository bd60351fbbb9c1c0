// @ts-check
/**
 * Who wants to know what changed. A thousand envelopes a second change the state a thousand times; watchers
 * are called once per frame, with all topics that changed since.
 */

// A page in the background gets no frames, but badges and notifications go on.
const HIDDEN_MILLISECONDS = 250;

export class News {
  constructor() {
    /** @type {Map<string, Set<(topics: Set<string>) => void>>} */
    this._watchers = new Map();
    /** @type {Set<string>} */
    this._changed = new Set();
    this._waiting = false;
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
    if (this._waiting) return;
    this._waiting = true;
    if (!document.hidden) requestAnimationFrame(() => this.flush());
    // Also when the page is hidden while it waits for its frame.
    setTimeout(() => this.flush(), HIDDEN_MILLISECONDS);
  }

  /** Tell now. */
  flush() {
    if (!this._waiting) return;
    this._waiting = false;
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
