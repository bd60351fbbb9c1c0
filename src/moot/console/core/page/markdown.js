/**
 * Markdown as nodes, never as HTML: paragraphs, headings, lists, quotes, code, emphasis and links. HTML in the
 * text stays text. Images are links: showing a message must not fetch anything.
 */
import { html } from "./dom.js";
import { textBlock, escapeHidden } from "./text.js";

// Longer text is shown as plain text: parsing it would block the page.
const MAX_CHARACTERS = 40_000;
const MAX_DEPTH = 6;

/** @param {string} source @returns {HTMLElement} */
export function markdown(source) {
  if (source.length > MAX_CHARACTERS) return textBlock(source, { tag: "div" });
  const root = html.div({ class: "markdown" });
  root.append(...blocks(escapeHidden(source.replace(/\r\n?/g, "\n")).split("\n"), 0));
  return root;
}

/** @param {string[]} lines @param {number} deep @returns {Node[]} */
function blocks(lines, deep) {
  /** @type {Node[]} */
  const nodes = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    const fence = /^ {0,3}(`{3,}|~{3,})\s*([\w+-]*)/.exec(line);
    const heading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/.exec(line);
    if (!line.trim()) at += 1;
    else if (fence) {
      let end = at + 1;
      while (end < lines.length && !lines[end].trimStart().startsWith(fence[1])) end += 1;
      nodes.push(
        html.pre(
          { tabindex: "0", role: "group", "aria-label": fence[2] ? `code, ${fence[2]}` : "code" },
          html.code({}, lines.slice(at + 1, end).join("\n")),
        ),
      );
      at = end + 1;
    } else if (heading) {
      // h1 and h2 are the page's own headings.
      nodes.push([html.h3, html.h4, html.h5, html.h6][Math.min(3, heading[1].length - 1)]({}, inline(heading[2], 0)));
      at += 1;
    } else if (/^ {0,3}([-*_])( *\1){2,}\s*$/.test(line)) {
      nodes.push(html.hr());
      at += 1;
    } else if (/^ {0,3}>/.test(line) && deep < MAX_DEPTH) {
      let end = at;
      while (end < lines.length && /^ {0,3}>/.test(lines[end])) end += 1;
      nodes.push(
        html.blockquote(
          {},
          blocks(
            lines.slice(at, end).map((each) => each.replace(/^ {0,3}> ?/, "")),
            deep + 1,
          ),
        ),
      );
      at = end;
    } else if (itemOf(line) && deep < MAX_DEPTH) {
      const [list, end] = listAt(lines, at, deep);
      nodes.push(list);
      at = end;
    } else {
      let end = at + 1;
      while (end < lines.length && lines[end].trim() && !startsBlock(lines[end])) end += 1;
      nodes.push(html.p({}, inline(lines.slice(at, end).join("\n"), 0)));
      at = end;
    }
  }
  return nodes;
}

/** @param {string} line */
function startsBlock(line) {
  return /^ {0,3}(`{3,}|~{3,}|#{1,6}\s|>)/.test(line) || itemOf(line) !== null;
}

/** @param {string} line */
function itemOf(line) {
  return /^( {0,3})([-*+]|\d{1,9}[.)])(\s+)(.*)$/.exec(line);
}

/** @param {string[]} lines @param {number} at @param {number} deep @returns {[Node, number]} */
function listAt(lines, at, deep) {
  const first = /** @type {RegExpExecArray} */ (itemOf(lines[at]));
  const ordered = /\d/.test(first[2]);
  const list = ordered ? html.ol({ start: String(parseInt(first[2], 10)) }) : html.ul();
  while (at < lines.length) {
    const item = itemOf(lines[at]);
    if (!item || /\d/.test(item[2]) !== ordered) break;
    const indent = item[1].length + item[2].length + 1;
    const inside = [item[4]];
    at += 1;
    while (
      at < lines.length &&
      lines[at].trim() &&
      (lines[at].startsWith(" ".repeat(Math.min(indent, 2))) || !startsBlock(lines[at]))
    ) {
      inside.push(lines[at].slice(Math.min(indent, lines[at].length - lines[at].trimStart().length)));
      at += 1;
    }
    list.append(html.li({}, inside.length === 1 ? inline(inside[0], 0) : blocks(inside, deep + 1)));
  }
  return [list, at];
}

// Each alternative is bounded or excludes its own end, so that no text makes matching slow.
const INLINE =
  /(`{1,3})([^`]{1,2000})\1|!?\[([^[\]]{0,500})\]\(\s*([^\s()<>]{1,2000})\s*\)|\*\*([^*]{1,2000})\*\*|__([^_]{1,2000})__|\*([^*\s][^*]{0,2000})\*|(?<!\w)_([^_\s][^_]{0,2000})_(?!\w)|~~([^~]{1,2000})~~|(https?:\/\/[^\s<>()"'`]{1,2000})/;

/** @param {string} text @param {number} deep @returns {Node[]} */
function inline(text, deep) {
  /** @type {Node[]} */
  const nodes = [];
  let rest = text;
  while (rest) {
    const found = deep < MAX_DEPTH ? INLINE.exec(rest) : null;
    if (!found) break;
    if (found.index > 0) nodes.push(document.createTextNode(rest.slice(0, found.index)));
    const [all, , code, message, target, strong1, strong2, soft1, soft2, struck, bare] = found;
    if (code !== undefined) nodes.push(html.code({}, code));
    else if (target !== undefined) nodes.push(linked(message || target, target, deep));
    else if (strong1 ?? strong2) nodes.push(html.strong({}, inline(strong1 ?? strong2, deep + 1)));
    else if (soft1 ?? soft2) nodes.push(html.em({}, inline(soft1 ?? soft2, deep + 1)));
    else if (struck) nodes.push(html.s({}, inline(struck, deep + 1)));
    else nodes.push(linked(bare, bare, MAX_DEPTH));
    rest = rest.slice(found.index + all.length);
  }
  if (rest) nodes.push(document.createTextNode(rest));
  return nodes;
}

/** A link shows its target as title, because its text may say anything. @param {string} text @param {string} target @param {number} deep */
function linked(text, target, deep) {
  const goes = /^(https?:\/\/|mailto:)/i.test(target);
  if (!goes) return document.createTextNode(text === target ? text : `${text} (${target})`);
  return html.a({ href: target, title: target }, inline(text, deep + 1));
}
