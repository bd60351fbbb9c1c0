// @ts-check
/** How one line of the timeline looks. */
import { el } from "../core/dom.js";
import { nameOf, oneLine } from "../core/text.js";
import { longTime, shortTime } from "../core/time.js";
import { icon } from "./icons.js";

/** @type {[RegExp, string, string][]} kind → family (colour) and a short word; the first that fits */
const FAMILIES = [
  [/^mcp\/request/, "request", "request"],
  [/^mcp\/response/, "response", "response"],
  [/^mcp\/proposal/, "proposal", "proposal"],
  [/^mcp\/reject/, "bad", "reject"],
  [/^mcp\/withdraw/, "quiet", "withdraw"],
  [/^moot\/approve/, "response", "approve"],
  [/^chat$/, "chat", "chat"],
  [/^chat\//, "quiet", ""],
  [/^reasoning\//, "reasoning", ""],
  [/^capability\//, "rights", ""],
  [/^(space|participant)\//, "rights", ""],
  [/^stream\//, "stream", ""],
  [/^system\/error/, "bad", "refused"],
  [/^system\//, "quiet", ""],
];

/** @param {string} kind @returns {{family: string, word: string}} */
export function familyOf(kind) {
  for (const [pattern, family, word] of FAMILIES) if (pattern.test(kind)) return { family, word: word || oneLine(kind, 40) };
  return { family: "other", word: oneLine(kind, 40) };
}

/** @param {import("../core/envelopes.js").Row} row */
export function kindTag(row) {
  const { family, word } = familyOf(row.kind);
  const bad = row.bad && family === "response";
  return el("span", { class: "kind", data: { family: bad ? "bad" : family }, title: oneLine(row.kind, 80) }, bad ? "failed" : word);
}

/** @param {HTMLElement} element @param {import("../core/envelopes.js").Row} row @param {boolean} inGroup @param {string} me */
export function drawRow(element, row, inGroup, me) {
  if (row.type === "gap") {
    element.classList.add("gap-row");
    element.append(icon("gap", 16), el("strong", {}, "A gap"), el("span", { class: "words" }, oneLine(row.words, 200)), el("time", { datetime: longTime(row.at) }, `since ${shortTime(row.at)}`));
    return;
  }
  element.classList.add("tl-row");
  if (inGroup) element.classList.add("in-group");
  if (row.bad) element.classList.add("bad");
  if (row.from === "system:gateway" || row.from === "gateway") element.classList.add("from-gateway");
  if (row.context) element.dataset.deep = String(Math.min(4, row.context.split("/").length));
  else delete element.dataset.deep;
  element.append(
    el("time", { datetime: longTime(row.at), class: "when" }, shortTime(row.at)),
    el("span", { class: "who" }, nameOf(row.from === "system:gateway" ? "gateway" : row.from), row.to.length > 0 && [el("span", { class: "arrow", "aria-label": "to" , role: "img" }, "→"), row.to.length === 1 ? nameOf(row.to[0], { class: row.to[0] === me ? "me" : "" }) : el("span", { class: "many" }, `${row.to.length} members`)]),
    el("span", { class: "what" }, kindTag(row), row.operation && el("bdi", { class: "operation" }, oneLine(row.operation, 80))),
    el("bdi", { class: "words" }, oneLine(row.words, 200)),
  );
}

/**
 * The first message of a conversation stands for all of it: it folds, and says how many there are.
 * @param {HTMLElement} element @param {import("../core/envelopes.js").Row} row @param {number} count @param {boolean} folded @param {string} me
 */
export function drawHead(element, row, count, folded, me) {
  drawRow(element, row, false, me);
  element.classList.add("group-head");
  element.classList.toggle("folded", folded);
  element.querySelector(".when")?.prepend(el("span", { class: "fold-mark", title: folded ? "Unfold (→)" : "Fold (←)" }, icon("right", 12)));
  element.querySelector(".what")?.append(el("span", { class: "group-count", "aria-label": `${count} messages${folded ? ", folded" : ""}`, role: "img" }, String(count)));
}
