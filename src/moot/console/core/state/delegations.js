/** Who decides in whose place (decision 0210), as moot/participant/decisions/proposal_list.py knows it. The gateway is the judge. */
import { parseTime } from "../page/time.js";

/** @typedef {{from: string, to: string, until: number, reason: string}} Delegation */

export class Delegations {
  constructor() {
    /** @type {Delegation[]} */
    this._known = [];
  }

  /** As the gateway tells all of them. @param {any} told */
  restore(told) {
    this._known = (Array.isArray(told) ? told : []).map((/** @type {any} */ each) => ({
      from: String(each?.from ?? ""),
      to: String(each?.to ?? ""),
      until: parseTime(each?.until, 0),
      reason: String(each?.reason ?? ""),
    }));
  }

  /** Somebody delegates, or ends it. @param {any} envelope @param {import("./envelopes.js").Row} row @param {import("./state.js").State} [state] */
  receive({ kind, payload }, row, state) {
    const idOf = (/** @type {unknown} */ name) => state?.roster.get(String(name))?.id ?? String(name);
    const [from, to] = "from" in payload ? [idOf(payload.from), row.from] : [row.from, idOf(payload.to)];
    this._known = this._known.filter((each) => each.from !== from || each.to !== to);
    if (kind === "moot/delegate")
      this._known.push({
        from,
        to,
        until: row.at + Number(payload.expires_in_seconds) * 1000,
        reason: String(payload.reason ?? ""),
      });
  }

  /** Those that hold. */
  living() {
    return this._known.filter((each) => each.until > Date.now());
  }
}
