/** Streams (MEW 3.10): which are open, whose they are, who writes and reads, and what is being written. */
import { button, html, redraw, stepRow } from "../../core/page/dom.js";
import { registerView } from "../../core/page/router.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { ago, isoTime } from "../../core/page/time.js";
import { icon } from "../parts/icons.js";
import { lacksCapability } from "../members/member-controls.js";
import { stopSequence } from "./reasoning.js";
import { closeDialog, transferDialog, writerDialog } from "./stream-dialogs.js";
import { formatBytes, streamTail } from "./stream-tail.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/state-streams.js").Stream} Stream */

const MAX_CLOSED = 100;

/** The reasoning that a stream carries, if it does. @param {Context} context @param {Stream} stream */
function reasoningOf(context, stream) {
  return [...context.state.reasoning.byId.values()].find((each) => each.streams.includes(stream.id));
}

class StreamsView {
  /** @param {HTMLElement} outlet @param {Context} context */
  constructor(outlet, context) {
    this.context = context;
    this.state = context.state;
    this._chosen = "";
    this._count = html.span({ class: "soft" });
    this._list = html.div({ class: "panes-list" });
    this._detail = html.section({ class: "panes-detail stream-detail", "aria-label": "Stream" });
    this._panes = html.div({ class: "panes" }, this._list, this._detail);
    outlet.append(html.div({ class: "view-head" }, html.h1({}, "Streams"), this._count), this._panes);
    this._head = html.div({ class: "detail-head" });
    this._manage = html.div({});
    this._tailPlace = html.div({ class: "tail-place" });
    /** @type {ReturnType<typeof streamTail> | null} */
    this._tail = null;
    this._tailId = "";
    this._stops = [context.state.on(["streams", "roster", "reasoning"], () => this.show()), this._keys()];
    this.show();
  }

  close() {
    this._stops.forEach((stop) => stop());
  }

  /** @param {string[]} rest */
  openRoute(rest) {
    this._chosen = rest[0] ?? "";
    this.show();
  }

  /** @returns {Stream | undefined} */
  get _shown() {
    const streams = this.state.streams;
    return this._chosen ? streams.byId.get(this._chosen) : (streams.open().at(-1) ?? [...streams.byId.values()].at(-1));
  }

  show() {
    const open = this.state.streams.open().reverse();
    const closed = [...this.state.streams.byId.values()]
      .filter((each) => !each.open)
      .reverse()
      .slice(0, MAX_CLOSED);
    this._count.textContent = `${open.length || "none"} open`;
    const shown = this._shown;
    redraw(
      this._list,
      [open.map((each) => [each.id, each.owner, each.description]), closed.map((each) => each.id), shown?.id],
      () => [this._section("Open", open), this._section("Closed", closed)],
    );
    for (const node of this._list.querySelectorAll("[data-size]")) {
      const stream = this.state.streams.byId.get(/** @type {HTMLElement} */ (node).dataset.size ?? "");
      const text = stream ? formatBytes(stream.bytes) : "";
      if (node.textContent !== text) node.textContent = text;
    }
    // Without any, a phone shows what will be here instead of an empty list.
    this._panes.dataset.open = Boolean(this._chosen) === Boolean(shown) ? "detail" : "list";
    if (!shown) {
      this._tail = null;
      this._tailId = "";
      redraw(this._detail, ["none", this._chosen], () =>
        html.div(
          { class: "empty" },
          icon("streams", 32),
          html.strong({}, this._chosen ? "Unknown stream" : "No streams yet"),
          html.p({}, "Logs, long reasoning and files appear here while members write them."),
        ),
      );
      return;
    }
    redraw(this._detail, ["one", shown.id], () => [this._head, this._manage, this._tailPlace]);
    if (this._tailId !== shown.id) {
      this._tailId = shown.id;
      this._tail = streamTail(this.context, shown);
      this._tailPlace.replaceChildren(this._tail.node);
    }
    redraw(
      this._head,
      [shown.id, shown.owner, shown.writers, shown.target, shown.open, shown.closeReason, shown.description],
      () => this._heading(shown),
    );
    const sequence = reasoningOf(this.context, shown);
    redraw(
      this._manage,
      [
        shown.id,
        shown.owner,
        shown.writers,
        shown.open,
        this.state.me,
        sequence?.status,
        this.state.roster.members.get(shown.owner)?.present,
      ],
      () => this._managing(shown),
    );
    this._tail?.update();
  }

  /** @param {string} title @param {Stream[]} streams */
  _section(title, streams) {
    if (streams.length === 0) return null;
    return html.section(
      { "aria-label": title },
      html.h2({ class: "list-title" }, `${title} `, html.span({ class: "faint" }, String(streams.length))),
      html.ul(
        {},
        streams.map((each) =>
          html.li(
            {},
            html.a(
              {
                class: "member-row sequence-row",
                href: this.context.link("streams", each.id),
                "aria-current": this._shown === each ? "true" : null,
                data: { focus: `stream-${each.id}` },
              },
              html.span(
                { class: "grow" },
                html.bdi({ class: "stream-title" }, oneLine(each.description, 100)),
                html.span({ class: "sequence-message" }, "by ", nameOf(each.owner)),
              ),
              html.span({ class: "faint", data: { size: each.id } }, formatBytes(each.bytes)),
            ),
          ),
        ),
      ),
    );
  }

  /** @param {string[]} names @param {string} none */
  _names(names, none) {
    return names.length === 0
      ? html.span({ class: "soft" }, none)
      : names.map((each, index) => [index > 0 && ", ", nameOf(each)]);
  }

  /** @param {Stream} stream */
  _heading(stream) {
    const fact = (/** @type {string} */ name, /** @type {any} */ value) =>
      html.div({}, html.dt({}, name), html.dd({}, value));
    const kind = [stream.contentType, stream.format].filter(Boolean).join(", ") || stream.encoding;
    return [
      html.a(
        { class: "back button quiet small", href: this.context.link("streams") },
        icon("right", 14),
        html.span({}, "All streams"),
      ),
      html.div(
        { class: "detail-title" },
        html.h2({}, html.bdi({}, oneLine(stream.description, 160))),
        html.span(
          { class: "state-mark", data: { tone: stream.open ? "good" : "" } },
          html.span({ class: "dot", "aria-hidden": "true" }),
          stream.open ? "open" : "closed",
        ),
      ),
      html.dl(
        { class: "stream-facts" },
        fact(
          "Owner",
          html.a({ class: "proposal-member", href: this.context.link("members", stream.owner) }, nameOf(stream.owner)),
        ),
        fact("Writers", this._names(stream.writers, "nobody")),
        fact("Readers", this._names(stream.target, "everyone")),
        fact("Content", html.bdi({}, oneLine(kind, 80))),
        fact("Opened", html.time({ datetime: isoTime(stream.openedAt) }, ago(stream.openedAt))),
        !stream.open && fact("Closed", html.bdi({}, oneLine(stream.closeReason, 160))),
      ),
      stream.target.length > 0 &&
        !stream.target.some((each) => each === this.state.me.id || each === this.state.me.name) &&
        html.p({ class: "soft" }, "You are not a reader of this stream, so its data is not shown."),
    ];
  }

  /** @param {Stream} stream */
  _managing(stream) {
    if (!stream.open) return null;
    const { context } = this;
    const mine = stream.owner === this.state.me.id;
    const sequence = reasoningOf(context, stream);
    return html.div(
      { class: "controls" },
      html.div(
        { class: "control-row", role: "group", "aria-label": "Manage this stream" },
        sequence?.status === "active" &&
          button("Stop reasoning", () => void stopSequence(context, sequence), {
            class: "danger small",
            shortcut: "s",
            icon: icon("close", 14),
            disabled: lacksCapability(context, "reasoning/cancel"),
            data: { focus: "stop" },
          }),
        mine &&
          button("Add writer…", () => writerDialog(context, stream, true), {
            class: "small",
            disabled: lacksCapability(context, "stream/grant-write"),
            data: { focus: "grant" },
          }),
        mine &&
          stream.writers.some((each) => each !== stream.owner) &&
          button("Remove writer…", () => writerDialog(context, stream, false), {
            class: "small",
            disabled: lacksCapability(context, "stream/revoke-write"),
            data: { focus: "revoke" },
          }),
        mine &&
          button("Transfer…", () => transferDialog(context, stream), {
            class: "small",
            disabled: lacksCapability(context, "stream/transfer-ownership"),
            data: { focus: "transfer" },
          }),
        mine &&
          button("Close…", () => closeDialog(context, stream), {
            class: "small danger",
            disabled: lacksCapability(context, "stream/close"),
            data: { focus: "close" },
          }),
      ),
      !mine && html.p({ class: "faint small-text" }, "Only the owner can close or transfer it, or change its writers."),
      stream.writers.includes(this.state.me.id) && this._writing(stream),
    );
  }

  /** A line to write, for those who may. @param {Stream} stream */
  _writing(stream) {
    const field = html.input({
      class: "field",
      type: "text",
      "aria-label": "Write a line to this stream",
      placeholder: "Write a line",
      autocomplete: "off",
      data: { focus: "write" },
    });
    const write = () => {
      if (field.value && this.context.sender.write(stream.id, `${field.value}\n`)) field.value = "";
    };
    field.addEventListener(
      "keydown",
      (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && !event.isComposing && write(),
    );
    return (
      stream.encoding === "text" && html.div({ class: "field-row" }, field, button("Write", write, { class: "small" }))
    );
  }

  _keys() {
    const { context } = this;
    return context.keys.add("Streams", {
      j: ["Next stream", () => stepRow(this._list, 1)],
      k: ["Previous stream", () => stepRow(this._list, -1)],
      h: ["Pause or resume", () => this._tail?.hold()],
      f: ["Jump to end", () => this._tail?.follow()],
      s: [
        "Stop the reasoning written here",
        () => {
          const sequence = this._shown && reasoningOf(context, this._shown);
          if (sequence?.status === "active") void stopSequence(context, sequence);
        },
      ],
      Escape: ["Back to the list", () => this._chosen && context.go("streams")],
    });
  }
}

registerView({
  id: "streams",
  title: "Streams",
  icon: "streams",
  order: 60,
  more: true,
  key: "s",
  mount(outlet, context) {
    const streams = new StreamsView(outlet, context);
    return { unmount: () => streams.close(), openRoute: (rest) => streams.openRoute(rest) };
  },
});
