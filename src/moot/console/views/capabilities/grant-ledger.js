/**
 * Which granted permissions are valid, and which support which (D-16 to D-18), derived from the received envelopes.
 *
 * The gateway sends a member's capabilities when it joins and to everybody who joins later, but not when they
 * change in between. So grants, revocations and removals are replayed in the order of arrival. Each
 * time the gateway sends a member's capabilities they replace what was derived; those that were not granted are
 * its own. After every loss, support is computed again from the own capabilities upwards, as the gateway does it.
 * Capabilities from an unknown granter count as supported, because nothing more can be known here.
 */
import { coveredBy, covers } from "./capability-covers.js";
import { readTerm } from "./grant-terms.js";

/**
 * @typedef {object} Entry
 * @property {string} id of the grant
 * @property {string} granter logical name
 * @property {string} recipient logical name
 * @property {any[]} given
 * @property {any[]} capabilities those that are still valid
 * @property {string} reason
 * @property {number} at
 * @property {number} expiresAt 0 if it lasts until it is revoked
 * @property {number} maxUses 0 if they are not counted
 * @property {{how: "revoked" | "fell" | "removed" | "expired" | "used_up" | "clock_lost", by: string, at: number, reason: string} | null} ended
 */

const KINDS = new Set([
  "system/welcome",
  "system/presence",
  "capability/grant",
  "capability/revoke",
  "space/kick",
  "space/invite-ack",
]);
const MAX_ENTRIES = 2_000;
const GATEWAY = "system:gateway";

/** @param {any} value */
const key = (value) => JSON.stringify(value);

class GrantLedger {
  /** @param {import("../../core/state/state.js").State} state */
  constructor(state) {
    this._state = state;
    this._next = 0;
    /** Oldest first. @type {Map<string, Entry>} */
    this.byId = new Map();
    /** A member's own capabilities, by logical name. @type {Map<string, any[]>} */
    this._own = new Map();
    /** Participants invited from here, because the gateway informs everybody but the inviter (D-23). Name → when. @type {Map<string, number>} */
    this.invited = new Map();
  }

  /** Process the envelopes that arrived since the last call. */
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

  /** Ended grants to or from a member, newest first. @param {string} name */
  ended(name) {
    return [...this.byId.values()]
      .filter((each) => each.ended && (each.recipient === name || each.granter === name))
      .reverse();
  }

  /** All current capabilities of a member, each with the grant it comes from. @param {string} name @returns {{capability: any, grant: Entry | null}[]} */
  permissionsOf(name) {
    const own = (this._own.get(name) ?? []).map((capability) => ({
      capability,
      grant: /** @type {Entry | null} */ (null),
    }));
    const granted = this.to(name)
      .reverse()
      .flatMap((grant) =>
        grant.capabilities.map((capability) => ({ capability, grant: /** @type {Entry | null} */ (grant) })),
      );
    return [...own, ...granted];
  }

  /**
   * The chain from a grant back to the capability that supports it: each step is a grant, the last its granter's own capability.
   * @param {Entry} grant
   * @returns {{grants: Entry[], root: string, right: any}} `right` is undefined when it was not seen
   */
  chainOf(grant) {
    const grants = [grant];
    for (let current = grant; ; ) {
      const wanted = current.capabilities[0] ?? current.given[0];
      const right = (this._own.get(current.granter) ?? []).find((each) => covers(each, wanted));
      if (right !== undefined) return { grants, root: current.granter, right };
      const above = this.to(current.granter).find(
        (each) => !grants.includes(each) && coveredBy(wanted, each.capabilities),
      );
      if (!above) return { grants, root: current.granter, right: undefined };
      grants.push(above);
      current = above;
    }
  }

  /** The other grants that would lose capabilities if these grants were revoked, with what they would lose. @param {Entry[]} gone @returns {{grant: Entry, lost: any[]}[]} */
  cascadeOf(gone) {
    return this._unsupported(new Set(gone.map((each) => each.id)), new Set());
  }

  /** The same if a member were removed. @param {string} name */
  cascadeOfRemoval(name) {
    return this._unsupported(new Set(this.to(name).map((each) => each.id)), new Set([name]));
  }

  /**
   * D-18: the granter, those who granted it to the granter, or a member who holds the capability.
   * @param {string} name @param {any[]} rights @param {Entry} grant
   */
  mayRevoke(name, rights, grant) {
    return (
      grant.capabilities.every((each) => coveredBy(each, rights)) ||
      this.chainOf(grant).grants.some((each) => each.granter === name)
    );
  }

  /** @param {import("../../core/state/envelopes.js").Row} row @param {any} payload */
  _apply(row, payload) {
    if (row.kind === "system/welcome") {
      this._applyCapabilities(payload.you, row);
      for (const each of Array.isArray(payload.participants) ? payload.participants : [])
        this._applyCapabilities(each, row);
    } else if (row.kind === "system/presence") {
      if (payload.event !== "leave") this._applyCapabilities(payload.participant, row);
    } else if (row.kind === "capability/grant") this._grant(row, payload);
    else if (row.kind === "capability/revoke") this._revoke(row, payload);
    else if (row.kind === "space/invite-ack") this._invited(row, payload);
    else if (typeof payload.participant_id === "string") this._removed(this.nameOf(payload.participant_id), row);
  }

  /** The gateway sent a member's capabilities. @param {any} shown @param {import("../../core/state/envelopes.js").Row} row */
  _applyCapabilities(shown, row) {
    if (typeof shown?.id !== "string" || !Array.isArray(shown.capabilities)) return;
    const name = typeof shown.name === "string" ? shown.name : this.nameOf(shown.id);
    /** @type {string[]} */
    const left = shown.capabilities.map(key);
    for (const grant of this.to(name)) {
      const held = grant.capabilities.filter((each) => takeOne(left, key(each)));
      if (held.length < grant.capabilities.length)
        this._setHeld(grant, held, { how: "fell", by: "", at: row.at, reason: "" });
    }
    this._own.set(
      name,
      left.map((each) => JSON.parse(each)),
    );
  }

  /** @param {import("../../core/state/envelopes.js").Row} row @param {any} payload */
  _grant(row, payload) {
    if (!Array.isArray(payload.capabilities)) return;
    const recipient = this.nameOf(typeof payload.recipient === "string" ? payload.recipient : (row.to[0] ?? ""));
    this.byId.set(row.id, {
      id: row.id,
      granter: this.nameOf(row.from),
      recipient,
      given: payload.capabilities,
      capabilities: payload.capabilities,
      reason: typeof payload.reason === "string" ? payload.reason : "",
      at: row.at,
      ...readTerm(payload, row.at),
      ended: null,
    });
    if (this.byId.size > MAX_ENTRIES) {
      const oldest = [...this.byId.values()].find((each) => each.ended);
      if (oldest) this.byId.delete(oldest.id);
    }
  }

  /** @param {import("../../core/state/envelopes.js").Row} row @param {any} payload */
  _revoke(row, payload) {
    // The gateway itself ends what was granted for a time or a number of uses.
    const how =
      row.from === GATEWAY &&
      (payload.reason === "expired" || payload.reason === "used_up" || payload.reason === "clock_lost")
        ? /** @type {"expired" | "used_up" | "clock_lost"} */ (payload.reason)
        : /** @type {const} */ ("revoked");
    const known = { how, by: row.from, at: row.at, reason: typeof payload.reason === "string" ? payload.reason : "" };
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

  /** @param {string} name @param {import("../../core/state/envelopes.js").Row} row */
  _removed(name, row) {
    for (const grant of this.to(name))
      this._setHeld(grant, [], { how: "removed", by: row.from, at: row.at, reason: "" });
    this._own.set(name, []);
    this.invited.delete(name);
    this._revokeUnsupported(row);
  }

  /** @param {import("../../core/state/envelopes.js").Row} row */
  _revokeUnsupported(row) {
    for (const { grant, lost } of this._unsupported(new Set(), new Set())) {
      this._setHeld(
        grant,
        grant.capabilities.filter((each) => !lost.includes(each)),
        { how: "fell", by: row.from, at: row.at, reason: "" },
      );
    }
  }

  /** What we gave with an invitation; the gateway sends it when the member joins. @param {string} name @param {any[]} capabilities */
  setInvited(name, capabilities) {
    if (!this._own.get(name)?.length) this._own.set(name, capabilities);
  }

  /** Whether a member's capabilities are known. @param {string} name */
  isKnown(name) {
    return this._own.has(name);
  }

  /** @param {import("../../core/state/envelopes.js").Row} row @param {any} payload */
  _invited(row, payload) {
    if (payload.status === "created" && typeof payload.participant_id === "string")
      this.invited.set(payload.participant_id, row.at);
  }

  /** @param {Entry} grant @param {any[]} held @param {Entry["ended"]} known */
  _setHeld(grant, held, known) {
    grant.capabilities = held;
    if (held.length === 0) grant.ended = known;
  }

  /**
   * Granted capabilities without a chain to a member's own, if these grants and members were gone.
   * @param {Set<string>} gone @param {Set<string>} removed names @returns {{grant: Entry, lost: any[]}[]}
   */
  _unsupported(gone, removed) {
    const living = [...this.byId.values()].filter((each) => !each.ended && !gone.has(each.id));
    /** @type {Map<string, any[]>} */
    const held = new Map();
    for (const { granter } of living)
      held.set(granter, removed.has(granter) ? [] : [...(this._own.get(granter) ?? [])]);
    let waiting = living.flatMap((grant) =>
      this._own.has(grant.granter) ? grant.capabilities.map((capability) => ({ grant, capability })) : [],
    );
    // Everything from an unknown granter counts, and may support more.
    for (const grant of living)
      if (!this._own.has(grant.granter)) held.get(grant.recipient)?.push(...grant.capabilities);
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

/** Remove an item from a list; returns whether it was there. @param {string[]} from @param {string} one */
function takeOne(from, one) {
  const at = from.indexOf(one);
  if (at < 0) return false;
  from.splice(at, 1);
  return true;
}

/** One per space, however often the view is mounted. @type {WeakMap<object, GrantLedger>} */
const ledgers = new WeakMap();

/** @param {import("../../core/state/state.js").State} state */
export function ledgerOf(state) {
  let ledger = ledgers.get(state);
  if (!ledger) ledgers.set(state, (ledger = new GrantLedger(state)));
  ledger.update();
  return ledger;
}
