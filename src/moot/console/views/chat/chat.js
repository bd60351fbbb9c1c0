/** Chat messages, and those that are not acknowledged yet (MEW 3.4). */
import { button, html, newId, replace } from "../../core/page/dom.js";
import { registerView } from "../../core/page/router.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { chatLine } from "../../core/state/envelope-fields.js";
import { ChatMessages } from "./chat-messages.js";
import { AcknowledgeQueue } from "./chat-queue.js";

/** @typedef {import("../../core/state/state-chats.js").Chat} Chat */

class ChatView {
  /** @param {HTMLElement} outlet @param {import("../../app.js").Context} context */
  constructor(outlet, context) {
    this.context = context;
    this.chats = context.state.chats;
    /** @type {Chat | null} */
    this._replyTo = null;
    this._queue = new AcknowledgeQueue(context, (id) => this._messages.show(id));
    this._messages = new ChatMessages(context, this._queue, (chat) => this._startReply(chat));
    const ids = { text: newId("chat"), format: newId("format"), to: newId("to") };
    this._text = html.textarea({
      id: ids.text,
      class: "field",
      rows: "2",
      placeholder: "Write a message",
      on: { keydown: (/** @type {KeyboardEvent} */ event) => this._key(event) },
    });
    this._to = html.select({ id: ids.to, class: "field small" });
    this._format = html.input({ id: ids.format, type: "checkbox", checked: true });
    this._reply = html.div({ class: "chat-reply", hidden: true });
    outlet.append(
      html.div(
        { class: "chat" },
        html.h1({ class: "sr" }, "Chat"),
        this._messages.node,
        html.form(
          {
            class: "chat-form",
            "aria-label": "New message",
            on: {
              submit: (/** @type {Event} */ event) => {
                event.preventDefault();
                this._send();
              },
            },
          },
          this._reply,
          html.label({ class: "sr", for: ids.text }, "Message"),
          this._text,
          html.div(
            { class: "chat-options" },
            html.label({ for: ids.to }, "To"),
            this._to,
            html.label({ class: "choice", for: ids.format }, this._format, "Markdown"),
            html.span({ class: "grow" }),
            html.span(
              { class: "faint chat-hint" },
              html.kbd({}, "Enter"),
              " sends, ",
              html.kbd({}, "Shift+Enter"),
              " starts a new line",
            ),
            html.button({ type: "submit", class: "button primary" }, "Send"),
          ),
        ),
        this._queue.node,
      ),
    );
    this._stops = [context.state.on(["roster", "connection"], () => this._drawRecipients())];
    this._stops.push(
      context.keys.add("Chat", {
        m: ["Write a message", () => this._text.focus()],
        e: ["Acknowledge all", () => this._queue.acknowledgeAll()],
      }),
    );
    this._drawRecipients();
    this._messages.follow();
  }

  close() {
    this._messages.close();
    this._queue.close();
    this._stops.forEach((stop) => stop());
  }

  /** The address contains a chat's id: scroll to it. @param {string[]} rest */
  openRoute(rest) {
    if (rest[0]) this._messages.show(rest[0]);
  }

  // Writing

  _drawRecipients() {
    const names = this.context.state.roster
      .present()
      .map((each) => each.id)
      .filter((id) => id !== this.context.state.me.id);
    const key = names.join("\n");
    if (key === this._names) return;
    this._names = key;
    const value = this._to.value;
    replace(
      this._to,
      html.option({ value: "" }, "everyone"),
      names.map((name) => html.option({ value: name }, oneLine(name, 64))),
    );
    // What is meant for one must not go to everyone because they left meanwhile.
    if (value && !names.includes(value))
      this._to.append(html.option({ value }, `${oneLine(value, 64)} (not connected)`));
    this._to.value = value;
  }

  /** Tell the sender who did not receive a message: nobody else can. @param {string[]} ids */
  _noteAbsent(ids) {
    const present = new Set(this.context.state.roster.present().map((each) => each.id));
    for (const id of new Set(ids)) {
      if (id && id !== this.context.state.me.id && !present.has(id))
        this.context.notify(`${oneLine(id, 64)} is not connected and did not receive this message.`, "bad");
    }
  }

  _names = "-";

  /** @param {Chat} chat */
  _startReply(chat) {
    this._replyTo = chat;
    this._reply.hidden = false;
    replace(
      this._reply,
      "Replying to ",
      nameOf(chat.from),
      ": ",
      html.bdi({ class: "soft" }, oneLine(chatLine(chat), 80)),
      button("Cancel reply", () => this._endReply(), { class: "quiet small" }),
    );
    this._text.focus();
  }

  _endReply() {
    this._replyTo = null;
    this._reply.hidden = true;
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.key === "Escape") {
      this._endReply();
      this._text.blur();
    }
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this._send();
  }

  async _send() {
    const text = this._text.value;
    if (!text.trim()) return;
    this._text.value = "";
    const to = this._to.value ? [this._to.value] : [];
    try {
      const reply = this._replyTo;
      this._endReply();
      const sending = this.context.send(
        "chat",
        { text, format: this._format.checked ? "markdown" : "plain" },
        { to, about: reply ? [reply.id] : [], context: reply?.context },
      );
      this._messages.follow();
      await sending;
      this._messages.follow();
      this._noteAbsent(reply ? [...to, reply.from] : to);
    } catch (error) {
      // Keep the draft.
      if (!this._text.value) this._text.value = text;
      this.context.notify(`Not sent: ${error instanceof Error ? error.message : error}`, "bad");
    }
  }
}

registerView({
  id: "chat",
  title: "Chat",
  icon: "chat",
  order: 30,
  key: "c",
  badge: (state) => state.chats.unacknowledged.size,
  mount(outlet, context) {
    const view = new ChatView(outlet, context);
    return { unmount: () => view.close(), openRoute: (rest) => view.openRoute(rest) };
  },
});
