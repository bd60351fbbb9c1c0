/**
 * What is known about rules: from the approver's messages (D-92), and for what was before from its
 * tools. Each sender of rules has its own record here; only the record of a member who
 * offers the tools of an approver is shown, so nobody else can put a rule on the page by sending one.
 */
import { trimMap } from "../../core/page/bounded-map.js";
import { isObject } from "../../core/state/json-text.js";
import { callPermissions } from "../capabilities/capability-match.js";
import { toolCatalogueOf } from "../tools/tool-catalogue.js";
import { mayAllow } from "../capabilities/capability-covers.js";
import { RuleRecord, countOne, count, countOutcome, isSuggestion, list, number } from "./rule-record.js";

const RULES_TOOL = "trust_rules";
const RULE_CONTEXT = "trust/rule/";
// How many members are asked for their tools to find an approver; in most spaces only one holds trust/*.
const MAX_CANDIDATES = 8;
const MAX_SUGGESTIONS = 100;
const MAX_ACTS = 2_000;
// Several changes in a row lead to one query.
const AGAIN_MILLISECONDS = 400;
const ANSWER_MILLISECONDS = 20_000;
const RETRY_MILLISECONDS = 1_500;
const MAX_RETRY_MILLISECONDS = 60_000;
// Failures in a row before the page says so.
const MAX_TRIES = 4;

/** @type {WeakMap<object, ApproverState>} */
const states = new WeakMap();

/** The same for every view of a space. @param {import("../../app.js").Context} context */
export function approverStateOf(context) {
  let approverState = states.get(context.state);
  if (!approverState) {
    approverState = new ApproverState(context);
    states.set(context.state, approverState);
  }
  return approverState;
}

/** @type {WeakMap<object, {next: number, open: Set<string>}>} */
const suggestionCounts = new WeakMap();

/** Pending suggestions for the badge: taken from messages only, because the badge sends no queries. @param {import("../../core/state/state.js").State} state */
export function openSuggestions(state) {
  const record = states.get(state)?.record;
  if (record) return record.suggestions.size;
  let known = suggestionCounts.get(state);
  if (!known) suggestionCounts.set(state, (known = { next: 0, open: new Set() }));
  const { envelopes } = state;
  for (known.next = Math.max(known.next, envelopes.first); known.next < envelopes.next; known.next += 1) {
    const row = envelopes.at(known.next);
    if (!row?.kind.startsWith("trust/")) continue;
    const payload = envelopes.envelope(row).payload ?? {};
    if (row.kind === "trust/suggestion") known.open.add(String(payload.suggestion));
    else if (row.kind === "trust/dismiss") known.open.delete(String(payload.suggestion));
    else if (row.kind === "trust/rule") known.open.delete(String(payload.rule?.origin?.suggestion));
  }
  return known.open.size;
}

export class ApproverState {
  /** @param {import("../../app.js").Context} context */
  constructor(context) {
    this._context = context;
    this._state = context.state;
    this._next = context.state.envelopes.first;
    /** @type {Map<string, RuleRecord>} by logical name */
    this._records = new Map();
    /** Decisions by rules, by proposal, oldest first. @type {Map<string, import("./rule-record.js").RuleDecision>} */
    this.ruleDecisions = new Map();
    /** Proposals that were counted as decided. @type {Map<string, "people" | "rules">} */
    this._decided = new Map();
    /** @type {Set<string>} logical names of members that offer an approver's tools */
    this._approvers = new Set();
    this._checked = new Set();
    /** @type {Map<string, number>} */
    this._tries = new Map();
    /** @type {any} */
    this._timer = undefined;
    this._wasOnline = false;
    context.state.on(["envelopes"], () => this._readEnvelopes());
    // Also when tools change: another view may have asked already, or could not ask before our permissions were known.
    context.state.on(["roster", "tools"], () => void this._findApprover());
    this._readEnvelopes();
    void this._findApprover();
  }

  /** The approver of this space; undefined if none is known. */
  get approver() {
    const named = [...this._approvers].sort((a, b) => Number(b === "approver") - Number(a === "approver"));
    const members = named.map((name) => this._state.roster.get(name)).filter((each) => each !== undefined);
    return members.find((each) => each.present) ?? members[0];
  }

  /** Why it is not known that there is no approver; empty if it is. @returns {"asking" | "hidden" | ""} */
  get doubt() {
    if (this.approver) return "";
    const { roster, me } = this._state;
    const others = roster.present().filter((each) => each.id !== me.id && this._mayBeApprover(each));
    const found = others.map((each) => toolCatalogueOf(this._context).of(each.id)?.status);
    if (found.includes("refused")) return "hidden";
    return found.includes("asking") || found.includes(undefined) ? "asking" : "";
  }

  /** @returns {RuleRecord | undefined} */
  get record() {
    const approver = this.approver;
    return approver && this._records.get(approver.name);
  }

  get isOnline() {
    return this.approver?.present === true;
  }

  /** Whether our permissions allow querying the approver. */
  get canQuery() {
    const approver = this.approver;
    return (
      approver !== undefined &&
      callPermissions(this._state.me.capabilities, this._state, [approver.id], {
        method: "tools/call",
        params: { name: RULES_TOOL, arguments: {} },
      }).request !== "no"
    );
  }

  /** Decisions by rules, newest first. @param {number} max */
  latest(max) {
    const name = this.approver?.name;
    return [...this.ruleDecisions.values()]
      .filter((each) => this._nameOf(each.from) === name)
      .reverse()
      .slice(0, max);
  }

  /** Ask the approver for everything. */
  async refresh() {
    const approver = this.approver;
    if (!approver?.present) return;
    const record = this._recordOf(approver.name);
    if (record.status === "asking") {
      this._refreshSoon();
      return;
    }
    if (!this.canQuery) {
      record.status = "refused";
      this._publish();
      return;
    }
    const before = record.status;
    record.status = "asking";
    this._publish();
    const since = this._next;
    try {
      const [rules, suggestions, report, origins, plans] = await Promise.all([
        ...[RULES_TOOL, "trust_suggestions", "trust_report"].map((tool) => this.query(tool)),
        // An older approver has no such tools.
        ...["trust_origins", "trust_plans"].map((tool) => this.query(tool).catch(() => null)),
      ]);
      Object.assign(record, { origins, plans });
      this._takeRules(record, rules, since);
      this._takeSuggestions(record, suggestions, since);
      record.takeReport(report);
      record.status = "known";
      record.isKnown = true;
      record.error = "";
      this._tries.delete(approver.id);
    } catch (fault) {
      // It may have joined a moment before its tools were announced.
      const tries = (this._tries.get(approver.id) ?? 0) + 1;
      this._tries.set(approver.id, tries);
      const again = tries <= MAX_TRIES;
      if (again) setTimeout(() => void this.refresh(), RETRY_MILLISECONDS);
      record.status = before === "known" ? "known" : again ? "announced" : "failed";
      record.error = again ? "" : fault instanceof Error ? fault.message : "no reply";
    }
    this._publish();
  }

  /** Call one of the approver's tools; rejects with the error. @param {string} tool @param {any} [given] */
  async query(tool, given = {}) {
    const to = this.approver?.id ?? "";
    const result = await this._context.call(
      to,
      "tools/call",
      { name: tool, arguments: given },
      { within: ANSWER_MILLISECONDS, background: true },
    );
    if (result?.isError) throw new Error(String(result.content?.[0]?.text ?? "the call failed"));
    if (!isObject(result?.structuredContent)) throw new Error("unexpected reply");
    return result.structuredContent;
  }

  // Finding the approver

  async _findApprover() {
    const state = this._state;
    const candidates = state.roster
      .present()
      .filter((each) => each.id !== state.me.id && !this._checked.has(each.id) && this._mayBeApprover(each));
    candidates.sort((a, b) => Number(b.name === "approver") - Number(a.name === "approver"));
    for (const each of candidates.slice(0, MAX_CANDIDATES)) {
      const known = await toolCatalogueOf(this._context).load(each.id);
      // The query is running or not possible yet: a change will be published later.
      if (known.status === "known" || known.status === "failed") this._checked.add(each.id);
      const isOther = known.status === "known" && !known.tools.some((tool) => tool.name === RULES_TOOL);
      if (isOther || known.status === "failed") this._retryLater(each);
      // If we may not list its tools, a member that has the name of an approver is accepted by its messages.
      if (
        known.tools.some((tool) => tool.name === RULES_TOOL) ||
        (known.status === "refused" && each.name === "approver" && this._records.has(each.name))
      )
        this._approvers.add(each.name);
    }
    const isOnline = this.isOnline;
    if (isOnline && !this._wasOnline) void this.refresh();
    if (isOnline !== this._wasOnline || candidates.length > 0) this._publish();
    this._wasOnline = isOnline;
    if (!isOnline) for (const id of [...this._checked]) if (!state.roster.get(id)?.present) this._checked.delete(id);
  }

  /** An approver may have joined before its tools were announced, or was too busy to tell. @param {import("../../core/state/state-roster.js").Member} member */
  _retryLater(member) {
    if (member.name !== "approver" && !this._records.has(member.name)) return;
    const tries = this._tries.get(member.id) ?? 0;
    this._tries.set(member.id, tries + 1);
    setTimeout(
      async () => {
        if (!this._state.roster.get(member.id)?.present) return;
        await toolCatalogueOf(this._context).load(member.id, { again: true });
        this._checked.delete(member.id);
        await this._findApprover();
      },
      Math.min(RETRY_MILLISECONDS * 2 ** tries, MAX_RETRY_MILLISECONDS),
    );
  }

  /** Whether to ask a member for its tools: one with full rights is a person, unless it sends an approver's messages. @param {import("../../core/state/state-roster.js").Member} member */
  _mayBeApprover(member) {
    if (!mayAllow(member.capabilities, "trust/rule")) return false;
    return member.name === "approver" || this._records.has(member.name) || !mayAllow(member.capabilities, "space/kick");
  }

  // Processing messages

  _readEnvelopes() {
    const { envelopes } = this._state;
    let changed = false;
    this._next = Math.max(this._next, envelopes.first);
    for (; this._next < envelopes.next; this._next += 1) {
      const row = envelopes.at(this._next);
      if (!row) continue;
      if (row.type === "gap" || row.kind === "moot/endorse") this._refreshSoon();
      else if (row.kind.startsWith("trust/"))
        changed = this._readTrustEnvelope(row, envelopes.envelope(row)) || changed;
      else if (row.about.length > 0 && (row.kind === "mcp/request" || row.kind === "mcp/reject"))
        changed = this._readDecision(row) || changed;
    }
    if (changed) this._publish();
    // Whoever may not list its tools knows an approver by its messages.
    if (changed && !this.approver) void this._findApprover();
  }

  /** @param {import("../../core/state/envelopes.js").Row} row @param {any} envelope */
  _readTrustEnvelope(row, envelope) {
    const payload = envelope.payload ?? {};
    const sender = this._nameOf(row.from);
    if (row.kind === "trust/suggestion" && isSuggestion(payload)) {
      const record = this._recordOf(sender);
      record.suggestions.set(payload.suggestion, payload);
      trimMap(record.suggestions, MAX_SUGGESTIONS);
      return true;
    }
    if (row.kind === "trust/rule") {
      this._readRuleState(this._recordOf(sender), payload);
      return true;
    }
    if (row.kind === "trust/dismiss" && typeof payload.suggestion === "string") {
      for (const record of this._records.values()) record.suggestions.delete(payload.suggestion);
      return true;
    }
    return row.kind === "trust/accept" || row.kind === "trust/stop";
  }

  /** @param {RuleRecord} record @param {any} payload */
  _readRuleState(record, payload) {
    const rule = isObject(payload.rule) ? payload.rule : undefined;
    const name = String(rule?.name ?? payload.rule ?? "");
    const error = String(payload.why ?? "");
    const known = record.rules.get(name);
    switch (payload.state) {
      case "stopped":
        if (typeof payload.by === "string") record.stopped = { by: payload.by, why: error };
        else record.fault = error;
        break;
      case "resumed":
        if (typeof payload.by === "string") record.stopped = null;
        record.fault = "";
        this._refreshSoon();
        break;
      case "active":
      case "lifted":
        record.rules.set(name, {
          rule: rule ?? known?.rule ?? { name },
          words: String(rule?.words ?? known?.words ?? ""),
          state: "active",
          why: "",
          hits: known?.hits ?? 0,
          left: known?.left ?? null,
          unreviewed: isObject(payload.review) ? list(payload.review.decisions).length : (known?.unreviewed ?? 0),
          reviewDue: isObject(payload.review) ? payload.review.due === true : (known?.reviewDue ?? false),
          resumedBy: [],
        });
        if (typeof rule?.origin?.suggestion === "string") record.suggestions.delete(rule.origin.suggestion);
        // Only the approver knows its position among the other rules, and which one it replaced.
        if (payload.state === "active") this._refreshSoon();
        break;
      case "suspended":
        this._refreshSoon();
        record.rules.set(name, {
          ...(known ?? { hits: 0, left: null, unreviewed: 0, reviewDue: false }),
          rule: rule ?? known?.rule ?? { name },
          words: String(rule?.words ?? known?.words ?? ""),
          state: "suspended",
          why: error,
          resumedBy: list(payload.resumed_by).map(String),
        });
        break;
      case "tools":
      case "plan":
        this._refreshSoon();
        break;
      case "removed":
        record.rules.delete(name);
        break;
    }
  }

  /** A proposal was decided. @param {import("../../core/state/envelopes.js").Row} row */
  _readDecision(row) {
    const state = this._state;
    const proposal = row.about.map((id) => state.proposals.byId.get(id)).find((each) => each !== undefined);
    if (!proposal) return false;
    const payload = row.kind === "mcp/reject" ? (state.envelopes.envelope(row).payload ?? {}) : {};
    const rule = row.context.startsWith(RULE_CONTEXT)
      ? row.context.slice(RULE_CONTEXT.length)
      : typeof payload.rule === "string"
        ? payload.rule
        : "";
    const sender = this._nameOf(row.from);
    const record = this._records.get(sender) ?? this.record;
    const first = !this._decided.has(proposal.id);
    this._decided.set(proposal.id, rule ? "rules" : "people");
    trimMap(this._decided, MAX_ACTS);
    if (first && record?.status === "known" && !record.reported.has(proposal.id)) {
      const day = new Date(row.at).toISOString().slice(0, 10);
      count(record.days, day, rule ? "rules" : "people");
      if (rule) countOutcome(record.ruleDays, day, rule);
    }
    if (!rule) return first;
    if (record && !record.included.has(proposal.id)) countOne(record.counted, rule);
    this.ruleDecisions.set(proposal.id, {
      proposal: proposal.id,
      id: row.id,
      n: this._next,
      rule,
      at: row.at,
      from: row.from,
      tool: proposal.call.name || proposal.call.method,
      approved: row.kind === "mcp/request",
    });
    trimMap(this.ruleDecisions, MAX_ACTS);
    return true;
  }

  // Processing the answers of its tools

  /** @param {RuleRecord} record @param {any} known @param {number} since row count when the query was sent; the answer includes everything before it */
  _takeRules(record, known, since) {
    record.rules = new Map();
    record.included = new Set(list(known.counted).map(String));
    record.counted = new Map();
    for (const act of this.ruleDecisions.values())
      if (act.n >= since && !record.included.has(act.proposal)) countOne(record.counted, act.rule);
    for (const each of list(known.rules)) {
      if (!isObject(each) || !isObject(each.rule)) continue;
      record.rules.set(String(each.rule.name), {
        rule: each.rule,
        words: String(each.words ?? ""),
        state: each.state,
        why: String(each.why ?? ""),
        hits: number(each.hits),
        left: typeof each.left === "number" ? each.left : null,
        unreviewed: number(each.unreviewed),
        reviewDue: each.review_due === true,
        resumedBy: list(each.resumed_by).map(String),
      });
    }
    record.stopped = isObject(known.stopped) ? { by: String(known.stopped.by), why: String(known.stopped.why) } : null;
    record.fault = typeof known.fault === "string" ? known.fault : "";
    record.observe = (known.observe ?? known.shadow) === true;
    record.budget = isObject(known.budget)
      ? { count: number(known.budget.count), seconds: number(known.budget.seconds), left: number(known.budget.left) }
      : null;
  }

  /** @param {RuleRecord} record @param {any} known @param {number} since as in `_takeRules` */
  _takeSuggestions(record, known, since) {
    record.suggestions = new Map(
      list(known.suggestions)
        .filter(isSuggestion)
        .map((each) => [each.suggestion, each]),
    );
    // What was suggested or dismissed after the approver answered, and before its other answers came.
    const { envelopes } = this._state;
    for (let n = Math.max(since, envelopes.first); n < this._next; n += 1) {
      const row = envelopes.at(n);
      const isOurs = row?.kind === "trust/suggestion" && this._records.get(this._nameOf(row.from)) === record;
      if (row && row.type !== "gap" && (isOurs || row.kind === "trust/dismiss"))
        this._readTrustEnvelope(row, envelopes.envelope(row));
    }
    for (const { rule } of record.rules.values()) record.suggestions.delete(rule.origin?.suggestion);
  }

  /** Query again soon; several calls lead to one query. */
  _refreshSoon() {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => void this.refresh(), AGAIN_MILLISECONDS);
  }

  /** @param {string} name */
  _recordOf(name) {
    let record = this._records.get(name);
    if (!record) this._records.set(name, (record = new RuleRecord()));
    return record;
  }

  /** @param {string} id */
  _nameOf(id) {
    return this._state.roster.get(id)?.name ?? id;
  }

  _publish() {
    this._state.changes.publish("trust");
  }
}
