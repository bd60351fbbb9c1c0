// @ts-check
/** The rules that decide, in their order: how often each did, how it stands, why it is suspended, and what they did lately. */
import { button, el } from "../core/dom.js";
import { nameOf, oneLine, visible } from "../core/text.js";
import { ago, longTime } from "../core/time.js";
import { icon } from "./icons.js";
import { act, objectDialog, stopDialog } from "./trust-acts.js";
import { percent } from "./trust-suggestion.js";
import { ruleText } from "./trust-yaml.js";

/** @typedef {import("../app.js").Context} Context @typedef {import("./trust-state.js").Trust} Trust @typedef {import("./trust-state.js").RuleState} RuleState */

const TONES = { active: "good", suspended: "warn", expired: "" };

/** @param {RuleState} shown @param {boolean} stopped */
function standing(shown, stopped) {
  if (stopped && shown.state === "active") return el("span", { class: "tag", data: { tone: "bad" } }, "stopped with all");
  return el("span", { class: "tag", data: { tone: TONES[shown.state] ?? "" } }, shown.state === "suspended" && icon("pause", 12), shown.state);
}

/** @param {number} hits */
export function hitWords(hits) {
  return [el("strong", {}, hits.toLocaleString("en")), el("span", { class: "faint" }, hits === 1 ? "decision" : "decisions")];
}

/** @param {Context} context @param {Trust} trust @param {RuleState} shown @param {{may: (kind: string) => boolean, at: number}} how */
export function ruleCard(context, trust, shown, how) {
  const rule = shown.rule;
  const name = String(rule.name);
  const book = trust.book;
  const hits = book?.hits(name) ?? 0;
  const record = book?.shadows?.[name];
  const { origin, limits } = rule;
  return el("li", { class: "card rule", tabindex: "-1", "aria-label": `Rule ${how.at}: ${oneLine(name, 60)}`, data: { rule: name, place: `rule-${name}`, state: shown.state } },
    el("div", { class: "rule-head" },
      el("span", { class: "rule-number", "aria-hidden": "true" }, String(how.at)),
      el("div", { class: "grow" },
        el("div", { class: "rule-title" }, el("h3", {}, el("bdi", {}, oneLine(name, 64))), el("span", { class: "tag", data: { tone: rule.decision === "reject" ? "bad" : rule.decision === "approve" ? "good" : "" } }, oneLine(rule.decision ?? "", 12)), standing(shown, book?.stopped !== null || book?.fault !== "")),
        el("p", {}, el("bdi", {}, visible(shown.words || rule.words || "")))),
      el("div", { class: "rule-hits", data: { hits: name } }, hitWords(hits))),
    shown.state === "suspended" && el("p", { class: "why-suspended" }, icon("warning", 16), el("span", {}, "Suspended: ", el("bdi", {}, visible(shown.why)))),
    el("p", { class: "soft small-words" }, [
      limits?.count !== undefined && `at most ${limits.count} in ${limits.per}${shown.left !== null ? `, ${shown.left} left` : ""}`,
      limits?.check > 0 && `${percent(limits.check)} left to people as a check`,
      limits?.while_present?.length > 0 && `only while ${oneLine(limits.while_present.join(" and "), 80)} is here`,
      limits?.expires && `until ${oneLine(limits.expires, 20).slice(0, 10)}`,
      origin?.accepted_by && ["accepted by ", nameOf(origin.accepted_by), origin.accepted && `, ${ago(Date.parse(origin.accepted))}`],
      !origin?.accepted_by && "written by hand",
      record && `in the shadow: ${record.agreements} as people decided, ${record.conflicts} otherwise`,
    ].filter(Boolean).map((each, index) => [index > 0 && " · ", /** @type {any} */ (each)])),
    el("div", { class: "control-row" },
      shown.state === "suspended"
        ? button("Lift", () => void act(context, trust, "trust/accept", { lift: name }), { class: "small good", shortcut: "l", disabled: !trust.here || !how.may("trust/accept"), data: { place: `lift-${name}` }, aria: { label: `Lift the suspension of ${oneLine(name, 60)}` } })
        : button("Suspend…", () => stopDialog(context, trust, name), { class: "small danger", disabled: !how.may("trust/stop"), data: { place: `stop-${name}` }, aria: { label: `Suspend ${oneLine(name, 60)}` } }),
      el("details", { class: "rule-fold", data: { fold: `rule-${name}` } }, el("summary", {}, "As text"), ruleText(rule))));
}

/** What rules decided lately. @param {Context} context @param {Trust} trust @param {{may: (kind: string) => boolean, most: number, why: (id: string) => void}} how */
export function latestActs(context, trust, how) {
  const acts = trust.latest(how.most);
  if (acts.length === 0) return el("p", { class: "soft" }, "No rule has decided anything since you came.");
  return el("ul", { class: "acts" }, acts.map((each) => {
    const proposal = context.state.proposals.byId.get(each.proposal);
    return el("li", {},
      el("span", { class: "tag", data: { tone: each.approved ? "good" : "bad" } }, each.approved ? "approved" : "rejected"),
      el("span", { class: "grow" }, el("a", { href: context.link("timeline", each.proposal) }, el("bdi", {}, oneLine(each.tool, 60))), proposal && [" of ", nameOf(proposal.from)], el("small", { class: "faint" }, " by ", el("bdi", {}, oneLine(each.rule, 60)), ", ", el("time", { datetime: longTime(each.at) }, ago(each.at))),
        el("small", { class: "act-words" }, el("bdi", {}, oneLine(context.state.envelopes.byId(each.proposal)?.words ?? "", 120)))),
      el("span", { class: "act-buttons" }, button("Why?", () => how.why(each.proposal), { class: "quiet small", disabled: !trust.here, data: { place: `why-${each.proposal}` }, aria: { label: `Why: ${oneLine(each.tool, 60)}` } }),
      button("Object…", () => objectDialog(context, trust, each), { class: "quiet small", disabled: !how.may("trust/stop"), data: { place: `object-${each.proposal}` }, aria: { label: `Object to ${oneLine(each.tool, 60)}` } })));
  }));
}
