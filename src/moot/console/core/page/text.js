/**
 * Text that a peer wrote, made safe to show (D-86): control characters, characters that change the
 * direction of writing or have no width are shown as code points, and huge text is cut, with a button for the rest.
 */
import { html } from "./dom.js";
import { formatNumber } from "./numbers.js";

// C0 except tab and line feed, C1, soft hyphen, bidi marks, zero width, line separators, tags, variation
// selectors supplement, BOM, interlinear marks, and lone surrogates.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;
const LONE = /[\ud800-\udfff]/;
// A name has 64 characters at most (D-23); runtime ids may be longer.
const NAME_CHARACTERS = 64;
// About what a screen shows.
const BLOCK_CHARACTERS = 4000;
// At most this many combining marks in a row, so that "Zalgo" text does not cover its neighbours.
const MARKS = /(\p{M}{4})\p{M}+/gu;

/** Every hidden character as ⟨U+202E⟩. Tabs and line feeds stay. @param {unknown} text */
export function escapeHidden(text) {
  return String(text)
    .replace(HIDDEN, (each) => `⟨U+${(each.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`)
    .replace(MARKS, "$1…");
}

// Text without hidden characters, as most labels are: testing is far cheaper than replacing.
const NOT_PLAIN = /[^ -~]| {2}|^ | $/;

/** On one line, cut after `max` characters. @param {unknown} text @param {number} [max] */
export function oneLine(text, max = 160) {
  const all = String(text);
  if (all.length <= max && !NOT_PLAIN.test(all)) return all;
  // Only the part that can be shown is examined: a megabyte is not searched for a label.
  const cut = all.length > max * 2 ? all.slice(0, max * 2) : all;
  const shown = escapeHidden(cut).replace(/\s+/g, " ").trim();
  return all.length > cut.length || shown.length > max ? `${withoutHalfPair(shown.slice(0, max))}…` : shown;
}

/**
 * Made safe, with what stands between backticks as code: descriptions of tools are written so.
 * @param {string} text @returns {(string | HTMLElement)[]}
 */
export function withCode(text) {
  return escapeHidden(text)
    .split(/`([^`\n]+)`/)
    .map((piece, index) => (index % 2 === 1 ? html.code({}, piece) : piece));
}

/** Remove half a surrogate pair at the end. @param {string} text */
function withoutHalfPair(text) {
  return LONE.test(text.slice(-1)) && text.charCodeAt(text.length - 1) < 0xdc00 ? text.slice(0, -1) : text;
}

/**
 * A participant's name: isolated, so that it cannot change the direction of its neighbours.
 * @param {unknown} text @param {{class?: string, you?: boolean}} [options]
 */
export function nameOf(text, options = {}) {
  const shown = oneLine(text, NAME_CHARACTERS);
  return html.bdi(
    {
      class: ["name", options.class],
      data: { hue: String(hue(String(text))) },
      title: shown === text ? null : "Contains invisible characters, or is shortened",
    },
    shown,
    options.you && html.span({ class: "you" }, " (you)"),
  );
}

/** One of eight colours, the same for a name everywhere. @param {string} name */
export function hue(name) {
  // With this start value the names in the demos and the tutorial get different colours.
  let sum = 69;
  for (let index = 0; index < Math.min(name.length, 64); index += 1)
    sum = (Math.imul(sum, 16_777_619) + name.charCodeAt(index)) >>> 0;
  // Knuth's multiplier, for its high bits: names that differ in one letter should look different.
  return Math.imul(sum, 2_654_435_761) >>> 29;
}

// A browser needs quadratic time to lay out one very long word; pieces that are scrolled out of view are not laid out.
const PIECE_CHARACTERS = 2_000;

/** @param {string} text @returns {HTMLElement[]} */
function splitPieces(text) {
  const nodes = [];
  for (let at = 0; at < text.length; ) {
    const line = text.lastIndexOf("\n", at + PIECE_CHARACTERS);
    const stop = text.length - at <= PIECE_CHARACTERS ? text.length : line > at ? line + 1 : at + PIECE_CHARACTERS;
    // The block ends the line, so its line feed is removed.
    nodes.push(html.span({ class: "text-piece" }, text.slice(at, stop).replace(/\n$/, "")));
    at = stop;
  }
  return nodes;
}

/**
 * Text as a block that keeps its line breaks. More than `maxCharacters` characters are cut, with a button for the rest.
 * @param {unknown} text
 * @param {{maxCharacters?: number, class?: string, tag?: "div", label?: string}} [options]
 */
export function textBlock(text, options = {}) {
  const all = String(text);
  const max = options.maxCharacters ?? BLOCK_CHARACTERS;
  const body = html[options.tag ?? "pre"]({
    class: ["text-block", options.class],
    tabindex: options.tag ? null : "0",
    "aria-label": options.tag ? null : (options.label ?? "text"),
    role: options.tag ? null : "group",
  });
  if (all.length <= max) {
    body.append(escapeHidden(all));
    return body;
  }
  body.append(`${escapeHidden(withoutHalfPair(all.slice(0, max)))}…`);
  const more = html.button(
    {
      type: "button",
      class: "button quiet show-all",
      on: {
        click: () => {
          body.replaceChildren(...splitPieces(escapeHidden(all)));
          more.remove();
        },
      },
    },
    `Show all ${formatNumber(all.length)} characters`,
  );
  return html.div({ class: "cut-block" }, body, more);
}
