/**
 * A virtual list: only visible rows have elements. All rows have the same height, so the position of each
 * is its index times that. Elements are reused. It is a listbox, so arrow keys and screen readers can move through it.
 */
import { html, newId } from "../../core/page/dom.js";
import { inputDelay } from "../../core/page/input-priority.js";

// Rows above and below the window, so that scrolling does not show an empty background.
const OVERSCAN = 8;
// Fewer at the end, where nobody scrolls and all rows change with every message.
const SPARE_AT_END = 2;
// Of a new list, the newest rows are drawn in the first frame and the others in the next: a row takes half a millisecond or more.
const AT_FIRST = 14;
// The maximum height of an element is 33 million pixels, in Firefox 17 million.
const MAX_PIXELS = 16_000_000;

/**
 * @typedef {object} Source
 * @property {() => number} length
 * @property {(index: number) => any} at an item
 * @property {(item: any) => number} stamp changes when the item looks different
 * @property {(item: any) => string} shape the same for items that are drawn with the same elements, so that an element can be reused by changing its text only
 * @property {(element: HTMLElement, item: any, index: number) => void} draw into an element that may hold another item; its class begins with "vl-row"
 * @property {(index: number, event: Event) => void} chosen called on a click or Enter
 * @property {(index: number, open: boolean) => void} folded called on the right or left arrow key
 * @property {() => void} complete called before going to the first item: all older items must be loaded
 */

export class VirtualList {
  /** @param {string} label @param {Source} source */
  constructor(label, source) {
    this._source = source;
    this._prefix = newId("row");
    this._inner = html.div({ class: "vl-inner", role: "presentation" });
    this.node = html.div({ class: "vl", role: "listbox", tabindex: "0", "aria-label": label }, this._inner);
    /** @type {Map<number, {element: HTMLElement, item: any, stamp: number}>} */
    this._shown = new Map();
    /** @type {HTMLElement[]} */
    this._spare = [];
    /** @type {WeakMap<HTMLElement, string>} */
    this._shapes = new WeakMap();
    this.rowHeight = 34;
    this._height = 0;
    this.selected = -1;
    /** Whether the list follows the newest item. */
    this.following = true;
    this.onFollow = () => {};
    this._waiting = false;
    this._isRequested = false;
    this._isNew = true;
    this.node.addEventListener("scroll", () => this._scrolled(), { passive: true });
    this.node.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this._key(event));
    this._inner.addEventListener("click", (/** @type {MouseEvent} */ event) => this._click(event));
    // Called after layout and before painting: it needs no extra layout, and what it draws is in the same frame.
    this._sizes = new ResizeObserver(() => this._measure());
    this._sizes.observe(this.node);
  }

  close() {
    this._sizes.disconnect();
  }

  /** Read the row height from the stylesheet: it differs on a phone. */
  _measure() {
    const height = parseFloat(getComputedStyle(this.node).getPropertyValue("--row-height")) || 34;
    const inSight = this.node.clientHeight;
    if (height === this.rowHeight && inSight === this._height) return;
    if (height !== this.rowHeight) {
      this._forget();
      for (const element of this._spare) delete element.dataset.index;
      // Keep the visible rows visible.
      const top = (this.node.scrollTop / this.rowHeight) * height;
      this.rowHeight = height;
      this._size();
      if (!this.following) this.node.scrollTop = top;
    }
    this._height = inSight;
    this._draw();
  }

  /** The items changed; may be called often, draws once per frame. @param {boolean} [byItself] nobody asked for it: it is not in the frame that answers a click */
  refresh(byItself = false) {
    if (!byItself) this._isRequested = true;
    if (this._waiting) return;
    this._waiting = true;
    const frame = () => {
      if (!this._isRequested && inputDelay() > 0) {
        requestAnimationFrame(frame);
        return;
      }
      this._waiting = this._isRequested = false;
      this._draw();
    };
    requestAnimationFrame(frame);
  }

  /** Redraw all items, because they look different. */
  redraw() {
    this._forget();
    this.refresh();
  }

  /** This many items were removed at the front (added, if negative): visible rows keep their position. @param {number} count */
  dropped(count) {
    const before = [...this._shown];
    this._shown.clear();
    for (const [index, shown] of before) {
      if (index < count) this._spare.push(shown.element);
      else {
        this._shown.set(index - count, shown);
        this._move(shown.element, index - count);
      }
    }
    if (this.selected >= 0) this.selected -= count;
    if (this.following) {
      // At once: rows beyond the end would make the list longer, and it would look as if it was scrolled up.
      this._draw();
      return;
    }
    this._size();
    this.node.scrollTop -= count * this.rowHeight;
  }

  follow() {
    this.following = true;
    this.onFollow();
    this.refresh();
  }

  /** @param {number} index @param {{into?: "view" | "middle"}} [options] */
  select(index, options = {}) {
    const length = this._source.length();
    if (length === 0) return;
    if (this._height === 0) this._measure();
    this.selected = Math.max(0, Math.min(length - 1, index));
    const top = this.selected * this.rowHeight;
    const view = this.node.scrollTop;
    if (options.into === "middle") this._scrollTo(top - this._height / 2);
    else if (top < view) this._scrollTo(top);
    else if (top + this.rowHeight > view + this._height) this._scrollTo(top + this.rowHeight - this._height);
    this._mark();
    this.refresh();
  }

  /** @param {number} top */
  _scrollTo(top) {
    this.following = false;
    this._size();
    this.node.scrollTop = Math.max(0, top);
    this.onFollow();
  }

  _size() {
    const pixels = Math.min(MAX_PIXELS, this._source.length() * this.rowHeight);
    const height = `${pixels}px`;
    if (this._inner.style.height !== height) this._inner.style.height = height;
    return pixels;
  }

  _draw() {
    // Not laid out yet: it is drawn after its first layout.
    if (this._height === 0) return;
    const length = this._source.length();
    const pixels = this._size();
    const top = this.following ? Math.max(0, pixels - this._height) : this.node.scrollTop;
    const spare = this.following ? SPARE_AT_END : OVERSCAN;
    const last = Math.min(length, Math.ceil((top + this._height) / this.rowHeight) + spare);
    let first = Math.max(0, Math.floor(top / this.rowHeight) - spare);
    if (this._isNew && length > 0) {
      this._isNew = false;
      if (this.following && last - first > AT_FIRST) {
        first = last - AT_FIRST;
        this.refresh();
      }
    }
    for (const [index, shown] of this._shown) {
      if (index >= first && index < last) continue;
      this._shown.delete(index);
      this._spare.push(shown.element);
    }
    for (let index = first; index < last; index += 1) this._place(index);
    for (const element of this._spare.splice(OVERSCAN * 2)) element.remove();
    for (const element of this._spare) if (!element.hidden) element.hidden = true;
    this._mark();
    // Last, because it forces a layout.
    if (this.following && length > 0) this.node.scrollTop = pixels;
  }

  /** @param {number} index */
  _place(index) {
    const item = this._source.at(index);
    const stamp = this._source.stamp(item);
    const shown = this._shown.get(index);
    if (shown && shown.item === item && shown.stamp === stamp) return;
    const shape = this._source.shape(item);
    /** @type {HTMLElement | undefined} */
    const reused = shown?.element ?? this._reuse(shape);
    /** @type {HTMLElement} */
    const element =
      reused ?? html.div({ class: "vl-row", role: "option", "aria-setsize": "-1", "aria-selected": "false" });
    if (!reused) this._inner.append(element);
    if (element.hidden) element.hidden = false;
    if (element.dataset.index !== String(index)) this._move(element, index);
    this._source.draw(element, item, index);
    this._shapes.set(element, shape);
    this._shown.set(index, { element, item, stamp });
  }

  /** An unused element, preferably one of this shape that. @param {string} shape @returns {HTMLElement | undefined} */
  _reuse(shape) {
    const at = this._spare.findLastIndex((each) => this._shapes.get(each) === shape);
    return at < 0 ? this._spare.pop() : this._spare.splice(at, 1)[0];
  }

  /** @param {HTMLElement} element @param {number} index */
  _move(element, index) {
    element.id = `${this._prefix}-${index}`;
    element.dataset.index = String(index);
    element.style.transform = `translateY(${index * this.rowHeight}px)`;
    element.setAttribute("aria-posinset", String(index + 1));
  }

  /** Only changes are set: setting an attribute again makes the browser recompute styles. */
  _mark() {
    for (const [index, { element }] of this._shown) {
      const selected = String(index === this.selected);
      if (element.getAttribute("aria-selected") !== selected) element.setAttribute("aria-selected", selected);
    }
    const active = this._shown.has(this.selected) ? `${this._prefix}-${this.selected}` : null;
    if (this.node.getAttribute("aria-activedescendant") === active) return;
    if (active === null) this.node.removeAttribute("aria-activedescendant");
    else this.node.setAttribute("aria-activedescendant", active);
  }

  _forget() {
    for (const shown of this._shown.values()) this._spare.push(shown.element);
    this._shown.clear();
  }

  _scrolled() {
    const bottom = this.node.scrollHeight - this.node.clientHeight - this.node.scrollTop;
    const following = bottom < this.rowHeight;
    if (following !== this.following) {
      this.following = following;
      this.onFollow();
    }
    this.refresh();
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Home") this._source.complete();
    const page = Math.max(1, Math.floor(this._height / this.rowHeight) - 1);
    const at = this.selected < 0 ? this._source.length() - 1 : this.selected;
    const next = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: this._source.length() - 1,
    }[event.key];
    if (next !== undefined) this.select(this.selected < 0 && event.key.startsWith("Arrow") ? at : next);
    else if (event.key === "Enter" || event.key === " ") {
      if (this.selected >= 0) this._source.chosen(this.selected, event);
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      if (this.selected >= 0) this._source.folded(this.selected, event.key === "ArrowRight");
    } else return;
    if (event.key === "End") this.follow();
    event.preventDefault();
  }

  /** @param {MouseEvent} event */
  _click(event) {
    const row = event.target instanceof Element ? event.target.closest(".vl-row") : null;
    if (!(row instanceof HTMLElement) || row.dataset.index === undefined) return;
    this.select(Number(row.dataset.index));
    this._source.chosen(this.selected, event);
  }
}
