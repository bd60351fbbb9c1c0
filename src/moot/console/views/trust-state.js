// @ts-check
/**
 * What a space knows of rules that decide: from what the approver says aloud (D-92), and from its tools for what
 * was before. Each sender of rules has a book of its own here; the one that is shown is that of a member who
 * offers the tools of an approver, so nobody else can put a rule on the page by talking about one.
 */
import { trim } from "../core/bounded.js";
import { mayCall } from "./call-rights.js";
import { toolboxOf } from "./call-tools.js";
import { mayAllow } from "./grants-covers.js";

/**
 * @typedef {object} Suggestion the payload of trust/suggestion
 * @property {string} suggestion its id
 * @property {any} rule
 * @property {string} words
 * @property {string} evidence
 * @property {number} decisions
 * @property {string[]} deciders
 * @property {number} error_bound
 * @property {number | null} new_bound
 * @property {{history: number, covered: number, agreements: number, conflicts: string[], undecided: number, automated: number, near_misses: {proposal: string, decision: string, part: string}[]}} back_test
 * @property {{participant: string, step: string, capability: any, loses: string[], words: string} | null} grant
 * @property {string | null} no_grant
 * @property {string[]} replaces
 *
 * @typedef {object} RuleState
 * @property {any} rule
 * @property {string} words
 * @property {"active" | "suspended" | "expired"} state
 * @property {string} why
 * @property {number} hits as told, before `since`
 * @property {number | null} left
 *
 * @typedef {{proposal: string, id: string, n: number, rule: string, at: number, from: string, tool: string, approved: boolean}} Act
 * @typedef {{day: string, people: number, rules: number}} Day
 */

const OFFERS = "trust_rules";
const RULE_CONTEXT = "trust/rule/";
// Members that are asked for their tools to find an approver; in most spaces one of them holds trust/*.
const MOST_CANDIDATES = 8;
const MOST_SUGGESTIONS = 100;
const MOST_ACTS = 2_000;
// Several changes in a row are asked for once.
const AGAIN_MILLISECONDS = 400;
const ANSWER_MILLISECONDS = 20_000;
const RETRY_MILLISECONDS = 1_500;
const MOST_TRIES = 4;

/** What one sender said, and what its tools told. */
class Book {
  constructor() {
    /** @type {Map<string, Suggestion>} */
    this.suggestions = new Map();
    /** @type {Map<string, RuleState>} in their order */
    this.rules = new Map();
    /** @type {{by: string, why: string} | null} */
    this.stopped = null;
    this.fault = "";
    this.shadow = false;
    /** @type {Day[]} */
    this.days = [];
    /** @type {Record<string, {agreements: number, conflicts: number, error_bound: number}>} */
    this.shadows = {};
    /** @type {string[]} */
    this.people = [];
    this.approvals = 0;
    /** Acts by rule since its hits were told. @type {Map<string, number>} */
    this.counted = new Map();
    /** Proposals that the hits hold already, heard or not. @type {Set<string>} */
    this.included = new Set();
    /** @type {"heard" | "asking" | "known" | "failed" | "refused"} */
    this.status = "heard";
    this.words = "";
  }

  /** @param {string} name */
  hits(name) {
    return (this.rules.get(name)?.hits ?? 0) + (this.counted.get(name) ?? 0);
  }
}

/** @type {WeakMap<object, Trust>} */
const kept = new WeakMap();

/** The same for every view of a space. @param {import("../app.js").Context} context */
export function trustOf(context) {
  let trust = kept.get(context.state);
  if (!trust) {
    trust = new Trust(context);
    kept.set(context.state, trust);
  }
  return trust;
}

/** @type {WeakMap<object, {next: number, open: Set<string>}>} */
const heard = new WeakMap();

/** Suggestions that wait, for the badge: as they were heard until somebody looks, since nothing is asked for it. @param {import("../core/state.js").State} state */
export function waitingIn(state) {
  const book = kept.get(state)?.book;
  if (book) return book.suggestions.size;
  let known = heard.get(state);
  if (!known) heard.set(state, (known = { next: 0, open: new Set() }));
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

export class Trust {
  /** @param {import("../app.js").Context} context */
  constructor(context) {
    this._context = context;
    this._state = context.state;
    this._next = context.state.envelopes.first;
    /** @type {Map<string, Book>} by logical name */
    this._books = new Map();
    /** What rules did, by proposal, oldest first. @type {Map<string, Act>} */
    this.acts = new Map();
    /** Proposals that were counted as decided. @type {Map<string, "people" | "rules">} */
    this._decided = new Map();
    /** @type {Set<string>} logical names of members that offer an approver's tools */
    this._approvers = new Set();
    this._looked = new Set();
    /** @type {Map<string, number>} */
    this._tries = new Map();
    /** @type {any} */
    this._timer = undefined;
    this._wasHere = false;
    context.state.on(["envelopes"], () => this._overhear());
    // Tools, too: another view may have asked already, or could not ask before our rights were known.
    context.state.on(["roster", "tools"], () => void this._look());
    this._overhear();
    void this._look();
  }

  /** Who decides by rules here; undefined if nobody is known who does. */
  get approver() {
    const named = [...this._approvers].sort((a, b) => Number(b === "approver") - Number(a === "approver"));
    const members = named.map((name) => this._state.roster.get(name)).filter((each) => each !== undefined);
    return members.find((each) => each.present) ?? members[0];
  }

  /** @returns {Book | undefined} */
  get book() {
    const approver = this.approver;
    return approver && this._books.get(approver.name);
  }

  get here() {
    return this.approver?.present === true;
  }

  /** Whether our rights let us ask the approver. */
  get mayAsk() {
    const approver = this.approver;
    return approver !== undefined && mayCall(this._state.me.capabilities, this._state, [approver.id], { method: "tools/call", params: { name: OFFERS, arguments: {} } }).request !== "no";
  }

  /** What rules did, newest first. @param {number} most */
  latest(most) {
    const name = this.approver?.name;
    return [...this.acts.values()].filter((each) => this._nameOf(each.from) === name).reverse().slice(0, most);
  }

  /** Ask the approver for everything. */
  async refresh() {
    const approver = this.approver;
    if (!approver?.present) return;
    const book = this._bookOf(approver.name);
    if (book.status === "asking") {
      this._later();
      return;
    }
    if (!this.mayAsk) {
      book.status = "refused";
      this._told();
      return;
    }
    const before = book.status;
    book.status = "asking";
    this._told();
    const since = this._next;
    try {
      const [rules, suggestions, report] = await Promise.all([OFFERS, "trust_suggestions", "trust_report"].map((tool) => this.ask(tool)));
      this._takeRules(book, rules, since);
      this._takeSuggestions(book, suggestions);
      this._takeReport(book, report);
      book.status = "known";
      book.words = "";
      this._tries.delete(approver.id);
    } catch (fault) {
      // It may have come a moment before its tools did.
      const again = this._isWorthATry(approver.id);
      if (again) setTimeout(() => void this.refresh(), RETRY_MILLISECONDS);
      book.status = before === "known" ? "known" : again ? "heard" : "failed";
      book.words = again ? "" : fault instanceof Error ? fault.message : "it did not answer";
    }
    this._told();
  }

  /** One of the approver's tools; fails with what went wrong. @param {string} tool @param {any} [given] */
  async ask(tool, given = {}) {
    const to = this.approver?.id ?? "";
    const result = await this._context.call(to, "tools/call", { name: tool, arguments: given }, { within: ANSWER_MILLISECONDS });
    if (result?.isError) throw new Error(String(result.content?.[0]?.text ?? "it failed"));
    if (!isObject(result?.structuredContent)) throw new Error("it answered with something else");
    return result.structuredContent;
  }

  // Finding the approver

  async _look() {
    const state = this._state;
    const candidates = state.roster.present().filter((each) => each.id !== state.me.id && !this._looked.has(each.id) && this._mayBeOne(each));
    candidates.sort((a, b) => Number(b.name === "approver") - Number(a.name === "approver"));
    for (const each of candidates.slice(0, MOST_CANDIDATES)) {
      const known = await toolboxOf(this._context).learn(each.id);
      // Being asked, or not to be asked yet: there will be news of it.
      if (known.status === "known" || known.status === "failed") this._looked.add(each.id);
      if (known.status === "known" && !known.tools.some((tool) => tool.name === OFFERS)) this._lookLater(each);
      // Who may not be asked for tools is believed by what it says, if it is called so.
      if (known.tools.some((tool) => tool.name === OFFERS) || (known.status === "refused" && each.name === "approver" && this._books.has(each.name))) this._approvers.add(each.name);
    }
    const here = this.here;
    if (here && !this._wasHere) void this.refresh();
    if (here !== this._wasHere || candidates.length > 0) this._told();
    this._wasHere = here;
    if (!here) for (const id of [...this._looked]) if (!state.roster.get(id)?.present) this._looked.delete(id);
  }

  /** An approver may have come a moment before its tools did. @param {import("../core/state-roster.js").Member} member */
  _lookLater(member) {
    if ((member.name !== "approver" && !this._books.has(member.name)) || !this._isWorthATry(member.id)) return;
    setTimeout(async () => {
      await toolboxOf(this._context).learn(member.id, { again: true });
      this._looked.delete(member.id);
      await this._look();
    }, RETRY_MILLISECONDS);
  }

  /** @param {string} id */
  _isWorthATry(id) {
    const tries = this._tries.get(id) ?? 0;
    this._tries.set(id, tries + 1);
    return tries < MOST_TRIES;
  }

  /** Worth asking for its tools: whoever may do everything is a person, unless it speaks as an approver. @param {import("../core/state-roster.js").Member} member */
  _mayBeOne(member) {
    if (!mayAllow(member.capabilities, "trust/rule")) return false;
    return member.name === "approver" || this._books.has(member.name) || !mayAllow(member.capabilities, "space/kick");
  }

  // Hearing

  _overhear() {
    const { envelopes } = this._state;
    let changed = false;
    this._next = Math.max(this._next, envelopes.first);
    for (; this._next < envelopes.next; this._next += 1) {
      const row = envelopes.at(this._next);
      if (!row) continue;
      if (row.type === "gap") this._later();
      else if (row.kind.startsWith("trust/")) changed = this._said(row, envelopes.envelope(row)) || changed;
      else if (row.about.length > 0 && (row.kind === "mcp/request" || row.kind === "mcp/reject")) changed = this._done(row) || changed;
    }
    if (changed) this._told();
  }

  /** @param {import("../core/envelopes.js").Row} row @param {any} envelope */
  _said(row, envelope) {
    const payload = envelope.payload ?? {};
    const sender = this._nameOf(row.from);
    if (row.kind === "trust/suggestion" && isSuggestion(payload)) {
      const book = this._bookOf(sender);
      book.suggestions.set(payload.suggestion, payload);
      trim(book.suggestions, MOST_SUGGESTIONS);
      return true;
    }
    if (row.kind === "trust/rule") {
      this._ruled(this._bookOf(sender), payload);
      return true;
    }
    if (row.kind === "trust/dismiss" && typeof payload.suggestion === "string") {
      for (const book of this._books.values()) book.suggestions.delete(payload.suggestion);
      return true;
    }
    if (row.kind === "trust/accept" || row.kind === "trust/stop") return true;
    return false;
  }

  /** @param {Book} book @param {any} payload */
  _ruled(book, payload) {
    const rule = isObject(payload.rule) ? payload.rule : undefined;
    const name = String(rule?.name ?? payload.rule ?? "");
    const why = String(payload.why ?? "");
    const known = book.rules.get(name);
    switch (payload.state) {
      case "stopped":
        if (typeof payload.by === "string") book.stopped = { by: payload.by, why };
        else book.fault = why;
        break;
      case "resumed":
        if (typeof payload.by === "string") book.stopped = null;
        book.fault = "";
        this._later();
        break;
      case "active":
      case "lifted":
        book.rules.set(name, { rule: rule ?? known?.rule ?? { name }, words: String(rule?.words ?? known?.words ?? ""), state: "active", why: "", hits: known?.hits ?? 0, left: known?.left ?? null });
        if (typeof rule?.origin?.suggestion === "string") book.suggestions.delete(rule.origin.suggestion);
        // Where it stands among the others, and which it replaced, only the approver knows.
        if (payload.state === "active") this._later();
        break;
      case "suspended":
        book.rules.set(name, { ...(known ?? { hits: 0, left: null }), rule: rule ?? known?.rule ?? { name }, words: String(rule?.words ?? known?.words ?? ""), state: "suspended", why });
        break;
      case "removed":
        book.rules.delete(name);
        break;
    }
  }

  /** A proposal was decided. @param {import("../core/envelopes.js").Row} row */
  _done(row) {
    const state = this._state;
    const proposal = row.about.map((id) => state.proposals.byId.get(id)).find((each) => each !== undefined);
    if (!proposal) return false;
    const payload = row.kind === "mcp/reject" ? (state.envelopes.envelope(row).payload ?? {}) : {};
    const rule = row.context.startsWith(RULE_CONTEXT) ? row.context.slice(RULE_CONTEXT.length) : typeof payload.rule === "string" ? payload.rule : "";
    const sender = this._nameOf(row.from);
    const book = this._books.get(sender) ?? this.book;
    const first = !this._decided.has(proposal.id);
    this._decided.set(proposal.id, rule ? "rules" : "people");
    trim(this._decided, MOST_ACTS);
    if (first && book && book.status === "known") count(book.days, new Date(row.at).toISOString().slice(0, 10), rule ? "rules" : "people");
    if (!rule) return first;
    if (book && !book.included.has(proposal.id)) countOne(book.counted, rule);
    this.acts.set(proposal.id, { proposal: proposal.id, id: row.id, n: this._next, rule, at: row.at, from: row.from, tool: proposal.call.name || proposal.call.method, approved: row.kind === "mcp/request" });
    trim(this.acts, MOST_ACTS);
    return true;
  }

  // Being told by its tools

  /** @param {Book} book @param {any} told @param {number} since what was heard when it was asked for; the answer holds all of that */
  _takeRules(book, told, since) {
    book.rules = new Map();
    book.included = new Set(list(told.counted).map(String));
    book.counted = new Map();
    for (const act of this.acts.values()) if (act.n >= since && !book.included.has(act.proposal)) countOne(book.counted, act.rule);
    for (const each of list(told.rules)) {
      if (!isObject(each) || !isObject(each.rule)) continue;
      book.rules.set(String(each.rule.name), { rule: each.rule, words: String(each.words ?? ""), state: each.state, why: String(each.why ?? ""), hits: number(each.hits), left: typeof each.left === "number" ? each.left : null });
    }
    book.stopped = isObject(told.stopped) ? { by: String(told.stopped.by), why: String(told.stopped.why) } : null;
    book.fault = typeof told.fault === "string" ? told.fault : "";
    book.shadow = told.shadow === true;
  }

  /** @param {Book} book @param {any} told */
  _takeSuggestions(book, told) {
    book.suggestions = new Map(list(told.suggestions).filter(isSuggestion).map((each) => [each.suggestion, each]));
  }

  /** @param {Book} book @param {any} told */
  _takeReport(book, told) {
    book.days = list(told.days).filter(isObject).map((each) => ({ day: String(each.day), people: number(each.people), rules: number(each.rules) }));
    book.shadows = isObject(told.shadow) ? told.shadow : {};
    book.people = list(told.people).map(String);
    book.approvals = number(told.approvals);
  }

  /** Ask again, soon and once. */
  _later() {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => void this.refresh(), AGAIN_MILLISECONDS);
  }

  /** @param {string} name */
  _bookOf(name) {
    let book = this._books.get(name);
    if (!book) this._books.set(name, (book = new Book()));
    return book;
  }

  /** @param {string} id */
  _nameOf(id) {
    return this._state.roster.get(id)?.name ?? id;
  }

  _told() {
    this._state.news.changed("trust");
  }
}

/** @param {Map<string, number>} counts @param {string} name */
function countOne(counts, name) {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}

/** @param {Day[]} days @param {string} day @param {"people" | "rules"} by */
function count(days, day, by) {
  let last = days.findLast((each) => each.day === day);
  if (!last) days.push((last = { day, people: 0, rules: 0 }));
  last[by] += 1;
}

/** @param {any} given @returns {given is Suggestion} */
function isSuggestion(given) {
  return isObject(given) && typeof given.suggestion === "string" && isObject(given.rule) && typeof given.words === "string" && isObject(given.back_test);
}

/** @param {any} given */
function isObject(given) {
  return given !== null && typeof given === "object" && !Array.isArray(given);
}

/** @param {any} given @returns {any[]} */
function list(given) {
  return Array.isArray(given) ? given : [];
}

/** @param {any} given */
function number(given) {
  return typeof given === "number" && Number.isFinite(given) ? given : 0;
}
