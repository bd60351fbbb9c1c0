/** The state of the connection: a pill in the header, and a banner that explains when it is lost. */
import { html, replace } from "../../core/page/dom.js";
import { escapeHidden } from "../../core/page/text.js";

/** @type {Record<string, [string, string]>} state → tone and label */
const LABELS = {
  connecting: ["warn", "Connecting"],
  "catching-up": ["warn", "Catching up"],
  live: ["good", "Live"],
  waiting: ["bad", "Offline"],
  ended: ["bad", "Disconnected"],
};

export class ConnectionStatus {
  /** @param {import("../../core/connection/session.js").Session} session */
  constructor(session) {
    this._session = session;
    this._word = html.span({}, "Connecting");
    this.pill = html.span(
      { class: "pill", role: "status" },
      html.span({ class: "dot", "aria-hidden": "true" }),
      this._word,
    );
    this.banner = html.div({ class: "banner", hidden: true });
    this._shown = "";
    // The countdown of the next attempt.
    this._clock = setInterval(() => this.refresh(), 1000);
  }

  close() {
    clearInterval(this._clock);
  }

  refresh() {
    const openSpace = this._session.current;
    if (!openSpace) return;
    const connection = openSpace.connection;
    const [tone, word] = labelOf(connection);
    if (this._word.textContent !== word) this._word.textContent = word;
    if (this.pill.dataset.tone !== tone) this.pill.dataset.tone = tone;
    const text = this._explain(connection);
    if (text === this._shown) return;
    this._shown = text;
    this.banner.hidden = text === "";
    this.banner.dataset.tone = tone;
    const act =
      connection.state === "waiting" || (connection.state === "ended" && !connection.isVoid)
        ? html.button(
            { type: "button", class: "button small", on: { click: () => connection.retryNow() } },
            connection.state === "ended" ? "Reconnect" : "Retry now",
          )
        : null;
    replace(this.banner, html.span({}, text), act);
  }

  /** @param {import("../../core/connection/connection.js").Connection} line */
  _explain(line) {
    if (line.state === "live" && !line.responds)
      return "The gateway does not respond. The page may be out of date, and what you decide may not arrive.";
    if (line.state === "ended")
      return `Not connected: ${escapeHidden(line.reason)}.${line.isVoid ? " With a new one, sign out and in again." : ""}`;
    if (line.state !== "waiting") return "";
    const seconds = Math.max(0, Math.ceil((line.retryAt - performance.now()) / 1000));
    return `Connection lost${line.reason ? ` (${escapeHidden(line.reason)})` : ""}. The page may be out of date; retrying ${seconds > 0 ? `in ${seconds} s` : "now"}.`;
  }
}

/** @param {import("../../core/connection/connection.js").Connection} connection @returns {[string, string]} tone and label */
function labelOf(connection) {
  if (connection.state === "connecting" && connection.everLive) return ["warn", "Reconnecting"];
  if (connection.state === "live" && !connection.responds) return ["bad", "No response"];
  return LABELS[connection.state];
}
