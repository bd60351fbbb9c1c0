/** What one approver announced about its rules, and what its tools reported. */
import { isObject } from "../../core/state/json-text.js";

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
 * @property {any} [allows]
 * @property {any} [refuses]
 * @property {{history: number, covered: number, agreements: number, conflicts: string[], undecided: number, automated: number, near_misses: {proposal: string, decision: string, part: string}[]}} back_test
 * @property {{participant: string, step: string, capability: any, loses: string[], words: string} | null} grant
 * @property {string | null} no_grant
 * @property {string[]} replaces
 * @property {string[]} [accepted_by] people who accepted it, where several have to
 * @property {number} [accepting_people] how many have to
 * @property {any} [accepted_rule] the narrower rule that they accepted
 *
 * @typedef {object} RuleState
 * @property {any} rule
 * @property {string} words
 * @property {"active" | "suspended" | "observing" | "expired"} state
 * @property {string} why
 * @property {number} hits as reported, before `since`
 * @property {number | null} left
 * @property {number} unreviewed decisions that nobody has reviewed
 * @property {boolean} reviewDue
 * @property {string[]} resumedBy people who want to resume it, where several have to
 *
 * @typedef {{proposal: string, id: string, n: number, rule: string, at: number, from: string, tool: string, approved: boolean}} RuleDecision
 * @typedef {{day: string, people: number, rules: number}} Day
 * @typedef {{day: string, rule: string, automatic: number, wrong: number, tripped: number}} RuleDay
 */

/** What one sender announced, and what its tools reported. */
export class RuleRecord {
  constructor() {
    /** @type {Map<string, Suggestion>} */
    this.suggestions = new Map();
    /** @type {Map<string, RuleState>} in their order */
    this.rules = new Map();
    /** @type {{by: string, why: string} | null} */
    this.stopped = null;
    this.fault = "";
    this.observe = false;
    /** Of all rules together, as reported. @type {{count: number, seconds: number, left: number} | null} */
    this.budget = null;
    /** @type {Day[]} */
    this.days = [];
    /** Outcomes of each rule by day. @type {RuleDay[]} */
    this.ruleDays = [];
    /** @type {Record<string, {agreements: number, conflicts: number, error_bound: number}>} */
    this.observed = {};
    /** @type {string[]} */
    this.people = [];
    this.approvals = 0;
    /** What tools do and what people endorsed, as reported; null: this approver does not tell. @type {any} */
    this.origins = null;
    /** Plans, as reported; null: this approver knows none. @type {any} */
    this.plans = null;
    /** Decisions by each rule since its hits were reported. @type {Map<string, number>} */
    this.counted = new Map();
    /** Proposals that the reported hits already include. @type {Set<string>} */
    this.included = new Set();
    /** Proposals that `days` includes already, though their decision may arrive later. @type {Set<string>} */
    this.reported = new Set();
    /** @type {"announced" | "asking" | "known" | "failed" | "refused"} */
    this.status = "announced";
    /** Whether its tools have told what there is. Else only messages have, since we joined. */
    this.isKnown = false;
    this.error = "";
  }

  /** What is left of its limit: as reported, less what it decided since. @param {string} name @returns {number | null} */
  left(name) {
    const reported = this.rules.get(name)?.left ?? null;
    return reported === null ? null : Math.max(0, reported - (this.counted.get(name) ?? 0));
  }

  /** What is left for all rules together; null without a budget. @returns {number | null} */
  get budgetLeft() {
    if (this.budget === null) return null;
    let decided = 0;
    for (const count of this.counted.values()) decided += count;
    return Math.max(0, this.budget.left - decided);
  }

  /** Whether it changes with the time alone what rules may still decide. */
  get hasLimits() {
    return this.budget !== null || [...this.rules.values()].some((each) => each.left !== null);
  }

  /** What its tool reported of days and people. @param {any} known */
  takeReport(known) {
    this.reported = new Set(list(known.counted).map(String));
    this.days = list(known.days)
      .filter(isObject)
      .map((each) => ({ day: String(each.day), people: number(each.people), rules: number(each.rules) }));
    this.ruleDays = list(known.rule_history)
      .filter(isObject)
      .map(({ day, rule, automatic, wrong, tripped }) => ({
        day: String(day),
        rule: String(rule),
        automatic: number(automatic),
        wrong: number(wrong),
        tripped: number(tripped),
      }));
    this.observed = isObject(known.observe) ? known.observe : {};
    this.people = list(known.people).map(String);
    this.approvals = number(known.approvals);
  }

  /** @param {string} name */
  hits(name) {
    return (this.rules.get(name)?.hits ?? 0) + (this.counted.get(name) ?? 0);
  }
}

/** @param {Map<string, number>} counts @param {string} name */
export function countOne(counts, name) {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}

/** @param {Day[]} days @param {string} day @param {"people" | "rules"} by */
export function count(days, day, by) {
  let last = days.findLast((each) => each.day === day);
  if (!last) days.push((last = { day, people: 0, rules: 0 }));
  last[by] += 1;
}

/** @param {RuleDay[]} days @param {string} day @param {string} rule */
export function countOutcome(days, day, rule) {
  let last = days.findLast((each) => each.day === day && each.rule === rule);
  if (!last) days.push((last = { day, rule, automatic: 0, wrong: 0, tripped: 0 }));
  last.automatic += 1;
}

/** @param {any} given @returns {given is Suggestion} */
export function isSuggestion(given) {
  return (
    isObject(given) &&
    typeof given.suggestion === "string" &&
    isObject(given.rule) &&
    typeof given.words === "string" &&
    isObject(given.back_test)
  );
}

/** @param {any} given @returns {any[]} */
export function list(given) {
  return Array.isArray(given) ? given : [];
}

/** @param {any} given */
export function number(given) {
  return typeof given === "number" && Number.isFinite(given) ? given : 0;
}
