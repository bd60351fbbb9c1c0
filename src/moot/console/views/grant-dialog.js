// @ts-check
/**
 * Approve and grant: what the proposer may do without asking, and for how long, in words and with examples.
 * Exactly the capability that the dialog shows (folded, as JSON) is granted.
 */
import { button, el, newId, replace } from "../core/dom.js";
import { formatJson, parseForDisplay } from "../core/json-text.js";
import { nameOf, oneLine, escapeHidden } from "../core/text.js";
import { describeCapability } from "./capability-text.js";
import { obstacleText } from "./proposal-decisions.js";
import { afterDelay, onCtrlEnter, watchProposals } from "./approvals-dialogs.js";
import { capabilityError, grantScopes } from "./grant-scopes.js";
import { grantExamples } from "./grant-examples.js";
import { GRANT_TERMS } from "./grant-terms.js";
import { openDialog } from "./dialog.js";
import { coveredBy } from "./capability-covers.js";
import { icon } from "./icons.js";

/** @typedef {import("../core/state-proposals.js").Proposal} Proposal */
/** @typedef {import("./proposal-decisions.js").ReviewedProposal} Shown */

// Visible rows of the capability; the rest scrolls.
const MAX_LINES = 18;
// Long enough for the work at hand, short enough to be forgotten without harm.
const DEFAULT_TERM = "hour";

/**
 * @param {import("../app.js").Context} context @param {Proposal} proposal @param {Shown} shown @param {Node} summary
 * @param {(capability: string, term: import("./grant-terms.js").GrantTerm) => void} decide
 */
export function grantDialog(context, proposal, shown, summary, decide) {
  const { state } = context;
  const scopes = grantScopes(state, proposal);
  const group = newId("grant");
  const editor = el("textarea", { class: "field mono capability-text", id: newId("capability"), rows: "8", spellcheck: "false", autocapitalize: "off", "aria-describedby": `${group}-meaning` });
  const json = el("details", { class: "capability-json" }, el("summary", {}, "Capability as JSON"), el("label", { for: editor.id }, "Capability"), editor);
  const meaning = el("section", { class: "grant-meaning", id: `${group}-meaning`, "aria-label": "What this grant means", "aria-live": "polite" });
  const fault = el("p", { class: "fault", role: "status" });
  let chosen = Math.max(0, scopes.findIndex((each) => each.text));
  let term = GRANT_TERMS.find((each) => each.name === DEFAULT_TERM) ?? GRANT_TERMS[0];
  const custom = scopes[scopes.length - 1];
  let edited = custom.text || (scopes.find((each) => each.name === "tool")?.text ?? "");
  const radios = scopes.map((scope, index) => {
    const able = scope.text !== "" || scope === custom;
    const radio = el("input", { type: "radio", name: `${group}-scope`, value: scope.name, checked: index === chosen, disabled: !able, on: { change: () => choose(index) } });
    return { radio, node: el("label", { class: "choice card-choice" }, radio, el("span", {}, el("strong", {}, escapeHidden(scope.title)), el("small", {}, able ? escapeHidden(scope.description) : `Not available: ${escapeHidden(scope.obstacle)}`))) };
  });
  const terms = GRANT_TERMS.map((each) => el("label", { class: "choice card-choice term-choice" }, el("input", { type: "radio", name: `${group}-term`, value: each.name, checked: each === term, on: { change: () => {
    term = each;
    look();
  } } }), el("span", {}, each.title)));
  const choose = (/** @type {number} */ index) => {
    chosen = index;
    const isCustom = scopes[index] === custom;
    editor.readOnly = !isCustom;
    editor.value = editableText(isCustom ? edited : scopes[index].text);
    editor.rows = Math.min(MAX_LINES, Math.max(4, editor.value.split("\n").length));
    if (isCustom) json.open = true;
    look();
  };
  const look = () => {
    const wrong = hasHidden(editor.value) ? "Write invisible characters as \\u escapes." : capabilityError(state, proposal, editor.value);
    const late = obstacleText(context, shown);
    replace(fault, escapeHidden(late || wrong));
    editor.setAttribute("aria-invalid", String(wrong !== ""));
    replace(meaning, wrong ? null : meaningOf(context, proposal, editor.value, term));
    yes.disabled = wrong !== "" || late !== "";
  };
  editor.addEventListener("input", () => {
    edited = editor.value;
    look();
  });
  const act = afterDelay(() => {
    look();
    if (yes.disabled) return;
    dialog.close();
    decide(editor.value, term);
  });
  const yes = button("Approve and grant", act, { class: "good", shortcut: "Ctrl+Enter" });
  const dialog = openDialog("Approve and grant", [
    summary,
    el("fieldset", { class: "widths" }, el("legend", {}, `What can ${oneLine(proposal.from, 60)} do without asking?`), el("div", { class: "card-choices" }, radios.map((each) => each.node))),
    el("fieldset", { class: "widths" }, el("legend", {}, "For how long?"), el("div", { class: "card-choices terms" }, terms)),
    meaning,
    fault,
    json,
    el("p", { class: "soft" }, "The call is approved first; the permission is granted only if that succeeds. The gateway ends it on time, even if this page is closed. You can revoke it at any time under Members."),
  ], { class: "decide wide", actions: [button("Cancel", () => dialog.close(), { class: "quiet" }), yes], closed: () => stop() });
  onCtrlEnter(dialog.node, act);
  const stop = watchProposals(context, [shown], look);
  choose(chosen);
  radios[chosen].radio.focus();
  return dialog;
}

/** What it allows and what not, in a sentence and with calls much like this one. @param {import("../app.js").Context} context @param {Proposal} proposal @param {string} text of the capability @param {import("./grant-terms.js").GrantTerm} term */
function meaningOf(context, proposal, text, term) {
  const now = Date.now();
  const capability = JSON.parse(text);
  const { allowed, refused } = grantExamples(context, proposal, capability);
  const after = term.after(now);
  // What ends it belongs to the first things to know.
  const asks = after ? [after, ...refused].slice(0, Math.max(1, refused.length)) : refused;
  const list = (/** @type {string} */ title, /** @type {string[]} */ items, /** @type {"check" | "close"} */ sign) => items.length > 0 && el("div", { class: ["grant-examples", sign === "check" ? "allowed" : "asks"] }, el("h3", {}, title), el("ul", {}, items.map((each) => el("li", {}, icon(sign, 14), el("bdi", {}, escapeHidden(each))))));
  return [
    el("p", { class: "capability-description" }, nameOf(proposal.from), " will be able to ", el("bdi", {}, escapeHidden(describeCapability(parseForDisplay(text)))), ` ${term.text(now)}.`),
    el("div", { class: "grant-lists" }, list("Runs without asking", allowed, "check"), list("Still asks", asks, "close")),
    capability.kind !== "mcp/request" && caution("This allows more than calls."),
    !coveredBy(capability, context.state.me.capabilities) && caution("You may not have all of these permissions; you can grant only what you have."),
  ];
}

/** @param {string} text */
function caution(text) {
  return el("p", { class: "caution" }, icon("warning", 16), text);
}

/** JSON with indents, with hidden characters as escapes, because it can be edited. @param {string} text */
function editableText(text) {
  if (!text) return "";
  return formatJson(text).replace(/[^\n\x20-\x7e]/gu, (each) => (hasHidden(each) ? [...Array(each.length).keys()].map((at) => `\\u${each.charCodeAt(at).toString(16).padStart(4, "0")}`).join("") : each));
}

/** @param {string} text */
function hasHidden(text) {
  return escapeHidden(text) !== text;
}
