/**
 * What the console knows about a space, derived from envelopes alone, in the order in which they were received.
 * `receive` processes one; each part of the state has a file of its own. Views only read the state.
 */
import { Envelopes } from "./envelopes.js";
import { ChangeFeed } from "../page/change-feed.js";
import { Chats } from "./state-chats.js";
import { Grants } from "./state-grants.js";
import { Proposals } from "./state-proposals.js";
import { Reasoning } from "./state-reasoning.js";
import { Roster } from "./state-roster.js";
import { Streams } from "./state-streams.js";
import { correlations } from "./envelope-fields.js";
import { isHousekeeping } from "./housekeeping.js";
import { parseEnvelope } from "./json-text.js";
import { parseTime } from "../page/time.js";

// The latest refusals are enough to explain what just went wrong.
const MAX_REFUSALS = 500;
const MAX_PAIRS = 5_000;

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
  /** @param {string} space @param {ChangeFeed} [changes] */
  constructor(space, changes = new ChangeFeed()) {
    this.space = space;
    this.changes = changes;
    this.envelopes = new Envelopes();
    /** The same without housekeeping, which is what people read. */
    this.activity = new Envelopes(undefined, 0, false);
    this.roster = new Roster();
    this.proposals = new Proposals();
    this.grants = new Grants();
    this.reasoning = new Reasoning();
    this.streams = new Streams();
    this.chats = new Chats();
    this._parts = [this.roster, this.proposals, this.grants, this.reasoning, this.streams, this.chats];
    /** @type {Refusal[]} newest last */
    this.refusals = [];
    /** How many messages go from whom to whom: "from\nto" → count; to is "*" for everybody. @type {Map<string, number>} */
    this.messageCounts = new Map();
  }

  /** Who we are. */
  get me() {
    return this.roster.me;
  }

  /** @param {string | string[]} topics @param {(topics: Set<string>) => void} subscriber */
  on(topics, subscriber) {
    return this.changes.on(topics, subscriber);
  }

  /**
   * Process one envelope. Never throws; text that is not an envelope is ignored.
   * @param {string} raw @param {{past?: boolean}} [options]
   * @returns {any} the envelope, or null
   */
  receive(raw, options = {}) {
    let envelope;
    try {
      envelope = parseEnvelope(raw);
    } catch {
      return null;
    }
    if (
      envelope === null ||
      typeof envelope !== "object" ||
      typeof envelope.kind !== "string" ||
      typeof envelope.id !== "string"
    )
      return null;
    const known = this.envelopes.byId(envelope.id);
    // D-94: in some spaces a sender that was restarted may use an id again, at another time.
    const isKnown =
      known !== undefined && (known.from !== envelope.from || parseTime(envelope.ts, known.at) === known.at);
    // What was read from the journal before it arrived here is shown, and what it does is still to be done.
    const isDue = isKnown && known.isOlder === true && known.from === envelope.from && !options.past;
    if (isKnown && !isDue) return null;
    // The welcome of an earlier connection is outdated and contains nothing else.
    if (options.past && envelope.kind === "system/welcome") return null;
    // The answer to a question of this page, not a message of the space.
    if (envelope.kind === "moot/proposals" && envelope.from === "system:gateway") {
      if (!options.past) this.onProposals(raw);
      return envelope;
    }
    const redacted = envelope.kind === "space/invite-ack" ? withoutToken(envelope) : null;
    const row = isDue
      ? known
      : this.envelopes.add(redacted ?? envelope, redacted ? JSON.stringify(redacted) : raw, Date.now());
    row.isOlder = false;
    if (!isDue && !isHousekeeping(row, this.isOwnQuestion, this._keepsRules)) this.activity.addCopy(row);
    this.changes.publish("envelopes");
    if (row.kind.startsWith("trust/")) {
      this.hasRules ||= row.kind === "trust/rule" || row.kind === "trust/suggestion";
      this.changes.publish("trust");
    }
    if (envelope.kind === "system/error" && envelope.payload?.error === "not_on_disk") {
      // No refusal: what the user did holds.
      if (!options.past) this.changes.publish("unsaved");
    } else if (row.failed || row.from === "system:gateway") this._recordRefusal(envelope, row);
    else this._countMessage(row);
    if (typeof envelope.payload === "object" || envelope.payload === undefined) {
      for (const part of this._parts) {
        const topic = part.receive(envelope, row, this);
        if (topic) this.changes.publish(topic);
      }
    }
    return envelope;
  }

  /**
   * Apply what a message means for the inbox, before it is processed in its place: who we are, and proposals. All that
   * is the same when it is done twice.
   * @param {string} raw @returns {any} the envelope, or null
   */
  receiveEarly(raw) {
    let envelope;
    try {
      envelope = parseEnvelope(raw);
    } catch {
      return null;
    }
    if (typeof envelope?.kind !== "string" || typeof envelope.id !== "string") return null;
    const isOfGateway = envelope.from === "system:gateway";
    if (envelope.kind === "moot/proposals" && isOfGateway) this.onProposals(raw);
    else if (
      /^(mcp\/|moot\/|space\/kick|system\/)/.test(envelope.kind) &&
      (typeof envelope.payload === "object" || envelope.payload === undefined)
    ) {
      const row = this.envelopes.read(envelope, raw, Date.now());
      const topics = [
        isOfGateway ? this.roster.receive(envelope, row) : null,
        this.proposals.receive(envelope, row, this),
      ];
      for (const topic of topics) if (topic) this.changes.publish(topic);
    }
    return envelope;
  }

  /**
   * Messages from before all others, oldest first. They are shown and nothing else: what they did is in the state already.
   * @param {string[]} raws @returns {number} how many were new
   */
  addOlder(raws) {
    const rows = raws.map((raw) => this.readOlder(raw)).filter((row) => row !== null);
    const added = this.envelopes.prepend(rows);
    this.activity.prepend(rows.filter((row) => !isHousekeeping(row, this.isOwnQuestion, this._keepsRules)));
    const chats = rows
      .filter((row) => row.kind === "chat")
      .map((row) => this.envelopes.byId(row.id))
      .filter((row) => row !== undefined);
    this.chats.addOlder(chats.map((row) => ({ row, payload: this.envelopes.envelope(row).payload })));
    if (chats.length > 0) this.changes.publish("chats");
    return added;
  }

  /** @param {string} raw @returns {import("./envelopes.js").Row | null} */
  readOlder(raw) {
    let envelope;
    try {
      envelope = JSON.parse(raw);
    } catch {
      return null;
    }
    return typeof envelope?.kind === "string" && typeof envelope.id === "string"
      ? this.envelopes.read(envelope, raw, 0)
      : null;
  }

  /** Whether anybody spoke of a rule. */
  hasRules = false;

  /** Whether this page asked it by itself; set by the session. @type {(id: string) => boolean} */
  isOwnQuestion = () => false;

  _keepsRules = (/** @type {string} */ id) => this.roster.keepsRules(id);

  /** What the gateway says about proposals, on request; set by the session. @type {(raw: string) => void} */
  onProposals = () => {};

  /** A frame of a stream. @param {string} id @param {string | Uint8Array} data */
  receiveFrame(id, data) {
    if (this.streams.addFrame(id, data)) this.changes.publish("streams");
  }

  /** @param {string} reason @param {number} at @param {boolean} canLoad from the journal */
  addGap(reason, at, canLoad) {
    this.activity.addCopy(this.envelopes.addGap(reason, at, canLoad));
    this.proposals.markUncertain();
    this.changes.publish("envelopes");
    this.changes.publish("proposals");
  }

  /** Forget the rows up to a gap, which are in the journal. @param {string} id of the gap */
  dropThrough(id) {
    const isFound = this.envelopes.dropThrough(id) && this.activity.dropThrough(id);
    if (isFound) this.changes.publish("envelopes");
    return isFound;
  }

  /** Why an envelope was refused, if it was. @param {string} id @returns {Refusal | undefined} */
  refusalOf(id) {
    return this.refusals.findLast((each) => each.about === id);
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  _recordRefusal(envelope, row) {
    if (envelope.kind !== "system/error") return;
    const payload = envelope.payload ?? {};
    this.refusals.push({
      id: row.id,
      about: correlations(envelope)[0] ?? "",
      code: String(payload.error ?? ""),
      message: String(payload.message ?? ""),
      payload,
      at: row.at,
    });
    if (this.refusals.length > MAX_REFUSALS) this.refusals.splice(0, this.refusals.length - MAX_REFUSALS);
    this.changes.publish("refusals");
  }

  /** @param {import("./envelopes.js").Row} row */
  _countMessage(row) {
    for (const to of row.to.length > 0 ? row.to : ["*"]) {
      const key = `${row.from}\n${to}`;
      if (this.messageCounts.size < MAX_PAIRS || this.messageCounts.has(key))
        this.messageCounts.set(key, (this.messageCounts.get(key) ?? 0) + 1);
    }
  }
}

/** MEW 3.6.6: the inviter sees the token once; it is not kept with the envelope. @param {any} envelope */
function withoutToken(envelope) {
  if (envelope.payload?.token === undefined) return null;
  return { ...envelope, payload: { ...envelope.payload, token: "(shown once)" } };
}
