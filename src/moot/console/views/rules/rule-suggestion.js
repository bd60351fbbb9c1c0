/** One suggestion, with all that a person should know before it becomes a rule or a permission (MEW 9.2, 9.4). */
import { button, html } from "../../core/page/dom.js";
import { isObject } from "../../core/state/json-text.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { formatTime, parseTime } from "../../core/page/time.js";
import { coveredBy } from "../capabilities/capability-covers.js";
import { icon } from "../parts/icons.js";
import { actionDialog } from "../parts/action-dialog.js";
import { runCommand, dismissDialog, grantDialog } from "./rule-commands.js";
import { narrowDialog } from "./narrow-dialog.js";
import { ruleText } from "./rule-text.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("./approver-state.js").ApproverState} ApproverState @typedef {import("./rule-record.js").Suggestion} Suggestion */

// The most proposals that are linked; the approver names five near misses.
const MAX_LINKED = 10;

/** 26 %, and never 0 %: no number of decisions proves that. @param {number} share */
export function percent(share) {
  return share > 0 && share < 0.01 ? "less than 1 %" : `${Math.ceil(share * 100 - 1e-9)} %`;
}

/** @param {Context} context @param {string} id */
export function proposalLink(context, id) {
  const known = context.state.proposals.byId.get(id);
  return html.a(
    { href: context.link("timeline", id) },
    known ? [oneLine(known.call.name || known.call.method, 40), " from ", nameOf(known.from)] : "an older proposal",
  );
}

/** @param {string} part */
function mismatchText(part) {
  const [kind, ...rest] = part.split(".");
  const name = rest.join(".");
  const text = { arguments: "does not match", range: "is out of range", equals: "has a different value" };
  return Object.hasOwn(text, kind) && name
    ? `${name} ${text[/** @type {keyof typeof text} */ (kind)]}`
    : part === "hours"
      ? "outside these hours"
      : part;
}

/** The back-test: how the rule would have decided all past proposals. @param {Context} context @param {Suggestion} suggestion */
function backTest(context, suggestion) {
  const test = suggestion.back_test;
  const decision = suggestion.rule.decision === "reject" ? "rejected" : "approved";
  const linked = (/** @type {string[]} */ ids) => [
    ...ids.slice(0, MAX_LINKED).map((id, index) => [index > 0 && ", ", proposalLink(context, id)]),
    ids.length > MAX_LINKED && ` and ${ids.length - MAX_LINKED} more`,
  ];
  return html.div(
    { class: "back-test" },
    html.h4({}, "Back-test on all past decisions"),
    html.ul(
      { class: "facts" },
      html.li({}, `Would have ${decision} ${test.covered} of ${test.history} proposals.`),
      html.li(
        { data: { tone: "good" } },
        icon("check", 14),
        ` Agrees with ${test.agreements} past ${test.agreements === 1 ? "decision" : "decisions"}.`,
      ),
      test.conflicts.length > 0
        ? html.li(
            { data: { tone: "bad" } },
            icon("warning", 14),
            ` Conflicts with ${test.conflicts.length} past ${test.conflicts.length === 1 ? "decision" : "decisions"}: `,
            linked(test.conflicts),
          )
        : html.li({}, "No conflicts with past decisions."),
      test.undecided > 0 && html.li({}, `${test.undecided} undecided.`),
      test.automated > 0 && html.li({}, `${test.automated} already decided by a rule.`),
    ),
    test.near_misses.length > 0 && [
      html.h4({}, "Near misses, still decided by people"),
      html.ul(
        { class: "facts" },
        test.near_misses.map((each) =>
          html.li(
            {},
            proposalLink(context, each.proposal),
            `, ${each.decision === "reject" ? "rejected" : "approved"}: `,
            html.bdi({}, escapeHidden(mismatchText(String(each.part)))),
          ),
        ),
      ),
    ],
  );
}

/** Calls that were never seen and that the rule would decide, and calls just outside it. @param {Suggestion} suggestion */
function edges(suggestion) {
  const decides = suggestion.rule.decision === "reject" ? "reject" : "approve";
  const list = (/** @type {string} */ title, /** @type {any} */ calls) =>
    Array.isArray(calls) &&
    calls.length > 0 && [
      html.h4({}, title),
      html.ul(
        { class: "facts" },
        calls
          .slice(0, MAX_LINKED)
          .map((each) => html.li({}, html.code({}, html.bdi({}, escapeHidden(oneLine(JSON.stringify(each), 200)))))),
      ),
    ];
  return html.div(
    { class: "back-test" },
    list(`Would also ${decides}, though never seen`, suggestion.allows),
    list("Would leave to people", suggestion.refuses),
  );
}

/** The steps from proposing to a permission, with the agent's current step. @param {Context} context @param {Suggestion} suggestion */
function permissionSteps(context, suggestion) {
  const grant = suggestion.grant;
  if (!grant)
    return html.p(
      { class: "soft" },
      "This can become a rule, but not a permission of the agent: ",
      html.bdi({}, escapeHidden(suggestion.no_grant ?? "a capability cannot express it")),
      ".",
    );
  const held = context.state.roster.get(grant.participant)?.capabilities ?? [];
  const params = { ...(grant.capability?.payload?.params ?? {}) };
  delete params.arguments;
  const tool = { ...grant.capability, payload: { ...grant.capability?.payload, params } };
  const current = coveredBy(tool, held) ? 2 : coveredBy(grant.capability, held) ? 1 : 0;
  const name = oneLine(params.name ?? params.uri ?? "this", 60);
  const steps = [
    ["proposes; people decide", "current"],
    [`calls ${name} with these arguments`, "can be granted"],
    [`calls ${name} with any arguments`, "not suggested: too few decisions"],
  ];
  return html.div(
    {},
    html.ol(
      { class: "rules-chain", "aria-label": "Steps from proposals to a permission" },
      steps.map(([text, note], index) =>
        html.li(
          { "aria-current": index === current ? "step" : null, data: { reached: String(index <= current) } },
          html.span({ class: "step-dot", "aria-hidden": "true" }),
          html.span({}, nameOf(grant.participant), ` ${text}`),
          html.small({}, index === current ? "current" : index < current ? "has this" : note),
        ),
      ),
    ),
    html.p(
      { class: "soft small-text" },
      "A permission has fewer limits than the rule: ",
      html.bdi({}, escapeHidden(grant.loses.join("; "))),
      ".",
    ),
  );
}

/** @param {Context} context @param {ApproverState} approverState @param {Suggestion} suggestion */
function acceptDialog(context, approverState, suggestion) {
  const { limits } = suggestion.rule;
  const dialog = actionDialog(
    "Accept this rule?",
    [
      html.p({}, html.bdi({}, escapeHidden(suggestion.words)), "."),
      html.ul(
        { class: "losses" },
        html.li({}, html.bdi({}, escapeHidden(suggestion.evidence))),
        limits?.check_share > 0 && html.li({}, `${percent(limits.check_share)} are left to people as a sample.`),
        limits?.expires_at && html.li({}, `Expires ${formatTime(parseTime(limits.expires_at, Date.now()))}.`),
        suggestion.replaces.length > 0 && html.li({}, `Replaces ${oneLine(suggestion.replaces.join(", "), 160)}.`),
        html.li(
          {},
          "A rejection, an objection, a removed member, a changed tool or an unusual argument suspends it until someone resumes it.",
        ),
      ),
    ],
    {
      verb: "Accept rule",
      act: () => runCommand(context, approverState, "trust/accept", { suggestion: suggestion.suggestion }),
    },
  );
  /** @type {HTMLElement | null} */ (dialog.node.querySelector(".dialog-actions .primary"))?.focus();
}

/** Who has accepted it, where several people have to. @param {Suggestion} suggestion */
function halfAccepted(suggestion) {
  const by = Array.isArray(suggestion.accepted_by) ? suggestion.accepted_by : [];
  if (by.length === 0) return null;
  return html.div(
    { class: "rules-box", data: { tone: "info" } },
    icon("help", 18),
    html.div(
      {},
      html.p(
        {},
        html.strong(
          {},
          "Accepted by ",
          by.slice(0, 10).map((each, index) => [index > 0 && ", ", nameOf(String(each))]),
        ),
        `. ${Number(suggestion.accepting_people)} people have to accept it; until then it decides nothing.`,
      ),
      isObject(suggestion.accepted_rule) &&
        html.div({}, html.p({}, "They accepted less than was suggested:"), ruleText(suggestion.accepted_rule)),
    ),
  );
}

/** The possible answers to a suggestion. @type {{id: string, label: string, key: string, class?: string, grant?: boolean, run: (context: Context, approverState: ApproverState, suggestion: Suggestion) => void}[]} */
export const SUGGESTION_ACTIONS = [
  { id: "accept", label: "Accept…", key: "a", class: "primary", run: acceptDialog },
  { id: "narrow", label: "Narrow and accept…", key: "n", run: narrowDialog },
  { id: "grant", label: "Grant instead…", key: "e", grant: true, run: grantDialog },
  { id: "dismiss", label: "Dismiss…", key: "d", class: "quiet", run: dismissDialog },
];

/**
 * @param {Context} context @param {ApproverState} approverState @param {Suggestion} suggestion
 * @param {{may: (kind: string) => boolean, first: boolean}} options
 */
export function suggestionCard(context, approverState, suggestion, options) {
  const may = (/** @type {(typeof SUGGESTION_ACTIONS)[0]} */ each) =>
    approverState.isOnline &&
    options.may(each.id === "dismiss" ? "trust/dismiss" : "trust/accept") &&
    (!each.grant || (suggestion.grant !== null && options.may("capability/grant")));
  const id = `suggestion-${suggestion.suggestion}`;
  return html.li(
    {
      class: "card suggestion",
      tabindex: "-1",
      "aria-labelledby": id,
      data: { suggestion: suggestion.suggestion, focus: id },
    },
    html.div(
      { class: "suggestion-head" },
      html.span(
        { class: "tag", data: { tone: suggestion.rule.decision === "reject" ? "bad" : "good" } },
        suggestion.rule.decision === "reject" ? "reject" : "approve",
      ),
      html.h3({ id }, html.bdi({}, escapeHidden(suggestion.words))),
    ),
    html.div(
      { class: "suggestion-facts" },
      html.div(
        { class: "fact" },
        html.span({}, "learned from "),
        html.strong({}, String(suggestion.decisions)),
        html.span(
          {},
          suggestion.decisions === 1 ? " decision by " : " decisions by ",
          suggestion.deciders.slice(0, 5).map((each, index) => [index > 0 && ", ", nameOf(each)]),
        ),
      ),
      html.div(
        { class: "fact", data: { tone: "warn" } },
        html.span({}, "error rate up to "),
        html.strong({}, percent(suggestion.error_bound)),
        html.span({}, " (95 % confidence)"),
      ),
      suggestion.new_bound !== null &&
        suggestion.new_bound > suggestion.error_bound &&
        html.div(
          { class: "fact", data: { tone: "warn" } },
          html.span({}, "error rate up to "),
          html.strong({}, percent(suggestion.new_bound)),
          html.span({}, " for values not seen before"),
        ),
      html.div(
        { class: "fact" },
        html.span({}, "agrees with "),
        html.strong(
          {},
          `${suggestion.back_test.agreements} of ${suggestion.back_test.agreements + suggestion.back_test.conflicts.length}`,
        ),
        html.span({}, " past decisions"),
      ),
    ),
    halfAccepted(suggestion),
    html.details(
      { data: { fold: `more-${suggestion.suggestion}` } },
      html.summary({}, "Back-test and alternatives"),
      html.p({ class: "soft" }, html.bdi({}, escapeHidden(suggestion.evidence))),
      html.div(
        { class: "suggestion-more" },
        edges(suggestion),
        backTest(context, suggestion),
        html.div({}, html.h4({}, "As a permission of the agent"), permissionSteps(context, suggestion)),
      ),
    ),
    html.details(
      { data: { fold: `text-${suggestion.suggestion}` } },
      html.summary({}, "Rule text"),
      ruleText(suggestion.rule),
    ),
    html.div(
      { class: "control-row", role: "group", "aria-label": "Decide on this suggestion" },
      SUGGESTION_ACTIONS.map((each) =>
        button(each.label, () => each.run(context, approverState, suggestion), {
          class: each.class,
          shortcut: options.first ? each.key : undefined,
          disabled: !may(each),
          title:
            each.grant && suggestion.grant === null
              ? `Cannot be granted: ${oneLine(suggestion.no_grant ?? "", 120)}`
              : undefined,
          data: { focus: `${each.id}-${suggestion.suggestion}` },
        }),
      ),
    ),
  );
}
