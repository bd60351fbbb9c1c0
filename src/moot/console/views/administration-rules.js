// @ts-check
/** Groups → rights: what the rules of the configuration say, in words, and whom they have let in. */
import { el } from "../core/dom.js";
import { nameOf, oneLine } from "../core/text.js";
import { counted, hostOf, rightsList } from "./administration-tokens.js";
import { roleOf } from "./capability-text.js";
import { icon } from "./icons.js";

/** @typedef {import("../core/administration.js").ProviderRules} ProviderRules @typedef {import("../core/administration.js").SignInRule} SignInRule @typedef {import("../core/administration.js").AdminToken} AdminToken */

// Claims that have a name among people; the others are said as they are.
const IN_WORDS = {
  groups: "in the group", roles: "with the role", "realm_access.roles": "with the role", "cognito:groups": "in the group",
  client_id: "that use the program", azp: "that use the program", appid: "that use the program", cid: "that use the program",
  email: "with the address", hd: "of the domain", sub: "with the id",
};
const MAX_NAMES = 20;

/** @param {string} space @param {ProviderRules[]} providers @param {AdminToken[]} tokens */
export function ruleCards(space, providers, tokens) {
  if (providers.length === 0) return el("div", { class: "empty" }, icon("rules", 24), el("strong", {}, "No identity provider"), el("p", {}, "Members come in with tokens of the gateway. With gateway.oidc, rules give rights to groups and programs of your provider."));
  return providers.map((provider) => {
    const others = provider.all_rules - provider.rules.length;
    return el("section", { class: "rules-part", "aria-label": oneLine(provider.issuer, 120) },
      el("h2", {}, el("bdi", {}, oneLine(provider.issuer, 120))),
      el("p", { class: "soft" }, "The first rule that matches an account decides; whoever matches none is refused.", others > 0 && ` ${counted(others, "rule")} for other spaces ${others === 1 ? "is" : "are"} not shown.`),
      provider.rules.length === 0 && el("p", {}, `No rule of this provider lets anybody into ${oneLine(space, 60)}.`),
      provider.rules.map((rule) => ruleCard(rule, tokens.filter((each) => each.rule === rule.number && each.issuer === provider.issuer))));
  });
}

/** Whom a rule means. @param {SignInRule} rule */
function whom(rule) {
  const claims = Object.entries(rule.match).filter(([claim, values]) => claim !== "sub" || !values.includes("*"));
  if (claims.length === 0) return ["Every account of the provider"];
  return ["Accounts ", claims.map(([claim, values], index) => [
    index > 0 && " and ",
    Object.hasOwn(IN_WORDS, claim) ? IN_WORDS[/** @type {keyof typeof IN_WORDS} */ (claim)] : ["with ", el("bdi", { class: "mono" }, oneLine(claim, 80)), " ="],
    values.map((value, place) => [place > 0 ? " or " : " ", el("bdi", { class: "mono" }, oneLine(value, 80))]),
  ])];
}

/** How they are called here: claims of their token, or a name. @param {string} template */
function calledAs(template) {
  const parts = template.split(/(\{[^}]*\})/).filter(Boolean);
  const named = parts.map((part) => (part.startsWith("{") ? el("em", {}, oneLine(part.slice(1, -1), 60)) : el("bdi", {}, oneLine(part, 60))));
  return [parts.length === 1 && template.startsWith("{") ? "come in under their " : "come in as ", named];
}

/** @param {SignInRule} rule @param {AdminToken[]} tokens of those who came in by it */
function ruleCard(rule, tokens) {
  const names = [...new Set(tokens.map((each) => each.participant))].sort((a, b) => a.localeCompare(b));
  const rights = rule.capabilities;
  return el("article", { class: "card rule administration-rule", data: { rule: rule.number }, "aria-label": `Rule ${rule.number}` },
    el("div", { class: "rule-head" }, el("span", { class: "rule-number" }, String(rule.number)),
      el("div", { class: "grow" },
        el("h3", { class: "rule-whom" }, whom(rule), rule.administrator && [" ", el("span", { class: "tag", data: { tone: "accent" } }, "administers this space")]),
        rule.enters && el("p", {}, calledAs(rule.participant)),
        !rule.enters && el("p", { class: "soft" }, "do not enter this space as members."),
        rule.enters && rights !== undefined && el("details", { data: { fold: `rule-${rule.number}` } }, el("summary", {}, "Rights: ", roleOf(rights), rule.profile !== undefined && ` (profile ${oneLine(rule.profile, 60)})`), rightsList(rights)),
        rule.enters && rights === undefined && el("p", {}, "Rights: as the configuration gives them to that participant."),
        rule.enters && el("p", { class: "soft" }, names.length === 0 ? "Nobody is signed in by it now." : ["Signed in now: ", names.slice(0, MAX_NAMES).map((name, index) => [index > 0 && ", ", nameOf(name)]), names.length > MAX_NAMES && ` and ${names.length - MAX_NAMES} more`]))));
}
