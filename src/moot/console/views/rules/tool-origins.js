/**
 * What tools do, as far as it matters where values came from: in the approver's words, with a way to change it; and what
 * people endorsed. Read from the approver's tool `trust_origins`.
 */
import { button, html } from "../../core/page/dom.js";
import { isObject } from "../../core/state/json-text.js";
import { escapeHidden, nameOf, oneLine } from "../../core/page/text.js";
import { formatMinute, parseTime } from "../../core/page/time.js";
import { actionDialog, labelledField, runAndNotify } from "../parts/action-dialog.js";
import { runCommand } from "./rule-commands.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("./approver-state.js").ApproverState} ApproverState */

// The shell lists all of them.
const MAX_TOOLS = 100;
const MAX_ENDORSEMENTS = 50;
const RETURNS = { others: "contain what others write", trusted: "are kept by us and can be trusted" };
const EFFECTS = { reads: "only reads", writes: "changes something", destroys: "can destroy something" };

/**
 * @param {Context} context @param {ApproverState} approverState @param {any} known its answer @param {(kind: string) => boolean} may
 */
export function toolOrigins(context, approverState, known, may) {
  const tools = objects(known.tools);
  const endorsements = objects(known.endorsements);
  const more = Math.max(0, tools.length - MAX_TOOLS) + (Number(known.more) || 0);
  return html.section(
    { class: "rules-part", "aria-labelledby": "rules-origins" },
    html.h2({ id: "rules-origins" }, "Origins ", html.span({ class: "faint" }, String(tools.length))),
    html.p(
      { class: "soft" },
      "What each tool is said to do. It decides which calls ask because of where their values came from.",
    ),
    tools.length === 0 && html.p({ class: "soft" }, "No tools are known yet."),
    serverButtons(context, approverState, tools, may("trust/accept")),
    html.ul(
      { class: "tool-origins" },
      tools.slice(0, MAX_TOOLS).map((each) => toolItem(context, approverState, each, may("trust/accept"))),
    ),
    more > 0 &&
      html.p({ class: "faint small-text" }, `${more} more: `, html.code({}, "moot origins"), " lists all of them."),
    endorsements.length > 0 && [
      html.h3({}, "Endorsements ", html.span({ class: "faint" }, String(endorsements.length))),
      html.ul(
        { class: "tool-origins" },
        endorsements.slice(0, MAX_ENDORSEMENTS).map((each) => endorsementItem(context, each, may("moot/endorse"))),
      ),
    ],
  );
}

/** Accept all that a server says of its tools, for these definitions. @param {Context} context @param {ApproverState} approverState @param {any[]} tools @param {boolean} mayAccept */
function serverButtons(context, approverState, tools, mayAccept) {
  /** @type {Map<string, any[]>} */
  const hosts = new Map();
  for (const each of tools.filter((tool) => tool.said !== true && isObject(tool.claims))) {
    const host = String(each.tool).split("/", 1)[0];
    hosts.set(host, [...(hosts.get(host) ?? []), each]);
  }
  const several = [...hosts].filter(([, listed]) => listed.length > 1);
  if (several.length === 0) return null;
  return html.div(
    { class: "action-row" },
    several.map(([host, listed]) =>
      button(
        `Accept all ${listed.length} of ${oneLine(host, 40)}…`,
        () => acceptServer(context, approverState, host, listed),
        { class: "small", disabled: !mayAccept || !approverState.isOnline, data: { focus: `accept-all ${host}` } },
      ),
    ),
  );
}

/** @param {Context} context @param {ApproverState} approverState @param {string} host @param {any[]} listed */
function acceptServer(context, approverState, host, listed) {
  const reads = listed.filter((each) => each.claims.traits?.effect === "reads").length;
  const lines = Object.fromEntries(
    listed.map((each) => [each.tool, { ...each.claims.traits, definition: each.claims.definition }]),
  );
  actionDialog(
    `Accept what ${oneLine(host, 40)} says of its tools?`,
    [
      html.p({}, `${reads} of ${listed.length} only read, as it says. It counts while the tools stay as they are now.`),
      html.ul(
        {},
        listed.map((each) => html.li({}, html.bdi({}, escapeHidden(String(each.claims.words ?? ""))))),
      ),
    ],
    {
      verb: "Accept",
      act: () => runCommand(context, approverState, "trust/accept", { tools: lines }, { done: "Accepted" }),
    },
  );
}

/** @param {unknown} value @returns {any[]} */
function objects(value) {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

/** @param {Context} context @param {ApproverState} approverState @param {any} tool @param {boolean} mayAccept */
function toolItem(context, approverState, tool, mayAccept) {
  const name = String(tool.tool);
  const claims = !tool.said && isObject(tool.claims) ? tool.claims : null;
  const able = mayAccept && approverState.isOnline;
  const accept = (/** @type {any} */ traits, /** @type {string} */ done) =>
    runCommand(context, approverState, "trust/accept", { tools: { [name]: traits } }, { done });
  return html.li(
    {},
    html.div(
      { class: "tool-origin" },
      html.p(
        {},
        html.bdi({ class: "mono" }, oneLine(name, 120)),
        tool.changed === true && html.span({ class: "tag", data: { tone: "warn" } }, "tool changed"),
        tool.said !== true && html.span({ class: "tag", data: { tone: "warn" } }, "not set"),
      ),
      html.p({ class: "soft" }, html.bdi({}, escapeHidden(String(tool.words ?? "")))),
      claims && html.p({ class: "soft" }, "Declared: ", html.bdi({}, escapeHidden(String(claims.words ?? "")))),
    ),
    html.div(
      { class: "action-row" },
      claims &&
        button("Accept", () => void accept({ ...claims.traits, definition: claims.definition }, "Accepted"), {
          class: "small",
          disabled: !able,
          aria: { label: `Accept what ${oneLine(name, 60)} declares` },
          data: { focus: `accept ${name}` },
        }),
      button("Change…", () => changeDialog(name, tool, accept), {
        class: "small",
        disabled: !able,
        title: mayAccept ? undefined : "Your permissions do not allow this",
        aria: { label: `Change what ${oneLine(name, 60)} does…` },
        data: { focus: `change ${name}` },
      }),
    ),
  );
}

/** @param {string} name @param {any} tool @param {(traits: any, done: string) => Promise<boolean>} accept */
function changeDialog(name, tool, accept) {
  const traits = isObject(tool.traits) ? tool.traits : {};
  const returns = choice("Its results", RETURNS, traits.returns);
  const effect = choice("A call", EFFECTS, traits.effect);
  const isPrivate = check("Its results are private", traits.private !== false);
  const outside = check("A call reaches the outside", traits.outside !== false);
  const forget = check("Remove what was said: take it at its worst", false);
  const isOwnLine = tool.line === name;
  actionDialog(
    `What does ${oneLine(name, 60)} do?`,
    [returns.node, isPrivate.node, effect.node, outside.node, isOwnLine && forget.node],
    {
      verb: "Save",
      act: async () => {
        const chosen = {
          returns: returns.value(),
          private: isPrivate.input.checked,
          effect: effect.value(),
          outside: outside.input.checked,
        };
        return (await accept(forget.input.checked ? null : chosen, "Saved")) || undefined;
      },
    },
  );
}

/** @param {string} label @param {Record<string, string>} options @param {unknown} chosen */
function choice(label, options, chosen) {
  const field = labelledField(label, { tag: "select" });
  for (const [value, text] of Object.entries(options))
    field.input.append(html.option({ value, selected: value === chosen }, text));
  return field;
}

/** @param {string} text @param {boolean} checked */
function check(text, checked) {
  const input = html.input({ type: "checkbox", checked });
  return { node: html.label({ class: "tool-origin-check" }, input, text), input };
}

/** @param {Context} context @param {string} id of the message whose text was endorsed */
function sourceText(context, id) {
  const from = context.state.envelopes.byId(id)?.from;
  return from === undefined ? "an older message" : ["a message of ", nameOf(from)];
}

/** @param {Context} context @param {any} each @param {boolean} mayEndorse */
function endorsementItem(context, each, mayEndorse) {
  const until = parseTime(each.until, 0);
  const id = String(each.id);
  return html.li(
    {},
    html.div(
      { class: "tool-origin" },
      html.p(
        {},
        typeof each.source === "string"
          ? [
              "what ",
              html.a({ href: context.link("timeline", each.source) }, sourceText(context, each.source)),
              " says",
            ]
          : html.bdi({ class: "argument-text" }, oneLine(String(each.value ?? ""), 200)),
      ),
      html.p(
        { class: "soft" },
        nameOf(String(each.by)),
        typeof each.member === "string" && [", for ", nameOf(each.member)],
        typeof each.task === "string" && [", ", html.a({ href: context.link("timeline", each.task) }, "in one task")],
        until > 0 && `, until ${formatMinute(until)}`,
      ),
    ),
    mayEndorse &&
      button(
        "Revoke",
        () => void runAndNotify(context, context.send("moot/endorse", { revoke: id }), "Endorsement revoked"),
        { class: "small", data: { focus: `revoke ${id}` } },
      ),
  );
}
