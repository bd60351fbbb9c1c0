/** Capabilities granted at run time, and by whom (MEW 3.6.1 to 3.6.3; D-16 to D-18). */
import { trimMap } from "../page/bounded-map.js";
import { correlations } from "./envelope-fields.js";

/**
 * @typedef {object} Grant
 * @property {string} id of the envelope; this is what a revocation names
 * @property {string} granter
 * @property {string} recipient
 * @property {any[]} capabilities
 * @property {string} reason
 * @property {number} at
 * @property {boolean} acknowledged
 * @property {{by: string, at: number, reason: string, whole: boolean} | null} revoked `whole` is false when a pattern revoked part of it
 */

const MAX_GRANTS = 5_000;

export class Grants {
  constructor() {
    /** Oldest first. @type {Map<string, Grant>} */
    this.byId = new Map();
  }

  /** Those of one recipient, newest first. @param {string} recipient */
  of(recipient) {
    return [...this.byId.values()].filter((each) => each.recipient === recipient).reverse();
  }

  /**
   * The chain from this grant back to a member without grants: the grants from which the granter may have the right.
   * Only the gateway knows which right supports which; this is derived from the received envelopes.
   * @param {Grant} grant @returns {Grant[]}
   */
  chainOf(grant) {
    const chain = [grant];
    const seen = new Set([grant.id]);
    for (let current = grant; ; ) {
      const above = this.of(current.granter).find(
        (each) => !seen.has(each.id) && each.at <= current.at && !each.revoked?.whole,
      );
      if (!above) return chain;
      seen.add(above.id);
      chain.push(above);
      current = above;
    }
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  receive(envelope, row) {
    const payload = envelope.payload ?? {};
    if (envelope.kind === "capability/grant") {
      const recipient = typeof payload.recipient === "string" ? payload.recipient : (row.to[0] ?? "");
      this.byId.set(row.id, {
        id: row.id,
        granter: row.from,
        recipient,
        capabilities: Array.isArray(payload.capabilities) ? payload.capabilities : [],
        reason: String(payload.reason ?? ""),
        at: row.at,
        acknowledged: false,
        revoked: null,
      });
      trimMap(this.byId, MAX_GRANTS);
      return "grants";
    }
    if (envelope.kind === "capability/grant-ack") {
      for (const id of correlations(envelope)) {
        const grant = this.byId.get(id);
        if (grant && grant.recipient === row.from) grant.acknowledged = true;
      }
      return "grants";
    }
    if (envelope.kind === "capability/revoke") {
      const ended = { by: row.from, at: row.at, reason: String(payload.reason ?? "") };
      const named = typeof payload.grant_id === "string" ? this.byId.get(payload.grant_id) : undefined;
      if (named) named.revoked = { ...ended, whole: true };
      else if (Array.isArray(payload.capabilities)) {
        const taken = new Set(payload.capabilities.map((/** @type {any} */ each) => JSON.stringify(each)));
        const recipient = typeof payload.recipient === "string" ? payload.recipient : row.to[0];
        for (const grant of this.byId.values()) {
          if (grant.recipient !== recipient || grant.revoked?.whole) continue;
          // Only the gateway knows what a pattern covers; equal capabilities are certain.
          const left = grant.capabilities.filter((each) => !taken.has(JSON.stringify(each)));
          if (left.length < grant.capabilities.length) grant.revoked = { ...ended, whole: left.length === 0 };
        }
      }
      return "grants";
    }
    return null;
  }
}
