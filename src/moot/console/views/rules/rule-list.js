/** The rules in their order: how often each decided, its state, why it is suspended, and recent decisions by rules. */
import { button, html, replace } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { ago, isoTime } from "../../core/page/time.js";
import { icon } from "../parts/icons.js";
import { runCommand, objectDialog, removeDialog, suspendDialog } from "./rule-commands.js";
import { percent } from "./rule-suggestion.js";
import { ruleText } from "./rule-text.js";
import { openDialog } from "../parts/dialog.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("./approver-state.js").ApproverState} ApproverState @typedef {import("./rule-record.js").RuleState} RuleState */

const TONES = { active: "good", suspended: "warn", observing: "accent", expired: "" };

/** What an active rule does at this moment. @param {ApproverState} approverState @param {RuleState} shown @returns {[string, string]} word and tone */
function effectOf(approverState, shown) {
  const { record } = approverState;
  if (record?.stopped || record?.fault) return ["stopped", "bad"];
  if (!approverState.isOnline) return ["not applied", "warn"];
  if (record?.observe || shown.rule.observe === true) return ["only observes", "accent"];
  if (record?.budgetLeft === 0 || record?.left(String(shown.rule.name)) === 0) return ["limit reached", "warn"];
  return ["active", "good"];
}

/** @param {ApproverState} approverState @param {RuleState} shown */
export function stateTag(approverState, shown) {
  if (shown.state === "active") {
    const [word, tone] = effectOf(approverState, shown);
    return html.span({ class: "tag", data: { tone } }, word);
  }
  return html.span(
    { class: "tag", data: { tone: TONES[shown.state] ?? "" } },
    shown.state === "suspended" && icon("pause", 12),
    shown.state === "observing" ? "only observes" : shown.state,
  );
}

/** @param {number} hits */
export function hitCount(hits) {
  return [html.strong({}, formatNumber(hits)), html.span({ class: "faint" }, hits === 1 ? "decision" : "decisions")];
}

/** @param {number} count */
function reviewLabel(count) {
  return `Review ${formatNumber(count)} ${count === 1 ? "decision" : "decisions"}…`;
}

/** @type {Record<string, string>} */
const UNITS = { s: "second", m: "minute", h: "hour", d: "day", w: "week" };

/** "day" for `1d`, "15 minutes" for `15m`; anything else as it is. @param {unknown} period */
export function periodText(period) {
  const [, count, unit] = /^([1-9][0-9]*)([smhdw])$/.exec(String(period)) ?? [];
  if (!unit) return oneLine(String(period), 20);
  return count === "1" ? UNITS[unit] : `${formatNumber(Number(count))} ${UNITS[unit]}s`;
}

/** @param {number} left */
export function leftText(left) {
  return left === 0 ? "none left; people decide for now" : `${formatNumber(left)} left`;
}

/** @param {Context} context @param {ApproverState} approverState @param {RuleState} shown @param {{may: (kind: string) => boolean, at: number}} options */
export function ruleCard(context, approverState, shown, options) {
  const rule = shown.rule;
  const name = String(rule.name);
  const record = approverState.record;
  const hits = record?.hits(name) ?? 0;
  const observe = record?.observed?.[name];
  const { origin, limits } = rule;
  // One exact call, or the reads of one tool: nothing to suspend.
  const isRemembered = /^(again|reads)-.*-[0-9a-f]{10}$/.test(name);
  return html.li(
    {
      class: "card rule",
      tabindex: "-1",
      "aria-label": `Rule ${options.at}: ${oneLine(name, 60)}`,
      data: { rule: name, focus: `rule-${name}`, state: shown.state },
    },
    html.div(
      { class: "rule-head" },
      html.span({ class: "rule-number", "aria-hidden": "true" }, String(options.at)),
      html.div(
        { class: "grow" },
        html.div(
          { class: "rule-title" },
          html.h3({}, html.bdi({}, oneLine(name, 64))),
          html.span(
            {
              class: "tag",
              data: { tone: rule.decision === "reject" ? "bad" : rule.decision === "approve" ? "good" : "" },
            },
            oneLine(rule.decision ?? "", 12),
          ),
          html.span({ data: { effect: name } }, stateTag(approverState, shown)),
        ),
        html.p({}, html.bdi({}, escapeHidden(shown.words || rule.words || ""))),
      ),
      html.div({ class: "rule-hits", data: { hits: name } }, hitCount(hits)),
    ),
    shown.state === "suspended" &&
      html.p(
        { class: "suspension-reason" },
        icon("warning", 16),
        html.span(
          {},
          "Suspended: ",
          html.bdi({}, escapeHidden(shown.why)),
          shown.resumedBy.length > 0 && [
            ". Resumed by ",
            shown.resumedBy.slice(0, 8).map((each, index) => [index > 0 && ", ", nameOf(each)]),
            "; another person has to, too",
          ],
        ),
      ),
    html.p(
      { class: "soft small-text" },
      [
        limits?.count !== undefined && [
          `at most ${formatNumber(limits.count)} per ${periodText(limits.per)}`,
          shown.left !== null && [
            ", ",
            html.span({ data: { left: name } }, leftText(record?.left(name) ?? shown.left)),
          ],
        ],
        limits?.check_share > 0 && `${percent(limits.check_share)} left to people as a sample`,
        limits?.review_share > 0 && "people review what it decided",
        limits?.while_present?.length > 0 &&
          `only while ${oneLine(limits.while_present.join(" and "), 80)} ${limits.while_present.length === 1 ? "is" : "are"} online`,
        limits?.expires_at && `until ${oneLine(limits.expires_at, 20).slice(0, 10)}`,
        origin?.accepted_by && [
          "accepted by ",
          nameOf(origin.accepted_by),
          origin.accepted && `, ${ago(Date.parse(origin.accepted))}`,
        ],
        !origin?.accepted_by && "written manually",
        observe &&
          `observed: agreed with ${formatNumber(observe.agreements)} of ${formatNumber(observe.agreements + observe.conflicts)} ${observe.agreements + observe.conflicts === 1 ? "decision" : "decisions"}`,
      ]
        .filter(Boolean)
        .map((each, index) => [index > 0 && " · ", /** @type {any} */ (each)]),
    ),
    shown.reviewDue &&
      html.p({ class: "warn-text" }, "Please review what it decided. If nobody does, it leaves decisions to people."),
    html.div(
      { class: "control-row" },
      shown.unreviewed > 0 &&
        button(
          reviewLabel(shown.unreviewed),
          () => reviewDialog(context, approverState, name, options.may("trust/stop")),
          {
            class: shown.reviewDue ? "small primary" : "small quiet",
            disabled: !approverState.isOnline || !options.may("trust/accept"),
            data: { focus: `review-${name}` },
            aria: { label: `${reviewLabel(shown.unreviewed)} of ${oneLine(name, 60)}` },
          },
        ),
      button(
        rule.observe === true ? "Turn on" : "Only observe",
        () => void runCommand(context, approverState, "trust/accept", { observe: name, on: rule.observe !== true }),
        {
          class: "small quiet",
          disabled: !approverState.isOnline || !options.may("trust/accept"),
          data: { focus: `observe-${name}` },
          aria: { label: `${rule.observe === true ? "Turn on" : "Only observe"}: ${oneLine(name, 60)}` },
        },
      ),
      shown.state === "suspended"
        ? button("Resume rule", () => void runCommand(context, approverState, "trust/accept", { lift: name }), {
            class: "small good",
            shortcut: "l",
            disabled: !approverState.isOnline || !options.may("trust/accept"),
            data: { focus: `lift-${name}` },
            aria: { label: `Resume rule ${oneLine(name, 60)}` },
          })
        : !isRemembered &&
            button("Suspend…", () => suspendDialog(context, approverState, name), {
              class: "small danger",
              disabled: !options.may("trust/stop"),
              data: { focus: `stop-${name}` },
              aria: { label: `Suspend ${oneLine(name, 60)}` },
            }),
      button(isRemembered ? "Forget…" : "Remove…", () => removeDialog(context, approverState, name, isRemembered), {
        class: "small quiet",
        disabled: !approverState.isOnline || !options.may("trust/accept"),
        data: { focus: `remove-${name}` },
        aria: { label: `${isRemembered ? "Forget" : "Remove"} ${oneLine(name, 60)}` },
      }),
      html.details(
        { class: "rule-fold", data: { fold: `rule-${name}` } },
        html.summary({}, "Rule text"),
        ruleText(rule),
      ),
    ),
  );
}

/** Recent decisions by rules. @param {Context} context @param {ApproverState} approverState @param {{may: (kind: string) => boolean, max: number, why: (id: string) => void}} options */
export function recentDecisions(context, approverState, options) {
  const acts = approverState.latest(options.max);
  if (acts.length === 0) return html.p({ class: "soft" }, "No decisions by rules since you joined.");
  return html.ul(
    { class: "rule-decisions" },
    acts.map((each) => {
      const proposal = context.state.proposals.byId.get(each.proposal);
      return html.li(
        {},
        html.span(
          { class: "tag", data: { tone: each.approved ? "good" : "bad" } },
          each.approved ? "approved" : "rejected",
        ),
        html.span(
          { class: "grow" },
          html.a({ href: context.link("timeline", each.proposal) }, html.bdi({}, oneLine(each.tool, 60))),
          proposal && [" from ", nameOf(proposal.from)],
          html.small(
            { class: "faint" },
            " by ",
            html.bdi({}, oneLine(each.rule, 60)),
            ", ",
            html.time({ datetime: isoTime(each.at) }, ago(each.at)),
          ),
          html.small(
            { class: "act-summary" },
            html.bdi({}, oneLine(context.state.envelopes.byId(each.proposal)?.summary ?? "", 120)),
          ),
        ),
        html.span(
          { class: "act-buttons" },
          button("Explain", () => options.why(each.proposal), {
            class: "quiet small",
            disabled: !approverState.isOnline,
            data: { focus: `why-${each.proposal}` },
            aria: { label: `Explain ${oneLine(each.tool, 60)}` },
          }),
          button("Object…", () => objectDialog(context, approverState, each), {
            class: "quiet small",
            disabled: !options.may("trust/stop"),
            data: { focus: `object-${each.proposal}` },
            aria: { label: `Object to ${oneLine(each.tool, 60)}` },
          }),
        ),
      );
    }),
  );
}

/** What a rule decided and nobody has reviewed: a person says that it was right, or objects to a decision (trust_reviews). @param {Context} context @param {ApproverState} approverState @param {string} rule @param {boolean} mayObject */
function reviewDialog(context, approverState, rule, mayObject) {
  const list = html.div({ class: "review-list", role: "status" }, html.p({ class: "soft" }, "Loading…"));
  /** @type {string[]} */
  let shown = [];
  const confirm = button("All correct", () => void run(), { class: "primary", disabled: true });
  const dialog = openDialog(
    `Review ${oneLine(rule, 60)}`,
    [
      html.p(
        {},
        "The rule decided these by itself. If one was wrong, object to it: the rule is suspended, and learns from it.",
      ),
      list,
    ],
    { actions: [button("Cancel", () => dialog.close(), { class: "quiet" }), confirm] },
  );
  async function run() {
    confirm.disabled = true;
    // Only what was shown: the rule may have decided more meanwhile.
    if (await runCommand(context, approverState, "trust/accept", { reviewed: shown })) dialog.close();
    else confirm.disabled = false;
  }
  void fill();
  async function fill() {
    try {
      const known = await approverState.query("trust_reviews");
      const found = (Array.isArray(known.reviews) ? known.reviews : []).find(
        (/** @type {any} */ each) => each?.rule === rule,
      );
      const decisions = Array.isArray(found?.decisions) ? found.decisions : [];
      shown = decisions.map((/** @type {any} */ each) => String(each?.id));
      confirm.disabled = shown.length === 0;
      replace(
        list,
        shown.length === 0
          ? html.p({ class: "soft" }, "Nothing to review.")
          : html.ul(
              { class: "rule-decisions" },
              decisions.map((/** @type {any} */ each) => line(each)),
            ),
      );
    } catch (fault) {
      const text = approverState.isOnline
        ? oneLine(fault instanceof Error ? fault.message : String(fault), 300)
        : "No approver is online.";
      replace(list, html.div({ class: "refusal-box", role: "alert" }, icon("warning", 16), html.p({}, text)));
    }
  }
  /** @param {any} each */
  function line(each) {
    const id = String(each.id);
    const object = () => {
      dialog.close();
      objectDialog(context, approverState, {
        proposal: id,
        id,
        n: 0,
        rule,
        at: 0,
        from: "",
        tool: String(each.tool ?? ""),
        approved: true,
      });
    };
    return html.li(
      {},
      html.span(
        { class: "grow" },
        html.a({ href: context.link("timeline", id) }, html.bdi({}, oneLine(String(each.tool ?? id), 60))),
        each.proposer && [" from ", nameOf(String(each.proposer))],
        html.small(
          { class: "act-summary" },
          html.bdi({}, escapeHidden(oneLine(JSON.stringify(each.arguments ?? {}), 300))),
        ),
      ),
      button("Object…", object, {
        class: "quiet small",
        disabled: !mayObject,
        data: { focus: `review-object-${id}` },
        aria: { label: `Object to ${oneLine(String(each.tool ?? id), 60)}` },
      }),
    );
  }
}
