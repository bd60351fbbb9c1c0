/**
 * The filter of the timeline. It is written as words:
 *
 *     from:agent to:files with:alice kind:mcp/* context:r1 tools/call:read_file is:failed "two words"
 *
 * A minus excludes: `-from:agent -kind:chat -"two words"`. Several words of one field mean any of them, different fields
 * all of them; each exclusion holds by itself.
 * Searching 100,000 envelopes takes longer than a frame, so it is done in slices, newest first.
 */

import { isHousekeeping } from "../../core/state/housekeeping.js";

/** @typedef {import("../../core/state/envelopes.js").Row} Row */
/** @typedef {{from: string[], to: string[], with: string[], kind: RegExp[], operation: RegExp[], context: string[], text: RegExp[], failed: boolean, background: boolean, except: Parsed[], query: import("../../core/connection/older-messages.js").Query}} Parsed */

// Of a frame of 16 ms; the rest is for everything else.
const SLICE_MILLISECONDS = 5;
const WORD = /(-?)(?:(from|to|with|kind|context|is):)?(?:"([^"]*)"|(\S+))/g;
// Only MCP methods begin like this.
const OPERATION =
  /^(tools|resources|prompts|completion|sampling|elicitation|roots|logging|tasks|notifications)\/[\w*]+/;

/** @returns {Parsed} */
function nothing() {
  return {
    from: [],
    to: [],
    with: [],
    kind: [],
    operation: [],
    context: [],
    text: [],
    failed: false,
    background: false,
    except: [],
    query: {},
  };
}

/** @param {string} source @returns {Parsed} */
export function parseFilter(source) {
  const parsed = nothing();
  /** @type {{kinds: string[], texts: string[]}} */
  const given = { kinds: [], texts: [] };
  for (const [, minus, field, quoted, plain] of source.matchAll(WORD)) {
    const value = quoted ?? plain;
    if (!value) continue;
    const into = minus ? nothing() : parsed;
    if (field === "from" || field === "to" || field === "with" || field === "context") into[field].push(value);
    else if (field === "kind") into.kind.push(glob(value, true));
    else if (field === "is") {
      if (["refused", "failed", "bad"].includes(value)) into.failed = true;
      if (value === "background") into.background = true;
    } else if (quoted === undefined && OPERATION.test(value)) into.operation.push(glob(value, false));
    else into.text.push(new RegExp(escaped(value), "iu"));
    if (minus) {
      if (!isEmpty(into)) parsed.except.push(into);
    } else if (field === "kind") given.kinds.push(value);
    else if (into.text.length > given.texts.length) given.texts.push(value);
  }
  // What the gateway can look for in the journal; the rest is checked here.
  parsed.query = {
    text: given.texts.slice(0, 8).map((each) => each.slice(0, 200)),
    kind: given.kinds.length === 1 ? given.kinds[0].slice(0, 200) : "",
    from: parsed.from.length === 1 ? parsed.from[0].slice(0, 200) : "",
  };
  return parsed;
}

/** Whether it asks for what is hidden otherwise. @param {Parsed} filter */
export function includesHousekeeping(filter) {
  return filter.background || filter.kind.length > 0 || filter.operation.length > 0;
}

/** `kind:mcp` finds mcp/request too; `*` matches anything. @param {string} pattern @param {boolean} below */
function glob(pattern, below) {
  return new RegExp(`^${pattern.split("*").map(escaped).join(".*")}${below ? "(?:[/:].*)?" : "(?::.*)?"}$`, "iu");
}

/** @param {string} text */
function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
}

/** @param {Parsed} filter */
export function isEmpty(filter) {
  return (
    !filter.failed &&
    !filter.background &&
    Object.values(filter).every((each) => !Array.isArray(each) || each.length === 0)
  );
}

/** @param {Row} row @param {Parsed} filter */
export function matches(row, filter) {
  // A gap concerns everybody.
  if (row.type === "gap") return true;
  return holds(row, filter) && !filter.except.some((each) => holds(row, each));
}

/** @param {Row} row @param {Parsed} filter */
function holds(row, filter) {
  if (filter.failed && !row.failed) return false;
  if (filter.background && !isHousekeeping(row, () => false)) return false;
  if (filter.from.length > 0 && !filter.from.includes(row.from)) return false;
  if (filter.to.length > 0 && !filter.to.some((each) => row.to.includes(each))) return false;
  if (filter.with.length > 0 && !filter.with.some((each) => row.from === each || row.to.includes(each))) return false;
  if (filter.kind.length > 0 && !filter.kind.some((each) => each.test(row.kind))) return false;
  if (filter.operation.length > 0 && !filter.operation.some((each) => row.operation !== "" && each.test(row.operation)))
    return false;
  // MEW 3.5.6: a prefix of a context selects everything below it.
  if (
    filter.context.length > 0 &&
    !filter.context.some(
      (each) => row.context === each || row.context.startsWith(`${each.replace(/\/$/, "")}/`) || row.id === each,
    )
  )
    return false;
  return filter.text.every((each) => each.test(row.raw) || each.test(row.operation) || each.test(row.summary));
}

/** Searches rows in slices. `found` is in order, oldest first, and grows at both ends. */
export class Search {
  /** @param {import("../../core/state/envelopes.js").Envelopes} envelopes @param {Parsed} filter @param {() => void} changed */
  constructor(envelopes, filter, changed) {
    this._envelopes = envelopes;
    this.filter = filter;
    this._changed = changed;
    /** @type {number[]} newest first, found by looking back */
    this._back = [];
    /** @type {number[]} */
    this._fresh = [];
    this._at = envelopes.next;
    this._next = envelopes.next;
    this.done = false;
    this._stopped = false;
    this._slice();
  }

  stop() {
    this._stopped = true;
  }

  /** How many were found so far. */
  get count() {
    return this._back.length + this._fresh.length;
  }

  /** Everything found so far, oldest first. @returns {number[]} */
  found() {
    const first = this._envelopes.first;
    const back = this._back.filter((n) => n >= first).reverse();
    return back.concat(this._fresh.filter((n) => n >= first));
  }

  /** Add the rows that arrived since. */
  update() {
    for (; this._next < this._envelopes.next; this._next += 1) {
      const row = this._envelopes.at(this._next);
      if (row && matches(row, this.filter)) this._fresh.push(this._next);
    }
  }

  _slice() {
    if (this._stopped) return;
    const end = performance.now() + SLICE_MILLISECONDS;
    while (this._at > this._envelopes.first) {
      this._at -= 1;
      const row = this._envelopes.at(this._at);
      if (row && matches(row, this.filter)) this._back.push(this._at);
      if (this._at % 64 === 0 && performance.now() > end) {
        this._changed();
        setTimeout(() => this._slice(), 0);
        return;
      }
    }
    this.done = true;
    this._changed();
  }
}
