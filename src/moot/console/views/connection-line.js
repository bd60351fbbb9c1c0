// @ts-check
/** Whether the line stands: a pill in the header, and a banner that explains when it does not. */
import { el, replace } from "../core/dom.js";
import { visible } from "../core/text.js";

/** @type {Record<string, [string, string]>} state → tone and words */
const WORDS = {
  connecting: ["warn", "Connecting"],
  "catching-up": ["warn", "Catching up"],
  live: ["good", "Live"],
  waiting: ["bad", "Offline"],
  ended: ["bad", "Ended"],
};

export class ConnectionLine {
  /** @param {import("../core/session.js").Session} session */
  constructor(session) {
    this._session = session;
    this._word = el("span", {}, "Connecting");
    this.pill = el("span", { class: "pill", role: "status" }, el("span", { class: "dot", "aria-hidden": "true" }), this._word);
    this.banner = el("div", { class: "banner", hidden: true });
    this._returned = 0;
    this._shown = "";
    // The countdown of the next attempt.
    this._clock = setInterval(() => this.refresh(), 1000);
  }

  close() {
    clearInterval(this._clock);
  }

  refresh() {
    const place = this._session.current;
    if (!place) return;
    const line = place.connection;
    const [tone, word] = line.state === "connecting" && line.everLive ? ["warn", "Reconnecting"] : WORDS[line.state];
    if (this._word.textContent !== word) this._word.textContent = word;
    if (this.pill.dataset.tone !== tone) this.pill.dataset.tone = tone;
    const words = this._explain(line);
    if (words === this._shown) return;
    this._shown = words;
    this.banner.hidden = words === "";
    this.banner.dataset.tone = tone;
    const act = line.state === "waiting" || line.state === "ended" ? el("button", { type: "button", class: "button small", on: { click: () => line.retryNow() } }, line.state === "ended" ? "Connect again" : "Try now") : null;
    replace(this.banner, el("span", {}, words), act);
  }

  /** @param {import("../core/connection.js").Connection} line */
  _explain(line) {
    if (line.state === "ended") return `Not connected: ${visible(line.words)}.`;
    if (line.state !== "waiting") return "";
    const seconds = Math.max(0, Math.ceil((line.retryAt - Date.now()) / 1000));
    return `The connection was lost (${visible(line.words)}). What you see is from before; trying again ${seconds > 0 ? `in ${seconds} s` : "now"}.`;
  }
}
