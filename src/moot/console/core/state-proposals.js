// @ts-check
/**
 * Proposals from open to settled, requests and their answers (MEW 3.1, 3.2, 3.3; D-28).
 *
 *     open ──fulfilled by a request──▶ fulfilled ──response──▶ done or failed
 *       ├──withdrawn by its proposer─▶ withdrawn
 *       └──a day without decision────▶ expired        a rejection is recorded and leaves it open
 */
import { trimMap } from "./bounded-map.js";
import { callBodyText } from "./json-text.js";
import { contextOf, correlations, operationOf } from "./envelope-fields.js";

/**
 * @typedef {object} Call what a proposal or a request asks for
 * @property {string} method
 * @property {string} name of the tool, resource or prompt; empty if the method has none
 * @property {any} params parsed: numbers may be rounded, so show and send `bodyText` instead
 * @property {string} bodyText {"method":…,"params":…} exactly as it was received
 *
 * @typedef {object} Proposal
 * @property {string} id
 * @property {string} from
 * @property {string[]} to who should execute it
 * @property {Call} call
 * @property {string} raw the whole envelope as it was received
 * @property {number} at
 * @property {string} context
 * @property {string[]} about
 * @property {"open" | "fulfilled" | "done" | "failed" | "withdrawn" | "expired"} status
 * @property {boolean} uncertain it may have changed during a gap
 * @property {{by: string, reason: string, at: number, id: string, comments: string[]}[]} rejections
 * @property {{by: string, at: number, id: string}[]} approvals of a quorum
 * @property {string} fulfilledBy
 * @property {string} requestId
 * @property {string} reason of a withdrawal
 * @property {number} settledAt
 *
 * @typedef {object} CallRequest a request and its answer
 * @property {string} id
 * @property {string} from
 * @property {string[]} to
 * @property {Call} call
 * @property {number} at
 * @property {string} proposal the proposal that it fulfils; empty if none
 * @property {{id: string, from: string, at: number, result: any, error: any} | null} answer
 */

// D-28: the default of proposal_seconds.
const EXPIRES_MILLISECONDS = 86_400_000;
const MAX_SETTLED = 5_000;
const MAX_REQUESTS = 20_000;

export class Proposals {
  constructor() {
    /** All known proposals by id, oldest first. @type {Map<string, Proposal>} */
    this.byId = new Map();
    /** The pending ones, oldest first. @type {Map<string, Proposal>} */
    this.pending = new Map();
    /** @type {Map<string, CallRequest>} */
    this.requests = new Map();
    /** @type {Map<string, Proposal["rejections"][number]>} */
    this._rejections = new Map();
  }

  /** @param {string} id */
  get(id) {
    return this.byId.get(id);
  }

  /** Open proposals, oldest first. @param {number} [now] @returns {Proposal[]} */
  open(now = Date.now()) {
    for (const each of this.pending.values()) {
      if (now - each.at <= EXPIRES_MILLISECONDS) break;
      this._settle(each, "expired", now);
    }
    return [...this.pending.values()];
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  receive(envelope, row) {
    const kind = envelope.kind;
    if (kind === "mcp/proposal" || kind.startsWith("mcp/proposal:")) return this._addProposal(envelope, row);
    if (kind === "mcp/request" || kind.startsWith("mcp/request:")) return this._addRequest(envelope, row);
    if (kind === "mcp/response" || kind.startsWith("mcp/response:")) return this._addAnswer(envelope, row);
    if (kind === "chat") return this._addExplanation(envelope);
    const proposals = correlations(envelope).map((id) => this.byId.get(id)).filter((each) => each !== undefined);
    const reason = typeof envelope.payload?.reason === "string" ? envelope.payload.reason : "";
    for (const proposal of proposals) {
      if (kind === "mcp/withdraw" && proposal.from === row.from && proposal.status === "open") {
        proposal.reason = reason;
        this._settle(proposal, "withdrawn", row.at);
      } else if (kind === "mcp/reject") this._addRejection(proposal, reason, row);
      else if (kind === "moot/approve") proposal.approvals.push({ by: row.from, at: row.at, id: row.id });
      else continue;
      return "proposals";
    }
    if (kind === "system/error" && envelope.payload?.error === "proposal_settled") return this._settleByRefusal(envelope.payload, row);
    return null;
  }

  /** Envelopes may have been missed, so open proposals may be settled by now. */
  markUncertain() {
    for (const proposal of this.pending.values()) proposal.uncertain = true;
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  _addProposal(envelope, row) {
    /** @type {Proposal} */
    const proposal = {
      id: row.id, from: row.from, to: row.to, call: callOf(envelope, row.raw), raw: row.raw, at: row.at, context: row.context,
      about: row.about, status: "open", uncertain: false, rejections: [], approvals: [], fulfilledBy: "", requestId: "", reason: "", settledAt: 0,
    };
    this.byId.set(row.id, proposal);
    this.pending.set(row.id, proposal);
    return "proposals";
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  _addRequest(envelope, row) {
    const proposal = row.about.map((id) => this.byId.get(id)).find((each) => each !== undefined);
    this.requests.set(row.id, { id: row.id, from: row.from, to: row.to, call: callOf(envelope, row.raw), at: row.at, proposal: proposal?.id ?? "", answer: null });
    trimMap(this.requests, MAX_REQUESTS);
    // One request may fulfil several proposals of the same call.
    for (const id of row.about) {
      const each = this.byId.get(id);
      if (!each || each.status !== "open") continue;
      each.fulfilledBy = row.from;
      each.requestId = row.id;
      this._settle(each, "fulfilled", row.at);
    }
    return proposal ? "proposals" : "requests";
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  _addAnswer(envelope, row) {
    let topic = null;
    for (const id of row.about) {
      const request = this.requests.get(id);
      // D-80: only the addressee of the request can answer it.
      if (!request || request.answer || (request.to.length > 0 && !request.to.includes(row.from))) continue;
      request.answer = { id: row.id, from: row.from, at: row.at, result: envelope.payload?.result, error: envelope.payload?.error };
      topic = topic ?? "requests";
      for (const proposal of this._proposalsOf(request)) {
        proposal.status = request.answer.error || request.answer.result?.isError === true ? "failed" : "done";
        topic = "proposals";
      }
    }
    return topic;
  }

  /** @param {CallRequest} request */
  _proposalsOf(request) {
    const first = this.byId.get(request.proposal);
    return first && first.requestId === request.id ? [first] : [];
  }

  /** MEW 3.3.3: a chat about a rejection is a comment on it. @param {any} envelope */
  _addExplanation(envelope) {
    const ids = correlations(envelope);
    if (ids.length === 0 || typeof envelope.payload?.text !== "string") return null;
    const rejection = ids.map((id) => this._rejections.get(id)).find((each) => each !== undefined);
    if (!rejection) return null;
    rejection.comments.push(envelope.payload.text);
    return "proposals";
  }

  /** @param {Proposal} proposal @param {string} reason @param {import("./envelopes.js").Row} row */
  _addRejection(proposal, reason, row) {
    /** @type {Proposal["rejections"][number]} */
    const rejection = { by: row.from, reason, at: row.at, id: row.id, comments: [] };
    proposal.rejections.push(rejection);
    this._rejections.set(row.id, rejection);
    trimMap(this._rejections, MAX_SETTLED);
  }

  /** Our decision came too late: the refusal contains the proposal's state. @param {any} payload @param {import("./envelopes.js").Row} row */
  _settleByRefusal(payload, row) {
    const proposal = typeof payload.proposal_id === "string" ? this.byId.get(payload.proposal_id) : undefined;
    if (!proposal || proposal.status !== "open") return null;
    if (payload.state === "withdrawn" || payload.state === "expired" || payload.state === "fulfilled") this._settle(proposal, payload.state, row.at);
    return "proposals";
  }

  /** @param {Proposal} proposal @param {Proposal["status"]} status @param {number} at */
  _settle(proposal, status, at) {
    proposal.status = status;
    proposal.settledAt = at;
    proposal.uncertain = false;
    this.pending.delete(proposal.id);
    trimMap(this.byId, MAX_SETTLED + this.pending.size, (each) => each.status !== "open");
  }
}

/** @param {any} envelope @param {string} raw @returns {Call} */
function callOf(envelope, raw) {
  const operation = operationOf(envelope, () => undefined);
  const method = typeof envelope.payload?.method === "string" ? envelope.payload.method : operation.method;
  const params = envelope.payload?.params;
  let text = "";
  return {
    method,
    name: contextOf(method, params) || operation.name,
    params,
    // Extracted on demand: most requests are never approved by hand.
    get bodyText() {
      text ||= callBodyText(raw);
      return text;
    },
  };
}
