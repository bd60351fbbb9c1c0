/**
 * Asks the gateway what is pending (D-96). Only its answer makes it known that nothing is: a new page has received
 * nothing yet, and the message history of a busy space reaches back minutes.
 *
 *     asking ──all pages received──▶ known ──connection lost, or a gap──▶ not-known ──connected again──▶ asking
 *        └────refused, no answer───▶ not-known
 */
import { addressIn, fetchFrom } from "./gateway-fetch.js";
import { Refused } from "./envelope-sender.js";

// More than the proposals that all members of a space may have open.
const MAX_PAGES = 4_096;
// The gateway takes as many ids in one question.
const IDS_AT_ONCE = 256;
const WHOLE_MILLISECONDS = 15_000;
// Proposals whose time is over are asked about this often; the gateway's clock decides.
const DEADLINE_CHECK_MILLISECONDS = 15_000;

export class ProposalSync {
  /**
   * @param {import("./envelope-sender.js").EnvelopeSender} sender
   * @param {import("../state/state-proposals.js").Proposals} proposals
   * @param {(id: string) => Promise<Response>} fetchProposal one proposal over HTTP, whatever its size
   * @param {() => void} changed
   */
  constructor(sender, proposals, fetchProposal, changed) {
    this._sender = sender;
    this._proposals = proposals;
    this._fetchProposal = fetchProposal;
    this._changed = changed;
    /** @type {"asking" | "known" | "not-known"} */
    this.knowledge = "asking";
    /** Why it is not known. */
    this.problem = "";
    /** Envelopes that no page holds; fetched over HTTP. @type {Set<string>} */
    this._missing = new Set();
    /** Counts refreshes, so that a newer one replaces an older one. */
    this._current = 0;
    this._clock = setInterval(() => this._askAboutDeadlines(), DEADLINE_CHECK_MILLISECONDS);
  }

  /** Whether it is known that nothing is pending besides what is listed. */
  get isKnown() {
    return this.knowledge === "known";
  }

  /** Ask for all that is open, and for what we believed to be. @returns {Promise<boolean>} whether it is known now */
  async refresh() {
    this._current += 1;
    const current = this._current;
    this._set("asking", "");
    this._missing.clear();
    const before = [...this._proposals.pending.keys()];
    const found = new Set();
    try {
      /** @type {any} */
      let page = await this._ask({});
      for (let count = 1; count < MAX_PAGES && page && current === this._current; count += 1) {
        for (const each of page.proposals ?? []) found.add(each?.proposal_id);
        page = typeof page.next === "number" ? await this._ask({ after: page.next }) : null;
      }
      let left = before.filter((id) => !found.has(id));
      while (left.length > 0 && current === this._current) {
        page = await this._ask({ ids: left.slice(0, IDS_AT_ONCE) });
        left = [...(page.next_ids ?? []), ...left.slice(IDS_AT_ONCE)];
      }
      const large = [...this._missing];
      for (const id of large) await this._fetchWhole(id);
      // HTTP answers out of order with the messages, so their state is asked for again.
      if (large.length > 0) await this._ask({ ids: large.slice(0, IDS_AT_ONCE) });
    } catch (fault) {
      if (current === this._current) this._set("not-known", fault instanceof Error ? fault.message : "no answer");
      return false;
    }
    if (current === this._current) this._set("known", "");
    return this.isKnown;
  }

  /**
   * What became of one proposal, also of one that was never received here.
   * @param {string} id @returns {Promise<{told?: any, problem?: string}>} neither: the gateway does not know it
   */
  async find(id) {
    try {
      const answer = await this._fetchProposal(id);
      if (answer.status === 404) return {};
      if (!answer.ok) return { problem: `the gateway replied with HTTP ${answer.status}` };
      const text = await answer.text();
      this._proposals.restorePage(`{"payload":{"proposals":[${text}]}}`, false);
      this._changed();
      return { told: JSON.parse(text) };
    } catch (fault) {
      return { problem: fault instanceof Error ? fault.message : "no answer" };
    }
  }

  /** A page arrived, in its place among the messages of the space. @param {string} raw */
  receivePage(raw) {
    for (const id of this._proposals.restorePage(raw)) this._missing.add(id);
  }

  /** Something is on its way that may have more. */
  expectMore() {
    if (this.isKnown) this._set("asking", "");
  }

  /** The connection is lost: from now on anything may be decided elsewhere. @param {string} why */
  lose(why) {
    this._current += 1;
    this._proposals.markUncertain();
    this._set("not-known", why);
  }

  close() {
    clearInterval(this._clock);
  }

  /** @param {any} question @returns {Promise<any>} */
  async _ask(question) {
    for (;;) {
      try {
        const answer = await this._sender.send("moot/list-proposals", question);
        if (answer.kind !== "moot/proposals")
          throw new Refused("unsupported", "This gateway does not tell what is pending.");
        return answer.payload ?? {};
      } catch (fault) {
        const seconds = fault instanceof Refused ? fault.payload?.retry_after : undefined;
        if (typeof seconds !== "number") throw fault;
        await new Promise((go) => setTimeout(go, Math.min(seconds, 60) * 1000));
      }
    }
  }

  /** @param {string} id */
  async _fetchWhole(id) {
    const answer = await this._fetchProposal(id);
    if (!answer.ok) throw new Error(`a large proposal could not be fetched (HTTP ${answer.status})`);
    const missing = this._proposals.restorePage(`{"payload":{"proposals":[${await answer.text()}]}}`, false);
    if (missing.length > 0) throw new Error("a proposal could not be read");
    this._missing.delete(id);
    this._changed();
  }

  _askAboutDeadlines() {
    const now = Date.now();
    if (this.isKnown && this._proposals.open().some((each) => each.expiresAt > 0 && each.expiresAt < now))
      void this.refresh();
  }

  /** @param {ProposalSync["knowledge"]} knowledge @param {string} problem */
  _set(knowledge, problem) {
    this.knowledge = knowledge;
    this.problem = problem;
    this._changed();
  }
}

/** An address at the gateway, with the token in a header. @param {URL} base @param {{space: string, token: string}} login @param {string} id */
export function fetchProposal(base, login, id) {
  return fetchFrom(addressIn(base, login.space, "proposals", id), { token: login.token, within: WHOLE_MILLISECONDS });
}
