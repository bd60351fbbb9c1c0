/** How one line of the timeline looks. */
import { html, replace } from "../../core/page/dom.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { isoTime, formatTime } from "../../core/page/time.js";
import { describeCapability } from "../capabilities/capability-text.js";
import { parseEnvelope } from "../../core/state/json-text.js";
import { icon } from "../parts/icons.js";

/** @type {[RegExp, string, string][]} kind → family (colour) and what people call it; the first that fits. The kind itself is the tag's title. */
const FAMILIES = [
  [/^mcp\/request/, "request", "request"],
  [/^mcp\/response/, "response", "response"],
  [/^mcp\/proposal/, "proposal", "proposal"],
  [/^mcp\/reject/, "bad", "reject"],
  [/^mcp\/withdraw/, "quiet", "withdraw"],
  [/^moot\/approve/, "response", "approve"],
  [/^moot\/settle/, "response", "settled"],
  [/^moot\/outcome/, "unknown", "outcome unknown"],
  [/^moot\/votes/, "quiet", "conditions"],
  [/^moot\/delegate/, "rights", "away"],
  [/^moot\/end-delegation/, "rights", "back"],
  [/^moot\/assign/, "quiet", "for"],
  [/^moot\/list-proposals/, "quiet", "asks what is pending"],
  [/^moot\/roster/, "quiet", "asks who is here"],
  [/^chat$/, "chat", "chat"],
  [/^chat\/acknowledge/, "quiet", "seen"],
  [/^chat\/cancel/, "quiet", "cancelled"],
  [/^reasoning\/start/, "reasoning", "reasoning"],
  [/^reasoning\/thought/, "reasoning", "thought"],
  [/^reasoning\/conclusion/, "reasoning", "conclusion"],
  [/^reasoning\/cancel/, "reasoning", "stop reasoning"],
  [/^capability\/grant$/, "rights", "grant"],
  [/^capability\/grant-ack/, "quiet", "grant received"],
  [/^capability\/revoke/, "rights", "revoke"],
  [/^space\/invite$/, "rights", "invite"],
  [/^space\/invite-ack/, "rights", "invited"],
  [/^space\/kick/, "rights", "remove"],
  [/^participant\/status/, "quiet", "status"],
  [/^participant\/request-status/, "quiet", "asks for status"],
  [/^participant\/([a-z-]+)$/, "rights", "$1"],
  [/^stream\/request/, "stream", "asks for a stream"],
  [/^stream\/open/, "stream", "stream opened"],
  [/^stream\/close/, "stream", "stream closed"],
  [/^trust\/suggestion/, "rights", "rule suggested"],
  [/^trust\/accept/, "rights", "rule accepted"],
  [/^trust\/dismiss/, "rights", "rule dismissed"],
  [/^trust\/stop/, "rights", "rules stopped"],
  [/^trust\/rule/, "rights", "rule"],
  [/^system\/error/, "bad", "refused"],
  [/^system\/presence/, "quiet", "presence"],
  [/^system\/welcome/, "quiet", "welcome"],
  [/^(reasoning|capability|space|participant|stream|system|trust|chat|moot)\/([a-z-]+)$/, "quiet", "$2"],
];

/** What somebody did, where the name of a message is no verb. @type {Record<string, string>} */
const DID = {
  request: "called",
  response: "answered",
  proposal: "proposed",
  reject: "rejected",
  withdraw: "withdrew",
  approve: "voted for",
  grant: "granted",
  revoke: "revoked",
};

/** "proposed", after a name. @param {string} kind */
export function didText(kind) {
  const { word } = familyOf(kind);
  return DID[word] ?? word;
}

/** The style of a kind; cached, because it is needed for every drawn line. @type {Map<string, {family: string, word: string, title: string}>} */
const families = new Map();
// Peers choose the kinds, so there may be any number.
const MAX_KINDS = 500;

/** @param {string} kind @returns {{family: string, word: string, title: string}} */
function familyOf(kind) {
  let found = families.get(kind);
  if (!found) {
    const [pattern, family, word] = FAMILIES.find(([each]) => each.test(kind)) ?? [null, "other", ""];
    found = {
      family,
      word: pattern
        ? word.startsWith("$")
          ? kind.replace(pattern, word).replaceAll("-", " ")
          : word
        : oneLine(kind, 40),
      title: oneLine(kind, 80),
    };
    if (families.size >= MAX_KINDS) families.clear();
    families.set(kind, found);
  }
  return found;
}

/** What people call an operation: a call of a tool by its name, anything else by its method. @param {string} operation */
export function operationText(operation) {
  return operation.startsWith("tools/call:") ? operation.slice("tools/call:".length) : operation;
}

/** The colour and the word for a message: an answer may have failed, or leave it unknown. @param {import("../../core/state/envelopes.js").Row} row @returns {{family: string, word: string, title: string}} */
export function tagOf(row) {
  const known = familyOf(row.kind);
  if (row.approves) return { family: "response", word: "approved", title: known.title };
  if (!row.failed || known.family !== "response") return known;
  return row.isUnknown
    ? { family: "unknown", word: "unknown", title: known.title }
    : { family: "bad", word: "failed", title: known.title };
}

/** @param {import("../../core/state/envelopes.js").Row} row */
export function kindTag(row) {
  const { family, word, title } = tagOf(row);
  return html.span({ class: "kind", data: { family }, title }, word);
}

/**
 * The parts of a line, so that it can be reused for another message: at a thousand a second, creating and styling new
 * elements would take most of the time.
 * @typedef {{when: HTMLElement, time: Text, who: HTMLElement, names: string, what: HTMLElement, tag: HTMLElement, operation: HTMLElement, summary: HTMLElement, fold: {mark: HTMLElement, count: HTMLElement} | null}} Parts
 */
/** @type {WeakMap<HTMLElement, Parts>} */
const drawn = new WeakMap();

/** @param {HTMLElement} element @returns {Parts} */
function partsOf(element) {
  const known = drawn.get(element);
  if (known) return known;
  const time = document.createTextNode("");
  const parts = {
    time,
    names: "\n",
    when: html.time({ class: "when" }, time),
    who: html.span({ class: "who" }),
    tag: html.span({ class: "kind" }),
    what: html.span({ class: "what" }),
    operation: html.bdi({ class: "operation" }),
    summary: html.bdi({ class: "summary" }),
    fold: null,
  };
  parts.what.append(parts.tag, parts.operation);
  element.replaceChildren(parts.when, parts.who, parts.what, parts.summary);
  drawn.set(element, parts);
  return parts;
}

/** @param {HTMLElement} element @param {string} name @param {string | null} value */
function set(element, name, value) {
  if (element.getAttribute(name) === value) return;
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

/** @param {HTMLElement | Text} node @param {string} message */
function setText(node, message) {
  const text = node instanceof Text ? node : node.firstChild;
  // Change the existing text node: a new one would need a new layout box.
  if (text instanceof Text) {
    if (text.data !== message) text.data = message;
  } else node.textContent = message;
}

/** What rights were given or taken; looked for once. @type {WeakMap<import("../../core/state/envelopes.js").Row, string>} */
const rights = new WeakMap();

/** @param {import("../../core/state/envelopes.js").Row} row */
function summaryText(row) {
  if (!/^capability\/(grant|revoke)$/.test(row.kind)) return row.summary;
  let found = rights.get(row);
  if (found === undefined) {
    const { recipient, capabilities } = parseEnvelope(row.raw).payload ?? {};
    const named = Array.isArray(capabilities) ? capabilities.map(describeCapability).join("; ") : "";
    found = [recipient, named].filter((each) => typeof each === "string" && each !== "").join(": ");
    rights.set(row, found);
  }
  return found;
}

/**
 * Fill a line that may show another message so far; returns its parts, except for a gap.
 * @param {HTMLElement} element @param {import("../../core/state/envelopes.js").Row} row @param {boolean} inGroup @param {string} me @param {string} [more] classes @returns {Parts | null}
 */
export function drawRow(element, row, inGroup, me, more = "") {
  if (row.type === "gap") {
    drawn.delete(element);
    set(element, "class", "vl-row gap-row");
    replace(
      element,
      icon("gap", 16),
      html.strong({}, "Gap"),
      html.span(
        { class: "summary" },
        oneLine(row.canLoad ? `${row.summary}: open this line to load them` : row.summary, 200),
      ),
      html.time({ datetime: isoTime(row.at) }, `since ${formatTime(row.at)}`),
    );
    return null;
  }
  const parts = partsOf(element);
  if (parts.fold && !more) {
    parts.fold.mark.remove();
    parts.fold.count.remove();
    parts.fold = null;
  }
  const fromGateway = row.from === "system:gateway" || row.from === "gateway";
  set(
    element,
    "class",
    [
      "vl-row",
      "tl-row",
      inGroup && "in-group",
      row.failed && !row.isUnknown && "bad",
      fromGateway && "from-gateway",
      more,
    ]
      .filter(Boolean)
      .join(" "),
  );
  set(element, "data-deep", row.context ? String(Math.min(4, row.context.split("/").length)) : null);
  set(parts.when, "datetime", isoTime(row.at));
  setText(parts.time, formatTime(row.at));
  const names = `${row.from}\n${row.to.length > 1 ? row.to.length : (row.to[0] ?? "")}\n${row.to.length} ${me}`;
  if (parts.names !== names) {
    parts.names = names;
    replace(
      parts.who,
      nameOf(fromGateway ? "gateway" : row.from),
      row.to.length > 0 && [
        html.span({ class: "arrow", "aria-label": "to", role: "img" }, "→"),
        row.to.length === 1
          ? nameOf(row.to[0], { class: row.to[0] === me ? "me" : "" })
          : html.span({ class: "many" }, `${row.to.length} members`),
      ],
    );
  }
  const { family, word, title } = tagOf(row);
  set(parts.tag, "data-family", family);
  set(parts.tag, "title", title);
  setText(parts.tag, word);
  if (parts.operation.hidden !== (row.operation === "")) parts.operation.hidden = row.operation === "";
  setText(parts.operation, oneLine(operationText(row.operation), 80));
  set(parts.operation, "title", oneLine(row.operation, 160));
  setText(parts.summary, oneLine(row.verdict ? `${row.verdict} · ${row.summary}` : summaryText(row), 200));
  return parts;
}

/**
 * The first message represents its conversation: it can be collapsed, and shows the number of messages.
 * @param {HTMLElement} element @param {import("../../core/state/envelopes.js").Row} row @param {number} count @param {boolean} folded @param {string} me
 */
export function drawHead(element, row, count, folded, me) {
  const parts = drawRow(element, row, false, me, folded ? "group-head folded" : "group-head");
  if (!parts) return;
  if (!parts.fold) {
    parts.fold = {
      mark: html.span({ class: "fold-mark" }, icon("right", 12)),
      count: html.span({ class: "group-count", role: "img" }),
    };
    parts.when.prepend(parts.fold.mark);
    parts.what.append(parts.fold.count);
  }
  set(parts.fold.mark, "title", folded ? "Expand (→)" : "Collapse (←)");
  set(parts.fold.count, "aria-label", `${count} messages${folded ? ", collapsed" : ""}`);
  setText(parts.fold.count, String(count));
}
