/**
 * The chat messages, as a window: a page of the newest that follows the end, or an older part that stays as it is
 * while somebody reads it. Twenty thousand messages are never laid out together; what is drawn is not drawn again.
 */
import { arrange, button, html, redraw } from "../../core/page/dom.js";
import { END_TEXTS } from "../../core/connection/older-messages.js";
import { inputDelay } from "../../core/page/input-priority.js";
import { markdown } from "../../core/page/markdown.js";
import { formatNumber } from "../../core/page/numbers.js";
import { textBlock, nameOf, oneLine } from "../../core/page/text.js";
import { isoTime, formatTime } from "../../core/page/time.js";
import { icon } from "../parts/icons.js";
import { didText, operationText } from "../timeline/timeline-rows.js";

// A screen shows about 24.
const PAGE = 30;
// When the view opens, the newest messages are drawn first and the others in a later frame.
const AT_FIRST = 16;
// Scrolling up adds pages at the top; beyond this size, messages at the bottom are removed.
const MAX_SHOWN = 180;
const REDRAW_MILLISECONDS = 120;
// The redraw interval while a whole page of new messages arrives at once, which nobody can read.
const RUSH_MILLISECONDS = 400;
const LONGEST_MILLISECONDS = 1_000;
// Messages of one author within this time share one heading.
const TOGETHER_MILLISECONDS = 120_000;
// Closer to the end than this counts as at the end.
const AT_END_PIXELS = 60;

/** @typedef {import("../../core/state/state-chats.js").Chat} Chat */

export class ChatMessages {
  /** @param {import("../../app.js").Context} context @param {import("./chat-queue.js").AcknowledgeQueue} queue @param {(chat: Chat) => void} reply */
  constructor(context, queue, reply) {
    this.context = context;
    this.chats = context.state.chats;
    this._queue = queue;
    this._reply = reply;
    /** The row of the last message shown; Infinity: always the newest. */
    this._until = Infinity;
    this._count = PAGE;
    /** @type {Map<string, {node: HTMLElement, signature: string, equipped: boolean}>} */
    this._drawn = new Map();
    this._drawnAt = 0;
    this._pause = REDRAW_MILLISECONDS;
    /** @type {any} */
    this._later = undefined;
    this._items = html.ol({});
    this._list = html.div(
      {
        class: "chat-list",
        role: "log",
        "aria-label": "Chat",
        "aria-live": "off",
        tabindex: "0",
        on: { scroll: () => this._scrolled() },
      },
      this._items,
    );
    this._earlierParts = html.div({ class: "chat-earlier", role: "status" });
    this._earlier = html.li({}, this._earlierParts);
    this._newer = html.button({
      type: "button",
      class: "button primary small chat-newer",
      hidden: true,
      on: { click: () => this.follow() },
    });
    this._empty = html.div(
      { class: "empty" },
      icon("chat", 28),
      html.strong({}, "Nobody has said anything yet"),
      html.span(
        {},
        "Write to everyone, or to one member. Agents answer here, and everyone in the space can read along.",
      ),
    );
    this.node = html.section({ class: "chat-main", "aria-label": "Messages" }, this._list, this._empty, this._newer);
    this._stop = context.state.on(["chats", "older"], () => this._changed());
    this._sizes = new ResizeObserver(() => this._until === Infinity && this._toEnd());
    this._sizes.observe(this._list);
  }

  close() {
    clearTimeout(this._later);
    this._sizes.disconnect();
    this._stop();
  }

  /** Scroll to the newest message and follow it. */
  follow() {
    this._until = Infinity;
    this._count = PAGE;
    this._draw();
    if (this._opening) this._changed();
  }

  /** Scroll to a message. @param {string} id */
  show(id) {
    this._opening = false;
    const chat = this.chats.byId.get(id);
    if (!chat) return;
    if (!this._drawn.has(id)) {
      const end = this.chats.indexAfter(chat.n) + PAGE / 2;
      this._until = this.chats.all[end - 1]?.n ?? Infinity;
      this._count = PAGE;
    } else if (this._until === Infinity) this._freeze();
    this._draw();
    const node = this._drawn.get(id)?.node;
    node?.scrollIntoView({ block: "center" });
    node?.classList.add("marked");
    setTimeout(() => node?.classList.remove("marked"), 2000);
  }

  _changed() {
    if (this._later !== undefined) return;
    this._drawIn(Math.max(0, this._drawnAt + this._pause - performance.now()));
  }

  /** @param {number} milliseconds */
  _drawIn(milliseconds) {
    this._later = setTimeout(() => {
      const more = inputDelay();
      if (more > 0) this._drawIn(more);
      else {
        this._opening = false;
        this._draw();
      }
    }, milliseconds);
  }

  _draw() {
    clearTimeout(this._later);
    this._later = undefined;
    const begun = performance.now();
    const before = this._drawn;
    const all = this.chats.all;
    const end = this._end();
    const start = Math.max(0, end - (this._opening ? AT_FIRST : this._count));
    const shown = all.slice(start, end);
    /** @type {Map<string, {node: HTMLElement, signature: string, equipped: boolean}>} */
    const drawn = new Map();
    shown.forEach((chat, index) => {
      const last = index > 0 ? shown[index - 1] : null;
      const joined =
        last !== null &&
        last.from === chat.from &&
        last.to.join() === chat.to.join() &&
        chat.about.length === 0 &&
        chat.at - last.at < TOGETHER_MILLISECONDS;
      const signature = `${joined} ${chat.acknowledged.length} ${chat.cancelled?.by ?? ""} ${this.chats.unacknowledged.has(chat.id)}`;
      const old = this._drawn.get(chat.id);
      drawn.set(
        chat.id,
        old?.signature === signature ? old : { node: this._message(chat, joined), signature, equipped: false },
      );
    });
    this._drawn = drawn;
    // Buttons that appear on hover are added after the first frame.
    if (!this._opening) for (const chat of shown) this._equip(chat, drawn.get(chat.id));
    this._drawEarlier(start > 0);
    arrange(this._items, [this._earlier, ...[...drawn.values()].map((each) => each.node)]);
    this._empty.hidden = all.length > 0;
    const newer = all.length - end;
    this._newer.hidden = this._until === Infinity;
    this._newer.textContent = newer > 0 ? `${formatNumber(newer)} newer ↓` : "Newest ↓";
    if (this._until === Infinity) this._toEnd();
    this._drawnAt = performance.now();
    // Includes the layout, because the scroll position was read. Drawing takes at most a tenth of the time on a slow machine, but happens at least once a second.
    const rushing = before.size >= PAGE && [...drawn.keys()].every((id) => !before.has(id));
    this._pause = this._opening
      ? 0
      : Math.max(
          rushing ? RUSH_MILLISECONDS : REDRAW_MILLISECONDS,
          Math.min(LONGEST_MILLISECONDS, (this._drawnAt - begun) * 10),
        );
  }

  /** What stands above the first message: the way to earlier ones, or why there are none. @param {boolean} isLoaded whether there are some in this page */
  _drawEarlier(isLoaded) {
    const { older } = this.context.openSpace;
    redraw(this._earlierParts, [isLoaded, older.status, older.reason].join("\n"), () => {
      if (isLoaded) return [button("Show earlier", () => this._showEarlier(), { class: "quiet small" })];
      if (older.status === "loading") return [html.span({ class: "soft" }, "Loading earlier messages…")];
      if (older.status === "end") return [html.span({ class: "soft" }, END_TEXTS[older.reason] ?? "")];
      if (older.status === "failed")
        return [
          html.span({ class: "fault" }, `Earlier messages could not be loaded: ${oneLine(older.reason, 120)}`),
          button("Retry", () => void this._loadEarlier(), { class: "small" }),
        ];
      return [button("Load earlier messages", () => void this._loadEarlier(), { class: "quiet small" })];
    });
  }

  /** Read on in the journal until there is something that was said. */
  async _loadEarlier() {
    const before = this.chats.all.length;
    if (this._until === Infinity) this._freeze();
    while (this.context.openSpace.older.canLoad && this.chats.all.length === before) {
      await this.context.openSpace.older.load();
      if (this.context.openSpace.older.status === "failed") return;
    }
    if (this.chats.all.length > before) this._showEarlier();
  }

  /** True until more than the first messages are drawn. */
  _opening = true;

  _end() {
    return this._until === Infinity ? this.chats.all.length : this.chats.indexAfter(this._until);
  }

  _freeze() {
    this._until = this.chats.all.at(-1)?.n ?? Infinity;
  }

  _toEnd() {
    this._list.scrollTop = this._list.scrollHeight;
  }

  _scrolled() {
    const atEnd = this._list.scrollHeight - this._list.scrollTop - this._list.clientHeight < AT_END_PIXELS;
    if (atEnd === (this._until === Infinity)) return;
    if (!atEnd) {
      // The messages on the page, without those that arrived since it was drawn.
      const last = [...this._drawn.keys()].at(-1);
      this._until = this.chats.byId.get(last ?? "")?.n ?? Infinity;
      this._changed();
      return;
    }
    const end = this._end() + PAGE;
    if (end < this.chats.all.length)
      this._grow(() => {
        this._until = this.chats.all[end - 1].n;
        this._count = Math.min(MAX_SHOWN, this._count + PAGE);
      });
    else if (this._end() === this.chats.all.length) this.follow();
    else this._grow(() => (this._until = /** @type {Chat} */ (this.chats.all.at(-1)).n));
  }

  _showEarlier() {
    this._grow(() => {
      const start = Math.max(0, this._end() - this._count - PAGE);
      const end = Math.min(this._end(), start + MAX_SHOWN);
      this._count = end - start;
      this._until = this.chats.all[end - 1]?.n ?? Infinity;
    });
  }

  /** Draw another part; visible messages keep their position. @param {() => void} change */
  _grow(change) {
    const top = this._list.getBoundingClientRect().top;
    const kept = [...this._drawn].find(([, each]) => each.node.getBoundingClientRect().bottom > top);
    const before = kept?.[1].node.getBoundingClientRect().top ?? 0;
    change();
    this._draw();
    const now = kept && this._drawn.get(kept[0])?.node;
    if (now) this._list.scrollTop += now.getBoundingClientRect().top - before;
  }

  /** @param {Chat} chat @param {boolean} joined */
  _message(chat, joined) {
    const mine = chat.from === this.context.state.me.id;
    const waits = this.chats.unacknowledged.has(chat.id);
    return html.li(
      {
        class: ["chat-message", joined && "joined", chat.cancelled && "cancelled", mine && "mine"],
        data: { id: chat.id },
      },
      !joined &&
        html.div(
          { class: "chat-head" },
          nameOf(chat.from, { you: mine }),
          chat.to.length > 0 &&
            html.span(
              { class: "soft" },
              "to ",
              chat.to.slice(0, 5).map((id, index) => [index > 0 && ", ", nameOf(id)]),
              chat.to.length > 5 && ` and ${chat.to.length - 5} more`,
            ),
          html.time({ datetime: isoTime(chat.at), class: "faint" }, formatTime(chat.at)),
        ),
      this._quote(chat),
      chat.format === "markdown" ? markdown(chat.text) : textBlock(chat.text, { tag: "div", class: "chat-plain" }),
      html.div(
        { class: "chat-foot" },
        chat.cancelled &&
          html.span({ class: "tag" }, "cancelled", chat.cancelled.reason && `: ${oneLine(chat.cancelled.reason, 60)}`),
        chat.acknowledged.length > 0 &&
          html.span(
            {
              class: "tag",
              data: { tone: "good" },
              title: chat.acknowledged
                .slice(0, 20)
                .map((each) => `${oneLine(each.by, 40)}: ${oneLine(each.status, 20)}`)
                .join("\n"),
            },
            icon("check", 13),
            `seen by ${chat.acknowledged.length}`,
          ),
        waits && button("Acknowledge", () => this._queue.acknowledge(chat), { class: "quiet small" }),
      ),
    );
  }

  /** The buttons of a message. @param {Chat} chat @param {{node: HTMLElement, equipped: boolean} | undefined} drawn */
  _equip(chat, drawn) {
    if (!drawn || drawn.equipped) return;
    drawn.equipped = true;
    drawn.node.append(
      html.div(
        { class: "chat-tools" },
        chat.from === this.context.state.me.id &&
          !chat.cancelled &&
          button("Cancel message", () => this._queue.cancel(chat), { class: "quiet small" }),
        button("Reply", () => this._reply(chat), { class: "quiet small" }),
        html.a({ class: "button quiet small", href: this.context.link("timeline", chat.id) }, "Show in timeline"),
      ),
    );
  }

  /** The message that it replies to, if it is known here. @param {Chat} chat */
  _quote(chat) {
    const id = chat.about.find((each) => this.context.state.envelopes.has(each));
    if (!id)
      return chat.about.length > 0
        ? html.a(
            { class: "chat-quote soft", href: this.context.link("timeline", chat.about[0]) },
            "a reply to an older message",
          )
        : null;
    const row = /** @type {import("../../core/state/envelopes.js").Row} */ (this.context.state.envelopes.byId(id));
    return html.a(
      {
        class: "chat-quote",
        href: this.chats.byId.has(id) ? this.context.link("chat", id) : this.context.link("timeline", id),
      },
      nameOf(row.from),
      " ",
      html.bdi(
        {},
        oneLine(
          row.kind === "chat" ? row.summary : `${didText(row.kind)} ${operationText(row.operation) || row.summary}`,
          100,
        ),
      ),
    );
  }
}
