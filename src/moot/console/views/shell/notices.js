/**
 * Short messages, and announcements for screen readers. They cover nothing: errors have rows of their own above the
 * view until they are dismissed, and what went well is said in what room the header has.
 */
import { html } from "../../core/page/dom.js";
import { icon } from "../parts/icons.js";

// Long enough to read two lines; an error stays until it is closed.
const SHOWN_MILLISECONDS = 6_000;
const MAX_SHOWN = 4;

export class Notices {
  constructor() {
    this._list = html.div({ class: "notices" });
    this._polite = html.div({ class: "sr", role: "status", "aria-live": "polite" });
    this._urgent = html.div({ class: "sr", role: "alert" });
    this.node = html.div({ class: "notices-area" }, this._list, this._polite, this._urgent);
    this.said = html.div({ class: "notices-said" });
  }

  /** @param {string} text @param {"info" | "good" | "bad"} [tone] */
  show(text, tone = "info") {
    const notice = html.div(
      { class: ["notice", tone] },
      icon(tone === "bad" ? "warning" : tone === "good" ? "check" : "bell"),
      html.span({ class: "notice-text" }, text),
      html.button(
        {
          type: "button",
          class: "button quiet icon-only small",
          "aria-label": "Dismiss",
          on: { click: () => notice.remove() },
        },
        icon("close", 14),
      ),
    );
    if (tone === "bad") {
      // The same again says nothing new.
      for (const each of [...this._list.children])
        if (each.querySelector(".notice-text")?.textContent === text) each.remove();
      this._list.append(notice);
      while (this._list.childElementCount > MAX_SHOWN) this._list.firstElementChild?.remove();
    } else {
      notice.title = text;
      this.said.replaceChildren(notice);
      setTimeout(() => notice.remove(), SHOWN_MILLISECONDS);
    }
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
