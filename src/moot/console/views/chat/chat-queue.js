/** Messages that we have not acknowledged, and our messages that others have not acknowledged (MEW 3.4.1, 3.4.2). */
import { arrange, button, html, newId } from "../../core/page/dom.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { ago } from "../../core/page/time.js";
import { inputDelay } from "../../core/page/input-priority.js";
import { chatLine } from "../../core/state/envelope-fields.js";
import { icon } from "../parts/icons.js";

const AT_ONCE = 30;
// When the view opens, only the first ones are drawn at once.
const AT_FIRST = 6;
// This many are sent together, then their echoes are awaited, so that no rate limit is exceeded.
const TOGETHER = 20;
const REDRAW_MILLISECONDS = 200;

/** @typedef {import("../../core/state/state-chats.js").Chat} Chat */

export class AcknowledgeQueue {
  /** @param {import("../../app.js").Context} context @param {(id: string) => void} show */
  constructor(context, show) {
    this.context = context;
    this.chats = context.state.chats;
    this._show = show;
    this._working = false;
    /** @type {Map<string, {node: HTMLElement, time: HTMLElement}>} */
    this._drawn = new Map();
    this._more = html.li({ class: "soft" });
    /** @type {any} */
    this._later = undefined;
    const id = newId("queue");
    this._title = html.h2({ id });
    this._all = button("Acknowledge all", () => this.acknowledgeAll(), {
      class: "small",
      shortcut: "e",
      icon: icon("check", 14),
    });
    // For narrow pages, which have no room for the list.
    this._next = button(
      "Show oldest",
      () => {
        const [oldest] = this.chats.unacknowledged.values();
        if (oldest) this._show(oldest.id);
      },
      { class: "small quiet queue-next" },
    );
    this._list = html.ul({ class: "queue-list" });
    this._ours = html.div({ class: "queue-ours" });
    this._oursText = html.p({ class: "soft" });
    this._cancel = button("Withdraw", () => this.cancelAll(), {
      class: "small",
      title: "Tell everyone that your unacknowledged messages need no attention any more",
    });
    this.node = html.aside(
      { class: "queue", "aria-labelledby": id },
      html.header({ class: "queue-head" }, this._title, this._next, this._all),
      this._list,
      this._ours,
    );
    this._stop = context.state.on(["chats"], () => {
      this._later ??= setTimeout(() => this._drawLater(), REDRAW_MILLISECONDS);
    });
    this.draw(AT_FIRST);
    if (this.chats.unacknowledged.size > AT_FIRST) this._later = setTimeout(() => this._drawLater(), 0);
  }

  _drawLater() {
    const more = inputDelay();
    this._later = more > 0 ? setTimeout(() => this._drawLater(), more) : undefined;
    if (more === 0) this.draw();
  }

  close() {
    clearTimeout(this._later);
    this._stop();
  }

  /** @param {number} [max] lines of the list */
  draw(max = AT_ONCE) {
    const waiting = [...this.chats.unacknowledged.values()];
    const ours = [...this.chats.ours.values()];
    this.node.classList.toggle("idle", waiting.length === 0);
    const title = waiting.length === 0 ? "Nothing to acknowledge" : `${waiting.length} to acknowledge`;
    if (this._title.textContent !== title) this._title.textContent = title;
    this._all.hidden = this._next.hidden = waiting.length === 0;
    this._all.disabled = this._working;
    /** @type {Map<string, {node: HTMLElement, time: HTMLElement}>} */
    const drawn = new Map();
    for (const chat of waiting.slice(0, max)) {
      const item = this._drawn.get(chat.id) ?? this._item(chat);
      const text = ago(chat.at);
      if (item.time.textContent !== text) item.time.textContent = text;
      drawn.set(chat.id, item);
    }
    this._drawn = drawn;
    const rest = `and ${waiting.length - max} more`;
    if (this._more.textContent !== rest) this._more.textContent = rest;
    arrange(this._list, [
      ...[...drawn.values()].map((each) => each.node),
      ...(waiting.length > max ? [this._more] : []),
    ]);
    const ownText = `${ours.length} not read yet.`;
    if (this._oursText.textContent !== ownText) this._oursText.textContent = ownText;
    this._cancel.disabled = this._working;
    // Drawn once and then kept: a button that is replaced while somebody presses it does nothing.
    arrange(this._ours, ours.length > 0 ? [this._oursText, this._cancel] : []);
  }

  /** @param {Chat} chat */
  _item(chat) {
    const time = html.span({ class: "faint" });
    const node = html.li(
      { class: "queue-item" },
      html.button(
        { type: "button", class: "queue-text", on: { click: () => this._show(chat.id) } },
        nameOf(chat.from),
        html.bdi({ class: "soft" }, oneLine(chatLine(chat), 90)),
        time,
      ),
      html.button(
        {
          type: "button",
          class: "button quiet icon-only small",
          title: "Acknowledge",
          "aria-label": `Acknowledge message from ${oneLine(chat.from, 40)}: ${oneLine(chatLine(chat), 40)}`,
          on: { click: () => this.acknowledge(chat) },
        },
        icon("check", 16),
      ),
    );
    return { node, time };
  }

  /** One acknowledgement for each (MEW 3.4.1). @param {Chat[]} chats */
  acknowledge(...chats) {
    return this._each(
      chats,
      (each) => this.context.send("chat/acknowledge", { status: "read" }, { to: [each.from], about: each.id }),
      "acknowledged",
    );
  }

  acknowledgeAll() {
    return this.acknowledge(...this.chats.unacknowledged.values());
  }

  /** @param {Chat} chat @param {string} [reason] */
  cancel(chat, reason = "handled_elsewhere") {
    return this._each([chat], (each) => this.context.send("chat/cancel", { reason }, { about: each.id }), "cancelled");
  }

  cancelAll() {
    return this._each(
      [...this.chats.ours.values()],
      (each) => this.context.send("chat/cancel", { reason: "handled_elsewhere" }, { about: each.id }),
      "cancelled",
    );
  }

  /** @param {Chat[]} chats @param {(chat: Chat) => Promise<any>} act @param {string} word */
  async _each(chats, act, word) {
    if (this._working || chats.length === 0) return;
    this._working = true;
    let done = 0;
    try {
      for (let at = 0; at < chats.length; at += TOGETHER) {
        const some = await Promise.allSettled(chats.slice(at, at + TOGETHER).map(act));
        done += some.filter((each) => each.status === "fulfilled").length;
        const failed = some.find((each) => each.status === "rejected");
        if (failed) throw failed.reason;
      }
      this.context.announce(`${done} ${word}`);
    } catch (error) {
      this.context.notify(
        `${done} of ${chats.length} ${word}; ${error instanceof Error ? error.message : error}`,
        "bad",
      );
    } finally {
      this._working = false;
      this.draw();
    }
  }
}
