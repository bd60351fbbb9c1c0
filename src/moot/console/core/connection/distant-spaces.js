/**
 * Spaces that somebody is signed in to and that this page has no connection to: a gateway allows only so many. What is
 * pending there is asked for over HTTP from time to time. Where there was no answer it is not known, and said so.
 */
import { addressIn, fetchFrom } from "./gateway-fetch.js";
import { textAt, membersOf, parseJson } from "../state/json-text.js";

// What waits there is seen within a minute.
const ASK_MILLISECONDS = 30_000;
const ANSWER_MILLISECONDS = 15_000;
// More than the pages of all open proposals of a space that anybody decides in.
const MAX_PAGES = 64;

export class DistantSpaces {
  /** @param {import("./gateways.js").Gateways} gateways @param {() => import("./session.js").Login[]} logins those without a connection @param {() => void} changed */
  constructor(gateways, logins, changed) {
    this._gateways = gateways;
    this._logins = logins;
    this._changed = changed;
    /** How many wait for this person, by space; null: not known. @type {Map<string, number | null>} */
    this.counts = new Map();
    this._isAsking = false;
    /** @type {any} */
    this._clock = undefined;
  }

  /** Ask now, and from then on again and again. */
  watch() {
    if (this._clock !== undefined) return;
    this._clock = setInterval(() => void this._ask(), ASK_MILLISECONDS);
    void this._ask();
  }

  close() {
    clearInterval(this._clock);
    this._clock = undefined;
    this.counts.clear();
  }

  async _ask() {
    if (this._isAsking) return;
    this._isAsking = true;
    for (const login of this._logins()) {
      const count = await this._count(login).catch(() => null);
      if (this._clock === undefined) break;
      this.counts.set(login.space, count);
      this._changed();
    }
    this._isAsking = false;
  }

  /** @param {import("./session.js").Login} login @returns {Promise<number | null>} */
  async _count(login) {
    let count = 0;
    let after = 0;
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const from = after > 0 ? `?after=${after}` : "";
      const answer = await this._gateways.reach((href) =>
        fetchFrom(new URL(from, addressIn(href, login.space, "proposals")), {
          token: login.token,
          within: ANSWER_MILLISECONDS,
        }),
      );
      if (!answer.ok) return null;
      const text = await answer.text();
      for (const each of membersOf(textAt(text, ["proposals"]) ?? "[]"))
        if (isForMe(parseJson(each.text), login.participant)) count += 1;
      after = Number(textAt(text, ["next"]) ?? 0);
      if (!after) return count;
    }
    return null;
  }
}

/** As `waitsForOthers` says of what was received. @param {any} told @param {string} me */
function isForMe(told, me) {
  if (told?.state !== "open" || told.proposer === me || told.rejected_by?.includes(me)) return false;
  return !(told.approved_by?.includes(me) && told.approved_by.length < Number(told.approvals_needed ?? 0));
}
