/**
 * Messages from before the page was opened, read from the gateway's journal a page at a time. They are shown and searched;
 * the state of the space does not come from them, because they are old.
 *
 *     unread ──load──▶ loading ──▶ more ──load──▶ … ──▶ end (and why)
 *                         └──▶ failed ──load──▶ loading
 */
import { addressIn, fetchFrom } from "./gateway-fetch.js";
import { membersOf, parseJson, textAt } from "../state/json-text.js";

const PAGE_MILLISECONDS = 20_000;
// A page may be empty although there is more: the gateway reads a bounded part of the journal for each.
const MAX_PAGES_AT_ONCE = 400;
const MAX_WAIT_SECONDS = 30;

/** @typedef {{text?: string[], kind?: string, from?: string, id?: string}} Query */
/** @typedef {{raws: string[], before: number | null, end: string | null, hasGap: boolean}} Page */

/** Why there is nothing older, for people. @type {Record<string, string>} */
export const END_TEXTS = {
  beginning: "This is the beginning of the space.",
  removed: "Older messages were removed from the journal.",
  elsewhere: "No gateway that answers has older messages: this one began to serve the space later.",
  not_a_member: "Older messages are from before you were a member.",
  gap: "This is the beginning of the space. Messages in between are missing: this gateway could not write its journal for a while.",
  not_kept: "This space keeps no journal: there is nothing older.",
  unknown: "This gateway has no older messages.",
  not_offered: "This gateway offers no older messages.",
  full: "This page holds as many messages as it can. Use a filter to search further.",
};

export class OlderMessages {
  /** @param {URL} base @param {{space: string, token: string}} login @param {import("../state/state.js").State} state */
  constructor(base, login, state) {
    this._base = base;
    this._login = login;
    this._state = state;
    /** @type {"unread" | "loading" | "more" | "end" | "failed"} */
    this.status = "unread";
    /** Why it ended, or failed. */
    this.reason = "";
    /** The record that the next page ends before; null: not known yet. @type {number | null} */
    this._before = null;
    this._hasGap = false;
  }

  get canLoad() {
    return this.status === "unread" || this.status === "more" || this.status === "failed";
  }

  /** Load one more page. @returns {Promise<number>} how many messages it had */
  async load() {
    if (!this.canLoad) return 0;
    this._set("loading", "");
    try {
      if (!(await this._align())) return 0;
      for (let count = 0; count < MAX_PAGES_AT_ONCE; count += 1) {
        const isNewest = this._before === null;
        const page = await this._fetch({}, this._before);
        const added = this._state.addOlder(isNewest ? this._untilKnown(page.raws) : page.raws);
        this._before = page.before;
        this._hasGap ||= page.hasGap;
        if (page.raws.length > 0 && added === 0 && this._state.envelopes.size >= this._state.envelopes.max) {
          this._set("end", "full");
          return 0;
        }
        if (page.before === null)
          this._set("end", this._hasGap && page.end === "beginning" ? "gap" : (page.end ?? "unknown"));
        else if (added > 0) this._set("more", "");
        else continue;
        return added;
      }
      this._set("more", "");
    } catch (fault) {
      if (fault instanceof NotOffered) this._set("end", "not_offered");
      else this._set("failed", fault instanceof Error ? fault.message : "no answer");
    }
    return 0;
  }

  /** Those before the first that is here: the newest page has what is about to arrive, too. @param {string[]} raws */
  _untilKnown(raws) {
    const at = raws.findIndex((raw) => this._state.envelopes.has(String(parseJson(raw)?.id ?? "")));
    return at < 0 ? raws : raws.slice(0, at);
  }

  /** The oldest messages of the page were dropped: begin again at the oldest that is left. */
  restart() {
    this._before = null;
    if (this.status !== "loading") this._set("unread", "");
  }

  /** Find where the oldest message of this page stands in the journal. @returns {Promise<boolean>} */
  async _align() {
    if (this._before !== null) return true;
    const { envelopes } = this._state;
    let oldest;
    for (let n = envelopes.first; n < envelopes.next && !oldest; n += 1) {
      const row = envelopes.at(n);
      if (row && row.type === "envelope" && row.from !== "system:gateway" && row.from !== "gateway") oldest = row.id;
    }
    if (!oldest) return true;
    for await (const page of this.search({ id: oldest }, { from: "newest" })) {
      if (page.raws.length > 0) {
        this._before = page.before;
        if (page.before !== null) return true;
      }
      if (page.end) {
        this._set("end", page.end);
        return false;
      }
    }
    return true;
  }

  /**
   * Pages of what matches, newest first, until there are no more. Without `from` it begins where the loaded messages end.
   * @param {Query} query @param {{from?: "newest" | "loaded"}} [options] @returns {AsyncGenerator<Page>}
   */
  async *search(query, options = {}) {
    if (options.from !== "newest" && !(await this._align())) return;
    let before = options.from === "newest" ? null : this._before;
    for (let count = 0; count < MAX_PAGES_AT_ONCE; count += 1) {
      const page = await this._fetch(query, before);
      yield page;
      if (page.before === null) return;
      before = page.before;
    }
  }

  /** One message by its id, however old. @param {string} id @returns {Promise<string | null>} its text */
  async find(id) {
    for await (const page of this.search({ id }, { from: "newest" })) if (page.raws.length > 0) return page.raws[0];
    return null;
  }

  /** @param {Query} query @param {number | null} before @returns {Promise<Page>} */
  async _fetch(query, before) {
    const address = addressIn(this._base, this._login.space, "history");
    if (before !== null) address.searchParams.set("before", String(before));
    for (const text of query.text ?? []) address.searchParams.append("text", text);
    for (const name of /** @type {const} */ (["kind", "from", "id"]))
      if (query[name]) address.searchParams.set(name, /** @type {string} */ (query[name]));
    for (;;) {
      const answer = await fetchFrom(address, { token: this._login.token, within: PAGE_MILLISECONDS });
      if (answer.status === 429 || answer.status === 503) {
        await new Promise((go) =>
          setTimeout(go, Math.min(MAX_WAIT_SECONDS, Number(answer.headers.get("Retry-After")) || 1) * 1000),
        );
        continue;
      }
      if (answer.status === 404) throw new NotOffered("no such page");
      const text = await answer.text();
      if (!answer.ok) throw new Error(parseJson(text)?.message ?? `HTTP ${answer.status}`);
      const before = Number(textAt(text, ["before"]) ?? "null");
      const end = JSON.parse(textAt(text, ["end"]) ?? "null");
      return {
        raws: membersOf(textAt(text, ["messages"]) ?? "[]").map((part) => part.text),
        before: textAt(text, ["before"]) === "null" ? null : before,
        // Pages that are older than this word show what they know.
        end:
          textAt(text, ["elsewhere"]) === "true" ? "elsewhere" : end !== null && !(end in END_TEXTS) ? "unknown" : end,
        hasGap: textAt(text, ["gap"]) === "true",
      };
    }
  }

  /** @param {OlderMessages["status"]} status @param {string} reason */
  _set(status, reason) {
    this.status = status;
    this.reason = reason;
    this._state.changes.publish("older");
  }
}

/** A gateway that is older than this page, or that does not offer it. */
class NotOffered extends Error {
  name = "NotOffered";
}
