/**
 * Messages from the socket, in order. A single message is handled at once. In a burst they are queued and handled thirty
 * times a second, in slices, so that a click or a frame never waits for a thousand of them.
 */
import { inputDelay } from "../page/input-priority.js";

// Messages that arrive closer together than this are a burst.
const BURST_GAP_MILLISECONDS = 8;
const BURST_MILLISECONDS = 32;
// Of a frame of 16 ms.
const SLICE_MILLISECONDS = 5;
// From this queue length on the socket is read only as fast as the page keeps up, so that the gateway sees a slow reader.
const MAX_QUEUED = 20_000;

/** @template T */
export class MessageQueue {
  /** @param {(item: T) => void} handle */
  constructor(handle) {
    this._handle = handle;
    /** @type {T[]} */
    this._items = [];
    this._at = 0;
    this._handledAt = -Infinity;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._timer = undefined;
  }

  /** @param {T} item */
  add(item) {
    this._items.push(item);
    if (this._items.length - this._at > MAX_QUEUED) this._handleSlice();
    // In a burst, nothing else is done per message.
    else if (this._timer !== undefined) return;
    // The browser delays timers of a hidden page, and nobody clicks there.
    else if (document.hidden || (performance.now() - this._handledAt > BURST_GAP_MILLISECONDS && inputDelay() === 0))
      this.drain();
    else this._schedule(BURST_MILLISECONDS);
  }

  /** Handle all queued messages now. */
  drain() {
    this._handleUntil(Infinity);
  }

  /** Drop all queued messages. */
  clear() {
    clearTimeout(this._timer);
    this._timer = undefined;
    this._items = [];
    this._at = 0;
  }

  _handleSlice() {
    if (!this._handleUntil(performance.now() + SLICE_MILLISECONDS)) this._schedule(0);
  }

  /** @param {number} until @returns {boolean} whether all was taken */
  _handleUntil(until) {
    while (this._at < this._items.length) {
      // Counted before it is handled: handling it may close the socket and drain the rest.
      this._at += 1;
      this._handle(this._items[this._at - 1]);
      if (this._at % 8 === 0 && performance.now() > until) break;
    }
    this._handledAt = performance.now();
    if (this._at < this._items.length) return false;
    this.clear();
    return true;
  }

  /** @param {number} milliseconds */
  _schedule(milliseconds) {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => {
      this._timer = undefined;
      const more = inputDelay();
      if (more > 0) this._schedule(more);
      else this._handleSlice();
    }, milliseconds);
  }
}
