/** Every tool of every member in one list, to search and to choose from. */
import { html, newId, redraw, replace } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { nameOf, oneLine, withCode } from "../../core/page/text.js";
import { icon } from "../parts/icons.js";
import { declaredHints } from "./tool-catalogue.js";

// More than anybody scrolls through; the search finds the others.
const MAX_SHOWN = 200;

/** @typedef {{id: string, status: string, error: string, shown: import("./tool-catalogue.js").Tool[], more: number, searching: boolean}} ToolGroup */

export class ToolList {
  /**
   * @param {import("../../app.js").Context} context
   * @param {{of: (member: string) => import("./tool-catalogue.js").ToolList | undefined, load: (member: string, options?: {again?: boolean}) => Promise<any>, canList: (member: string) => boolean}} catalogue
   * @param {string} other the tool that stands for any other method
   */
  constructor(context, catalogue, other) {
    this._context = context;
    this._catalogue = catalogue;
    this._other = other;
    const id = newId("find");
    this.field = html.input({
      id,
      class: "field",
      type: "search",
      placeholder: "Search all tools",
      autocomplete: "off",
      spellcheck: "false",
      on: { input: () => this.draw(), keydown: (/** @type {KeyboardEvent} */ event) => this._key(event) },
    });
    this._count = html.p({ class: "faint tools-count", role: "status" });
    this._groups = html.div({ class: "tools-groups" });
    this.node = html.nav(
      { class: "tools-list", "aria-label": "Tools" },
      html.div(
        { class: "tools-search" },
        icon("search", 16),
        html.label({ class: "sr", for: id }, "Search all tools"),
        this.field,
      ),
      this._count,
      this._groups,
    );
    this._member = "";
    this._tool = "";
  }

  /** Request the lists that are not known. Each is requested once, by this page. */
  load() {
    for (const each of this._others())
      if (this._catalogue.of(each.id) === undefined && this._catalogue.canList(each.id))
        void this._catalogue.load(each.id);
  }

  _others() {
    const { state } = this._context;
    return state.roster.present().filter((each) => each.id !== state.me.id);
  }

  /** @param {string} member @param {string} tool what is chosen */
  choose(member, tool) {
    this._member = member;
    this._tool = tool;
    this.draw();
  }

  draw() {
    /** @type {string[]} */
    const words = this.field.value.toLowerCase().split(/\s+/).filter(Boolean);
    /** @type {ToolGroup[]} */
    const parts = [];
    let found = 0;
    let total = 0;
    let asking = 0;
    for (const { id } of this._others().sort((a, b) => a.id.localeCompare(b.id))) {
      const known = this._catalogue.of(id);
      if (known?.status === "asking") asking += 1;
      const tools = known?.tools ?? [];
      total += tools.length;
      const matching = tools.filter((tool) =>
        words.every((word) => `${tool.name} ${tool.title} ${tool.description} ${id}`.toLowerCase().includes(word)),
      );
      const shown = matching.slice(0, Math.max(0, MAX_SHOWN - found));
      found += matching.length;
      const isChosen = this._member === id;
      if (words.length === 0 ? tools.length === 0 && known?.status === "known" && !isChosen : matching.length === 0)
        continue;
      parts.push({
        id,
        status: known?.status ?? "unknown",
        error: known?.error ?? "",
        shown,
        more: matching.length - shown.length,
        searching: words.length > 0,
      });
    }
    redraw(this._groups, JSON.stringify([parts, this._member, this._tool]), () =>
      parts.length > 0 ? parts.map((each) => this._group(each)) : [this._nothing(words.length > 0, asking > 0)],
    );
    const text =
      words.length > 0
        ? `${formatNumber(found)} of ${formatNumber(total)} tools`
        : `${formatNumber(total)} ${total === 1 ? "tool" : "tools"}${asking > 0 ? ", loading more…" : ""}`;
    if (this._count.textContent !== text) this._count.textContent = text;
  }

  /** @param {boolean} searching @param {boolean} asking */
  _nothing(searching, asking) {
    if (asking) return html.p({ class: "empty" }, "Loading tools…");
    return searching
      ? html.div(
          { class: "empty" },
          html.strong({}, "No tool matches"),
          html.span({}, "Search for part of a name, of a description, or of a member."),
        )
      : html.div(
          { class: "empty" },
          icon("tools", 28),
          html.strong({}, "Nobody offers a tool"),
          html.span(
            {},
            "Tools come from members that offer them, and from MCP servers: ",
            html.code({}, "moot bridge"),
            " brings one in.",
          ),
        );
  }

  /** @param {ToolGroup} group */
  _group(group) {
    const note = {
      asking: "Loading…",
      refused: "Your permissions do not allow listing its tools.",
      failed: `Its tools could not be listed: ${oneLine(group.error, 100)}`,
      unknown: this._unknownText(group.id),
    }[group.status];
    return html.section(
      { class: "tools-group" },
      html.h2({}, nameOf(group.id)),
      html.ul(
        {},
        group.shown.map((tool) => html.li({}, this._item(group.id, tool))),
        note && html.li({ class: "tools-note faint" }, note),
        group.more > 0 &&
          html.li({ class: "tools-note faint" }, `and ${formatNumber(group.more)} more: search for them`),
        !group.searching &&
          html.li(
            {},
            html.a(
              {
                class: "tools-item tools-other",
                href: this._context.link("call", group.id, this._other),
                "aria-current": group.id === this._member && this._tool === this._other ? "true" : null,
              },
              "Other method…",
            ),
          ),
      ),
    );
  }

  /** @param {string} id */
  _unknownText(id) {
    const { roster } = this._context.state;
    const member = roster.get(id);
    if (member && roster.isPaused(member)) return "It is paused.";
    return this._catalogue.canList(id)
      ? "Its tools are not known."
      : "Your permissions do not allow listing its tools.";
  }

  /** @param {string} member @param {import("./tool-catalogue.js").Tool} tool */
  _item(member, tool) {
    const isDestructive = declaredHints(tool).some(([text]) => text === "destructive");
    return html.a(
      {
        class: "tools-item",
        href: this._context.link("call", member, tool.name),
        "aria-current": member === this._member && tool.name === this._tool ? "true" : null,
      },
      html.span(
        { class: "tools-name" },
        html.bdi({ class: "mono" }, oneLine(tool.name, 80)),
        isDestructive && html.span({ class: "tag", data: { tone: "bad" } }, "destructive"),
      ),
      html.bdi({ class: "tools-about" }, withCode(oneLine(tool.title || tool.description, 120))),
    );
  }

  /** Enter opens the first; the arrow goes into the list. @param {KeyboardEvent} event */
  _key(event) {
    const first = /** @type {HTMLElement | null} */ (this._groups.querySelector("a.tools-item"));
    if (event.key === "ArrowDown") first?.focus();
    else if (event.key === "Enter") first?.click();
    else if (event.key === "Escape") {
      this.field.value = "";
      this.draw();
    } else return;
    event.preventDefault();
  }

  close() {
    replace(this._groups);
  }
}
