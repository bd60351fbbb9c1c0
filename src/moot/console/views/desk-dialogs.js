// @ts-check
/** Questions before a decision: why not, and how wide. What is sent is what stands in the dialog. */
import { button, el, freshId, replace } from "../core/dom.js";
import { pretty } from "../core/exact.js";
import { nameOf, oneLine, visible } from "../core/text.js";
import { inWords } from "./capability-words.js";
import { titleOf, whyNot } from "./desk-decide.js";
import { faultOf, widthsOf } from "./desk-widths.js";
import { openDialog } from "./dialog.js";
import { explainRejection } from "./explain.js";
import { coveredBy } from "./grants-covers.js";
import { icon } from "./icons.js";

/** @typedef {import("../core/state-proposals.js").Proposal} Proposal */
/** @typedef {import("./desk-decide.js").Shown} Shown */

// Longer than a key that was meant for something else takes to arrive; as in the terminal.
export const SETTLE_MILLISECONDS = 400;

// Of the capability at once; more scrolls.
const MOST_LINES = 18;

// MEW 3.3.3, in the order in which people need them.
export const REASONS = ["disagree", "inappropriate", "unsafe", "busy", "incapable", "policy", "duplicate", "invalid", "timeout", "resource_limit", "no_longer_needed", "other"];

/** A press counts only when the question has stood for a moment. @param {() => void} act */
export function afterReading(act) {
  const opened = performance.now();
  return () => {
    if (performance.now() - opened >= SETTLE_MILLISECONDS) act();
  };
}

/** Follow a proposal while a dialog about it is open; says so when it is settled. @param {import("../app.js").Context} context @param {Shown[]} shown @param {() => void} changed */
export function whileOpen(context, shown, changed) {
  const before = new Set(shown.filter((each) => whyNot(context, each) === "").map((each) => each.id));
  return context.state.on("proposals", () => {
    if (shown.some((each) => before.has(each.id) && whyNot(context, each) !== "")) changed();
  });
}

/** Ctrl+Enter anywhere in a dialog means its main button. @param {HTMLElement} node @param {() => void} act */
function onCtrlEnter(node, act) {
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    act();
  });
}

/**
 * Why not? One reason for all that are shown.
 * @param {import("../app.js").Context} context @param {Shown[]} shown @param {Node[]} list what it is about
 * @param {(reason: string, explanation: string) => void} decide
 */
export function rejectDialog(context, shown, list, decide) {
  const group = freshId("reason");
  const words = el("textarea", { class: "field", id: freshId("words"), rows: "2", placeholder: "Sent as chat to the proposer", maxlength: "4000" });
  const status = el("p", { class: "fault", role: "status" });
  const radios = REASONS.map((reason, index) => {
    const radio = el("input", { type: "radio", name: group, value: reason, checked: index === 0 });
    return { radio, node: el("label", { class: "choice" }, radio, el("span", {}, el("span", { class: "mono" }, reason), el("small", {}, explainRejection(reason)))) };
  });
  const act = afterReading(() => {
    const reason = radios.find((each) => each.radio.checked)?.radio.value ?? "disagree";
    dialog.close();
    decide(reason, words.value.trim());
  });
  const yes = button(shown.length > 1 ? `Reject ${shown.length}` : "Reject", act, { class: "danger", shortcut: "Ctrl+Enter" });
  const dialog = openDialog(shown.length > 1 ? `Reject ${shown.length} proposals` : "Reject", [
    el("div", { class: "decision-list" }, list),
    el("fieldset", { class: "reasons" }, el("legend", {}, "Why?"), radios.map((each) => each.node)),
    el("div", {}, el("label", { for: words.id }, "Words, if you like"), words),
    el("p", { class: "soft" }, "A rejection is said to everybody and stays open to others: only the proposer can withdraw it."),
    status,
  ], { class: "decide", actions: [button("Not now", () => dialog.close(), { class: "quiet" }), yes], closed: () => stop() });
  onCtrlEnter(dialog.node, act);
  const stop = whileOpen(context, shown, () => {
    replace(status, visible(shown.map((each) => whyNot(context, each)).find(Boolean) ?? ""));
    yes.disabled = shown.every((each) => whyNot(context, each) !== "");
  });
  radios[0].radio.focus();
  return dialog;
}

/**
 * How wide? The capability is shown as JSON and in words; exactly that text is granted.
 * @param {import("../app.js").Context} context @param {Proposal} proposal @param {Shown} shown @param {Node} summary
 * @param {(capability: string) => void} decide
 */
export function grantDialog(context, proposal, shown, summary, decide) {
  const { state } = context;
  const widths = widthsOf(state, proposal);
  const group = freshId("width");
  const editor = el("textarea", { class: "field mono capability-text", id: freshId("capability"), rows: "8", spellcheck: "false", autocapitalize: "off", "aria-describedby": `${group}-words` });
  const words = el("p", { class: "capability-words", id: `${group}-words` });
  const fault = el("p", { class: "fault", role: "status" });
  let chosen = Math.max(0, widths.findIndex((each) => each.text));
  let edited = widths[2].text || widths[1].text;
  const radios = widths.map((width, index) => {
    const radio = el("input", { type: "radio", name: group, value: width.name, checked: index === chosen, disabled: !width.text && width.name !== "pattern", on: { change: () => choose(index) } });
    return { radio, node: el("label", { class: "choice width-choice" }, radio, el("span", {}, el("strong", {}, width.title), el("small", {}, width.text || width.name === "pattern" ? visible(width.words) : `not possible: ${visible(width.whyNot)}`))) };
  });
  const choose = (/** @type {number} */ index) => {
    chosen = index;
    const isPattern = widths[index].name === "pattern";
    editor.readOnly = !isPattern;
    editor.value = shownText(isPattern ? edited : widths[index].text);
    editor.rows = Math.min(MOST_LINES, Math.max(4, editor.value.split("\n").length));
    look();
  };
  const look = () => {
    const wrong = hidesSomething(editor.value) ? "Write hidden characters as \\u escapes: what is granted must be what is seen." : faultOf(state, proposal, editor.value);
    const late = whyNot(context, shown);
    replace(fault, visible(late || wrong));
    editor.setAttribute("aria-invalid", String(wrong !== ""));
    replace(words);
    if (!wrong) {
      const capability = JSON.parse(editor.value);
      replace(words, icon("check", 16), el("span", {}, nameOf(proposal.from), " will be able to ", el("bdi", {}, visible(inWords(capability)))));
      if (capability.kind !== "mcp/request") words.append(el("span", { class: "caution" }, icon("warning", 16), "This allows more than calls."));
      if (!coveredBy(capability, state.me.capabilities)) words.append(el("span", { class: "caution" }, icon("warning", 16), "You may not hold all of this yourself; the gateway grants only what you hold."));
    }
    yes.disabled = wrong !== "" || late !== "";
  };
  editor.addEventListener("input", () => {
    edited = editor.value;
    look();
  });
  const act = afterReading(() => {
    look();
    if (yes.disabled) return;
    dialog.close();
    decide(editor.value);
  });
  const yes = button("Approve and grant", act, { class: "good", shortcut: "Ctrl+Enter" });
  const dialog = openDialog("Approve and grant", [
    summary,
    el("fieldset", { class: "widths" }, el("legend", {}, `How much may ${oneLine(proposal.from, 60)} do without asking from now on?`), radios.map((each) => each.node)),
    el("div", {}, el("label", { for: editor.id }, "The capability that this creates"), editor),
    words,
    fault,
    el("p", { class: "soft" }, "The call is approved first; the right is only granted if that stands. It holds until somebody revokes it."),
  ], { class: "decide wide", actions: [button("Not now", () => dialog.close(), { class: "quiet" }), yes], closed: () => stop() });
  onCtrlEnter(dialog.node, act);
  const stop = whileOpen(context, [shown], look);
  choose(chosen);
  radios[chosen].radio.focus();
  return dialog;
}

/** JSON with indents, hidden characters as escapes: it is edited, so it cannot be shown another way. @param {string} text */
function shownText(text) {
  if (!text) return "";
  let made = text;
  try {
    made = pretty(text);
  } catch {
    // As somebody left it.
  }
  return made.replace(/[^\n\x20-\x7e]/gu, (each) => (hidesSomething(each) ? [...Array(each.length).keys()].map((at) => `\\u${each.charCodeAt(at).toString(16).padStart(4, "0")}`).join("") : each));
}

/** @param {string} text */
function hidesSomething(text) {
  return visible(text) !== text;
}

/** A line about a proposal, for a dialog. @param {Proposal} proposal @param {any} [more] */
export function summaryOf(proposal, more) {
  return el(
    "div",
    { class: "decision-summary" },
    el("p", {}, nameOf(proposal.from), " proposes ", el("strong", { class: "mono" }, oneLine(titleOf(proposal), 80)), " on ", proposal.to.length > 0 ? proposal.to.map((id) => nameOf(id)) : "nobody in particular"),
    more,
  );
}
