// @ts-check
/** Short messages at the edge of the page, and announcements for screen readers. */
import { el } from "../core/dom.js";
import { icon } from "./icons.js";

// Long enough to read two lines; an error stays until it is closed.
const SHOWN_MILLISECONDS = 6_000;
const MAX_SHOWN = 4;

export class Notices {
  constructor() {
    this._list = el("div", { class: "notices" });
    this._polite = el("div", { class: "sr", role: "status", "aria-live": "polite" });
    this._urgent = el("div", { class: "sr", role: "alert" });
    this.node = el("div", { class: "notices-area" }, this._list, this._polite, this._urgent);
  }

  /** @param {string} text @param {"info" | "good" | "bad"} [tone] */
  show(text, tone = "info") {
    const notice = el(
      "div",
      { class: ["notice", tone] },
      icon(tone === "bad" ? "warning" : tone === "good" ? "check" : "bell"),
      el("span", { class: "notice-text" }, text),
      el("button", { type: "button", class: "button quiet icon-only small", "aria-label": "Dismiss", on: { click: () => notice.remove() } }, icon("close", 14)),
    );
    this._list.append(notice);
    while (this._list.childElementCount > MAX_SHOWN) this._list.firstElementChild?.remove();
    if (tone !== "bad") setTimeout(() => notice.remove(), SHOWN_MILLISECONDS);
    this._announce(tone === "bad" ? this._urgent : this._polite, text);
  }

  /** Announced to screen readers, not shown. @param {string} text */
  speak(text) {
    this._announce(this._polite, text);
  }

  /** A screen reader repeats the same text only if it was removed in between. @param {HTMLElement} region @param {string} text */
  _announce(region, text) {
    region.textContent = "";
    requestAnimationFrame(() => (region.textContent = text));
  }
}
