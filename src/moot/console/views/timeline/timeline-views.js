/** Views of the timeline: some that everybody needs, and those that a person has saved in this browser. */
import { html, newId, replace } from "../../core/page/dom.js";
import { oneLine } from "../../core/page/text.js";
import { actionDialog, labelledField } from "../parts/action-dialog.js";
import { icon } from "../parts/icons.js";

// What fits into a menu, and into local storage.
const MAX_SAVED = 30;
const MAX_CHARACTERS = 500;

/** @typedef {{name: string, filter: string}} SavedView */

/** @type {SavedView[]} */
const GIVEN = [
  { name: "All activity", filter: "" },
  { name: "Decisions", filter: "kind:mcp/proposal kind:mcp/reject kind:mcp/withdraw kind:moot/approve" },
  { name: "Tool calls", filter: "kind:mcp/request kind:mcp/response -tools/list -ping" },
  { name: "Failed and refused", filter: "is:failed" },
  { name: "Permissions", filter: "kind:capability kind:space" },
];

export class TimelineViews {
  /** @param {string} space @param {{current: () => string, choose: (filter: string) => void, link: (filter: string) => string, notify: import("../../app.js").Context["notify"]}} actions */
  constructor(space, actions) {
    this._key = `moot.views ${space}`;
    this._actions = actions;
    const id = newId("views");
    this._list = html.div({ class: "menu", id, hidden: true, role: "menu", "aria-label": "Views of the timeline" });
    this._button = html.button(
      {
        type: "button",
        class: "button quiet",
        "aria-haspopup": "menu",
        "aria-expanded": "false",
        "aria-controls": id,
        on: { click: () => this._toggle(Boolean(this._list.hidden)) },
      },
      icon("star", 16),
      "Views",
    );
    this.node = html.div({ class: "menu-holder tl-views" }, this._button, this._list);
    this.node.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this._onKey(event));
    this.node.addEventListener("focusout", (/** @type {FocusEvent} */ event) => {
      if (event.relatedTarget instanceof Node && !this.node.contains(event.relatedTarget)) this._toggle(false);
    });
    this._outside = (/** @type {Event} */ event) => {
      if (event.target instanceof Node && !this.node.contains(event.target)) this._toggle(false);
    };
    document.addEventListener("pointerdown", this._outside);
  }

  close() {
    document.removeEventListener("pointerdown", this._outside);
  }

  /** @returns {SavedView[]} */
  saved() {
    try {
      const kept = JSON.parse(localStorage.getItem(this._key) ?? "[]");
      return (Array.isArray(kept) ? kept : [])
        .filter((each) => typeof each?.name === "string" && typeof each.filter === "string")
        .slice(0, MAX_SAVED);
    } catch {
      return [];
    }
  }

  /** @param {SavedView[]} views */
  _keep(views) {
    try {
      localStorage.setItem(this._key, JSON.stringify(views.slice(-MAX_SAVED)));
    } catch {
      this._actions.notify("The browser does not let this page keep anything.", "bad");
    }
  }

  /** @param {boolean} open */
  _toggle(open) {
    if (this._list.hidden === !open) return;
    if (open) this._fill();
    this._list.hidden = !open;
    this._button.setAttribute("aria-expanded", String(open));
    if (open) /** @type {HTMLElement | null} */ (this._list.querySelector("button"))?.focus();
  }

  _fill() {
    const current = this._actions.current();
    const saved = this.saved();
    const item = (/** @type {SavedView} */ view) =>
      html.button(
        {
          type: "button",
          class: "menu-item",
          role: "menuitemradio",
          "aria-checked": String(view.filter === current),
          on: { click: () => this._choose(view.filter) },
        },
        view.filter === current ? icon("check", 16) : html.span({ class: "menu-blank" }),
        html.bdi({ class: "grow" }, oneLine(view.name, 60)),
      );
    const isSaved = saved.some((each) => each.filter === current);
    replace(
      this._list,
      GIVEN.map(item),
      saved.length > 0 && html.hr(),
      saved.map(item),
      html.hr(),
      html.button(
        {
          type: "button",
          class: "menu-item",
          role: "menuitem",
          disabled: current === "" || isSaved,
          on: { click: () => this._save(current) },
        },
        icon("plus", 16),
        "Save this filter…",
      ),
      isSaved &&
        html.button(
          { type: "button", class: "menu-item", role: "menuitem", on: { click: () => this._remove(current) } },
          icon("close", 16),
          "Remove this view",
        ),
      html.button(
        { type: "button", class: "menu-item", role: "menuitem", on: { click: () => this._copyLink(current) } },
        icon("link", 16),
        "Copy link to this view",
      ),
    );
  }

  /** @param {string} filter */
  _choose(filter) {
    this._toggle(false);
    this._button.focus();
    this._actions.choose(filter);
  }

  /** @param {string} filter */
  _save(filter) {
    this._toggle(false);
    const name = labelledField("Name", { maxlength: "60" });
    actionDialog(
      "Save this filter",
      [
        html.p({ class: "soft" }, "It is kept in this browser, for this space."),
        name.node,
        html.code({}, oneLine(filter, 200)),
      ],
      {
        verb: "Save",
        safe: true,
        act: async () => {
          const given = name.value();
          name.input.setAttribute("aria-invalid", String(!given));
          if (!given) return undefined;
          this._keep([
            ...this.saved().filter((each) => each.name !== given),
            { name: given, filter: filter.slice(0, MAX_CHARACTERS) },
          ]);
          this._actions.notify("Saved under Views", "good");
          return true;
        },
      },
    );
  }

  /** @param {string} filter */
  _remove(filter) {
    this._toggle(false);
    this._keep(this.saved().filter((each) => each.filter !== filter));
    this._actions.notify("Removed");
  }

  /** @param {string} filter */
  async _copyLink(filter) {
    this._toggle(false);
    try {
      await navigator.clipboard.writeText(new URL(this._actions.link(filter), location.href).href);
      this._actions.notify("Link copied", "good");
    } catch {
      this._actions.notify("The browser blocked copying: copy the address of this page instead", "bad");
    }
  }

  /** @param {KeyboardEvent} event */
  _onKey(event) {
    if (this._list.hidden) return;
    const items = /** @type {HTMLElement[]} */ ([...this._list.querySelectorAll("button:not(:disabled)")]);
    const at = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    if (event.key === "Escape") {
      this._toggle(false);
      this._button.focus();
    } else if (event.key === "ArrowDown") items[(at + 1) % items.length]?.focus();
    else if (event.key === "ArrowUp") items[(at - 1 + items.length) % items.length]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
