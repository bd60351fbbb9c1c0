/**
 * Shared reasoning, live (MEW 3.5): sequences with their thoughts, nested sequences inside them, and a
 * button that stops each (MEW 3.5.5, D-31). Long reasoning that goes into a stream is shown and stopped here too.
 */
import { button, html, redraw, stepRow } from "../../core/page/dom.js";
import { registerView } from "../../core/page/router.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { icon } from "../parts/icons.js";
import { runAndNotify } from "../parts/action-dialog.js";
import { lacksCapability } from "../members/member-controls.js";
import { sequenceNode } from "./reasoning-sequence.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/state-reasoning.js").Sequence} Sequence */

// How many are shown; the timeline has the rest.
const MAX_ENDED = 100;
const TICK_MILLISECONDS = 1_000;

/** MEW 3.5.5: the context names the start, as the path that its thoughts carry. @param {Context} context @param {Sequence} sequence */
export function stopSequence(context, sequence) {
  return runAndNotify(
    context,
    context.send(
      "reasoning/cancel",
      { reason: "superseded" },
      { context: sequence.context, to: [sequence.from], about: sequence.about.slice(0, 1) },
    ),
    `${oneLine(sequence.from, 40)} was asked to stop`,
  );
}

class ReasoningView {
  /** @param {HTMLElement} outlet @param {Context} context */
  constructor(outlet, context) {
    this.context = context;
    this.state = context.state;
    this._chosen = "";
    this._follow = true;
    this._list = html.div({ class: "panes-list" });
    this._detail = html.section({
      class: "panes-detail",
      "aria-label": "Reasoning",
      on: { scroll: () => this._scrolled() },
    });
    this._panes = html.div({ class: "panes" }, this._list, this._detail);
    this._count = html.span({ class: "soft" });
    this._all = html.span({});
    outlet.append(
      html.div({ class: "view-head" }, html.h1({}, "Reasoning"), this._count, html.span({ class: "grow" }), this._all),
      this._panes,
    );
    this._head = html.div({ class: "detail-head" });
    this._body = html.div({ class: "thinking" });
    /** The drawn sequences, kept so that thoughts are added instead of redrawing all. @type {Map<string, ReturnType<typeof sequenceNode>>} */
    this._nodes = new Map();
    this._buildTree();
    const timer = setInterval(() => this._tick(), TICK_MILLISECONDS);
    this._stops = [
      context.state.on(["reasoning", "roster", "streams"], () => this.show()),
      this._keys(),
      () => clearInterval(timer),
    ];
    this.show();
  }

  close() {
    this._stops.forEach((stop) => stop());
  }

  /** @param {string[]} rest */
  openRoute(rest) {
    this._chosen = rest[0] ?? "";
    this._follow = true;
    this.show();
  }

  /** Compute the nesting of all sequences at once, because there may be a thousand. */
  _buildTree() {
    /** @type {Sequence[]} */
    this._roots = [];
    /** @type {Map<Sequence, Sequence[]>} */
    this._children = new Map();
    /** Sequences that are active or contain an active one. @type {Set<Sequence>} */
    this._active = new Set();
    for (const each of this.state.reasoning.byId.values()) {
      const above = this._parentOf(each);
      if (above) this._children.set(above, [...(this._children.get(above) ?? []), each]);
      else this._roots.push(each);
      if (each.status === "active")
        for (
          let current = /** @type {Sequence | undefined} */ (each);
          current && !this._active.has(current);
          current = this._parentOf(current)
        )
          this._active.add(current);
    }
  }

  /** @param {Sequence} sequence @returns {Sequence | undefined} */
  _parentOf(sequence) {
    const end = sequence.context.lastIndexOf("/");
    const above = end > 0 ? this.state.reasoning.within(sequence.context.slice(0, end)) : undefined;
    return above === sequence ? undefined : above;
  }

  /** The root that is shown: the selected one, else the newest active one. */
  get _shown() {
    let found = this.state.reasoning.byId.get(this._chosen);
    for (let above = found && this._parentOf(found); above; above = this._parentOf(above)) found = above;
    return (
      found ??
      (this._chosen ? undefined : (this._roots.findLast((each) => this._active.has(each)) ?? this._roots.at(-1)))
    );
  }

  show() {
    this._buildTree();
    const active = this._roots.filter((each) => this._active.has(each)).reverse();
    const ended = this._roots.filter((each) => !this._active.has(each)).reverse();
    const going = this.state.reasoning.active();
    this._count.textContent = `${going.length || "none"} active`;
    const shown = this._shown;
    redraw(
      this._all,
      [going.length > 1, this.state.me.capabilities],
      () =>
        going.length > 1 &&
        button(`Stop all ${going.length}`, () => this._stopAll(), {
          class: "danger",
          shortcut: "S",
          disabled: lacksCapability(this.context, "reasoning/cancel"),
        }),
    );
    redraw(
      this._list,
      [
        active.map((each) => [each.id, each.thoughts.length + each.dropped]),
        ended.slice(0, MAX_ENDED).map((each) => each.id),
        shown?.id,
      ],
      () => [this._section("Active", active), this._section("Ended", ended.slice(0, MAX_ENDED))],
    );
    // Without any, a phone shows what will be here instead of an empty list.
    this._panes.dataset.open = Boolean(this._chosen) === Boolean(shown) ? "detail" : "list";
    if (!shown) {
      this._nodes.clear();
      redraw(this._detail, ["none", this._chosen], () =>
        html.div(
          { class: "empty" },
          icon("reasoning", 32),
          html.strong({}, this._chosen ? "Unknown reasoning" : "No reasoning yet"),
          html.p({}, "When a member shares its reasoning, you can follow and stop it here."),
        ),
      );
      return;
    }
    redraw(this._detail, ["one", shown.id], () => {
      this._nodes.clear();
      return [this._head, this._body];
    });
    const present = this.state.roster.members.get(shown.from)?.present ?? true;
    redraw(this._head, [shown.id, shown.status, present, shown.about], () => [
      html.a(
        { class: "back button quiet small", href: this.context.link("reasoning") },
        icon("right", 14),
        html.span({}, "All reasoning"),
      ),
      shown.about.length > 0 && html.p({ class: "soft" }, "Triggered by ", this._cause(shown.about[0])),
    ]);
    const tree = this._tree(shown);
    if (!this._body.contains(tree)) this._body.replaceChildren(tree);
    if (this._follow && this._active.has(shown)) this._detail.scrollTop = this._detail.scrollHeight;
  }

  /** @param {string} id */
  _cause(id) {
    const row = this.state.envelopes.byId(id);
    return html.a(
      { href: this.context.link("timeline", id) },
      row
        ? [nameOf(row.from), ": ", html.bdi({}, oneLine(row.operation || row.summary || row.kind, 120))]
        : "a message from before you joined",
    );
  }

  /** A sequence with its nested ones; drawn once, then extended. @param {Sequence} sequence @returns {HTMLElement} */
  _tree(sequence) {
    let drawn = this._nodes.get(sequence.id);
    if (!drawn)
      this._nodes.set(
        sequence.id,
        (drawn = sequenceNode(this.context, sequence, () => void stopSequence(this.context, sequence))),
      );
    drawn.update(
      (this._children.get(sequence) ?? []).map((each) => ({ at: each.at, id: each.id, node: this._tree(each) })),
    );
    return drawn.node;
  }

  /** @param {string} title @param {Sequence[]} sequences */
  _section(title, sequences) {
    if (sequences.length === 0) return null;
    return html.section(
      { "aria-label": title },
      html.h2({ class: "list-title" }, `${title} `, html.span({ class: "faint" }, String(sequences.length))),
      html.ul(
        {},
        sequences.map((each) =>
          html.li(
            {},
            html.a(
              {
                class: "member-row sequence-row",
                href: this.context.link("reasoning", each.id),
                "aria-current": this._shown === each ? "true" : null,
                data: { focus: `sequence-${each.id}` },
              },
              html.span(
                { class: "grow" },
                nameOf(each.from),
                html.bdi(
                  { class: "sequence-message" },
                  oneLine(each.message || (each.startUnknown ? "started before you joined" : "untitled"), 120),
                ),
              ),
              html.span(
                { class: "faint" },
                `${each.thoughts.length + each.dropped}`,
                html.span({ class: "sr" }, " thoughts"),
              ),
            ),
          ),
        ),
      ),
    );
  }

  _scrolled() {
    const left = this._detail.scrollHeight - this._detail.scrollTop - this._detail.clientHeight;
    this._follow = left < 40;
  }

  _tick() {
    for (const drawn of this._nodes.values()) drawn.tick();
  }

  _stopAll() {
    for (const each of this.state.reasoning.active()) void stopSequence(this.context, each);
  }

  /** The focused sequence, else the innermost active one. */
  _stopOne() {
    const focused = /** @type {HTMLElement | null} */ (document.activeElement?.closest?.("[data-sequence]"))?.dataset
      .sequence;
    const shown = this._shown;
    const all = shown
      ? this.state.reasoning.active().filter((each) => each === shown || each.context.startsWith(`${shown.context}/`))
      : [];
    const sequence = (focused && this.state.reasoning.byId.get(focused)) || all[0];
    if (sequence?.status === "active") void stopSequence(this.context, sequence);
    else this.context.notify("No active reasoning here", "info");
  }

  _keys() {
    return this.context.keys.add("Reasoning", {
      j: ["Next", () => stepRow(this._list, 1)],
      k: ["Previous", () => stepRow(this._list, -1)],
      s: ["Stop this reasoning", () => this._stopOne()],
      S: ["Stop all", () => this._stopAll()],
      f: [
        "Follow the end",
        () => {
          this._follow = true;
          this.show();
        },
      ],
      Escape: ["Back to the list", () => this._chosen && this.context.go("reasoning")],
    });
  }
}

registerView({
  id: "reasoning",
  title: "Reasoning",
  icon: "reasoning",
  order: 50,
  more: true,
  key: "r",
  badge: (state) => state.reasoning.active().length,
  mount(outlet, context) {
    const thoughts = new ReasoningView(outlet, context);
    return { unmount: () => thoughts.close(), openRoute: (rest) => thoughts.openRoute(rest) };
  },
});
