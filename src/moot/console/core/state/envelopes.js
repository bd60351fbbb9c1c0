/**
 * All received envelopes, oldest first: rows of a few fields and the original text. Payloads are parsed
 * again when they are shown, so that 100,000 of them are not kept as objects.
 *
 * A row belongs to one conversation, whose root is found when it arrives: the conversation of the first envelope
 * that it correlates to, else of the reasoning sequence or context that it belongs to, else its own.
 */
import { trimMap } from "../page/bounded-map.js";
import { addressees, correlations, operationOf, formatOperation, summary, saysUnknown } from "./envelope-fields.js";
import { parseEnvelope } from "./json-text.js";
import { parseTime } from "../page/time.js";

/**
 * @typedef {object} Row
 * @property {number} n counts up from 0; never reused
 * @property {"envelope" | "gap"} type
 * @property {string} id
 * @property {number} at milliseconds, by the sender's clock
 * @property {string} from
 * @property {string[]} to
 * @property {string} kind
 * @property {string} operation `tools/call:read_file`, or empty
 * @property {string[]} about what it correlates to
 * @property {string} context
 * @property {string} summary one line; not escaped yet
 * @property {string} raw the text as it was received
 * @property {string} root the conversation
 * @property {boolean} failed a refusal, a failed result, a rejection, or an answer that leaves the outcome unknown
 * @property {boolean} isUnknown such an answer
 * @property {boolean} [approves] the call of a proposal
 * @property {string} [verdict] of a proposal: "approved by ana"
 * @property {boolean} [canLoad] of a gap: what is missing is in the journal
 * @property {boolean} [isOlder] read from the journal: shown, and nothing else
 */

// Twice the number that the console must be able to scroll; when it is full, the oldest fiftieth is dropped.
const MAX_ROWS = 200_000;
// A tab should not use more than a quarter of a gigabyte for text.
const MAX_CHARACTERS = 128 * 1024 * 1024;
// Operations of requests are remembered longer than the rows, so that late answers are labelled (D002).
const MAX_OPERATIONS = 50_000;
const MAX_SUMMARY_CHARACTERS = 240;

export class Envelopes {
  /** @param {number} [max] rows that are kept @param {number} [number] of the first row; others count on from there @param {boolean} [keepsEffects] whether `effectsOf` is asked */
  constructor(max = MAX_ROWS, number = 0, keepsEffects = true) {
    this.max = max;
    this._keepsEffects = keepsEffects;
    /** @type {Row[]} */
    this._rows = [];
    this._start = 0;
    /** The number of the oldest row that is kept. */
    this.first = number;
    /** One more than the number of the newest. */
    this.next = number;
    this.characters = 0;
    /** How many rows were dropped to stay within the limits. */
    this.dropped = 0;
    /** @type {Map<string, number>} */
    this._byId = new Map();
    /** @type {Map<string, number[]>} effects: who correlates to an id */
    this._effects = new Map();
    /** Conversations by root, in no order. @type {Map<string, {root: string, rows: number[]}>} */
    this.conversations = new Map();
    /** @type {Map<string, import("./envelope-fields.js").Operation>} */
    this._operations = new Map();
  }

  get size() {
    return this.next - this.first;
  }

  /** @param {number} n @returns {Row | undefined} */
  at(n) {
    return n < this.first ? undefined : this._rows[n - this.first + this._start];
  }

  /** @param {string} id */
  has(id) {
    return this._byId.has(id);
  }

  /** @param {string} id @returns {Row | undefined} */
  byId(id) {
    const n = this._byId.get(id);
    return n === undefined ? undefined : this.at(n);
  }

  /** The rows that correlate to this one: its answers and decisions. @param {string} id @returns {Row[]} */
  effectsOf(id) {
    return /** @type {Row[]} */ ((this._effects.get(id) ?? []).map((n) => this.at(n)).filter(Boolean));
  }

  /** The rows that this row correlates to; ids for those that were not received. @param {Row} row */
  causesOf(row) {
    return row.about.map((id) => ({ id, row: this.byId(id) }));
  }

  /** The whole envelope, parsed again. @param {Row} row @returns {any} */
  envelope(row) {
    return row.type === "gap" ? null : parseEnvelope(row.raw);
  }

  /**
   * @param {any} envelope parsed @param {string} raw @param {number} receivedAt
   * @returns {Row}
   */
  add(envelope, raw, receivedAt) {
    const row = this.read(envelope, raw, receivedAt);
    row.n = this.next;
    row.root = this._rootOf(row);
    this._append(row);
    return row;
  }

  /** The line of a proposal says who decided it. @param {Row} row */
  _judge(row) {
    if (!row.approves && row.kind !== "mcp/reject") return;
    for (const { row: cause } of this.causesOf(row))
      if (cause?.kind.startsWith("mcp/proposal") && (row.approves || !cause.verdict))
        cause.verdict = `${row.approves ? "approved" : "rejected"} by ${row.from}`;
  }

  /** Add a row of another store, under a number of this one and in the same conversation. @param {Row} row @returns {Row} */
  addCopy(row) {
    const copy = { ...row, n: this.next };
    this._append(copy);
    return copy;
  }

  /**
   * Rows that are older than all others, oldest first; those that are here already are left out.
   * @param {Row[]} older from `read` @returns {number} how many were added
   */
  prepend(older) {
    const added = older
      .filter((row) => !this._byId.has(row.id))
      .slice(-Math.max(0, this.max - this.size))
      .map((row) => ({ ...row }));
    if (added.length === 0) return 0;
    added.forEach((row, index) => {
      row.isOlder = true;
      row.n = this.first - added.length + index;
      this._byId.set(row.id, row.n);
      this.characters += row.raw.length;
    });
    this._rows = added.concat(this._rows.slice(this._start));
    this._start = 0;
    this.first -= added.length;
    /** @type {Map<string, number[]>} */
    const joined = new Map();
    for (const row of added) {
      row.root = this._rootOf(row);
      const rows = joined.get(row.root) ?? [];
      joined.set(row.root, rows);
      rows.push(row.n);
      // What was rooted in it, while it was not known, belongs to its conversation.
      const orphans = row.root === row.id ? undefined : this.conversations.get(row.id);
      if (!orphans) continue;
      for (const n of orphans.rows) /** @type {Row} */ (this.at(n)).root = row.root;
      rows.push(...orphans.rows);
      this.conversations.delete(row.id);
    }
    for (const [root, rows] of joined)
      this.conversations.set(root, {
        root,
        rows: rows.concat(this.conversations.get(root)?.rows ?? []).sort((a, b) => a - b),
      });
    if (this._keepsEffects)
      for (const row of added.toReversed())
        for (const id of row.about) this._effects.set(id, [row.n, ...(this._effects.get(id) ?? [])]);
    for (const row of added) [row, ...this.effectsOf(row.id)].forEach((each) => this._judge(each));
    return added.length;
  }

  /** @param {Row} row */
  _join(row) {
    const conversation = this.conversations.get(row.root);
    if (conversation) conversation.rows.push(row.n);
    else this.conversations.set(row.root, { root: row.root, rows: [row.n] });
  }

  /** A row that is in no store yet. @param {any} envelope @param {string} raw @param {number} receivedAt @returns {Row} */
  read(envelope, raw, receivedAt) {
    const about = correlations(envelope);
    const operation = operationOf(envelope, (id) => this._operations.get(id));
    if (operation.method && (envelope.kind.startsWith("mcp/request") || envelope.kind.startsWith("mcp/proposal")))
      this._remember(envelope.id, operation);
    const payload = envelope.payload ?? {};
    return {
      n: 0,
      type: "envelope",
      id: envelope.id,
      at: parseTime(envelope.ts, receivedAt),
      from: typeof envelope.from === "string" ? envelope.from : "",
      to: addressees(envelope),
      kind: envelope.kind,
      operation: formatOperation(operation),
      about,
      context: typeof envelope.context === "string" ? envelope.context : "",
      summary: summary(envelope, operation, raw).slice(0, MAX_SUMMARY_CHARACTERS),
      raw,
      root: "",
      // Whoever makes the call of a proposal approves it.
      approves:
        envelope.kind.startsWith("mcp/request") &&
        about.some((id) => this._operations.get(id)?.base.startsWith("mcp/proposal")),
      failed:
        envelope.kind === "system/error" ||
        envelope.kind === "mcp/reject" ||
        Boolean(payload.error) ||
        payload.result?.isError === true,
      isUnknown: envelope.kind.startsWith("mcp/response") && saysUnknown(payload.error),
    };
  }

  /** A place where something may be missing. @param {string} reason @param {number} at @param {boolean} canLoad */
  addGap(reason, at, canLoad) {
    /** @type {Row} */
    const row = {
      n: this.next,
      type: "gap",
      id: `gap-${at}-${this.next}`,
      at,
      from: "",
      to: [],
      kind: "gap",
      operation: "",
      about: [],
      context: "",
      summary: reason,
      raw: "",
      root: `gap-${at}-${this.next}`,
      failed: true,
      isUnknown: false,
      canLoad,
    };
    this._append(row);
    return row;
  }

  /** @param {Row} row */
  _rootOf(row) {
    for (const id of row.about) {
      const cause = this.byId(id);
      if (cause) return cause.root;
    }
    if (row.about.length > 0) return row.about[0];
    if (row.context) {
      const head = row.context.split("/", 1)[0];
      return this.byId(head)?.root ?? head;
    }
    return row.id;
  }

  /** @param {Row} row */
  _append(row) {
    this._rows.push(row);
    this.next += 1;
    this.characters += row.raw.length;
    this._byId.set(row.id, row.n);
    if (this._keepsEffects) {
      for (const id of row.about) {
        const effects = this._effects.get(id);
        if (effects) effects.push(row.n);
        else this._effects.set(id, [row.n]);
      }
    }
    this._join(row);
    this._judge(row);
    if (this.size > this.max || this.characters > MAX_CHARACTERS) this._makeRoom();
  }

  /** Drop a row and all that are older. @param {string} id @returns {boolean} whether it is here */
  dropThrough(id) {
    const n = this._byId.get(id);
    if (n === undefined) return false;
    this._drop(n - this.first + 1);
    return true;
  }

  _makeRoom() {
    this._drop(Math.max(1, Math.floor(this.size / 50)));
  }

  /** @param {number} enough rows, the oldest */
  _drop(enough) {
    for (let count = 0; count < enough; count += 1) {
      const row = this._rows[this._start];
      this._rows[this._start] = /** @type {any} */ (undefined);
      this._start += 1;
      this.first += 1;
      this.dropped += 1;
      this.characters -= row.raw.length;
      if (this._byId.get(row.id) === row.n) this._byId.delete(row.id);
      this._effects.delete(row.id);
      const conversation = this.conversations.get(row.root);
      if (conversation) {
        while (conversation.rows.length > 0 && conversation.rows[0] <= row.n) conversation.rows.shift();
        if (conversation.rows.length === 0) this.conversations.delete(row.root);
      }
    }
    this._rows = this._rows.slice(this._start);
    this._start = 0;
  }

  /** @param {string} id @param {import("./envelope-fields.js").Operation} operation */
  _remember(id, operation) {
    this._operations.set(id, operation);
    trimMap(this._operations, MAX_OPERATIONS);
  }
}
