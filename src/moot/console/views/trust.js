// @ts-check
/** Rules that decide (MEW 9.4; D-92): what is suggested, what is active, what they did, and the switch that stops them all. */
import { button, el, freshId } from "../core/dom.js";
import { registerView } from "../core/router.js";
import { nameOf, oneLine, visible } from "../core/text.js";
import { ago } from "../core/time.js";
import { inWords } from "./capability-words.js";
import { may as mayKind } from "./call-rights.js";
import { ledgerOf } from "./grants-ledger.js";
import { revokeDialog } from "./grants.js";
import { icon } from "./icons.js";
import { redraw } from "./people-acts.js";
import { act } from "./trust-acts.js";
import { sharePlot } from "./trust-plot.js";
import { hitWords, latestActs, ruleCard } from "./trust-rules.js";
import { trustOf, waitingIn } from "./trust-state.js";
import { ANSWERS, suggestionCard } from "./trust-suggestion.js";
import { whyDialog } from "./trust-why.js";

/** @typedef {import("../app.js").Context} Context @typedef {import("./trust-state.js").Suggestion} Suggestion */

const MOST_ACTS = 12;

class TrustView {
  /** @param {HTMLElement} outlet @param {Context} context */
  constructor(outlet, context) {
    this.context = context;
    this.state = context.state;
    this.trust = trustOf(context);
    this._armed = false;
    this._standing = el("span", { class: "soft trust-standing" });
    this._switch = el("div", { class: "switch" });
    this._state = el("div", { class: "trust-state" });
    this._suggestions = el("div", {});
    this._rules = el("div", {});
    this._plot = el("div", {});
    this._acts = el("div", {});
    this._grants = el("div", {});
    outlet.append(
      el("div", { class: "view-head" }, el("h1", {}, "Rules"), this._standing, el("span", { class: "grow" }), button("Ask again", () => void this.trust.refresh(), { class: "quiet small", shortcut: "r" }), this._switch),
      el("div", { class: "trust-body", tabindex: "-1" }, this._state,
        el("div", { class: "trust-columns" }, el("div", { class: "trust-main" }, this._suggestions, this._rules), el("div", { class: "trust-side" }, this._plot, this._acts, this._grants))),
    );
    this._stops = [this.state.on(["trust", "roster", "grants"], () => this.show()), this._keys()];
    this.show();
  }

  close() {
    this._stops.forEach((stop) => stop());
  }

  /** @param {string[]} rest */
  arrive(rest) {
    if (rest[0] === "why" && rest[1]) this._why(rest[1], () => this.context.go("trust"));
    else if (rest[0]) this._card(`suggestion-${rest[0]}`)?.focus();
  }

  /** @param {string} kind */
  _may(kind) {
    return mayKind(this.state, kind);
  }

  show() {
    const { trust } = this;
    const { approver, book } = trust;
    const stopped = book?.stopped ?? null;
    const mine = this.state.me.capabilities;
    const words = !approver ? "no approver is known here" : !trust.here ? `${oneLine(approver.name, 40)} is away` : stopped || book?.fault ? "people decide everything" : book?.shadow ? "only predicting" : book?.rules.size ? "rules decide, the rest is asked" : "no rule yet, everything is asked";
    if (this._standing.textContent !== words) this._standing.textContent = words;
    redraw(this._switch, [stopped !== null, this._armed, mine], () => this._switchNodes(stopped !== null));
    redraw(this._state, [approver?.id, trust.here, stopped, book?.fault, book?.shadow, book?.status, book?.words, trust.mayAsk], () => this._stateNodes());
    const suggestions = [...(book?.suggestions.values() ?? [])];
    redraw(this._suggestions, [suggestions, trust.here, mine, approver?.id, book?.approvals, book?.people, suggestions.map((each) => this._held(each))], () => this._suggestionNodes(suggestions));
    const rules = [...(book?.rules.values() ?? [])];
    redraw(this._rules, [rules, stopped, book?.fault, trust.here, mine, book?.shadows], () => this._ruleNodes(rules));
    for (const node of /** @type {NodeListOf<HTMLElement>} */ (this._rules.querySelectorAll("[data-hits]"))) {
      const hits = book?.hits(node.dataset.hits ?? "") ?? 0;
      redraw(node, [hits], () => hitWords(hits));
    }
    redraw(this._plot, [book?.days], () => book && el("section", { class: "trust-part", "aria-label": "How much is automatic" }, el("h2", {}, "How much is automatic"), sharePlot(book.days)));
    redraw(this._acts, [trust.latest(MOST_ACTS).map((each) => each.id), trust.here, mine], () => approver && el("section", { class: "trust-part", "aria-label": "What rules did lately" }, el("h2", {}, "What rules did lately"), latestActs(this.context, trust, { may: (kind) => this._may(kind), most: MOST_ACTS, why: (id) => this._why(id) }), this._whyForm()));
    const grants = this._given();
    redraw(this._grants, [grants.map((each) => [each.id, each.capabilities]), mine], () => grants.length > 0 && this._grantNodes(grants));
  }

  // The switch

  /** @param {boolean} stopped */
  _switchNodes(stopped) {
    if (stopped) return button("Let rules decide again", () => void act(this.context, this.trust, "trust/accept", { resume: true }), { class: "good", disabled: !this.trust.here || !this._may("trust/accept"), data: { place: "resume" } });
    if (!this._armed) return button("Stop all rules", () => this._arm(true), { class: "stop-all", shortcut: "S", icon: icon("warning", 18), disabled: !this._may("trust/stop"), data: { place: "stop-all" } });
    return el("div", { class: "switch-armed", role: "group", "aria-label": "Stop all rules?" },
      el("span", {}, "People decide everything again."),
      button("Yes, stop all rules", () => void this._stopAll(), { class: "stop-all", data: { place: "stop-now" } }),
      button("No", () => this._arm(false), { class: "quiet", data: { place: "stop-not" } }));
  }

  /** @param {boolean} armed */
  _arm(armed) {
    if (!this._may("trust/stop")) return;
    this._armed = armed;
    this.show();
    /** @type {HTMLElement | null} */ (this._switch.querySelector(armed ? '[data-place="stop-now"]' : "button"))?.focus();
  }

  async _stopAll() {
    this._armed = false;
    await act(this.context, this.trust, "trust/stop", {});
    this.show();
    /** @type {HTMLElement | null} */ (this._switch.querySelector("button"))?.focus();
  }

  // What is shown

  _stateNodes() {
    const { approver, book, here } = this.trust;
    const box = (/** @type {string} */ tone, /** @type {any[]} */ ...words) => el("div", { class: "trust-box", role: "status", data: { tone } }, icon(tone === "info" ? "help" : "warning", 18), el("div", {}, words));
    if (!approver) {
      return box("info", el("p", {}, el("strong", {}, "Nobody decides by rules here, so people decide everything.")),
        el("p", {}, "An approver learns from what people decide, suggests narrow rules, and applies those that somebody accepted. Whoever runs this space starts it in its folder:"),
        el("pre", { class: "mono" }, "moot rules run --as approver"),
        el("p", { class: "soft" }, "It needs a participant of its own, with the rights that ", el("code", {}, "moot rules run --help"), " lists."));
    }
    return [
      !here && box("warn", el("p", {}, el("strong", {}, nameOf(approver.name), " is not here: nothing is decided by rules. ")), el("p", {}, "What you see is what was known of it last. ", el("code", {}, "moot rules run --as ", oneLine(approver.name, 40)), " starts it.")),
      book?.stopped && box("bad", el("p", {}, el("strong", {}, "All rules are stopped"), " by ", nameOf(book.stopped.by), ": ", el("bdi", {}, visible(book.stopped.why)), ". People decide everything.")),
      book?.fault && box("bad", el("p", {}, el("strong", {}, "The rules cannot be read, so none holds: "), el("bdi", {}, visible(book.fault)))),
      book?.shadow && box("info", el("p", {}, el("strong", {}, "In the shadow: "), "rules predict and are compared with what people decide; nothing is decided by them.")),
      here && !this.trust.mayAsk && box("info", el("p", {}, "Your rights do not let you ask ", nameOf(approver.name), " how things stand: you see what was said since you came.")),
      book?.words && box("warn", el("p", {}, nameOf(approver.name), " could not be asked: ", el("bdi", {}, visible(book.words)))),
    ];
  }

  /** @param {Suggestion[]} suggestions */
  _suggestionNodes(suggestions) {
    const { approver, book } = this.trust;
    if (!approver) return null;
    const how = { may: (/** @type {string} */ kind) => this._may(kind) };
    const people = book?.people ?? [];
    return el("section", { class: "trust-part", "aria-labelledby": "trust-suggested" },
      el("h2", { id: "trust-suggested" }, "Suggested ", suggestions.length > 0 && el("span", { class: "faint" }, String(suggestions.length))),
      suggestions.length === 0
        ? el("p", { class: "soft" }, `Nothing is suggested now. Once people have decided ${book?.approvals || 10} proposals alike, with none decided otherwise, the narrowest rule that covers them is suggested here. Nothing becomes active by itself.`)
        : el("ul", { class: "cards" }, suggestions.map((each, index) => suggestionCard(this.context, this.trust, each, { ...how, first: index === 0 }))),
      book?.status === "known" && el("p", { class: "faint small-words" }, people.length > 0 ? ["It learns from ", people.slice(0, 8).map((each, index) => [index > 0 && ", ", nameOf(each)]), people.length > 8 && ` and ${people.length - 8} more`, ": whoever may accept rules."] : "It learns from nobody yet: nobody here may accept rules (trust/accept)."));
  }

  /** Where an agent stands changes what is shown of a suggestion. @param {Suggestion} suggestion */
  _held(suggestion) {
    return suggestion.grant ? (this.state.roster.get(suggestion.grant.participant)?.capabilities.length ?? 0) : 0;
  }

  /** @param {import("./trust-state.js").RuleState[]} rules */
  _ruleNodes(rules) {
    if (!this.trust.approver) return null;
    return el("section", { class: "trust-part", "aria-labelledby": "trust-rules" },
      el("h2", { id: "trust-rules" }, "Rules, the first that matches decides ", el("span", { class: "faint" }, String(rules.length))),
      rules.length === 0 ? el("p", { class: "soft" }, "There is no rule: every proposal is asked.") : el("ol", { class: "cards" }, rules.map((each, index) => ruleCard(this.context, this.trust, each, { may: (kind) => this._may(kind), at: index + 1 }))),
      rules.length > 0 && el("p", { class: "faint small-words" }, "Whatever no rule matches is asked. To reorder, widen or remove rules, edit rules.yaml beside the approver."));
  }

  _whyForm() {
    const id = freshId("why");
    const input = el("input", { id, class: "field mono", placeholder: "id of a proposal, request or answer", autocomplete: "off", spellcheck: "false", data: { place: "why" } });
    const ask = () => (input.value.trim() ? this._why(input.value.trim()) : input.focus());
    input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") ask();
    });
    return el("div", { class: "why-form" }, el("label", { for: id }, "Why was something done, or not?"), el("div", { class: "field-row" }, input, button("Why?", ask, { shortcut: "w", disabled: !this.trust.here, data: { place: "ask-why" } })));
  }

  /** @param {string} id @param {() => void} [closed] */
  _why(id, closed) {
    whyDialog(this.context, this.trust, id, closed);
  }

  // Rights that suggestions became

  /** Grants that were given for a suggestion and still hold, newest first. */
  _given() {
    const ledger = ledgerOf(this.state);
    return [...ledger.byId.values()].filter((each) => !each.ended && /^suggestion s-/.test(each.reason)).reverse();
  }

  /** @param {import("./grants-ledger.js").Entry[]} grants */
  _grantNodes(grants) {
    return el("section", { class: "trust-part", "aria-label": "Granted instead" }, el("h2", {}, "Granted instead of a rule"),
      el("ul", { class: "acts" }, grants.map((each, index) => el("li", { data: { grant: each.id } },
        el("span", { class: "grow" }, el("a", { href: this.context.link("people", each.recipient) }, nameOf(each.recipient)), " can ", el("bdi", {}, oneLine(each.capabilities.map(inWords).join(", "), 240)), el("small", { class: "faint" }, " by ", nameOf(each.granter), `, ${ago(each.at)}`)),
        button("Take back…", () => revokeDialog(this.context, each), { class: "small danger", shortcut: index === 0 ? "u" : undefined, disabled: !this._may("capability/revoke"), data: { place: `back-${each.id}` } })))));
  }

  // The keyboard

  /** @param {string} place @returns {HTMLElement | undefined} */
  _card(place) {
    return /** @type {HTMLElement | undefined} */ ([...document.querySelectorAll(".trust-main .card")].find((each) => /** @type {HTMLElement} */ (each).dataset.place === place));
  }

  /** @param {number} by */
  _move(by) {
    const cards = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".trust-main .card")]);
    const at = cards.findIndex((each) => each.contains(document.activeElement));
    const next = cards[at < 0 ? (by > 0 ? 0 : cards.length - 1) : Math.min(cards.length - 1, Math.max(0, at + by))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  /** The suggestion that the keyboard is at, else the first. */
  _chosen() {
    const at = /** @type {HTMLElement | null} */ (document.activeElement?.closest?.("[data-suggestion]"))?.dataset.suggestion;
    const suggestions = this.trust.book?.suggestions;
    return (at && suggestions?.get(at)) || suggestions?.values().next().value;
  }

  _lift() {
    const at = /** @type {HTMLElement | null} */ (document.activeElement?.closest?.("[data-rule]"))?.dataset.rule;
    const rules = [...(this.trust.book?.rules.values() ?? [])].filter((each) => each.state === "suspended");
    const rule = rules.find((each) => each.rule.name === at) ?? (rules.length === 1 ? rules[0] : undefined);
    if (rule) void act(this.context, this.trust, "trust/accept", { lift: String(rule.rule.name) });
    else this.context.notify(rules.length > 1 ? "Choose the rule first: j and k" : "No rule is suspended", "info");
  }

  _keys() {
    const answer = (/** @type {(typeof ANSWERS)[0]} */ each) => () => {
      const suggestion = this._chosen();
      if (!suggestion) this.context.notify("Nothing is suggested", "info");
      else if (each.grant && !suggestion.grant) this.context.notify(`It cannot be granted: ${oneLine(suggestion.no_grant ?? "", 160)}`, "info");
      else if (!this.trust.here || !this._may(each.id === "dismiss" ? "trust/dismiss" : "trust/accept")) this.context.notify("You may not, or no approver is here", "info");
      else each.run(this.context, this.trust, suggestion);
    };
    return this.context.keys.add("Rules", {
      j: ["Next suggestion or rule", () => this._move(1)],
      k: ["Previous suggestion or rule", () => this._move(-1)],
      ...Object.fromEntries(ANSWERS.map((each) => [each.key, [`${each.words.replace("…", "")} (suggestion)`, answer(each)]])),
      l: ["Lift a suspension", () => this._lift()],
      S: ["Stop all rules (asks once more)", () => this._arm(true)],
      u: ["Take the latest grant back", () => {
        const grant = this._given()[0];
        if (grant) revokeDialog(this.context, grant);
        else this.context.notify("Nothing was granted for a suggestion", "info");
      }],
      w: ["Why was something done", () => /** @type {HTMLElement | null} */ (this._acts.querySelector("input"))?.focus()],
      r: ["Ask the approver again", () => void this.trust.refresh()],
    });
  }
}

registerView({
  id: "trust", title: "Rules", icon: "trust", order: 45, key: "u", css: ["css/people.css", "css/trust.css"],
  badge: waitingIn,
  mount(outlet, context) {
    const view = new TrustView(outlet, context);
    return { unmount: () => view.close(), arrive: (rest) => view.arrive(rest) };
  },
});
