// @ts-check
/** One suggestion, with all that a person should know before it becomes a rule, or a right (MEW 9.2, 9.4). */
import { button, el } from "../core/dom.js";
import { nameOf, oneLine, visible } from "../core/text.js";
import { coveredBy } from "./grants-covers.js";
import { icon } from "./icons.js";
import { askDialog } from "./people-acts.js";
import { act, dismissDialog, grantDialog } from "./trust-acts.js";
import { narrowDialog } from "./trust-narrow.js";
import { ruleText } from "./trust-yaml.js";

/** @typedef {import("../app.js").Context} Context @typedef {import("./trust-state.js").Trust} Trust @typedef {import("./trust-state.js").Suggestion} Suggestion */

// Ids of proposals that are linked at most; the approver names five near misses.
const MOST_LINKED = 10;

/** 26 %, and never 0 %: no number of decisions proves that. @param {number} share */
export function percent(share) {
  return share > 0 && share < 0.01 ? "less than 1 %" : `${Math.ceil(share * 100 - 1e-9)} %`;
}

/** @param {Context} context @param {string} id */
function proposalLink(context, id) {
  const known = context.state.proposals.byId.get(id);
  return el("a", { href: context.link("timeline", id) }, known ? [oneLine(known.call.name || known.call.method, 40), " of ", nameOf(known.from)] : el("bdi", { class: "mono" }, oneLine(id, 12)));
}

/** @param {string} part */
function partWords(part) {
  const [kind, ...rest] = part.split(".");
  const name = rest.join(".");
  const words = { arguments: "does not fit", range: "is outside the range", equals: "is another value" };
  return Object.hasOwn(words, kind) && name ? `${name} ${words[/** @type {keyof typeof words} */ (kind)]}` : part === "hours" ? "it was at another time of day" : part;
}

/** What it would have done to the whole history. @param {Context} context @param {Suggestion} suggestion */
function backTest(context, suggestion) {
  const test = suggestion.back_test;
  const decision = suggestion.rule.decision === "reject" ? "rejected" : "approved";
  const linked = (/** @type {string[]} */ ids) => [...ids.slice(0, MOST_LINKED).map((id, index) => [index > 0 && ", ", proposalLink(context, id)]), ids.length > MOST_LINKED && ` and ${ids.length - MOST_LINKED} more`];
  return el("div", { class: "back-test" },
    el("h4", {}, "Over the whole history"),
    el("ul", { class: "facts" },
      el("li", {}, `It would have ${decision} ${test.covered} of ${test.history} proposals.`),
      el("li", { data: { tone: "good" } }, icon("check", 14), ` ${test.agreements} as people did.`),
      test.conflicts.length > 0
        ? el("li", { data: { tone: "bad" } }, icon("warning", 14), ` ${test.conflicts.length} that people decided otherwise: `, linked(test.conflicts))
        : el("li", {}, "None that people decided otherwise."),
      test.undecided > 0 && el("li", {}, `${test.undecided} that nobody decided.`),
      test.automated > 0 && el("li", {}, `${test.automated} that a rule decided already.`)),
    test.near_misses.length > 0 && [
      el("h4", {}, "Just outside, so people go on deciding"),
      el("ul", { class: "facts" }, test.near_misses.map((each) => el("li", {}, proposalLink(context, each.proposal), `, ${each.decision === "reject" ? "rejected" : "approved"}: `, el("bdi", {}, visible(partWords(String(each.part)))))))]);
}

/** From proposing to a right of its own; where the agent stands. @param {Context} context @param {Suggestion} suggestion */
function chain(context, suggestion) {
  const grant = suggestion.grant;
  if (!grant) return el("p", { class: "soft" }, "It can become a rule, and no right of the agent's own: ", el("bdi", {}, visible(suggestion.no_grant ?? "a right cannot say it")), ".");
  const held = context.state.roster.get(grant.participant)?.capabilities ?? [];
  const params = { ...(grant.capability?.payload?.params ?? {}) };
  delete params.arguments;
  const tool = { ...grant.capability, payload: { ...grant.capability?.payload, params } };
  const stands = coveredBy(tool, held) ? 2 : coveredBy(grant.capability, held) ? 1 : 0;
  const name = oneLine(params.name ?? params.uri ?? "this", 60);
  const steps = [
    ["proposes, and people decide", "where it stands"],
    [`calls ${name} with these arguments`, "can be granted"],
    [`calls ${name} with any arguments`, "not suggested: the decisions so far do not reach so far"],
  ];
  return el("div", {},
    el("ol", { class: "trust-chain", "aria-label": "From proposing to a right of its own" }, steps.map(([words, note], index) => el("li", { "aria-current": index === stands ? "step" : null, data: { reached: String(index <= stands) } },
      el("span", { class: "step-dot", "aria-hidden": "true" }), el("span", {}, nameOf(grant.participant), ` ${words}`), el("small", {}, index === stands ? "where it stands" : index < stands ? "held" : note)))),
    el("p", { class: "soft small-words" }, "A right keeps less than the rule: ", el("bdi", {}, visible(grant.loses.join("; "))), "."));
}

/** @param {Context} context @param {Trust} trust @param {Suggestion} suggestion */
export function acceptDialog(context, trust, suggestion) {
  const { limits } = suggestion.rule;
  const dialog = askDialog("Make this a rule?", [
    el("p", {}, el("bdi", {}, visible(suggestion.words)), "."),
    el("ul", { class: "losses" },
      el("li", {}, el("bdi", {}, visible(suggestion.evidence))),
      limits?.count !== undefined && el("li", {}, `At most ${limits.count} times in ${limits.per}.`),
      limits?.check > 0 && el("li", {}, `${percent(limits.check)} of them are left to people anyway, as a check.`),
      limits?.expires && el("li", {}, `It ends on ${oneLine(limits.expires, 40)}.`),
      suggestion.replaces.length > 0 && el("li", {}, `It takes the place of ${oneLine(suggestion.replaces.join(", "), 160)}.`),
      el("li", {}, "A rejection, an objection, a kick, a changed tool or an odd argument suspends it until somebody has looked.")),
  ], { verb: "Make it a rule", act: () => act(context, trust, "trust/accept", { suggestion: suggestion.suggestion }) });
  /** @type {HTMLElement | null} */ (dialog.node.querySelector(".dialog-actions .primary"))?.focus();
}

/** What can be done about one. @type {{id: string, words: string, key: string, class?: string, grant?: boolean, run: (context: Context, trust: Trust, suggestion: Suggestion) => void}[]} */
export const ANSWERS = [
  { id: "accept", words: "Accept…", key: "a", class: "primary", run: acceptDialog },
  { id: "narrow", words: "Accept less…", key: "n", run: narrowDialog },
  { id: "grant", words: "Grant instead…", key: "e", grant: true, run: grantDialog },
  { id: "dismiss", words: "Dismiss…", key: "d", class: "quiet", run: dismissDialog },
];

/**
 * @param {Context} context @param {Trust} trust @param {Suggestion} suggestion
 * @param {{may: (kind: string) => boolean, first: boolean}} how
 */
export function suggestionCard(context, trust, suggestion, how) {
  const may = (/** @type {(typeof ANSWERS)[0]} */ each) => trust.here && how.may(each.id === "dismiss" ? "trust/dismiss" : "trust/accept") && (!each.grant || (suggestion.grant !== null && how.may("capability/grant")));
  const id = `suggestion-${suggestion.suggestion}`;
  return el("li", { class: "card suggestion", tabindex: "-1", "aria-labelledby": id, data: { suggestion: suggestion.suggestion, place: id } },
    el("div", { class: "suggestion-head" },
      el("span", { class: "tag", data: { tone: suggestion.rule.decision === "reject" ? "bad" : "good" } }, suggestion.rule.decision === "reject" ? "reject" : "approve"),
      el("h3", { id }, el("bdi", {}, visible(suggestion.words)))),
    el("div", { class: "suggestion-facts" },
      el("div", { class: "fact" }, el("strong", {}, String(suggestion.decisions)), el("span", {}, "decisions of ", suggestion.deciders.slice(0, 5).map((each, index) => [index > 0 && ", ", nameOf(each)]))),
      el("div", { class: "fact", data: { tone: "warn" } }, el("strong", {}, percent(suggestion.error_bound)), el("span", {}, "could be wrong, at most, with 95 % certainty")),
      suggestion.new_bound !== null && suggestion.new_bound > suggestion.error_bound && el("div", { class: "fact", data: { tone: "warn" } }, el("strong", {}, percent(suggestion.new_bound)), el("span", {}, "of those with values never seen before")),
      el("div", { class: "fact" }, el("strong", {}, `${suggestion.back_test.agreements} : ${suggestion.back_test.conflicts.length}`), el("span", {}, "as people decided, and otherwise"))),
    el("p", {}, el("bdi", {}, visible(suggestion.evidence))),
    el("details", { data: { fold: `more-${suggestion.suggestion}` } }, el("summary", {}, "What it would have done, and what else it could become"), el("div", { class: "suggestion-more" }, backTest(context, suggestion), el("div", {}, el("h4", {}, "As a right of the agent's own"), chain(context, suggestion)))),
    el("details", { data: { fold: `text-${suggestion.suggestion}` } }, el("summary", {}, "The rule itself"), ruleText(suggestion.rule)),
    el("div", { class: "control-row", role: "group", "aria-label": "Your answer" }, ANSWERS.map((each) => button(each.words, () => each.run(context, trust, suggestion), { class: each.class, shortcut: how.first ? each.key : undefined, disabled: !may(each), title: each.grant && suggestion.grant === null ? `It cannot be granted: ${oneLine(suggestion.no_grant ?? "", 120)}` : undefined, data: { place: `${each.id}-${suggestion.suggestion}` } }))));
}
