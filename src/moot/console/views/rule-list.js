// @ts-check
/** The rules in their order: how often each decided, its state, why it is suspended, and recent decisions by rules. */
import { button, el } from "../core/dom.js";
import { nameOf, oneLine, escapeHidden } from "../core/text.js";
import { ago, isoTime } from "../core/time.js";
import { icon } from "./icons.js";
import { runCommand, objectDialog, suspendDialog } from "./rule-commands.js";
import { percent } from "./rule-suggestion.js";
import { ruleText } from "./rule-text.js";

/** @typedef {import("../app.js").Context} Context @typedef {import("./approver-state.js").ApproverState} ApproverState @typedef {import("./approver-state.js").RuleState} RuleState */

const TONES = { active: "good", suspended: "warn", expired: "" };

/** @param {RuleState} shown @param {boolean} stopped */
function stateTag(shown, stopped) {
  if (stopped && shown.state === "active") return el("span", { class: "tag", data: { tone: "bad" } }, "stopped");
  return el("span", { class: "tag", data: { tone: TONES[shown.state] ?? "" } }, shown.state === "suspended" && icon("pause", 12), shown.state);
}

/** @param {number} hits */
export function hitCount(hits) {
  return [el("strong", {}, hits.toLocaleString("en")), el("span", { class: "faint" }, hits === 1 ? "decision" : "decisions")];
}

/** @param {number} left */
export function leftText(left) {
  return `${left.toLocaleString("en")} left`;
}

/** @param {Context} context @param {ApproverState} approverState @param {RuleState} shown @param {{may: (kind: string) => boolean, at: number}} options */
export function ruleCard(context, approverState, shown, options) {
  const rule = shown.rule;
  const name = String(rule.name);
  const record = approverState.record;
  const hits = record?.hits(name) ?? 0;
  const shadow = record?.shadows?.[name];
  const { origin, limits } = rule;
  return el("li", { class: "card rule", tabindex: "-1", "aria-label": `Rule ${options.at}: ${oneLine(name, 60)}`, data: { rule: name, focus: `rule-${name}`, state: shown.state } },
    el("div", { class: "rule-head" },
      el("span", { class: "rule-number", "aria-hidden": "true" }, String(options.at)),
      el("div", { class: "grow" },
        el("div", { class: "rule-title" }, el("h3", {}, el("bdi", {}, oneLine(name, 64))), el("span", { class: "tag", data: { tone: rule.decision === "reject" ? "bad" : rule.decision === "approve" ? "good" : "" } }, oneLine(rule.decision ?? "", 12)), stateTag(shown, record?.stopped !== null || record?.fault !== "")),
        el("p", {}, el("bdi", {}, escapeHidden(shown.words || rule.words || "")))),
      el("div", { class: "rule-hits", data: { hits: name } }, hitCount(hits))),
    shown.state === "suspended" && el("p", { class: "suspension-reason" }, icon("warning", 16), el("span", {}, "Suspended: ", el("bdi", {}, escapeHidden(shown.why)))),
    el("p", { class: "soft small-text" }, [
      limits?.count !== undefined && [`at most ${limits.count} per ${limits.per}`, shown.left !== null && [", ", el("span", { data: { left: name } }, leftText(record?.left(name) ?? shown.left))]],
      limits?.check > 0 && `${percent(limits.check)} left to people as a sample`,
      limits?.while_present?.length > 0 && `only while ${oneLine(limits.while_present.join(" and "), 80)} ${limits.while_present.length === 1 ? "is" : "are"} online`,
      limits?.expires && `until ${oneLine(limits.expires, 20).slice(0, 10)}`,
      origin?.accepted_by && ["accepted by ", nameOf(origin.accepted_by), origin.accepted && `, ${ago(Date.parse(origin.accepted))}`],
      !origin?.accepted_by && "written manually",
      shadow && `in shadow mode: agreed with ${shadow.agreements} of ${shadow.agreements + shadow.conflicts} decisions`,
    ].filter(Boolean).map((each, index) => [index > 0 && " · ", /** @type {any} */ (each)])),
    el("div", { class: "control-row" },
      shown.state === "suspended"
        ? button("Resume rule", () => void runCommand(context, approverState, "trust/accept", { lift: name }), { class: "small good", shortcut: "l", disabled: !approverState.isOnline || !options.may("trust/accept"), data: { focus: `lift-${name}` }, aria: { label: `Resume rule ${oneLine(name, 60)}` } })
        : button("Suspend…", () => suspendDialog(context, approverState, name), { class: "small danger", disabled: !options.may("trust/stop"), data: { focus: `stop-${name}` }, aria: { label: `Suspend ${oneLine(name, 60)}` } }),
      el("details", { class: "rule-fold", data: { fold: `rule-${name}` } }, el("summary", {}, "Rule text"), ruleText(rule))));
}

/** Recent decisions by rules. @param {Context} context @param {ApproverState} approverState @param {{may: (kind: string) => boolean, max: number, why: (id: string) => void}} options */
export function recentDecisions(context, approverState, options) {
  const acts = approverState.latest(options.max);
  if (acts.length === 0) return el("p", { class: "soft" }, "No decisions by rules since you joined.");
  return el("ul", { class: "rule-decisions" }, acts.map((each) => {
    const proposal = context.state.proposals.byId.get(each.proposal);
    return el("li", {},
      el("span", { class: "tag", data: { tone: each.approved ? "good" : "bad" } }, each.approved ? "approved" : "rejected"),
      el("span", { class: "grow" }, el("a", { href: context.link("timeline", each.proposal) }, el("bdi", {}, oneLine(each.tool, 60))), proposal && [" from ", nameOf(proposal.from)], el("small", { class: "faint" }, " by ", el("bdi", {}, oneLine(each.rule, 60)), ", ", el("time", { datetime: isoTime(each.at) }, ago(each.at))),
        el("small", { class: "act-summary" }, el("bdi", {}, oneLine(context.state.envelopes.byId(each.proposal)?.summary ?? "", 120)))),
      el("span", { class: "act-buttons" }, button("Explain", () => options.why(each.proposal), { class: "quiet small", disabled: !approverState.isOnline, data: { focus: `why-${each.proposal}` }, aria: { label: `Explain ${oneLine(each.tool, 60)}` } }),
      button("Object…", () => objectDialog(context, approverState, each), { class: "quiet small", disabled: !options.may("trust/stop"), data: { focus: `object-${each.proposal}` }, aria: { label: `Object to ${oneLine(each.tool, 60)}` } })));
  }));
}
