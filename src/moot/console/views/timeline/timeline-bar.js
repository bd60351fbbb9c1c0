/** The bar above the timeline: its filter, typed or picked, kept views, and how the lines are arranged. */
import { html, newId, replace } from "../../core/page/dom.js";
import { icon } from "../parts/icons.js";
import { TimelineViews } from "./timeline-views.js";

// The first step of an address that names a filter instead of a message.
export const FILTER_ROUTE = "~";
const TYPING_MILLISECONDS = 120;

/** @type {[string, string][]} */
const KINDS = [
  ["", "All kinds"],
  ["mcp/proposal", "Proposals"],
  ["mcp/request", "Requests"],
  ["mcp/response", "Responses"],
  ["mcp/reject", "Rejections"],
  ["chat", "Chat"],
  ["reasoning", "Reasoning"],
  ["capability", "Capabilities"],
  ["space", "Invitations and removals"],
  ["participant", "Member control"],
  ["stream", "Streams"],
  ["system/presence", "Joins and leaves"],
  ["system/error", "Refusals"],
];

export class TimelineBar {
  /**
   * @param {import("../../app.js").Context} context
   * @param {{apply: () => void, toggleGroups: () => void, collapseAll: () => void, toggleAll: () => void}} actions `apply`: the filter is another one
   */
  constructor(context, actions) {
    this._context = context;
    this._apply = actions.apply;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._later = undefined;
    /** The names in the list of members, to see whether it has changed. */
    this._names = "-";
    const id = newId("filter");
    this._field = html.input({
      id,
      class: "field",
      type: "search",
      placeholder: "Filter: text, from:agent, -kind:chat",
      autocomplete: "off",
      spellcheck: "false",
      on: { input: () => this._typed() },
    });
    this._who = html.select({
      class: "field",
      "aria-label": "Member",
      on: { change: () => this._picked("with", this._who) },
    });
    this._kind = html.select(
      { class: "field", "aria-label": "Kind", on: { change: () => this._picked("kind", this._kind) } },
      KINDS.map(([value, text]) => html.option({ value }, text)),
    );
    const toggle = (/** @type {string} */ text, /** @type {() => void} */ press, /** @type {object} */ given) =>
      html.button(
        { type: "button", class: "button quiet", "aria-pressed": "false", on: { click: press }, ...given },
        text,
      );
    this._groups = toggle("Conversations", actions.toggleGroups, { "aria-pressed": "true", "aria-keyshortcuts": "c" });
    this._collapse = toggle("Collapse", actions.collapseAll, { class: "button quiet tl-collapse" });
    this._all = toggle("Background", actions.toggleAll, {
      "aria-keyshortcuts": "b",
      title: "Joins and leaves, receipts, lists of tools, questions of this page (b)",
    });
    this._views = new TimelineViews(context.state.space, {
      current: () => this.filter.trim(),
      choose: (text) => context.go("timeline", ...(text ? [FILTER_ROUTE, text] : [])),
      link: (text) => context.link("timeline", ...(text ? [FILTER_ROUTE, text] : [])),
      notify: context.notify,
    });
    this._count = html.span({ class: "faint tl-count", role: "status" });
    this.node = html.div(
      { class: "tl-bar" },
      html.h1({ class: "sr" }, "Timeline"),
      html.div(
        { class: "tl-search" },
        icon("search", 16),
        html.label({ class: "sr", for: id }, "Filter the timeline"),
        this._field,
      ),
      html.div({ class: "tl-picks" }, this._who, this._kind),
      html.div({ class: "tl-modes" }, this._views.node, this._groups, this._collapse, this._all, this._count),
    );
    this.drawMembers();
  }

  close() {
    clearTimeout(this._later);
    this._views.close();
  }

  get filter() {
    return this._field.value;
  }

  /** Show another filter and apply it. @param {string} text */
  setFilter(text) {
    this._field.value = text;
    this._apply();
  }

  focus() {
    this._field.focus();
  }

  _typed() {
    clearTimeout(this._later);
    this._later = setTimeout(this._apply, TYPING_MILLISECONDS);
  }

  /** @param {string} field @param {HTMLSelectElement} select */
  _picked(field, select) {
    const rest = this.filter.replace(new RegExp(`(^|\\s)${field}:("[^"]*"|\\S+)`, "g"), "").trim();
    this.setFilter(
      select.value ? `${rest} ${field}:${/\s/.test(select.value) ? `"${select.value}"` : select.value}`.trim() : rest,
    );
  }

  /** @param {{grouped: boolean, collapsed: boolean, all: boolean}} modes */
  drawModes({ grouped, collapsed, all }) {
    this._groups.setAttribute("aria-pressed", String(grouped));
    this._collapse.setAttribute("aria-pressed", String(collapsed));
    this._collapse.disabled = !grouped;
    this._all.setAttribute("aria-pressed", String(all));
  }

  /** @param {string} text */
  drawCount(text) {
    if (this._count.textContent !== text) this._count.textContent = text;
  }

  drawMembers() {
    const names = [...this._context.state.roster.members.keys()].sort((a, b) => a.localeCompare(b));
    const key = names.join("\n");
    if (key === this._names) return;
    this._names = key;
    const value = this._who.value;
    replace(
      this._who,
      html.option({ value: "" }, "All members"),
      names.map((name) => html.option({ value: name }, name.slice(0, 64))),
    );
    this._who.value = value;
  }
}
