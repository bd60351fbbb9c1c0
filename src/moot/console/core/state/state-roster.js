/** The members, their capabilities, and who is paused (MEW 3.7, 3.8.1, 3.9). */
import { correlations, addressees } from "./envelope-fields.js";
import { textAt } from "./json-text.js";

/**
 * @typedef {object} Member
 * @property {string} id runtime id
 * @property {string} name logical name
 * @property {any[]} capabilities
 * @property {boolean} present
 * @property {boolean} invited
 * @property {number} since when its presence last changed; 0: before we came, so nobody told us
 * @property {number} lastMessageAt when it last sent something
 * @property {number} messageCount how many messages it sent
 * @property {number} violations how many violations the gateway announced (D-32)
 * @property {{id: string, by: string, reason: string, until: number} | null} paused
 * @property {{at: number, payload: any, text: string} | null} status what it last reported of itself, and its JSON
 * @property {string} leaveReason why it left
 * @property {string} invitedBy
 */

// Members that left are remembered by name; this is more than a space holds.
const MAX_MEMBERS = 5_000;
const MAX_PAUSE_SECONDS = 366 * 86_400;

/** Somebody of whom nothing but the name is known. @param {string} id @returns {Member} */
export const memberNamed = (id) => ({
  id,
  name: id,
  capabilities: [],
  present: false,
  invited: false,
  since: 0,
  lastMessageAt: 0,
  messageCount: 0,
  violations: 0,
  paused: null,
  status: null,
  leaveReason: "",
  invitedBy: "",
});

export class Roster {
  constructor() {
    /** @type {{id: string, name: string, capabilities: any[]}} */
    this.me = { id: "", name: "", capabilities: [] };
    /** All known members, including ourselves, by runtime id. @type {Map<string, Member>} */
    this.members = new Map();
    /** While the rest of a long welcome is fetched: who was listed so far. @type {Set<string> | null} */
    this._listed = null;
  }

  /** The members who are online, by name. @returns {Member[]} */
  present() {
    return [...this.members.values()].filter((each) => each.present).sort((a, b) => a.id.localeCompare(b.id));
  }

  /** @param {string} id a runtime id or a logical name @returns {Member | undefined} */
  get(id) {
    const found = this.members.get(id);
    if (found) return found;
    for (const member of this.members.values()) if (member.name === id) return member;
    return undefined;
  }

  /** Whether the space lets this member announce rules, by kind alone. @param {string} id */
  keepsRules(id) {
    const kinds = (this.get(id)?.capabilities ?? []).flatMap((each) => each?.kind ?? []);
    return kinds.some((each) => each === "trust/*" || each === "trust/rule");
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  receive(envelope, row) {
    const payload = envelope.payload ?? {};
    const sender = this.members.get(row.from);
    if (sender) {
      sender.lastMessageAt = row.at;
      sender.messageCount += 1;
    }
    switch (envelope.kind) {
      case "system/welcome":
        return this._welcome(payload, row);
      case "moot/roster-page":
        return row.from === "system:gateway" ? this._page(payload, row) : null;
      case "system/presence":
        return this._presence(payload, row);
      case "participant/pause":
        for (const member of this._targets(envelope, row)) this._pause(member, payload, row);
        return "roster";
      case "participant/resume":
        // D-25: a member cannot resume itself.
        for (const member of this._targets(envelope, row)) if (member.id !== row.from) member.paused = null;
        return "roster";
      case "participant/status":
        if (sender) sender.status = { at: row.at, payload, text: textAt(row.raw, ["payload"]) ?? "{}" };
        return "roster";
      case "system/error":
        if (addressees(envelope).length === 0 && typeof payload.participant === "string") {
          const member = this.get(payload.participant);
          if (member) member.violations += 1;
          return "roster";
        }
        return null;
      default:
        return null;
    }
  }

  /** Whether a member is paused at this moment. @param {Member} member @param {number} [now] */
  isPaused(member, now = Date.now()) {
    return member.paused !== null && member.paused.until > now;
  }

  /** D-25: the pause that ends later applies; one of more than 366 days has no end. @param {Member} member @param {any} payload @param {import("./envelopes.js").Row} row */
  _pause(member, payload, row) {
    const seconds =
      typeof payload.timeout_seconds === "number" && payload.timeout_seconds <= MAX_PAUSE_SECONDS
        ? payload.timeout_seconds
        : Infinity;
    const until = row.at + seconds * 1000;
    if (member.paused && this.isPaused(member, row.at) && member.paused.until >= until) return;
    member.paused = { id: row.id, by: row.from, reason: String(payload.reason ?? ""), until };
  }

  /** D-25: no `to` means everybody but the sender. @param {any} envelope @param {import("./envelopes.js").Row} row */
  _targets(envelope, row) {
    const pause = correlations(envelope)[0];
    if (row.to.length > 0) return row.to.map((id) => this.get(id)).filter((each) => each !== undefined);
    const others = [...this.members.values()].filter((each) => each.id !== row.from);
    return pause && envelope.kind === "participant/resume"
      ? others.filter((each) => each.paused?.id === pause)
      : others;
  }

  /** @param {any} payload @param {import("./envelopes.js").Row} row */
  _welcome(payload, row) {
    const you = payload.you ?? {};
    this.me = {
      id: String(you.id ?? ""),
      name: String(you.name ?? you.id ?? ""),
      capabilities: list(you.capabilities),
    };
    const current = new Set([this.me.id]);
    this._update(you, row, true).since = row.at;
    for (const shown of list(payload.participants)) {
      if (typeof shown?.id !== "string") continue;
      current.add(shown.id);
      this._update(shown, row, true);
    }
    // A welcome without room for everybody: the pages that follow list the others.
    this._listed = current;
    if (payload.more === undefined) this._markAbsent();
    return "roster";
  }

  /** More of those who are present; after the last page, whoever was not listed is absent. @param {any} payload @param {import("./envelopes.js").Row} row */
  _page(payload, row) {
    for (const shown of list(payload.participants)) {
      if (typeof shown?.id !== "string") continue;
      this._listed?.add(shown.id);
      this._update(shown, row, true);
    }
    if (typeof payload.next !== "string") this._markAbsent();
    return "roster";
  }

  _markAbsent() {
    for (const member of this.members.values()) {
      if (this._listed !== null && member.present && !this._listed.has(member.id))
        Object.assign(member, { present: false, since: 0 });
    }
    this._listed = null;
  }

  /** @param {any} payload @param {import("./envelopes.js").Row} row */
  _presence(payload, row) {
    const shown = payload.participant ?? {};
    if (typeof shown.id !== "string") return null;
    if (payload.event === "join") {
      this._listed?.add(shown.id);
      this._update(shown, row, true, true);
    } else if (payload.event === "leave") {
      const member = this._update(shown, row, false, true);
      member.leaveReason = String(payload.reason ?? "");
      member.paused = null;
    } else if (payload.event === "invited") {
      const member = this._update(shown, row, this.members.get(shown.id)?.present ?? false);
      member.invited = true;
      member.invitedBy = String(payload.invited_by ?? "");
    }
    return "roster";
  }

  /** @param {any} described @param {import("./envelopes.js").Row} row @param {boolean} present @param {boolean} [isEvent] it happened just then @returns {Member} */
  _update(described, row, present, isEvent = false) {
    const id = String(described.id);
    let member = this.members.get(id);
    if (!member) {
      member = memberNamed(id);
      if (this.members.size < MAX_MEMBERS) this.members.set(id, member);
    }
    if (member.present !== present) member.since = isEvent ? row.at : 0;
    member.present = present;
    if (present) member.leaveReason = "";
    if (typeof described.name === "string") member.name = described.name;
    if (Array.isArray(described.capabilities)) member.capabilities = described.capabilities;
    return member;
  }
}

/** @param {any} given @returns {any[]} */
function list(given) {
  return Array.isArray(given) ? given : [];
}
