/**
 * The proposals, requests and answers of a space (MEW 3.1, 3.2, 3.3; D-28). What becomes of a proposal is in
 * proposal-life.js; here are the messages that say so. What is known of one is in proposal-record.js.
 *
 * What was pending before we joined, or changed while we were away, the gateway tells on request (`moot/proposals`,
 * D-96); see proposal-sync.js.
 */
import { trimMap } from "../page/bounded-map.js";
import { membersOf, parseJson, textAt } from "./json-text.js";
import { callOf, correlations, saysUnknown } from "./envelope-fields.js";
import {
  REPORTS,
  addVote,
  answer,
  assess,
  expectsAnswer,
  fulfil,
  isFulfilled,
  loseTrack,
  reject,
  resume,
  setVotes,
  settle,
  waitsForOthers,
} from "./proposal-life.js";
import { newProposal } from "./proposal-record.js";
import { parseTime } from "../page/time.js";
import { Delegations } from "./delegations.js";
import { ProposalTalk, assign } from "./proposal-talk.js";

/**
 * @typedef {import("./proposal-record.js").Call} Call
 * @typedef {import("./proposal-record.js").Proposal} Proposal
 *
 * @typedef {object} CallRequest a request and its answer
 * @property {string} id
 * @property {string} from
 * @property {string[]} to
 * @property {Call} call
 * @property {number} at
 * @property {{id: string, from: string, at: number, result: any, error: any} | null} answer
 */

const GATEWAY = "system:gateway";
const MAX_SETTLED = 5_000;
const MAX_REQUESTS = 20_000;
const MAX_REPORT_CHARS = 256 * 1024;

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
    /** Proposals by the request that carries them out: one may fulfil several of the same call. @type {Map<string, Proposal[]>} */
    this._executed = new Map();
    /** @type {Map<string, Proposal["rejections"][number]>} */
    this._rejections = new Map();
    this._talk = new ProposalTalk();
    this.delegations = new Delegations();
    /** What hosts took back, by proposal. @type {Map<string, {by: string, at: number, id: string, host: string}>} */
    this._undone = new Map();
    /** What the space's operator says calls bring about, and what makes them good. @type {any[]} */
    this.effectRules = [];
    /** Whether the gateway tells what is pending, as those of Moot do. */
    this._isTold = false;
  }

  /** @param {string} id */
  get(id) {
    return this.byId.get(id);
  }

  /** Pending proposals, oldest first. @returns {Proposal[]} */
  open() {
    return [...this.pending.values()];
  }

  /** Pending proposals that wait for this member, oldest first. @param {string} me */
  toDecide(me) {
    return this.open().filter((each) => !waitsForOthers(each, me));
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row @param {import("./state.js").State} [state] */
  receive(envelope, row, state) {
    const [kind, payload] = [envelope.kind, envelope.payload ?? {}];
    if (isKind(kind, "mcp/proposal")) return this._change([this._insert(envelope, row.raw, row.at)], () => true);
    if (isKind(kind, "mcp/request")) return this._addRequest(envelope, row);
    if (isKind(kind, "mcp/response")) return this._addAnswer(envelope, row);
    if (kind === "chat") return this._addWords(envelope, row);
    if (kind === "space/kick") return this._removeMember([payload.participant_id], state, row.at);
    if (kind === "system/presence") return this._removeGone(payload, state, row.at);
    if (kind === "system/welcome") this._isTold = strings(payload.extensions).includes("moot/list-proposals");
    const reason = typeof payload.reason === "string" ? payload.reason : "";
    const about = this._known(correlations(envelope));
    if (kind === "mcp/withdraw")
      return this._change(
        about,
        (each) => each.from === row.from && settle(each, "withdrawn", row.at, reason || "other"),
      );
    if (kind === "mcp/reject") return this._addRejection(about, reason, row);
    if (kind === "moot/approve")
      return this._change(about, (each) => addVote(each, { by: row.from, at: row.at, id: row.id }));
    if (kind === "moot/delegate" || kind === "moot/end-delegation") {
      this.delegations.receive(envelope, row, state);
      return "proposals";
    }
    if (kind === "moot/assign") return this._change(about, (each) => assign(each, payload));
    if (kind === "moot/settle") return this._change(about, (each) => assess(each, payload, row.from, row.at));
    if (Object.hasOwn(REPORTS, kind)) return this._noteReport(REPORTS[kind], about, payload, row, state);
    if (row.from !== GATEWAY) return null;
    const named = this._known([payload.proposal_id]);
    if (kind === "moot/votes") return this._change(named, (each) => this._setCount(each, payload, row.at));
    if (kind === "moot/outcome" && payload.outcome === "unknown")
      return this._change(named, (each) => this._loseTrack(each, payload, row.at));
    // Our decision came too late: the refusal contains the proposal's state.
    return kind === "system/error" && payload.error === "proposal_settled"
      ? this._change(named, (each) => this._settleLate(each, payload, row.at))
      : null;
  }

  /** @param {unknown[]} ids @returns {Proposal[]} */
  _known(ids) {
    return ids.flatMap((id) => this.byId.get(/** @type {string} */ (id)) ?? []);
  }

  /** Apply a transition, and keep the list of those that are pending. @param {Proposal[]} proposals @param {(proposal: Proposal) => boolean} transition */
  _change(proposals, transition) {
    const changed = proposals.filter(transition);
    for (const each of changed) this._index(each);
    return changed.length > 0 ? "proposals" : null;
  }

  /** @param {Proposal} proposal */
  _index(proposal) {
    if (proposal.status === "pending") return;
    proposal.uncertain = false;
    this.pending.delete(proposal.id);
    if (this.pending.size === 0) this._newestAt = -Infinity;
    for (const request of isFulfilled(proposal) ? proposal.requests : []) {
      const executed = this._executed.get(request) ?? [];
      if (!executed.includes(proposal))
        this._executed.set(request, [...executed.filter((each) => each.id !== proposal.id), proposal]);
    }
    trimMap(this._executed, MAX_REQUESTS);
    trimMap(this.byId, MAX_SETTLED + this.pending.size, (each) => each.status !== "pending");
  }

  /** Decision 0015: of a gateway of Moot, who leaves with a reason does not come back. @param {any} payload @param {import("./state.js").State | undefined} state @param {number} at */
  _removeGone(payload, state, at) {
    if (payload.event !== "leave" || typeof payload.reason !== "string" || !this._isTold) return null;
    return this._removeMember([payload.participant?.id, payload.participant?.name], state, at);
  }

  /** What a removed member proposed is withdrawn, and its votes count no more. @param {unknown[]} names runtime ids or logical names @param {import("./state.js").State | undefined} state @param {number} at */
  _removeMember(names, state, at) {
    const gone = strings(names);
    const isGone = (/** @type {string} */ id) => gone.includes(id) || gone.includes(state?.roster.get(id)?.name ?? id);
    return this._change(this.open(), (each) => {
      if (isGone(each.from)) return settle(each, "withdrawn", at, "removed");
      const left = each.approvals.filter((vote) => !isGone(vote.by));
      if (left.length === each.approvals.length) return false;
      setVotes(each, left);
      return true;
    });
  }

  /** Envelopes may have been missed, so pending proposals may be settled by now. */
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
    if (isInOrder) this.effectRules = parseJson(textAt(raw, ["payload", "effects"]) ?? "[]") ?? [];
    if (isInOrder) this.delegations.restore(parseJson(textAt(raw, ["payload", "delegations"]) ?? "[]"));
    for (const { text } of membersOf(textAt(raw, ["payload", "proposals"]) ?? "[]")) {
      const told = parseJson(text);
      if (typeof told?.proposal_id !== "string") continue;
      if (!this.restore(told, textAt(text, ["envelope"]) ?? "", isInOrder)) left.push(told.proposal_id);
    }
    const forgotten = membersOf(textAt(raw, ["payload", "not_known"]) ?? "[]").map(({ text }) => parseJson(text));
    // The gateway remembers every pending one.
    this._change(this._known(forgotten), (each) => settle(each, "forgotten", Date.now()));
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
    const { id, at } = proposal;
    proposal.uncertain = false;
    proposal.expiresAt = parseTime(told.expires_at, 0);
    this._setCount(proposal, told, at);
    const reasons = strings(told.reject_reasons);
    for (const [index, by] of strings(told.rejected_by).entries())
      reject(proposal, { by, reason: reasons[index] ?? "", at, id, comments: [] });
    // It was over by a removal that was older than it.
    if (isInOrder && told.state === "open" && proposal.status !== "pending" && !isFulfilled(proposal))
      this._open(proposal);
    if (told.state === "fulfilled") this._restoreFulfilment(proposal, told, isInOrder);
    else if (told.state === "withdrawn" || told.state === "expired")
      settle(proposal, told.state, parseTime(told.settled_at, Date.now()));
    this._index(proposal);
    return true;
  }

  /** Only its count is shown: a vote of a removed member counts no more. @param {Proposal} proposal @param {any} told @param {number} at */
  _setCount(proposal, told, at) {
    const voters = strings(told.approved_by);
    const known = proposal.approvals.filter((each) => voters.includes(each.by));
    const others = voters.filter((by) => !known.some((each) => each.by === by));
    proposal.votesNeeded = Number(told.approvals_needed) || 0;
    setVotes(proposal, [...known, ...others.map((by) => ({ by, at, id: proposal.id }))]);
    proposal.votesMissing = Number(told.approvals_missing ?? proposal.votesMissing) || 0;
    proposal.exempt = strings(told.exempt);
    proposal.passkey = told.passkey === true;
    proposal.counters = told.counters ? strings(told.counters) : proposal.counters;
    proposal.delegatedVotes = told.delegated_votes ?? {};
    proposal.budgets = Array.isArray(told.budgets) ? told.budgets : undefined;
    proposal.effects = Array.isArray(told.effects) ? told.effects : undefined;
    return true;
  }

  /** @param {Proposal} proposal @param {any} told @param {boolean} isInOrder */
  _restoreFulfilment(proposal, told, isInOrder) {
    const request = String(told.settled_by ?? "");
    const at = parseTime(told.settled_at, Date.now());
    if (isInOrder ? proposal.requestId !== request : !proposal.requests.includes(request)) proposal.status = "pending";
    fulfil(proposal, request, String(told.fulfilled_by ?? ""), strings(told.asked), at);
    proposal.changedBy = String(told.changed_by ?? proposal.changedBy);
    // A late answer is recognised by its request, which may never have been received here.
    if (request && !this.requests.has(request)) {
      this.requests.set(request, {
        id: request,
        from: proposal.fulfilledBy,
        to: proposal.asked,
        call: proposal.call,
        at,
        answer: null,
      });
    }
    if (proposal.status === "done" || proposal.status === "failed") return;
    proposal.status = ["done", "failed", "unknown"].includes(told.outcome) ? told.outcome : "fulfilled";
    proposal.waiting = told.wants_input ? [] : strings(told.waiting_for ?? told.asked);
    proposal.hasFailed = told.failed === true;
    proposal.outcomeAt = parseTime(told.outcome_at, proposal.settledAt);
    proposal.reason = String(told.reason ?? "");
    proposal.assessedBy = String(told.assessed_by ?? "");
    proposal.note = String(told.note ?? "");
  }

  /** @param {any} envelope @param {string} raw @param {number} at @returns {Proposal} */
  _insert(envelope, raw, at) {
    // A link, the gateway's list and the history tell of the same one: whoever looks at it sees what becomes of it.
    const known = this.byId.get(envelope.id);
    if (known?.raw === raw) return known;
    const proposal = newProposal(envelope, raw, at);
    this._noteUndoing(proposal);
    this.byId.set(proposal.id, proposal);
    this._open(proposal);
    return proposal;
  }

  /** @param {Proposal} proposal */
  _open(proposal) {
    Object.assign(proposal, { status: "pending", ending: "", reason: "", settledAt: 0 });
    this.pending.set(proposal.id, proposal);
    // One that was told later but proposed earlier.
    if (this._newestAt <= proposal.at) this._newestAt = proposal.at;
    else this.pending = new Map([...this.pending].sort(([, a], [, b]) => a.at - b.at));
  }

  /** Who approved it, and whom they asked, is not part of a refusal. @param {Proposal} proposal @param {any} payload @param {number} at */
  _settleLate(proposal, payload, at) {
    if (payload.state === "withdrawn" || payload.state === "expired") return settle(proposal, payload.state, at);
    if (payload.state !== "fulfilled" || proposal.status !== "pending") return false;
    this._restoreFulfilment(proposal, { asked: proposal.to, ...payload }, true);
    return true;
  }

  /** Nobody says that of their own proposal. @param {(typeof REPORTS)[string]} way how it is read and noted @param {Proposal[]} about @param {any} payload @param {import("./envelopes.js").Row} row @param {import("./state.js").State} [state] */
  _noteReport({ read, note }, about, payload, row, state) {
    const report = row.raw.length <= MAX_REPORT_CHARS ? read(payload) : null;
    const by = state?.roster.get(row.from)?.name ?? row.from;
    const isOf = (/** @type {Proposal} */ each) =>
      each.from === row.from || (state?.roster.get(each.from)?.name ?? each.from) === by;
    return report && this._change(about, (each) => !isOf(each) && note(each, report, by));
  }

  /** D-99: the host went away, or never answered. What carried it out may never have been received here. @param {Proposal} proposal @param {any} payload @param {number} at */
  _loseTrack(proposal, payload, at) {
    fulfil(proposal, String(payload.request_id ?? ""), "", strings(payload.asked), at);
    return loseTrack(proposal, String(payload.reason ?? ""), at);
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  _addRequest(envelope, row) {
    const known = this._known(row.about);
    const received = this.requests.get(row.id)?.answer ?? null;
    this.requests.set(row.id, {
      id: row.id,
      from: row.from,
      to: row.to,
      call: callOf(envelope, row.raw),
      at: row.at,
      answer: received,
    });
    trimMap(this.requests, MAX_REQUESTS);
    if (envelope.payload?.method === "notifications/cancelled") {
      // Whoever cancels its request gets no answer to it, done or not.
      const running = row.about.flatMap((id) => this._executed.get(id) ?? []);
      const isTheirs = (/** @type {Proposal} */ each) =>
        row.about.includes(each.requestId) && this.requests.get(each.requestId)?.from === row.from;
      return this._change(running, (each) => isTheirs(each) && loseTrack(each, "cancelled", row.at)) ?? "requests";
    }
    const params = envelope.payload?.params;
    const hasInput = params?.inputResponses !== undefined || params?.requestState !== undefined;
    this._change(known, (each) => {
      each.changedBy ||= known.find((other) => other.counters.includes(each.id))?.id ?? "";
      if (!isFulfilled(each)) return fulfil(each, row.id, row.from, row.to, row.at);
      if (each.requestId === row.id && !each.fulfilledBy && !hasInput) each.fulfilledBy = row.from;
      // The host asked for input: one approval covers the whole call.
      return hasInput && each.from === row.from && resume(each, row.id, row.at, params.inputResponses ?? {});
    });
    return known.length > 0 ? "proposals" : "requests";
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  _addAnswer(envelope, row) {
    let topic = null;
    const { result, error } = envelope.payload ?? {};
    for (const id of row.about) {
      const request = this.requests.get(id);
      // D-80: only the addressee of the request can answer it.
      if (!request || (request.to.length > 0 && !request.to.includes(row.from))) continue;
      if (!request.answer) topic = topic ?? "requests";
      request.answer = request.answer ?? { id: row.id, from: row.from, at: row.at, result, error };
      if (this._addUndoing(request, row, result)) topic = "proposals";
      const executed = (this._executed.get(id) ?? []).filter(
        (each) => each.requestId === id && expectsAnswer(each, row.from),
      );
      const asks = result?.resultType === "input_required" && executed.length === 1 && executed[0].asked.length === 1;
      for (const proposal of executed) {
        // D-99: `moot/outcome` follows, but not in the history.
        if (saysUnknown(error)) loseTrack(proposal, "host_does_not_know", row.at);
        else if (asks) Object.assign(proposal, { status: "fulfilled", waiting: [], isAnswered: true });
        else answer(proposal, row.from, Boolean(error) || result?.isError === true);
        topic = "proposals";
      }
    }
    return topic;
  }

  /** What a call changed was taken back. @param {CallRequest} request @param {import("./envelopes.js").Row} row @param {any} result */
  _addUndoing({ id, from, call }, row, result) {
    const isDone = call.method === "moot/undo" && Number.isInteger(result?._meta?.["moot/effect"]?.undone);
    if (!isDone || typeof call.params?.proposal !== "string") return false;
    this._undone.set(call.params.proposal, { by: from, at: row.at, id, host: row.from });
    trimMap(this._undone, MAX_SETTLED);
    return this._known([call.params.proposal]).some((each) => this._noteUndoing(each));
  }

  /** Its own host says so: nobody else's word counts. @param {Proposal} proposal */
  _noteUndoing(proposal) {
    const found = this._undone.get(proposal.id);
    if (found && proposal.to.includes(found.host)) proposal.undone = found;
    return proposal.undone !== null;
  }

  /** The comment of a rejection, or on a proposal. @param {any} envelope @param {import("./envelopes.js").Row} row */
  _addWords(envelope, row) {
    const ids = correlations(envelope);
    if (ids.length === 0 || typeof envelope.payload?.text !== "string") return null;
    const rejection = ids.map((id) => this._rejections.get(id)).find((each) => each !== undefined);
    if (!rejection) return this._talk.addComment(envelope, row, ids, this.byId) ? "proposals" : null;
    rejection.comments.push(envelope.payload.text);
    return "proposals";
  }

  /** @param {Proposal[]} proposals @param {string} reason @param {import("./envelopes.js").Row} row */
  _addRejection(proposals, reason, row) {
    /** @type {Proposal["rejections"][number]} */
    const rejection = { by: row.from, reason, at: row.at, id: row.id, comments: [] };
    const topic = this._change(proposals, (each) => reject(each, rejection));
    if (topic) this._rejections.set(row.id, rejection);
    trimMap(this._rejections, MAX_SETTLED);
    return topic;
  }
}

/** MCPx says more in its kinds. @param {string} kind @param {string} word */
function isKind(kind, word) {
  return kind === word || kind.startsWith(`${word}:`);
}

/** @param {unknown} value @returns {string[]} */
function strings(value) {
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : [];
}
