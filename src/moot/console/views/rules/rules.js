/** Rules (MEW 9.4; D-92): suggestions, active rules, their recent decisions, and the switch that stops them all. */
import { button, html, newId, redraw } from "../../core/page/dom.js";
import { registerView } from "../../core/page/router.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { isAllowed as mayKind } from "../capabilities/capability-match.js";
import { revokeDialog } from "../capabilities/grants.js";
import { icon } from "../parts/icons.js";
import { runCommand } from "./rule-commands.js";
import { automationChart } from "./automation-chart.js";
import { hitCount, leftText, recentDecisions, ruleCard, stateTag } from "./rule-list.js";
import { approverNotices, grantedInstead, noRulesText, rulesNote, suggestedGrants } from "./rule-notices.js";
import { ruleOutcomes } from "./rule-outcomes.js";
import { approverStateOf, openSuggestions } from "./approver-state.js";
import { SUGGESTION_ACTIONS, suggestionCard } from "./rule-suggestion.js";
import { openPlans, planList } from "./plan-list.js";
import { toolOrigins } from "./tool-origins.js";
import { explanationDialog } from "./explanation-dialog.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("./rule-record.js").Suggestion} Suggestion */

const LIMITS_MILLISECONDS = 60_000;
const MAX_ACTS = 12;

class RulesView {
  /** @param {HTMLElement} outlet @param {Context} context */
  constructor(outlet, context) {
    this.context = context;
    this.state = context.state;
    this.approverState = approverStateOf(context);
    this._armed = false;
    this._status = html.span({ class: "soft rules-status" });
    this._switch = html.div({ class: "switch" });
    this._state = html.div({ class: "rules-state" });
    this._plans = html.div({});
    this._suggestions = html.div({});
    this._rules = html.div({});
    this._origins = html.div({});
    this._plot = html.div({});
    this._outcomes = html.div({});
    this._decisions = html.div({});
    this._grants = html.div({});
    outlet.append(
      html.div(
        { class: "view-head" },
        html.h1({}, "Rules"),
        this._status,
        html.span({ class: "grow" }),
        button("Refresh", () => void this.approverState.refresh(), { class: "quiet small", shortcut: "r" }),
        this._switch,
      ),
      html.div(
        { class: "rules-body", tabindex: "-1" },
        this._state,
        html.div(
          { class: "rules-columns" },
          html.div({ class: "rules-main" }, this._plans, this._suggestions, this._rules, this._origins),
          html.div({ class: "rules-side" }, this._plot, this._outcomes, this._decisions, this._grants),
        ),
      ),
    );
    this._stops = [this.state.on(["trust", "roster", "grants"], () => this.show()), this._keys()];
    // Limits fill up again with the time, and nobody says so.
    this._clock = setInterval(() => {
      if (this.approverState.isOnline && this.approverState.record?.hasLimits) void this.approverState.refresh();
    }, LIMITS_MILLISECONDS);
    this.show();
  }

  close() {
    clearInterval(this._clock);
    this._stops.forEach((stop) => stop());
  }

  /** @param {string[]} rest */
  openRoute(rest) {
    if (rest[0] === "explain" && rest[1]) this._explain(rest[1], () => this.context.go("rules"));
    else if (rest[0]) this._cardFor(`suggestion-${rest[0]}`)?.focus();
  }

  /** @param {string} kind */
  _may(kind) {
    return mayKind(this.state, kind);
  }

  show() {
    const { approverState } = this;
    const { approver, record } = approverState;
    const stopped = record?.stopped ?? null;
    const mine = this.state.me.capabilities;
    const none = noRulesText(approverState);
    const text = !approver
      ? none
      : !approverState.isOnline
        ? `${oneLine(approver.name, 40)} is offline`
        : stopped || record?.fault
          ? "Rules off; you are asked every time"
          : record?.observe
            ? "Observe mode"
            : record?.rules.size
              ? `Rules on${record.isKnown ? "; everything else asks you" : ""}`
              : none;
    if (this._status.textContent !== text) this._status.textContent = text;
    // Without an approver there is nothing that it could stop.
    this._switch.hidden = !approver;
    redraw(this._switch, [stopped !== null, this._armed, mine], () => this._switchNodes(stopped !== null));
    redraw(
      this._state,
      [
        approver?.id,
        approverState.isOnline,
        stopped,
        record?.fault,
        record?.observe,
        record?.status,
        record?.error,
        approverState.canQuery,
        record?.budget,
        record?.budgetLeft,
        !approver && [mine, approverState.doubt],
      ],
      () => approverNotices(this.context, approverState),
    );
    redraw(
      this._plans,
      [record?.plans, approverState.isOnline, mine],
      () => record?.plans && planList(this.context, approverState, record.plans, (kind) => this._may(kind)),
    );
    const suggestions = [...(record?.suggestions.values() ?? [])];
    redraw(
      this._suggestions,
      [
        suggestions,
        approverState.isOnline,
        mine,
        approver?.id,
        record?.approvals,
        record?.people,
        suggestions.map((each) => this._held(each)),
      ],
      () => this._suggestionNodes(suggestions),
    );
    const rules = [...(record?.rules.values() ?? [])];
    redraw(this._rules, [rules, stopped, record?.fault, approverState.isOnline, mine, record?.observed, none], () =>
      this._ruleNodes(rules),
    );
    for (const node of /** @type {NodeListOf<HTMLElement>} */ (this._rules.querySelectorAll("[data-hits]"))) {
      const hits = record?.hits(node.dataset.hits ?? "") ?? 0;
      redraw(node, [hits], () => hitCount(hits));
    }
    for (const node of /** @type {NodeListOf<HTMLElement>} */ (this._rules.querySelectorAll("[data-left]"))) {
      const left = record?.left(node.dataset.left ?? "") ?? null;
      if (left !== null) redraw(node, [left], () => leftText(left));
    }
    for (const node of /** @type {NodeListOf<HTMLElement>} */ (this._rules.querySelectorAll("[data-effect]"))) {
      const shown = record?.rules.get(node.dataset.effect ?? "");
      if (shown)
        redraw(
          node,
          [
            shown.state,
            stopped,
            record?.fault,
            record?.observe,
            record?.budgetLeft === 0,
            record?.left(node.dataset.effect ?? "") === 0,
            approverState.isOnline,
          ],
          () => stateTag(approverState, shown),
        );
    }
    redraw(
      this._origins,
      [record?.origins, approverState.isOnline, mine],
      () => record?.origins && toolOrigins(this.context, approverState, record.origins, (kind) => this._may(kind)),
    );
    redraw(
      this._plot,
      [record?.isKnown, record?.days],
      () =>
        record?.isKnown &&
        html.section(
          { class: "rules-part", "aria-label": "Automation" },
          html.h2({}, "Automation"),
          automationChart(record.days),
        ),
    );
    redraw(
      this._outcomes,
      [record?.ruleDays],
      () =>
        record &&
        record.ruleDays.length > 0 &&
        html.section(
          { class: "rules-part", "aria-label": "Rules over time" },
          html.h2({}, "Rules over time"),
          ruleOutcomes(record.ruleDays),
        ),
    );
    redraw(
      this._decisions,
      [approverState.latest(MAX_ACTS).map((each) => each.id), approverState.isOnline, mine],
      () =>
        approver &&
        html.section(
          { class: "rules-part", "aria-label": "Recent decisions by rules" },
          html.h2({}, "Recent decisions by rules"),
          recentDecisions(this.context, approverState, {
            may: (kind) => this._may(kind),
            max: MAX_ACTS,
            why: (id) => this._explain(id),
          }),
          this._explainForm(),
        ),
    );
    const grants = suggestedGrants(this.state);
    redraw(
      this._grants,
      [grants.map((each) => [each.id, each.capabilities]), mine],
      () => grants.length > 0 && grantedInstead(this.context, grants, this._may("capability/revoke")),
    );
  }

  // The stop switch

  /** @param {boolean} stopped */
  _switchNodes(stopped) {
    if (stopped)
      return button(
        "Resume rules",
        () => void runCommand(this.context, this.approverState, "trust/accept", { resume: true }),
        {
          class: "good",
          disabled: !this.approverState.isOnline || !this._may("trust/accept"),
          data: { focus: "resume" },
        },
      );
    if (!this._armed)
      return button("Stop all rules", () => this._arm(true), {
        class: "stop-all",
        shortcut: "S",
        icon: icon("warning", 18),
        disabled: !this._may("trust/stop"),
        data: { focus: "stop-all" },
      });
    return html.div(
      { class: "switch-armed", role: "group", "aria-label": "Stop all rules?" },
      html.span({}, "People will decide every proposal."),
      button("Yes, stop all rules", () => void this._stopAll(), { class: "stop-all", data: { focus: "stop-now" } }),
      button("Cancel", () => this._arm(false), { class: "quiet", data: { focus: "stop-not" } }),
    );
  }

  /** @param {boolean} armed */
  _arm(armed) {
    if (!this._may("trust/stop")) return;
    this._armed = armed;
    this.show();
    /** @type {HTMLElement | null} */ (
      this._switch.querySelector(armed ? '[data-focus="stop-now"]' : "button")
    )?.focus();
  }

  async _stopAll() {
    this._armed = false;
    await runCommand(this.context, this.approverState, "trust/stop", {});
    this.show();
    /** @type {HTMLElement | null} */ (this._switch.querySelector("button"))?.focus();
  }

  // Content

  /** @param {Suggestion[]} suggestions */
  _suggestionNodes(suggestions) {
    const { approver, record } = this.approverState;
    if (!approver) return null;
    const options = { may: (/** @type {string} */ kind) => this._may(kind) };
    const people = record?.people ?? [];
    return html.section(
      { class: "rules-part", "aria-labelledby": "rules-suggested" },
      html.h2(
        { id: "rules-suggested" },
        "Suggestions ",
        suggestions.length > 0 && html.span({ class: "faint" }, String(suggestions.length)),
      ),
      suggestions.length === 0
        ? html.p(
            { class: "soft" },
            `No suggestions. After ${record?.approvals || 10} consistent decisions, the narrowest rule that covers them is suggested here. A rule becomes active only when someone accepts it.`,
          )
        : html.ul(
            { class: "cards" },
            suggestions.map((each, index) =>
              suggestionCard(this.context, this.approverState, each, { ...options, first: index === 0 }),
            ),
          ),
      record?.status === "known" &&
        html.p(
          { class: "faint small-text" },
          people.length > 0
            ? [
                "Learns from ",
                people.slice(0, 8).map((each, index) => [index > 0 && ", ", nameOf(each)]),
                people.length > 8 && ` and ${people.length - 8} more`,
                " (members who can accept rules).",
              ]
            : "Learns from nobody yet: no member can accept rules (trust/accept).",
        ),
    );
  }

  /** The agent's current step, which changes how a suggestion is shown. @param {Suggestion} suggestion */
  _held(suggestion) {
    return suggestion.grant ? (this.state.roster.get(suggestion.grant.participant)?.capabilities.length ?? 0) : 0;
  }

  /** @param {import("./rule-record.js").RuleState[]} rules */
  _ruleNodes(rules) {
    if (!this.approverState.approver) return null;
    return html.section(
      { class: "rules-part", "aria-labelledby": "rules-list" },
      html.h2({ id: "rules-list" }, "Rules (first match wins) ", html.span({ class: "faint" }, String(rules.length))),
      rules.length === 0
        ? html.p({ class: "soft" }, `${noRulesText(this.approverState)}.`)
        : html.ol(
            { class: "cards" },
            rules.map((each, index) =>
              ruleCard(this.context, this.approverState, each, { may: (kind) => this._may(kind), at: index + 1 }),
            ),
          ),
      rules.length > 0 && html.p({ class: "faint small-text" }, rulesNote(this.approverState)),
    );
  }

  _explainForm() {
    const id = newId("why");
    const input = html.input({
      id,
      class: "field mono",
      placeholder: "Proposal or request ID",
      autocomplete: "off",
      spellcheck: "false",
      data: { focus: "why" },
    });
    const ask = () => (input.value.trim() ? this._explain(input.value.trim()) : input.focus());
    input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") ask();
    });
    return html.div(
      { class: "explain-form" },
      html.label({ for: id }, "Explain a decision"),
      html.div(
        { class: "field-row" },
        input,
        button("Explain", ask, { shortcut: "w", disabled: !this.approverState.isOnline, data: { focus: "ask-why" } }),
      ),
    );
  }

  /** @param {string} id @param {() => void} [closed] */
  _explain(id, closed) {
    explanationDialog(this.context, this.approverState, id, closed);
  }

  // The keyboard

  /** @param {string} focusKey @returns {HTMLElement | undefined} */
  _cardFor(focusKey) {
    return /** @type {HTMLElement | undefined} */ (
      [...document.querySelectorAll(".rules-main .card")].find(
        (each) => /** @type {HTMLElement} */ (each).dataset.focus === focusKey,
      )
    );
  }

  /** @param {number} by */
  _move(by) {
    const cards = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".rules-main .card")]);
    const at = cards.findIndex((each) => each.contains(document.activeElement));
    const next = cards[at < 0 ? (by > 0 ? 0 : cards.length - 1) : Math.min(cards.length - 1, Math.max(0, at + by))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  /** The focused suggestion, else the first. */
  _chosen() {
    const at = /** @type {HTMLElement | null} */ (document.activeElement?.closest?.("[data-suggestion]"))?.dataset
      .suggestion;
    const suggestions = this.approverState.record?.suggestions;
    return (at && suggestions?.get(at)) || suggestions?.values().next().value;
  }

  _resumeRule() {
    const at = /** @type {HTMLElement | null} */ (document.activeElement?.closest?.("[data-rule]"))?.dataset.rule;
    const rules = [...(this.approverState.record?.rules.values() ?? [])].filter((each) => each.state === "suspended");
    const rule = rules.find((each) => each.rule.name === at) ?? (rules.length === 1 ? rules[0] : undefined);
    if (rule) void runCommand(this.context, this.approverState, "trust/accept", { lift: String(rule.rule.name) });
    else this.context.notify(rules.length > 1 ? "Select a rule first (j and k)" : "No rule is suspended", "info");
  }

  _keys() {
    const answer = (/** @type {(typeof SUGGESTION_ACTIONS)[0]} */ each) => () => {
      const suggestion = this._chosen();
      if (!suggestion) this.context.notify("No suggestions", "info");
      else if (each.grant && !suggestion.grant)
        this.context.notify(`Cannot be granted: ${oneLine(suggestion.no_grant ?? "", 160)}`, "info");
      else if (!this.approverState.isOnline || !this._may(each.id === "dismiss" ? "trust/dismiss" : "trust/accept"))
        this.context.notify("Not allowed, or no approver is online", "info");
      else each.run(this.context, this.approverState, suggestion);
    };
    return this.context.keys.add("Rules", {
      j: ["Next suggestion or rule", () => this._move(1)],
      k: ["Previous suggestion or rule", () => this._move(-1)],
      ...Object.fromEntries(
        SUGGESTION_ACTIONS.map((each) => [each.key, [`${each.label.replace("…", "")} (suggestion)`, answer(each)]]),
      ),
      l: ["Resume a suspended rule", () => this._resumeRule()],
      S: ["Stop all rules (asks for confirmation)", () => this._arm(true)],
      u: [
        "Revoke the latest grant",
        () => {
          const grant = suggestedGrants(this.state)[0];
          if (grant) revokeDialog(this.context, grant);
          else this.context.notify("No grant was made from a suggestion", "info");
        },
      ],
      w: [
        "Explain a decision",
        () => /** @type {HTMLElement | null} */ (this._decisions.querySelector("input"))?.focus(),
      ],
      r: ["Refresh", () => void this.approverState.refresh()],
    });
  }
}

registerView({
  id: "rules",
  title: "Rules",
  icon: "rules",
  order: 45,
  key: "u",
  badge: (state) => openSuggestions(state) + openPlans(state).size,
  mount(outlet, context) {
    const view = new RulesView(outlet, context);
    return { unmount: () => view.close(), openRoute: (rest) => view.openRoute(rest) };
  },
});
