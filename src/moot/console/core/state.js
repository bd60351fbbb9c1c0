// @ts-check
/**
 * What the console knows of a space, derived from envelopes alone, in the order in which they were heard.
 * `hear` takes one; each part of the state has a file of its own. Views read, they never write here.
 */
import { Envelopes } from "./envelopes.js";
import { News } from "./news.js";
import { Chats } from "./state-chats.js";
import { Grants } from "./state-grants.js";
import { Proposals } from "./state-proposals.js";
import { Reasoning } from "./state-reasoning.js";
import { Roster } from "./state-roster.js";
import { Streams } from "./state-streams.js";
import { correlations } from "./labels.js";

// The latest refusals are enough to explain what just went wrong.
const MOST_REFUSALS = 500;
const MOST_TALKING = 5_000;

/**
 * @typedef {object} Refusal
 * @property {string} id of the system/error
 * @property {string} about of the envelope that was refused; empty if it had none
 * @property {string} code
 * @property {string} message
 * @property {any} payload
 * @property {number} at
 */

export class State {
  /** @param {string} space @param {News} [news] */
  constructor(space, news = new News()) {
    this.space = space;
    this.news = news;
    this.envelopes = new Envelopes();
    this.roster = new Roster();
    this.proposals = new Proposals();
    this.grants = new Grants();
    this.reasoning = new Reasoning();
    this.streams = new Streams();
    this.chats = new Chats();
    /** @type {Refusal[]} newest last */
    this.refusals = [];
    /** Whom a member speaks to: "from\nto" → count; to is "*" for everybody. @type {Map<string, number>} */
    this.talking = new Map();
  }

  /** Who we are. */
  get me() {
    return this.roster.me;
  }

  /** @param {string | string[]} topics @param {(topics: Set<string>) => void} watcher */
  on(topics, watcher) {
    return this.news.on(topics, watcher);
  }

  /**
   * One envelope. Whatever it holds, this does not throw; what is not one is counted and left out.
   * @param {string} raw @param {{past?: boolean, heardAt?: number}} [how]
   * @returns {any} the envelope, or null
   */
  hear(raw, how = {}) {
    let envelope;
    try {
      envelope = JSON.parse(raw);
    } catch {
      return null;
    }
    if (envelope === null || typeof envelope !== "object" || typeof envelope.kind !== "string" || typeof envelope.id !== "string") return null;
    if (this.envelopes.has(envelope.id)) return null;
    // What an earlier connection was welcomed with is no longer so, and says nothing else.
    if (how.past && envelope.kind === "system/welcome") return null;
    const shown = envelope.kind === "space/invite-ack" ? withoutToken(envelope) : null;
    const row = this.envelopes.add(shown ?? envelope, shown ? JSON.stringify(shown) : raw, how.heardAt ?? Date.now());
    this.news.changed("envelopes");
    if (row.kind.startsWith("trust/")) this.news.changed("trust");
    if (row.bad || row.from === "system:gateway") this._note(envelope, row);
    else this._talk(row);
    if (typeof envelope.payload === "object" || envelope.payload === undefined) {
      for (const part of [this.roster, this.proposals, this.grants, this.reasoning, this.streams, this.chats]) {
        const topic = part.hear(envelope, row, this);
        if (topic) this.news.changed(topic);
      }
    }
    return envelope;
  }

  /** A frame of a stream. @param {string} id @param {string | Uint8Array} data */
  frame(id, data) {
    if (this.streams.frame(id, data)) this.news.changed("streams");
  }

  /** @param {string} words @param {number} at */
  gap(words, at) {
    this.envelopes.addGap(words, at);
    this.proposals.gap();
    this.news.changed("envelopes");
    this.news.changed("proposals");
  }

  /** Why an envelope was refused, if it was. @param {string} id @returns {Refusal | undefined} */
  refusalOf(id) {
    return this.refusals.findLast((each) => each.about === id);
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  _note(envelope, row) {
    if (envelope.kind !== "system/error") return;
    const payload = envelope.payload ?? {};
    this.refusals.push({ id: row.id, about: correlations(envelope)[0] ?? "", code: String(payload.error ?? ""), message: String(payload.message ?? ""), payload, at: row.at });
    if (this.refusals.length > MOST_REFUSALS) this.refusals.splice(0, this.refusals.length - MOST_REFUSALS);
    this.news.changed("refusals");
  }

  /** @param {import("./envelopes.js").Row} row */
  _talk(row) {
    for (const to of row.to.length > 0 ? row.to : ["*"]) {
      const key = `${row.from}\n${to}`;
      if (this.talking.size < MOST_TALKING || this.talking.has(key)) this.talking.set(key, (this.talking.get(key) ?? 0) + 1);
    }
  }
}

/** MEW 3.6.6: the token is shown once, by whoever invited; it is not kept with the rest. @param {any} envelope */
function withoutToken(envelope) {
  if (envelope.payload?.token === undefined) return null;
  return { ...envelope, payload: { ...envelope.payload, token: "(shown once)" } };
}
