/** Letters of another alphabet that look like Latin ones, marked and named, so that an address cannot pass for another. */
import { html } from "../../core/page/dom.js";
import { escapeHidden } from "../../core/page/text.js";
import { oddLetters } from "./call-risks.js";

/** The text with its odd letters marked; null if it has none. @param {string} text @returns {any[] | null} */
export function markedText(text) {
  const found = oddLetters(text);
  if (found.length === 0) return null;
  const parts = [];
  let at = 0;
  for (const { at: place, letter, alphabet } of found) {
    const code = (letter.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
    parts.push(
      escapeHidden(text.slice(at, place)),
      html.span(
        { class: "odd-letter", title: `${alphabet} letter U+${code}` },
        letter,
        html.small({}, ` ${alphabet} `),
      ),
    );
    at = place + letter.length;
  }
  return [...parts, escapeHidden(text.slice(at))];
}
