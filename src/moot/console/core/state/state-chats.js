/** Chat messages, and which of them we have not acknowledged yet (MEW 3.4). */
import { trimMap } from "../page/bounded-map.js";
import { correlations } from "./envelope-fields.js";

/**
 * @typedef {object} Chat
 * @property {string} id
 * @property {number} n its row
 * @property {string} from
 * @property {string[]} to
 * @property {string[]} about what it replies to
 * @property {string} context
 * @property {string} text
 * @property {"plain" | "markdown"} format
 * @property {number} at
 * @property {{by: string, status: string}[]} acknowledged
 * @property {{by: string, reason: string} | null} cancelled
 */

const MAX_CHATS = 20_000;
// The queue is bounded, because nobody may be reading it.
const MAX_UNACKNOWLEDGED = 2_000;

export class Chats {
  constructor() {
    /** Oldest first. @type {Map<string, Chat>} */
    this.byId = new Map();
    /** The same as a list: row numbers only rise, so it can be searched by bisection. @type {Chat[]} */
    this.all = [];
    /** Those that are addressed to us, or to all, and that we have not acknowledged. @type {Map<string, Chat>} */
    this.unacknowledged = new Map();
    /** Our messages that not all others have acknowledged or cancelled. @type {Map<string, Chat>} */
    this.ours = new Map();
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row @param {{me: {id: string, name: string}}} state */
  receive(envelope, row, state) {
    const payload = envelope.payload ?? {};
    if (envelope.kind === "chat") {
      if (typeof payload.text !== "string") return null;
      const chat = chatOf(row, payload);
      this._add(chat);
      const isMine = row.from === state.me.id;
      if (isMine) addBounded(this.ours, chat, MAX_UNACKNOWLEDGED);
      // MEW 3.4.1: messages addressed to us, or to everybody.
      else if (row.to.length === 0 || row.to.includes(state.me.id) || row.to.includes(state.me.name))
        addBounded(this.unacknowledged, chat, MAX_UNACKNOWLEDGED);
      return "chats";
    }
    if (envelope.kind !== "chat/acknowledge" && envelope.kind !== "chat/cancel") return null;
    let topic = null;
    for (const id of correlations(envelope)) {
      const chat = this.byId.get(id);
      if (!chat) continue;
      topic = "chats";
      if (envelope.kind === "chat/acknowledge") {
        chat.acknowledged.push({ by: row.from, status: String(payload.status ?? "") });
        if (row.from === state.me.id) this.unacknowledged.delete(id);
        else this.ours.delete(id);
      } else {
        // MEW 3.4.2: a member with that right marks that no reaction is needed.
        chat.cancelled = { by: row.from, reason: String(payload.reason ?? "") };
        this.unacknowledged.delete(id);
        this.ours.delete(id);
      }
    }
    return topic;
  }

  /**
   * Messages from before all others, oldest first. Nobody waits for an acknowledgement of them.
   * @param {{row: import("./envelopes.js").Row, payload: any}[]} older with the numbers that they have in the store
   */
  addOlder(older) {
    const room = Math.max(0, MAX_CHATS - this.all.length);
    // Dropped with the rows of its time, and back with them.
    for (const { row } of older) {
      const known = this.byId.get(row.id);
      if (known) known.n = row.n;
    }
    const chats = older
      .filter(({ row, payload }) => typeof payload?.text === "string" && !this.byId.has(row.id))
      .map(({ row, payload }) => chatOf(row, payload));
    const added = room > 0 ? chats.slice(-room) : [];
    if (added.length === 0) return;
    // From before all others, unless they fill a gap.
    const isGap = this.all.length > 0 && added[added.length - 1].at > this.all[0].at;
    this.all = [...added, ...this.all];
    if (isGap) this.all.sort((a, b) => a.at - b.at);
    this.byId = new Map(this.all.map((chat) => [chat.id, chat]));
  }

  /** The index of the first chat after row `n`. @param {number} n */
  indexAfter(n) {
    let low = 0;
    let high = this.all.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.all[middle].n <= n) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** @param {Chat} chat */
  _add(chat) {
    // The same id again, after its first row was dropped.
    if (this.byId.has(chat.id)) this.all = this.all.filter((each) => each.id !== chat.id);
    this.byId.delete(chat.id);
    addBounded(this.byId, chat, MAX_CHATS);
    this.all.push(chat);
    if (this.all.length > this.byId.size) this.all.splice(0, this.all.length - this.byId.size);
  }
}

/** @param {import("./envelopes.js").Row} row @param {any} payload @returns {Chat} */
function chatOf(row, payload) {
  return {
    id: row.id,
    n: row.n,
    from: row.from,
    to: row.to,
    about: row.about,
    context: row.context,
    text: payload.text,
    format: payload.format === "markdown" ? "markdown" : "plain",
    at: row.at,
    acknowledged: [],
    cancelled: null,
  };
}

/** @param {Map<string, Chat>} chats @param {Chat} chat @param {number} max */
function addBounded(chats, chat, max) {
  chats.set(chat.id, chat);
  trimMap(chats, max);
}
