// @ts-check
/**
 * Which granted rights hold, and on what they rest (D-16 to D-18), worked out from what was heard.
 *
 * The gateway tells a member's rights when it joins and to everybody who joins later, but not when they
 * change in between. So grants, revocations and removals are replayed in the order in which they came; each
 * time the gateway tells a member's rights these are believed, and what is neither in them nor was granted is
 * its own. After every loss, support is spread anew from the own rights upwards, as the gateway does it.
 * Rights whose giver was never seen count as supported: nobody here can know better.
 */
import { coveredBy, covers } from "./capability-covers.js";

/**
 * @typedef {object} Entry
 * @property {string} id of the grant
 * @property {string} granter logical name
 * @property {string} recipient logical name
 * @property {any[]} given
 * @property {any[]} capabilities those that still hold
 * @property {string} reason
 * @property {number} at
 * @property {{how: "revoked" | "fell" | "removed", by: string, at: number, reason: string} | null} ended
 */

const KINDS = new Set(["system/welcome", "system/presence", "capability/grant", "capability/revoke", "space/kick", "space/invite-ack"]);
const MAX_ENTRIES = 2_000;

/** @param {any} value */
const key = (value) => JSON.stringify(value);

class GrantLedger {
  /** @param {import("../core/state.js").State} state */
  constructor(state) {
    this._state = state;
    this._next = 0;
    /** Oldest first. @type {Map<string, Entry>} */
    this.byId = new Map();
    /** Rights that a member has of itself, by logical name. @type {Map<string, any[]>} */
    this._own = new Map();
    /** Whom we invited from here: the gateway tells everybody but the inviter (D-23). Name → when. @type {Map<string, number>} */
    this.invited = new Map();
  }

  /** Take in what was heard since. */
  update() {
    const rows = this._state.envelopes;
    this._next = Math.max(this._next, rows.first);
    for (; this._next < rows.next; this._next += 1) {
      const row = rows.at(this._next);
      if (row && KINDS.has(row.kind)) this._apply(row, rows.envelope(row)?.payload ?? {});
    }
  }

  /** @param {string} id runtime id or logical name */
  nameOf(id) {
    return this._state.roster.get(id)?.name ?? id;
  }

  /** @param {string} name @returns {Entry[]} those that hold, newest first */
  to(name) {
    return [...this.byId.values()].filter((each) => each.recipient === name && !each.ended).reverse();
  }

  /** @param {string} name @returns {Entry[]} */
  from(name) {
    return [...this.byId.values()].filter((each) => each.granter === name && !each.ended).reverse();
  }

  /** Grants to or from somebody that hold no more, newest first. @param {string} name */
  ended(name) {
    return [...this.byId.values()].filter((each) => each.ended && (each.recipient === name || each.granter === name)).reverse();
  }

  /** All that a member may do now, and by which grant. @param {string} name @returns {{capability: any, grant: Entry | null}[]} */
  rightsOf(name) {
    const own = (this._own.get(name) ?? []).map((capability) => ({ capability, grant: /** @type {Entry | null} */ (null) }));
    const granted = this.to(name).reverse().flatMap((grant) => grant.capabilities.map((capability) => ({ capability, grant: /** @type {Entry | null} */ (grant) })));
    return [...own, ...granted];
  }

  /**
   * From a grant back to the right that it rests on: each step is a grant, the last its giver's own right.
   * @param {Entry} grant
   * @returns {{grants: Entry[], root: string, right: any}} `right` is undefined when it was not seen
   */
  chainOf(grant) {
    const grants = [grant];
    for (let current = grant; ; ) {
      const wanted = current.capabilities[0] ?? current.given[0];
      const right = (this._own.get(current.granter) ?? []).find((each) => covers(each, wanted));
      if (right !== undefined) return { grants, root: current.granter, right };
      const above = this.to(current.granter).find((each) => !grants.includes(each) && coveredBy(wanted, each.capabilities));
      if (!above) return { grants, root: current.granter, right: undefined };
      grants.push(above);
      current = above;
    }
  }

  /** What else would fall if these grants went, with the rights that it would lose. @param {Entry[]} gone @returns {{grant: Entry, lost: any[]}[]} */
  cascadeOf(gone) {
    return this._unsupported(new Set(gone.map((each) => each.id)), new Set());
  }

  /** The same if a member were removed. @param {string} name */
  cascadeOfRemoval(name) {
    return this._unsupported(new Set(this.to(name).map((each) => each.id)), new Set([name]));
  }

  /**
   * D-18: the granter, those from whom the granter had it, or who holds the right themselves.
   * @param {string} name @param {any[]} rights @param {Entry} grant
   */
  mayRevoke(name, rights, grant) {
    return grant.capabilities.every((each) => coveredBy(each, rights)) || this.chainOf(grant).grants.some((each) => each.granter === name);
  }

  /** @param {import("../core/envelopes.js").Row} row @param {any} payload */
  _apply(row, payload) {
    if (row.kind === "system/welcome") {
      this._applyCapabilities(payload.you, row);
      for (const each of Array.isArray(payload.participants) ? payload.participants : []) this._applyCapabilities(each, row);
    } else if (row.kind === "system/presence") {
      if (payload.event !== "leave") this._applyCapabilities(payload.participant, row);
    } else if (row.kind === "capability/grant") this._grant(row, payload);
    else if (row.kind === "capability/revoke") this._revoke(row, payload);
    else if (row.kind === "space/invite-ack") this._invited(row, payload);
    else if (typeof payload.participant_id === "string") this._removed(this.nameOf(payload.participant_id), row);
  }

  /** The gateway told somebody's rights. @param {any} shown @param {import("../core/envelopes.js").Row} row */
  _applyCapabilities(shown, row) {
    if (typeof shown?.id !== "string" || !Array.isArray(shown.capabilities)) return;
    const name = typeof shown.name === "string" ? shown.name : this.nameOf(shown.id);
    const left = shown.capabilities.map(key);
    for (const grant of this.to(name)) {
      const held = grant.capabilities.filter((each) => takeOne(left, key(each)));
      if (held.length < grant.capabilities.length) this._setHeld(grant, held, { how: "fell", by: "", at: row.at, reason: "" });
    }
    this._own.set(name, left.map((each) => JSON.parse(each)));
  }

  /** @param {import("../core/envelopes.js").Row} row @param {any} payload */
  _grant(row, payload) {
    if (!Array.isArray(payload.capabilities)) return;
    const recipient = this.nameOf(typeof payload.recipient === "string" ? payload.recipient : (row.to[0] ?? ""));
    this.byId.set(row.id, { id: row.id, granter: this.nameOf(row.from), recipient, given: payload.capabilities, capabilities: payload.capabilities, reason: typeof payload.reason === "string" ? payload.reason : "", at: row.at, ended: null });
    if (this.byId.size > MAX_ENTRIES) {
      const oldest = [...this.byId.values()].find((each) => each.ended);
      if (oldest) this.byId.delete(oldest.id);
    }
  }

  /** @param {import("../core/envelopes.js").Row} row @param {any} payload */
  _revoke(row, payload) {
    const known = { how: /** @type {const} */ ("revoked"), by: row.from, at: row.at, reason: typeof payload.reason === "string" ? payload.reason : "" };
    const recipient = this.nameOf(typeof payload.recipient === "string" ? payload.recipient : (row.to[0] ?? ""));
    const named = typeof payload.grant_id === "string" ? this.byId.get(payload.grant_id) : undefined;
    if (named && !named.ended) this._setHeld(named, [], known);
    else if (Array.isArray(payload.capabilities)) {
      for (const grant of this.to(recipient)) {
        const held = grant.capabilities.filter((each) => !coveredBy(each, payload.capabilities));
        if (held.length < grant.capabilities.length) this._setHeld(grant, held, known);
      }
    }
    this._revokeUnsupported(row);
  }

  /** @param {string} name @param {import("../core/envelopes.js").Row} row */
  _removed(name, row) {
    for (const grant of this.to(name)) this._setHeld(grant, [], { how: "removed", by: row.from, at: row.at, reason: "" });
    this._own.set(name, []);
    this.invited.delete(name);
    this._revokeUnsupported(row);
  }

  /** @param {import("../core/envelopes.js").Row} row */
  _revokeUnsupported(row) {
    for (const { grant, lost } of this._unsupported(new Set(), new Set())) {
      this._setHeld(grant, grant.capabilities.filter((each) => !lost.includes(each)), { how: "fell", by: row.from, at: row.at, reason: "" });
    }
  }

  /** What we gave somebody with an invitation: the gateway tells it when they come. @param {string} name @param {any[]} capabilities */
  setInvited(name, capabilities) {
    if (!this._own.get(name)?.length) this._own.set(name, capabilities);
  }

  /** Whether anything is known of a member's rights. @param {string} name */
  isKnown(name) {
    return this._own.has(name);
  }

  /** @param {import("../core/envelopes.js").Row} row @param {any} payload */
  _invited(row, payload) {
    if (payload.status === "created" && typeof payload.participant_id === "string") this.invited.set(payload.participant_id, row.at);
  }

  /** @param {Entry} grant @param {any[]} held @param {Entry["ended"]} known */
  _setHeld(grant, held, known) {
    grant.capabilities = held;
    if (held.length === 0) grant.ended = known;
  }

  /**
   * Granted rights without a chain to somebody's own, if these grants and members were gone.
   * @param {Set<string>} gone @param {Set<string>} removed names @returns {{grant: Entry, lost: any[]}[]}
   */
  _unsupported(gone, removed) {
    const living = [...this.byId.values()].filter((each) => !each.ended && !gone.has(each.id));
    /** @type {Map<string, any[]>} */
    const held = new Map();
    for (const { granter } of living) held.set(granter, removed.has(granter) ? [] : [...(this._own.get(granter) ?? [])]);
    let waiting = living.flatMap((grant) => (this._own.has(grant.granter) ? grant.capabilities.map((capability) => ({ grant, capability })) : []));
    // Of a giver that was never seen everything counts, and may support more.
    for (const grant of living) if (!this._own.has(grant.granter)) held.get(grant.recipient)?.push(...grant.capabilities);
    for (let before = -1; before !== waiting.length; ) {
      before = waiting.length;
      waiting = waiting.filter(({ grant, capability }) => {
        if (!coveredBy(capability, held.get(grant.granter) ?? [])) return true;
        held.set(grant.recipient, [...(held.get(grant.recipient) ?? []), capability]);
        return false;
      });
    }
    /** @type {Map<Entry, any[]>} */
    const lost = new Map();
    for (const { grant, capability } of waiting) lost.set(grant, [...(lost.get(grant) ?? []), capability]);
    return [...lost].map(([grant, capabilities]) => ({ grant, lost: capabilities }));
  }
}

/** Take one out of a list; whether it was there. @param {string[]} from @param {string} one */
function takeOne(from, one) {
  const at = from.indexOf(one);
  if (at < 0) return false;
  from.splice(at, 1);
  return true;
}

/** One for each space, however often the view is mounted. @type {WeakMap<object, GrantLedger>} */
const ledgers = new WeakMap();

/** @param {import("../core/state.js").State} state */
export function ledgerOf(state) {
  let ledger = ledgers.get(state);
  if (!ledger) ledgers.set(state, (ledger = new GrantLedger(state)));
  ledger.update();
  return ledger;
}
