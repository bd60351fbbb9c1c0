// @ts-check
/** People and agents talking, and what waits to be acknowledged (MEW 3.4). */
import { button, el, freshId, replace } from "../core/dom.js";
import { markdown } from "../core/markdown.js";
import { registerView } from "../core/router.js";
import { block, nameOf, oneLine } from "../core/text.js";
import { longTime, shortTime } from "../core/time.js";
import { AcknowledgeQueue } from "./chat-queue.js";
import { icon } from "./icons.js";

// What is looked at; earlier ones on demand.
const AT_ONCE = 150;
const REDRAW_MILLISECONDS = 120;
// Two messages of one author within this stand under one name.
const TOGETHER_MILLISECONDS = 120_000;

/** @typedef {import("../core/state-chats.js").Chat} Chat */

class ChatView {
  /** @param {HTMLElement} outlet @param {import("../app.js").Context} context */
  constructor(outlet, context) {
    this.context = context;
    this.chats = context.state.chats;
    this._most = AT_ONCE;
    /** @type {Map<string, {node: HTMLElement, signature: string}>} */
    this._drawn = new Map();
    /** @type {Chat | null} */
    this._replyTo = null;
    this._drawnAt = 0;
    /** @type {any} */
    this._later = undefined;
    this._queue = new AcknowledgeQueue(context, (id) => this.arrive([id]));
    this._items = el("ol", {});
    this._list = el("div", { class: "chat-list", role: "log", "aria-label": "Chat", "aria-live": "off", tabindex: "0" }, this._items);
    this._earlier = el("button", { type: "button", class: "button quiet small chat-earlier", on: { click: () => this._showEarlier() } }, "Show earlier");
    this._empty = el("div", { class: "empty" }, icon("chat", 28), el("strong", {}, "Nobody has said anything yet"), el("span", {}, "Everybody in the space reads what you write here."));
    this._composer(outlet);
    this._stops = [context.state.on(["chats"], () => this._changed()), context.state.on(["roster", "connection"], () => this._people())];
    this._stops.push(context.keys.add("Chat", { m: ["Write a message", () => this._text.focus()], e: ["Acknowledge everything that waits", () => this._queue.acknowledgeAll()] }));
    this._people();
    this._draw();
    this._toEnd();
  }

  /** @param {HTMLElement} outlet */
  _composer(outlet) {
    const ids = { text: freshId("chat"), format: freshId("format"), to: freshId("to") };
    this._text = el("textarea", { id: ids.text, class: "field", rows: "2", placeholder: "Write to the space", on: { keydown: (/** @type {KeyboardEvent} */ event) => this._key(event) } });
    this._to = el("select", { id: ids.to, class: "field small" });
    this._format = el("input", { id: ids.format, type: "checkbox", checked: true });
    this._reply = el("div", { class: "chat-reply", hidden: true });
    outlet.append(
      el(
        "div",
        { class: "chat" },
        el("h1", { class: "sr" }, "Chat"),
        el("section", { class: "chat-main", "aria-label": "Messages" }, this._list, this._empty),
        el(
          "form",
          { class: "chat-form", "aria-label": "Write", on: { submit: (/** @type {Event} */ event) => { event.preventDefault(); this._send(); } } },
          this._reply,
          el("label", { class: "sr", for: ids.text }, "Message"),
          this._text,
          el(
            "div",
            { class: "chat-options" },
            el("label", { for: ids.to }, "To"),
            this._to,
            el("label", { class: "choice", for: ids.format }, this._format, "Markdown"),
            el("span", { class: "grow" }),
            el("span", { class: "faint chat-hint" }, el("kbd", {}, "Enter"), " sends, ", el("kbd", {}, "Shift+Enter"), " is a new line"),
            el("button", { type: "submit", class: "button primary" }, "Send"),
          ),
        ),
        this._queue.node,
      ),
    );
  }

  close() {
    clearTimeout(this._later);
    this._queue.close();
    this._stops.forEach((stop) => stop());
  }

  /** The address names a chat: bring it into sight. @param {string[]} rest */
  arrive(rest) {
    const id = rest[0];
    if (!id || !this.chats.byId.has(id)) return;
    const all = [...this.chats.byId.keys()];
    this._most = Math.max(this._most, all.length - all.indexOf(id) + 20);
    this._draw();
    const node = this._drawn.get(id)?.node;
    node?.scrollIntoView({ block: "center" });
    node?.classList.add("marked");
    setTimeout(() => node?.classList.remove("marked"), 2000);
  }

  // Reading

  _changed() {
    const wait = this._drawnAt + REDRAW_MILLISECONDS - performance.now();
    clearTimeout(this._later);
    if (wait <= 0) this._draw();
    else this._later = setTimeout(() => this._draw(), wait);
  }

  _draw() {
    this._drawnAt = performance.now();
    const atEnd = this._list.scrollHeight - this._list.scrollTop - this._list.clientHeight < 60;
    const all = [...this.chats.byId.values()];
    const shown = all.slice(-this._most);
    /** @type {Map<string, {node: HTMLElement, signature: string}>} */
    const drawn = new Map();
    shown.forEach((chat, index) => {
      const before = index > 0 ? shown[index - 1] : null;
      const joined = before !== null && before.from === chat.from && before.to.join() === chat.to.join() && chat.about.length === 0 && chat.at - before.at < TOGETHER_MILLISECONDS;
      const signature = `${joined} ${chat.acknowledged.length} ${chat.cancelled?.by ?? ""} ${this.chats.waiting.has(chat.id)}`;
      const old = this._drawn.get(chat.id);
      drawn.set(chat.id, old?.signature === signature ? old : { node: this._message(chat, joined), signature });
    });
    this._drawn = drawn;
    this._items.replaceChildren(...(all.length > shown.length ? [el("li", {}, this._earlier)] : []), ...[...drawn.values()].map((each) => each.node));
    this._empty.hidden = all.length > 0;
    if (atEnd) this._toEnd();
  }

  _toEnd() {
    this._list.scrollTop = this._list.scrollHeight;
  }

  _showEarlier() {
    const height = this._list.scrollHeight;
    this._most += AT_ONCE;
    this._draw();
    this._list.scrollTop += this._list.scrollHeight - height;
  }

  /** @param {Chat} chat @param {boolean} joined */
  _message(chat, joined) {
    const mine = chat.from === this.context.state.me.id;
    const waits = this.chats.waiting.has(chat.id);
    return el(
      "li",
      { class: ["chat-message", joined && "joined", chat.cancelled && "cancelled", mine && "mine"], data: { id: chat.id } },
      !joined && el("div", { class: "chat-head" }, nameOf(chat.from, { you: mine }), chat.to.length > 0 && el("span", { class: "soft" }, "to ", chat.to.slice(0, 5).map((id, index) => [index > 0 && ", ", nameOf(id)]), chat.to.length > 5 && ` and ${chat.to.length - 5} more`), el("time", { datetime: longTime(chat.at), class: "faint" }, shortTime(chat.at))),
      this._quote(chat),
      chat.format === "markdown" ? markdown(chat.text) : block(chat.text, { tag: "div", class: "chat-plain" }),
      el(
        "div",
        { class: "chat-foot" },
        chat.cancelled && el("span", { class: "tag" }, "needs no attention", chat.cancelled.reason && `: ${oneLine(chat.cancelled.reason, 60)}`),
        chat.acknowledged.length > 0 && el("span", { class: "tag", data: { tone: "good" }, title: chat.acknowledged.slice(0, 20).map((each) => `${oneLine(each.by, 40)}: ${oneLine(each.status, 20)}`).join("\n") }, icon("check", 13), `seen by ${chat.acknowledged.length}`),
        waits && button("Acknowledge", () => this._queue.acknowledge(chat), { class: "quiet small" }),
        mine && !chat.cancelled && button("No attention needed", () => this._queue.cancel(chat), { class: "quiet small on-hover" }),
        button("Reply", () => this._startReply(chat), { class: "quiet small on-hover" }),
        el("a", { class: "button quiet small on-hover", href: this.context.link("timeline", chat.id) }, "In the timeline"),
      ),
    );
  }

  /** What it replies to, if that was said here. @param {Chat} chat */
  _quote(chat) {
    const id = chat.about.find((each) => this.context.state.envelopes.has(each));
    if (!id) return chat.about.length > 0 ? el("div", { class: "chat-quote soft" }, "a reply to something said before you came") : null;
    const row = /** @type {import("../core/envelopes.js").Row} */ (this.context.state.envelopes.byId(id));
    return el("a", { class: "chat-quote", href: this.chats.byId.has(id) ? this.context.link("chat", id) : this.context.link("timeline", id) }, nameOf(row.from), " ", el("bdi", {}, oneLine(row.kind === "chat" ? row.words : `${row.kind} ${row.operation || row.words}`, 100)));
  }

  // Writing

  _people() {
    const names = this.context.state.roster.present().map((each) => each.id).filter((id) => id !== this.context.state.me.id);
    const key = names.join("\n");
    if (key === this._names) return;
    this._names = key;
    const value = this._to.value;
    replace(this._to, el("option", { value: "" }, "everybody"), names.map((name) => el("option", { value: name }, oneLine(name, 64))));
    this._to.value = names.includes(value) ? value : "";
  }

  _names = "-";

  /** @param {Chat} chat */
  _startReply(chat) {
    this._replyTo = chat;
    this._reply.hidden = false;
    replace(this._reply, "Replying to ", nameOf(chat.from), ": ", el("bdi", { class: "soft" }, oneLine(chat.text, 80)), button("Not a reply", () => this._endReply(), { class: "quiet small" }));
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
      const said = this.context.say("chat", { text, format: this._format.checked ? "markdown" : "plain" }, { to, about: reply ? [reply.id] : [], context: reply?.context });
      this._list.scrollTop = this._list.scrollHeight;
      await said;
      this._toEnd();
    } catch (why) {
      // Nothing that was written is lost.
      if (!this._text.value) this._text.value = text;
      this.context.notify(`Not said: ${why instanceof Error ? why.message : why}`, "bad");
    }
  }
}

registerView({
  id: "chat",
  title: "Chat",
  icon: "chat",
  order: 30,
  key: "c",
  badge: (state) => state.chats.waiting.size,
  mount(outlet, context) {
    const view = new ChatView(outlet, context);
    return { unmount: () => view.close(), arrive: (rest) => view.arrive(rest) };
  },
});
