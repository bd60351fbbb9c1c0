/** A JSON tree: collapsed, with digits unchanged, built only as far as it is expanded. */
import { html } from "../../core/page/dom.js";
import { membersOf } from "../../core/state/json-text.js";
import { formatNumber } from "../../core/page/numbers.js";
import { textBlock, oneLine, escapeHidden } from "../../core/page/text.js";

// More members are shown on demand.
const AT_ONCE = 100;
// A string longer than this gets a block of its own.
const SHORT = 120;
const OPEN_DEPTH = 2;
// A value that fits on a screen is expanded from the start.
const SMALL = 1_500;
const OPEN_DEPTH_SMALL = 8;

/**
 * @param {string} text JSON
 * @param {{label?: string}} [options]
 */
export function jsonTree(text, options = {}) {
  return html.div({ class: "json", role: "group", "aria-label": options.label ?? "payload" }, valueNode(text, 0));
}

/** @param {string} text @param {number} depth @param {Node | null} [name] shown in the line that collapses it @returns {Node} */
function valueNode(text, depth, name = null) {
  const first = text[0];
  if (first === "{" || first === "[") return members(text, depth, name);
  if (first === '"') {
    const value = String(JSON.parse(text));
    return value.length > SHORT || value.includes("\n")
      ? textBlock(value, { class: "json-long", maxCharacters: 2000, label: "long text" })
      : html.span({ class: "json-string" }, `"${escapeHidden(value)}"`);
  }
  return html.span(
    { class: first === "t" || first === "f" || first === "n" ? "json-literal" : "json-number" },
    oneLine(text, 400),
  );
}

/** @param {string} text @param {number} depth @param {Node | null} name */
function members(text, depth, name) {
  const all = membersOf(text);
  const isList = text[0] === "[";
  if (all.length === 0) return html.span({}, name, " ", html.span({ class: "json-literal" }, isList ? "[]" : "{}"));
  const list = html.ul({});
  let shown = 0;
  const more = html.button({ type: "button", class: "button quiet small", on: { click: () => show() } });
  const show = () => {
    more.remove();
    for (const part of all.slice(shown, shown + AT_ONCE)) list.append(memberNode(part, isList, depth + 1));
    shown = Math.min(all.length, shown + AT_ONCE);
    if (shown < all.length) {
      more.textContent = `Show ${Math.min(AT_ONCE, all.length - shown)} more of ${formatNumber(all.length)}`;
      list.after(more);
    }
  };
  if (depth === 0) {
    const holder = html.div({}, list);
    show();
    return holder;
  }
  const fold = html.details({}, html.summary({}, name, " ", `${isList ? `[${all.length}]` : `{${all.length}}`}`), list);
  fold.addEventListener("toggle", () => {
    if (fold.open && shown === 0) show();
  });
  if ((depth <= OPEN_DEPTH && all.length <= 20) || (text.length < SMALL && depth <= OPEN_DEPTH_SMALL)) {
    fold.open = true;
    show();
  }
  return fold;
}

/** @param {{key: string, text: string}} part @param {boolean} isList @param {number} depth */
function memberNode(part, isList, depth) {
  const name = html.span({ class: isList ? "json-index" : "json-key" }, isList ? part.key : oneLine(part.key, 120));
  const folds = part.text[0] === "{" || part.text[0] === "[";
  return folds ? html.li({}, valueNode(part.text, depth, name)) : html.li({}, name, " ", valueNode(part.text, depth));
}
