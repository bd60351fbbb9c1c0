/**
 * The order of rows when grouped by conversation. Conversations are ordered by their last activity;
 * the first message of one is its head. A thousand messages a second must not sort a hundred thousand again
 * each time, so new rows are added at the end: only their conversations move. And a click
 * that changes the order shows the newest part at once; the older part is sorted in slices.
 */

/** @typedef {{root: string, rows: number[]}} Group */
/** @typedef {number | Group} Item a row's number, or a conversation that its first row represents */

// If a conversation was inactive for more than this many lines, everything is sorted again.
const LOOK_BACK = 5_000;
// Beyond this many new rows, sorting everything is also faster.
const MAX_MOVED = 1_000;
// Lines that are sorted at once: many screens, which usually include the selected line.
const NEWEST = 1_000;
// Of a frame of 16 ms; the clock is checked once per this many rows.
const SLICE_MILLISECONDS = 4;
const ROWS_BETWEEN_LOOKS = 64;

export class Grouping {
  /** @param {import("../../core/state/envelopes.js").Envelopes} envelopes @param {(root: string) => boolean} isFolded */
  constructor(envelopes, isFolded) {
    this._envelopes = envelopes;
    this._isFolded = isFolded;
    /** @type {Item[]} */
    this.items = [];
    this._first = -1;
    this._next = 0;
    /** The older part that is being sorted: newest first, down to a row. @type {{items: Item[], at: number} | null} */
    this._older = null;
  }

  /** Whether it goes back to the oldest row. */
  get whole() {
    return this._older === null;
  }

  /** Sort all rows again, the newest part now; `older` adds the rest. */
  begin() {
    this._first = this._envelopes.first;
    this._next = this._envelopes.next;
    /** @type {{items: Item[], at: number}} */
    const newest = { items: [], at: this._next };
    const done = this._back(newest, () => newest.items.length >= NEWEST);
    this.items = newest.items.reverse();
    this._older = done ? null : { items: [], at: newest.at };
  }

  /** Sort a slice of the older part; returns how many lines were added before the others, which is 0 until all are sorted. */
  older() {
    if (this._older === null) return 0;
    // Rows that were dropped meanwhile may be in the sorted part.
    if (this._first !== this._envelopes.first) {
      this.begin();
      return 0;
    }
    const end = performance.now() + SLICE_MILLISECONDS;
    if (!this._back(this._older, () => performance.now() > end)) return 0;
    const { items } = this._older;
    this._older = null;
    this.items = items.reverse().concat(this.items);
    return items.length;
  }

  /**
   * Go backwards from a row: the newest row of a conversation comes first and determines its position.
   * @param {{items: Item[], at: number}} part @param {() => boolean} enough @returns {boolean} whether the oldest row is reached
   */
  _back(part, enough) {
    const store = this._envelopes;
    while (part.at > store.first) {
      part.at -= 1;
      const group = store.conversations.get(
        /** @type {import("../../core/state/envelopes.js").Row} */ (store.at(part.at)).root,
      );
      if (group?.rows.at(-1) === part.at) {
        if (group.rows.length > 1 && !this._isFolded(group.root))
          for (let index = group.rows.length - 1; index > 0; index -= 1) part.items.push(group.rows[index]);
        part.items.push(group.rows.length > 1 ? group : group.rows[0]);
      }
      if (part.at % ROWS_BETWEEN_LOOKS === 0 && enough()) break;
    }
    return part.at === store.first;
  }

  /** Rebuild everything: after collapsing, or for a filter. @param {number[] | null} found rows, oldest first; null for all */
  rebuild(found) {
    this._older = null;
    this._first = found === null ? this._envelopes.first : -1;
    this._next = this._envelopes.next;
    if (found === null) {
      /** @type {{items: Item[], at: number}} */
      const all = { items: [], at: this._next };
      this._back(all, () => false);
      this.items = all.items.reverse();
      return;
    }
    this.items = [];
    for (const group of grouped(this._envelopes, found)) this._append(group);
  }

  /** Add the rows that arrived since; only without a filter. */
  update() {
    const store = this._envelopes;
    if (this._first !== store.first || store.next - this._next > MAX_MOVED * 4 || !this._move(store)) this.begin();
    this._next = store.next;
  }

  /** @param {import("../../core/state/envelopes.js").Envelopes} store @returns {boolean} whether all were found */
  _move(store) {
    /** @type {Set<string>} roots, the last active last */
    const touched = new Set();
    for (let n = this._next; n < store.next; n += 1) {
      const root = /** @type {import("../../core/state/envelopes.js").Row} */ (store.at(n)).root;
      touched.delete(root);
      touched.add(root);
    }
    if (touched.size > MAX_MOVED) return false;
    for (const root of touched) {
      const group = /** @type {Group} */ (store.conversations.get(root));
      let before = group.rows.length;
      while (before > 0 && group.rows[before - 1] >= this._next) before -= 1;
      if (before > 0 && !this._remove(group, before)) return false;
    }
    for (const root of touched) this._append(/** @type {Group} */ (store.conversations.get(root)));
    return true;
  }

  /** @param {Group} group @param {number} count of its rows that are shown so far */
  _remove(group, count) {
    const head = count === 1 ? group.rows[0] : group;
    const end = Math.max(0, this.items.length - LOOK_BACK);
    for (let index = this.items.length - 1; index >= end; index -= 1) {
      if (this.items[index] !== head) continue;
      this.items.splice(index, this._isFolded(group.root) ? 1 : count);
      return true;
    }
    if (this._older === null) return false;
    // In the older part, where the head comes last, or not reached yet.
    const at = this._older.items.lastIndexOf(head);
    const lines = this._isFolded(group.root) ? 1 : count;
    if (at >= 0) this._older.items.splice(at - lines + 1, lines);
    return true;
  }

  /** @param {Group} group */
  _append(group) {
    const rows = group.rows;
    if (rows.length === 1) {
      this.items.push(rows[0]);
      return;
    }
    this.items.push(group);
    if (!this._isFolded(group.root)) for (let index = 1; index < rows.length; index += 1) this.items.push(rows[index]);
  }
}

/** @param {import("../../core/state/envelopes.js").Envelopes} envelopes @param {number[]} found @returns {Group[]} */
function grouped(envelopes, found) {
  /** @type {Map<string, Group>} */
  const groups = new Map();
  // From the newest back: roots are met in reverse order of their last activity.
  for (let index = found.length - 1; index >= 0; index -= 1) {
    const root = envelopes.at(found[index])?.root ?? "";
    const group = groups.get(root);
    if (group) group.rows.push(found[index]);
    else groups.set(root, { root, rows: [found[index]] });
  }
  const ordered = [...groups.values()].reverse();
  for (const group of ordered) group.rows.reverse();
  return ordered;
}

/** Which conversations are collapsed: all or none of them, except those that were turned. */
export class Folds {
  isAll = false;
  /** @type {Set<string>} */
  _turned = new Set();

  /** @param {string} root */
  has(root) {
    return this.isAll !== this._turned.has(root);
  }

  /** @param {string} root */
  turn(root) {
    if (!this._turned.delete(root)) this._turned.add(root);
  }

  turnAll() {
    this.isAll = !this.isAll;
    this._turned.clear();
  }
}
