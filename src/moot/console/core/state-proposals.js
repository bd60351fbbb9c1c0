// @ts-check
/**
 * Proposals from open to settled, requests and their answers (MEW 3.1, 3.2, 3.3; D-28).
 *
 *     open ──fulfilled by a request──▶ fulfilled ──response──▶ done or failed
 *       │                                  └──its host went away──▶ unknown ──late response, or a person──▶ done or failed
 *       ├──withdrawn by its proposer, or its proposer is removed─▶ withdrawn
 *       └──its time is over──────────▶ expired        a rejection is recorded and leaves it open
 *
 * Messages tell what changes. What was open before we joined, or changed while we were away, the gateway tells on
 * request (`moot/proposals`, D-96); see proposal-sync.js.
 */
import { trimMap } from "./bounded-map.js";
import { callBodyText, membersOf, parseJson, textAt } from "./json-text.js";
import { addressees, contextOf, correlations, operationOf } from "./envelope-fields.js";
import { parseTime } from "./time.js";
import { saysUnknown } from "./unknown-outcome.js";

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
 * @property {"open" | "fulfilled" | "done" | "failed" | "unknown" | "withdrawn" | "expired"} status
 * @property {boolean} uncertain it may have changed while we were away
 * @property {number} expiresAt by the gateway's clock; 0 if it was not told
 * @property {number} votesNeeded before it can be carried out; 0 if none are needed or it was not told
 * @property {number} votesMissing of these, in the gateway's own count
 * @property {string[]} exempt members who need no votes of others
 * @property {{by: string, reason: string, at: number, id: string, comments: string[]}[]} rejections
 * @property {{by: string, at: number, id: string}[]} approvals of a quorum
 * @property {string} fulfilledBy
 * @property {string} requestId
 * @property {{at: number, id: string, given: any}[]} inputs what its proposer answered where the host asked for input
 * @property {string} reason of a withdrawal, or why the outcome is unknown
 * @property {string} assessedBy the person who said what came of it, in place of the host
 * @property {string} note what they said about it
 * @property {number} settledAt
 * @property {number} outcomeAt when it became unknown, or somebody said what came of it
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

const GATEWAY = "system:gateway";
const MAX_SETTLED = 5_000;
const MAX_REQUESTS = 20_000;

export class Proposals {
  constructor() {
    /** All known proposals by id, oldest first. @type {Map<string, Proposal>} */
    this.byId = new Map();
    /** The pending ones, oldest first. @type {Map<string, Proposal>} */
    this.pending = new Map();
    /** Of the pending ones, at least. */
    this._newestAt = -Infinity;
    /** @type {Map<string, CallRequest>} */
    this.requests = new Map();
    /** @type {Map<string, Proposal["rejections"][number]>} */
    this._rejections = new Map();
    /** Whether the gateway tells what is pending, as those of Moot do. */
    this._isTold = false;
  }

  /** @param {string} id */
  get(id) {
    return this.byId.get(id);
  }

  /** Open proposals, oldest first. @returns {Proposal[]} */
  open() {
    return [...this.pending.values()];
  }

  /** Open proposals that wait for this member, oldest first. @param {string} me */
  toDecide(me) {
    return this.open().filter((each) => !waitsForOthers(each, me));
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row @param {import("./state.js").State} [state] */
  receive(envelope, row, state) {
    const kind = envelope.kind;
    if (kind === "mcp/proposal" || kind.startsWith("mcp/proposal:")) return this._addProposal(envelope, row);
    if (kind === "mcp/request" || kind.startsWith("mcp/request:")) return this._addRequest(envelope, row);
    if (kind === "mcp/response" || kind.startsWith("mcp/response:")) return this._addAnswer(envelope, row);
    if (kind === "chat") return this._addExplanation(envelope);
    if (kind === "space/kick") return this._withdrawOf([envelope.payload?.participant_id], state, row.at);
    if (kind === "system/presence") return this._withdrawOfGone(envelope.payload ?? {}, state, row.at);
    if (kind === "system/welcome") this._isTold = strings(envelope.payload?.extensions).includes("moot/list-proposals");
    if (kind === "moot/votes") return row.from === GATEWAY ? this._takeCount(envelope.payload ?? {}, row) : null;
    if (kind === "moot/outcome") return row.from === GATEWAY ? this._loseTrack(envelope.payload ?? {}, row) : null;
    const proposals = correlations(envelope).map((id) => this.byId.get(id)).filter((each) => each !== undefined);
    const reason = typeof envelope.payload?.reason === "string" ? envelope.payload.reason : "";
    for (const proposal of proposals) {
      if (kind === "mcp/withdraw" && proposal.from === row.from && proposal.status === "open") {
        proposal.reason = reason;
        this._settle(proposal, "withdrawn", row.at);
      } else if (kind === "mcp/reject") this._addRejection(proposal, reason, row);
      else if (kind === "moot/approve") this._addVote(proposal, row);
      // The gateway takes it only where nobody knows; that it said so is not part of the history.
      else if (kind === "moot/settle" && (proposal.status === "unknown" || proposal.status === "fulfilled")) this._assess(proposal, envelope.payload, row);
      else continue;
      return "proposals";
    }
    if (kind === "system/error" && envelope.payload?.error === "proposal_settled") return this._settleByRefusal(envelope.payload, row);
    return null;
  }

  /** Decision 0015: of a gateway of Moot, who leaves with a reason does not come back. @param {any} payload @param {import("./state.js").State | undefined} state @param {number} at */
  _withdrawOfGone(payload, state, at) {
    if (payload.event !== "leave" || typeof payload.reason !== "string" || !this._isTold) return null;
    return this._withdrawOf([payload.participant?.id, payload.participant?.name], state, at);
  }

  /** What a removed member proposed is withdrawn, without a message for each. @param {unknown[]} names runtime ids or logical names @param {import("./state.js").State | undefined} state @param {number} at */
  _withdrawOf(names, state, at) {
    const own = this.open().filter((each) => names.includes(each.from) || names.includes(state?.roster.get(each.from)?.name));
    for (const proposal of own) {
      proposal.reason = "removed";
      this._settle(proposal, "withdrawn", at);
    }
    return own.length > 0 ? "proposals" : null;
  }

  /** @param {Proposal} proposal @param {import("./envelopes.js").Row} row */
  _addVote(proposal, row) {
    // In place of what the gateway told of it, which has no time of its own.
    proposal.approvals = [...proposal.approvals.filter((each) => each.id !== row.id && (each.by !== row.from || each.id !== proposal.id)), { by: row.from, at: row.at, id: row.id }];
  }

  /** Envelopes may have been missed, so open proposals may be settled by now. */
  markUncertain() {
    for (const proposal of this.pending.values()) proposal.uncertain = true;
  }

  /**
   * A page of the gateway's answer (D-96): it holds from here on in the order of the space. The text is needed to the
   * byte, because what is approved is what was proposed. Returns the ids of those whose envelope no page holds.
   * @param {string} raw the `moot/proposals` envelope @param {boolean} [isInOrder] false: over HTTP, out of the order of the space @returns {string[]}
   */
  restorePage(raw, isInOrder = true) {
    const left = [];
    for (const { text } of membersOf(textAt(raw, ["payload", "proposals"]) ?? "[]")) {
      const told = parseJson(text);
      if (typeof told?.proposal_id !== "string") continue;
      if (!this.restore(told, textAt(text, ["envelope"]) ?? "", isInOrder)) left.push(told.proposal_id);
    }
    for (const { text } of membersOf(textAt(raw, ["payload", "not_known"]) ?? "[]")) {
      const forgotten = this.byId.get(parseJson(text));
      // The gateway remembers every open one.
      if (forgotten?.status === "open") this._settle(forgotten, "expired", Date.now());
    }
    return left;
  }

  /**
   * Take over what the gateway says about one proposal.
   * @param {any} told @param {string} raw its envelope, if it was told @param {boolean} [isInOrder] @returns {boolean} false if its envelope is still missing
   */
  restore(told, raw, isInOrder = true) {
    let proposal = this.byId.get(told.proposal_id);
    if (!proposal) {
      const envelope = raw ? parseJson(raw) : null;
      if (!envelope) return told.state !== "open";
      proposal = this._insert(envelope, raw, parseTime(told.proposed_at, parseTime(envelope.ts, Date.now())));
    }
    proposal.uncertain = false;
    proposal.expiresAt = parseTime(told.expires_at, 0);
    this._setCount(proposal, told, proposal.at);
    for (const by of strings(told.rejected_by)) if (!proposal.rejections.some((each) => each.by === by)) proposal.rejections.push({ by, reason: "", at: proposal.at, id: proposal.id, comments: [] });
    // It was so by a removal that was older than it.
    if (isInOrder && told.state === "open" && (proposal.status === "withdrawn" || proposal.status === "expired")) this._open(proposal);
    if (told.state === "fulfilled") this._restoreFulfilment(proposal, told);
    else if (proposal.status === "open" && (told.state === "withdrawn" || told.state === "expired")) this._settle(proposal, told.state, parseTime(told.settled_at, Date.now()));
    return true;
  }

  /** The gateway has counted the votes. @param {any} told @param {import("./envelopes.js").Row} row */
  _takeCount(told, row) {
    const proposal = this.byId.get(String(told.proposal_id));
    if (!proposal) return null;
    this._setCount(proposal, told, row.at);
    return "proposals";
  }

  /** Only its count is shown: a vote of a removed member counts no more. @param {Proposal} proposal @param {any} told @param {number} at */
  _setCount(proposal, told, at) {
    const voters = strings(told.approved_by);
    proposal.votesNeeded = Number(told.approvals_needed) || 0;
    proposal.votesMissing = Number(told.approvals_missing ?? Math.max(0, proposal.votesNeeded - voters.length)) || 0;
    proposal.exempt = strings(told.exempt);
    const known = proposal.approvals.filter((each) => voters.includes(each.by));
    const others = voters.filter((by) => !known.some((each) => each.by === by));
    proposal.approvals = [...known, ...others.map((by) => ({ by, at, id: proposal.id }))];
  }

  /** @param {Proposal} proposal @param {any} told */
  _restoreFulfilment(proposal, told) {
    if (proposal.status === "done" || proposal.status === "failed") return;
    proposal.fulfilledBy = String(told.fulfilled_by ?? "");
    proposal.requestId = String(told.settled_by ?? "");
    proposal.reason = String(told.reason ?? "");
    this._settle(proposal, "fulfilled", parseTime(told.settled_at, Date.now()));
    // A late answer is recognised by its request, which may never have been received here.
    if (proposal.requestId && !this.requests.has(proposal.requestId)) {
      this.requests.set(proposal.requestId, { id: proposal.requestId, from: proposal.fulfilledBy, to: strings(told.asked), call: proposal.call, at: proposal.settledAt, proposal: proposal.id, answer: null });
    }
    proposal.outcomeAt = parseTime(told.outcome_at, proposal.settledAt);
    if (told.outcome === "unknown") proposal.status = "unknown";
    else if (told.outcome === "done" || told.outcome === "failed") {
      proposal.status = told.outcome;
      proposal.assessedBy = String(told.assessed_by ?? "");
      proposal.note = String(told.note ?? "");
    }
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  _addProposal(envelope, row) {
    this._insert(envelope, row.raw, row.at);
    return "proposals";
  }

  /** @param {any} envelope @param {string} raw @param {number} at @returns {Proposal} */
  _insert(envelope, raw, at) {
    // A link, the gateway's list and the history tell of the same one: whoever looks at it sees what becomes of it.
    const known = this.byId.get(envelope.id);
    if (known?.raw === raw) return known;
    /** @type {Proposal} */
    const proposal = {
      id: envelope.id, from: String(envelope.from ?? ""), to: addressees(envelope), call: callOf(envelope, raw), raw, at,
      context: typeof envelope.context === "string" ? envelope.context : "", about: correlations(envelope), status: "open", uncertain: false, expiresAt: 0, votesNeeded: 0, votesMissing: 0, exempt: [],
      rejections: [], approvals: [], inputs: [], fulfilledBy: "", requestId: "", reason: "", assessedBy: "", note: "", settledAt: 0, outcomeAt: 0,
    };
    this.byId.set(proposal.id, proposal);
    this._open(proposal);
    return proposal;
  }

  /** @param {Proposal} proposal */
  _open(proposal) {
    proposal.status = "open";
    proposal.reason = "";
    proposal.settledAt = 0;
    this.pending.set(proposal.id, proposal);
    // One that was told later but proposed earlier.
    if (this._newestAt <= proposal.at) this._newestAt = proposal.at;
    else this.pending = new Map([...this.pending].sort(([, a], [, b]) => a.at - b.at));
  }

  /** D-99: the host went away, or never answered. @param {any} payload @param {import("./envelopes.js").Row} row */
  _loseTrack(payload, row) {
    const proposal = typeof payload.proposal_id === "string" ? this.byId.get(payload.proposal_id) : undefined;
    if (!proposal || payload.outcome !== "unknown" || proposal.status === "done" || proposal.status === "failed") return null;
    if (proposal.status === "open") this._settle(proposal, "fulfilled", row.at);
    this._setUnknown(proposal, String(payload.reason ?? ""), row.at);
    return "proposals";
  }

  /** @param {Proposal} proposal @param {string} reason @param {number} at */
  _setUnknown(proposal, reason, at) {
    proposal.status = "unknown";
    proposal.reason = reason;
    proposal.outcomeAt = at;
  }

  /** @param {Proposal} proposal @param {any} payload @param {import("./envelopes.js").Row} row */
  _assess(proposal, payload, row) {
    if (payload?.outcome !== "done" && payload?.outcome !== "failed") return;
    proposal.status = payload.outcome;
    proposal.outcomeAt = row.at;
    proposal.assessedBy = row.from;
    proposal.note = typeof payload.note === "string" ? payload.note : "";
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  _addRequest(envelope, row) {
    const proposal = row.about.map((id) => this.byId.get(id)).find((each) => each !== undefined);
    const answer = this.requests.get(row.id)?.answer ?? null;
    this.requests.set(row.id, { id: row.id, from: row.from, to: row.to, call: callOf(envelope, row.raw), at: row.at, proposal: proposal?.id ?? "", answer });
    trimMap(this.requests, MAX_REQUESTS);
    // One request may fulfil several proposals of the same call.
    for (const id of row.about) {
      const each = this.byId.get(id);
      if (each && continues(each, envelope, row)) {
        // The host asked for input: one approval covers the whole call.
        each.inputs.push({ at: row.at, id: row.id, given: envelope.payload.params.inputResponses ?? {} });
        each.requestId = row.id;
        each.status = "fulfilled";
      }
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
        // D-99: `moot/outcome` follows, but not in the history.
        if (saysUnknown(request.answer.error)) this._setUnknown(proposal, "host_does_not_know", row.at);
        else if (request.answer.result?.resultType === "input_required") proposal.status = "fulfilled";
        else proposal.status = request.answer.error || request.answer.result?.isError === true ? "failed" : "done";
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
    // In place of what the gateway told of it, which has no reason.
    proposal.rejections = [...proposal.rejections.filter((each) => each.id !== row.id && (each.by !== row.from || each.id !== proposal.id)), rejection];
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
    if (this.pending.size === 0) this._newestAt = -Infinity;
    trimMap(this.byId, MAX_SETTLED + this.pending.size, (each) => each.status !== "open");
  }
}

/** Whether a request brings the input that an approved call of its sender waits for. @param {Proposal} proposal @param {any} envelope @param {import("./envelopes.js").Row} row */
function continues(proposal, envelope, row) {
  const params = envelope.payload?.params;
  return proposal.status !== "open" && proposal.from === row.from && proposal.requestId !== row.id && (params?.inputResponses !== undefined || params?.requestState !== undefined);
}

/**
 * Whether others, not this member, have to act: it is their own, they rejected it, or they voted and votes are missing.
 * @param {Proposal} proposal @param {string} me
 */
export function waitsForOthers(proposal, me) {
  if (proposal.from === me || proposal.rejections.some((each) => each.by === me)) return true;
  return proposal.votesMissing > 0 && hasVoted(proposal, me);
}

/** @param {Proposal} proposal @param {string} me */
export function hasVoted(proposal, me) {
  return proposal.approvals.some((each) => each.by === me);
}

/** How many votes are missing before this member can carry it out. @param {Proposal} proposal @param {string} me */
export function votesMissingFor(proposal, me) {
  return proposal.exempt.includes(me) ? 0 : proposal.votesMissing;
}

/** How far the vote on an open one is; empty where none is needed. @param {Proposal} proposal */
export function voteText(proposal) {
  const { votesNeeded: needed, votesMissing: missing } = proposal;
  if (proposal.status !== "open" || needed === 0) return "";
  return `${needed - missing} of ${needed} ${needed === 1 ? "vote" : "votes"}${missing > 0 ? `, ${missing} more needed` : ": complete, approve it now"}`;
}

/** @param {unknown} value @returns {string[]} */
function strings(value) {
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : [];
}

/** What is to be called. A class, since a thousand of them a second are made of one shape. */
class EnvelopeCall {
  /** @param {string} method @param {string} name @param {any} params @param {string} raw */
  constructor(method, name, params, raw) {
    this.method = method;
    this.name = name;
    this.params = params;
    this._raw = raw;
    this._bodyText = "";
  }

  /** Extracted on demand: most requests are never approved by hand. */
  get bodyText() {
    this._bodyText ||= callBodyText(this._raw);
    return this._bodyText;
  }
}

/** @param {any} envelope @param {string} raw @returns {Call} */
function callOf(envelope, raw) {
  const operation = operationOf(envelope, () => undefined);
  const method = typeof envelope.payload?.method === "string" ? envelope.payload.method : operation.method;
  const params = envelope.payload?.params;
  return new EnvelopeCall(method, contextOf(method, params) || operation.name, params, raw);
}
