/**
 * Approve and grant: what the proposer may do without asking, and for how long, in words and with examples.
 * Exactly the capability that the dialog shows (folded, as JSON) is granted.
 */
import { button, html, newId, replace } from "../../core/page/dom.js";
import { formatJson, parseForDisplay, isObject } from "../../core/state/json-text.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { describeCapability } from "./capability-text.js";
import { obstacleText } from "../proposals/proposal-decisions.js";
import { afterDelay, onCtrlEnter, watchProposals } from "../approvals/approvals-dialogs.js";
import { capabilityError, grantScopes } from "./grant-scopes.js";
import { GRANT_TERMS } from "./grant-terms.js";
import { openDialog } from "../parts/dialog.js";
import { coveredBy } from "./capability-covers.js";
import { icon } from "../parts/icons.js";
import { matches } from "./capability-match.js";
import { toolCatalogueOf } from "../tools/tool-catalogue.js";
import { PATHS, TEXTS } from "../parts/text-diff.js";
import { isAddress, urlPrefixes } from "./url-prefix.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../proposals/proposal-decisions.js").ReviewedProposal} Shown */

// Visible rows of the capability; the rest scrolls.
const MAX_LINES = 18;
// Long enough for the work at hand, short enough to be forgotten without harm.
const DEFAULT_TERM = "hour";

/**
 * @param {import("../../app.js").Context} context @param {Proposal} proposal @param {Shown} shown @param {Node} summary
 * @param {(capability: string, term: import("./grant-terms.js").GrantTerm) => void} decide
 */
export function grantDialog(context, proposal, shown, summary, decide) {
  const { state } = context;
  const scopes = grantScopes(state, proposal);
  const group = newId("grant");
  const editor = html.textarea({
    class: "field mono capability-text",
    id: newId("capability"),
    rows: "8",
    spellcheck: "false",
    autocapitalize: "off",
    "aria-describedby": `${group}-meaning`,
  });
  const json = html.details(
    { class: "capability-json" },
    html.summary({}, "Capability as JSON"),
    html.label({ for: editor.id }, "Capability"),
    editor,
  );
  const meaning = html.section({
    class: "grant-meaning",
    id: `${group}-meaning`,
    "aria-label": "What this grant means",
    "aria-live": "polite",
  });
  const fault = html.p({ class: "fault", role: "status" });
  let chosen = Math.max(
    0,
    scopes.findIndex((each) => each.text),
  );
  let term = GRANT_TERMS.find((each) => each.name === DEFAULT_TERM) ?? GRANT_TERMS[0];
  const custom = scopes[scopes.length - 1];
  let edited = custom.text || (scopes.find((each) => each.name === "tool")?.text ?? "");
  const radios = scopes.map((scope, index) => {
    const able = scope.text !== "" || scope === custom;
    const radio = html.input({
      type: "radio",
      name: `${group}-scope`,
      value: scope.name,
      checked: index === chosen,
      disabled: !able,
      on: { change: () => choose(index) },
    });
    return {
      radio,
      node: html.label(
        { class: "choice card-choice" },
        radio,
        html.span(
          {},
          html.strong({}, escapeHidden(scope.title)),
          html.small({}, able ? escapeHidden(scope.description) : `Not available: ${escapeHidden(scope.obstacle)}`),
        ),
      ),
    };
  });
  const terms = GRANT_TERMS.map((each) =>
    html.label(
      { class: "choice card-choice term-choice" },
      html.input({
        type: "radio",
        name: `${group}-term`,
        value: each.name,
        checked: each === term,
        on: {
          change: () => {
            term = each;
            look();
          },
        },
      }),
      html.span({}, each.title),
    ),
  );
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
    const wrong = hasHidden(editor.value)
      ? "Write invisible characters as \\u escapes."
      : capabilityError(state, proposal, editor.value);
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
  const dialog = openDialog(
    "Approve and grant",
    [
      summary,
      html.fieldset(
        { class: "widths" },
        html.legend({}, `What can ${oneLine(proposal.from, 60)} do without asking?`),
        html.div(
          { class: "card-choices" },
          radios.map((each) => each.node),
        ),
      ),
      html.fieldset(
        { class: "widths" },
        html.legend({}, "For how long?"),
        html.div({ class: "card-choices terms" }, terms),
      ),
      meaning,
      fault,
      json,
      html.p(
        { class: "soft" },
        "The call is approved first; the permission is granted only if that succeeds. The gateway ends it on time, even if this page is closed. You can revoke it at any time under Members.",
      ),
    ],
    {
      class: "decide wide",
      actions: [button("Cancel", () => dialog.close(), { class: "quiet" }), yes],
      closed: () => stop(),
    },
  );
  onCtrlEnter(dialog.node, act);
  const stop = watchProposals(context, [shown], look);
  choose(chosen);
  radios[chosen].radio.focus();
  return dialog;
}

/** What it allows and what not, in a sentence and with calls much like this one. @param {import("../../app.js").Context} context @param {Proposal} proposal @param {string} text of the capability @param {import("./grant-terms.js").GrantTerm} term */
function meaningOf(context, proposal, text, term) {
  const now = Date.now();
  const capability = JSON.parse(text);
  const { allowed, refused } = grantExamples(context, proposal, capability);
  const after = term.after(now);
  // What ends it belongs to the first things to know.
  const asks = after ? [after, ...refused].slice(0, Math.max(1, refused.length)) : refused;
  const list = (/** @type {string} */ title, /** @type {string[]} */ items, /** @type {"check" | "close"} */ sign) =>
    items.length > 0 &&
    html.div(
      { class: ["grant-examples", sign === "check" ? "allowed" : "asks"] },
      html.h3({}, title),
      html.ul(
        {},
        items.map((each) => html.li({}, icon(sign, 14), html.bdi({}, escapeHidden(each)))),
      ),
    );
  return [
    html.p(
      { class: "capability-description" },
      nameOf(proposal.from),
      " will be able to ",
      html.bdi({}, escapeHidden(describeCapability(parseForDisplay(text)))),
      ` ${term.text(now)}.`,
    ),
    html.div(
      { class: "grant-lists" },
      list("Runs without asking", allowed, "check"),
      list("Still asks", asks, "close"),
    ),
    capability.kind !== "mcp/request" && caution("This allows more than calls."),
    !coveredBy(capability, context.state.me.capabilities) &&
      caution("You may not have all of these permissions; you can grant only what you have."),
  ];
}

/** @param {string} text */
function caution(text) {
  return html.p({ class: "caution" }, icon("warning", 16), text);
}

/** JSON with indents, with hidden characters as escapes, because it can be edited. @param {string} text */
function editableText(text) {
  if (!text) return "";
  return formatJson(text).replace(/[^\n\x20-\x7e]/gu, (each) =>
    hasHidden(each)
      ? [...Array(each.length).keys()].map((at) => `\\u${each.charCodeAt(at).toString(16).padStart(4, "0")}`).join("")
      : each,
  );
}

/** @param {string} text */
function hasHidden(text) {
  return escapeHidden(text) !== text;
}

/** @typedef {{text: string, params: any, to: string[]}} ExampleCall */

const MAX_EXAMPLES = 4;
const MAX_TEXT = 60;

/**
 * Calls much like the proposed one, and whether a capability would allow them, so that a person sees what a grant means.
 *
 * Nothing here says by itself what is allowed: each call is held against the capability. One about which the browser
 * is not sure is left out; that the proposed call itself is allowed was checked before.
 * @param {import("../../app.js").Context} context @param {Proposal} proposal @param {any} capability
 * @returns {{allowed: string[], refused: string[]}} in words; the first allowed one is the call itself
 */
function grantExamples(context, proposal, capability) {
  const { state } = context;
  const allowed = ["this call again"];
  const refused = [];
  for (const each of similarCalls(context, proposal)) {
    const names = each.to.map((id) => state.roster.get(id)?.name ?? id);
    const answer = matches(
      capability,
      "mcp/request",
      { jsonrpc: "2.0", id: 0, method: proposal.call.method, params: each.params },
      names,
    );
    if (answer === "yes") allowed.push(each.text);
    else if (answer === "no") refused.push(each.text);
  }
  return { allowed: allowed.slice(0, MAX_EXAMPLES), refused: refused.slice(0, MAX_EXAMPLES) };
}

/** The most telling ones first. @param {import("../../app.js").Context} context @param {Proposal} proposal @returns {ExampleCall[]} */
function similarCalls(context, proposal) {
  const { params } = proposal.call;
  const given = isObject(params) && isObject(params.arguments) ? params.arguments : {};
  /** @type {ExampleCall[]} */
  const found = [];
  const change = (/** @type {string} */ key, /** @type {any} */ value, /** @type {string} */ text) =>
    found.push({ text, params: { ...params, arguments: { ...given, [key]: value } }, to: proposal.to });
  const address = Object.keys(given).find((key) => !TEXTS.includes(key) && isAddress(given[key]));
  if (address !== undefined)
    for (const value of otherAddresses(given[address])) change(address, value, `${address} = ${short(value)}`);
  const path = PATHS.find((key) => key !== address && typeof given[key] === "string");
  if (path !== undefined) for (const value of otherPaths(given[path])) change(path, value, `${path} = ${short(value)}`);
  for (const [key, value] of Object.entries(given)) {
    if (key === path || key === address) continue;
    // Beyond that, one more is not what it seems.
    if (Number.isSafeInteger(value)) change(key, value + 1, `${key} = ${value + 1}`);
    else if (typeof value === "boolean") change(key, !value, `${key} = ${!value}`);
    else if (typeof value === "string")
      change(
        key,
        `${value} (changed)`,
        TEXTS.includes(key) || value.length > MAX_TEXT ? `another ${short(key)}` : `another value for ${short(key)}`,
      );
  }
  const extra = ["force", "recursive", "extra"].find((key) => !Object.hasOwn(given, key)) ?? "another";
  change(extra, true, `one more argument, ${extra} = true`);
  const [host] = proposal.to;
  const tools = (host && toolCatalogueOf(context).of(host)?.tools) || [];
  const other = tools.find((each) => each.name !== proposal.call.name)?.name ?? `not_${proposal.call.name}`;
  if (proposal.call.method === "tools/call")
    found.push({
      text: tools.length > 1 ? `another tool, such as ${short(other)}` : "another tool",
      params: { ...params, name: other },
      to: proposal.to,
    });
  const elsewhere = context.state.roster
    .present()
    .find((each) => !proposal.to.includes(each.id) && each.id !== context.state.me.id && each.id !== proposal.from);
  found.push({
    text: elsewhere ? `the same call on ${short(elsewhere.id)}` : "the same call on another host",
    params,
    to: [elsewhere?.id ?? "another-host"],
  });
  return found;
}

/** Below its folder, on the same host, on a host that begins alike, and without encryption. @param {string} address */
function otherAddresses(address) {
  const prefixes = urlPrefixes(address);
  if (prefixes.length === 0) return [];
  const [folder] = prefixes;
  const site = prefixes[prefixes.length - 1];
  const host = site.slice(0, -1);
  const path = folder.slice(host.length);
  return [
    `${folder}another`,
    `${site}elsewhere`,
    `${host.replace(/(:\d+)?$/, ".example.net$1")}${path}another`,
    host.startsWith("https:") ? `http${host.slice(5)}${path}another` : `${folder}%2e%2e/another`,
  ].filter((each) => each !== address);
}

/** Beside it, below its folder, outside of it, and out of it through its parent. @param {string} path */
function otherPaths(path) {
  const at = path.lastIndexOf("/");
  const folder = path.slice(0, Math.max(0, at));
  const file = path.slice(at + 1);
  const ending = file.includes(".") ? file.slice(file.lastIndexOf(".")) : "";
  const beside = `another${ending}` === file ? `one-more${ending}` : `another${ending}`;
  const inFolder = (/** @type {string} */ name) => (at < 0 ? name : `${folder}/${name}`);
  return [
    inFolder(beside),
    inFolder(`sub/${file}`),
    `${path.startsWith("/") ? "/" : ""}elsewhere/${file}`,
    inFolder(`../${file}`),
  ];
}

/** @param {string} text */
function short(text) {
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}
