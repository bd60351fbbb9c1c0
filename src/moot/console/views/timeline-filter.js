// @ts-check
/**
 * The filter of the timeline. It is written as words:
 *
 *     from:agent to:files with:alice kind:mcp/* context:r1 tools/call:read_file refused "two words"
 *
 * Searching 100,000 envelopes takes longer than a frame, so it is done in slices, newest first.
 */

/** @typedef {import("../core/envelopes.js").Row} Row */
/** @typedef {{from: string[], to: string[], with: string[], kind: RegExp[], operation: RegExp[], context: string[], text: RegExp[], failed: boolean}} Parsed */

// Of a frame of 16 ms; the rest is for everything else.
const SLICE_MILLISECONDS = 5;
const WORD = /(-?)(?:(from|to|with|kind|context|is):)?(?:"([^"]*)"|(\S+))/g;
// Only MCP methods begin like this.
const OPERATION = /^(tools|resources|prompts|completion|sampling|elicitation|roots|logging|tasks|notifications)\/[\w*]+/;

/** @param {string} source @returns {Parsed} */
export function parseFilter(source) {
  /** @type {Parsed} */
  const parsed = { from: [], to: [], with: [], kind: [], operation: [], context: [], text: [], failed: false };
  for (const [, , field, quoted, plain] of source.matchAll(WORD)) {
    const value = quoted ?? plain;
    if (!value) continue;
    if (field === "from" || field === "to" || field === "with" || field === "context") parsed[field].push(value);
    else if (field === "kind") parsed.kind.push(glob(value, true));
    else if (field === "is") parsed.failed ||= value === "refused" || value === "bad";
    else if (quoted === undefined && OPERATION.test(value)) parsed.operation.push(glob(value, false));
    else parsed.text.push(new RegExp(escaped(value), "iu"));
  }
  return parsed;
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
  return !filter.failed && Object.values(filter).every((each) => !Array.isArray(each) || each.length === 0);
}

/** @param {Row} row @param {Parsed} filter */
export function matches(row, filter) {
  // A gap concerns everybody.
  if (row.type === "gap") return true;
  if (filter.failed && !row.failed) return false;
  if (filter.from.length > 0 && !filter.from.includes(row.from)) return false;
  if (filter.to.length > 0 && !filter.to.some((each) => row.to.includes(each))) return false;
  if (filter.with.length > 0 && !filter.with.some((each) => row.from === each || row.to.includes(each))) return false;
  if (filter.kind.length > 0 && !filter.kind.some((each) => each.test(row.kind))) return false;
  if (filter.operation.length > 0 && !filter.operation.some((each) => row.operation !== "" && each.test(row.operation))) return false;
  // MEW 3.5.6: a prefix of a context selects everything below it.
  if (filter.context.length > 0 && !filter.context.some((each) => row.context === each || row.context.startsWith(`${each.replace(/\/$/, "")}/`) || row.id === each)) return false;
  return filter.text.every((each) => each.test(row.raw) || each.test(row.operation) || each.test(row.summary));
}

/** Searches rows in slices. `found` is in order, oldest first, and grows at both ends. */
export class Search {
  /** @param {import("../core/envelopes.js").Envelopes} envelopes @param {Parsed} filter @param {() => void} changed */
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
