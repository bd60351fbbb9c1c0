// @ts-check
/** Short messages at the edge of the page, and words for screen readers. */
import { el } from "../core/dom.js";
import { icon } from "./icons.js";

// Long enough to read two lines; a bad one stays until it is closed.
const SHOWN_MILLISECONDS = 6_000;
const MOST_SHOWN = 4;

export class Notices {
  constructor() {
    this._list = el("div", { class: "notices" });
    this._polite = el("div", { class: "sr", role: "status", "aria-live": "polite" });
    this._urgent = el("div", { class: "sr", role: "alert" });
    this.node = el("div", { class: "notices-area" }, this._list, this._polite, this._urgent);
  }

  /** @param {string} words @param {"info" | "good" | "bad"} [tone] */
  show(words, tone = "info") {
    const notice = el(
      "div",
      { class: ["notice", tone] },
      icon(tone === "bad" ? "warning" : tone === "good" ? "check" : "bell"),
      el("span", { class: "notice-words" }, words),
      el("button", { type: "button", class: "button quiet icon-only small", "aria-label": "Close this message", on: { click: () => notice.remove() } }, icon("close", 14)),
    );
    this._list.append(notice);
    while (this._list.childElementCount > MOST_SHOWN) this._list.firstElementChild?.remove();
    if (tone !== "bad") setTimeout(() => notice.remove(), SHOWN_MILLISECONDS);
    this._say(tone === "bad" ? this._urgent : this._polite, words);
  }

  /** Heard, not seen. @param {string} words */
  speak(words) {
    this._say(this._polite, words);
  }

  /** The same words twice are spoken twice only if they went away between. @param {HTMLElement} region @param {string} words */
  _say(region, words) {
    region.textContent = "";
    requestAnimationFrame(() => (region.textContent = words));
  }
}
