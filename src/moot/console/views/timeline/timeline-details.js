/** The message that somebody opened in the timeline, also one that is older than the page. */
import { html, replace } from "../../core/page/dom.js";
import { Envelopes } from "../../core/state/envelopes.js";
import { envelopeDetails } from "./envelope-details.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/envelopes.js").Row} Row */

const MAX_LINKED = 100;

export class TimelineDetails {
  /** @param {Context} context @param {{close: () => void, filter: (text: string) => void, loadGap: (id: string) => void}} actions */
  constructor(context, actions) {
    this._context = context;
    this._actions = actions;
    /** The id of the message. */
    this.chosen = "";
    /** Old messages that a link led to. */
    this._linked = new Envelopes(MAX_LINKED, -3_000_000_000);
    this.node = html.aside({ class: "tl-details", hidden: true, "aria-label": "Details" });
  }

  get isOpen() {
    return !this.node.hidden;
  }

  /** @param {Row} row */
  show(row) {
    this.chosen = row.id;
    // Before its content changes, which would force a layout.
    if (this.node.scrollTop > 0) this.node.scrollTop = 0;
    replace(
      this.node,
      envelopeDetails(row, this._context, { jump: (id) => this._context.go("timeline", id), ...this._actions }),
    );
    this.node.hidden = false;
  }

  hide() {
    if (!this.isOpen) return;
    this.node.scrollTop = 0;
    this.node.hidden = true;
    this.chosen = "";
  }

  /** Whether there was something to close. */
  close() {
    const wasOpen = this.isOpen;
    if (wasOpen) this._context.go("timeline");
    return wasOpen;
  }

  /** @param {string} id */
  find(id) {
    return this._context.state.envelopes.byId(id) ?? this._linked.byId(id);
  }

  /** A message that this page does not have: the gateway may. @param {string} id @returns {Promise<Row | undefined>} */
  async load(id) {
    const { openSpace, state } = this._context;
    try {
      // It may arrive in a moment with what the gateway keeps in memory.
      const raw = await openSpace.older.find(id);
      if (this.chosen !== id) return undefined;
      const row = raw === null ? null : state.readOlder(raw);
      if (row && !state.envelopes.byId(id)) this._linked.prepend([row]);
      const found = this.find(id);
      if (!found)
        this._context.notify("The gateway has no message of this address that you may read. It may be too old.", "bad");
      return found;
    } catch {
      if (this.chosen === id)
        this._context.notify("The message of this address could not be loaded. Try again.", "bad");
      return undefined;
    }
  }
}

/** @param {Context} context @param {Row} row @param {"cause" | "effect"} way */
export function jumpTo(context, row, way) {
  const { envelopes } = context.state;
  const id =
    way === "cause" ? envelopes.causesOf(row).find((each) => each.row)?.id : envelopes.effectsOf(row.id)[0]?.id;
  if (id) context.go("timeline", id);
  else context.announce(way === "cause" ? "no known cause" : "no result yet");
}
