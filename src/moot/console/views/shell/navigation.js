/**
 * The navigation: what people use every day, and a "More" for the rest. A phone has room for four items and "More", so two
 * everyday items are listed there too; the stylesheet shows each of them once.
 */
import { html, newId, replace } from "../../core/page/dom.js";
import { routeAddress, registeredViews } from "../../core/page/router.js";
import { icon } from "../parts/icons.js";

// Names of views that a phone shows beside "More".
const ON_PHONE = new Set(["approvals", "timeline", "chat", "call"]);
// "More" covers the view where there is no room for it beside: there a choice closes it.
const NARROW = "(max-width: 60rem)";

/** @typedef {{view: import("../../core/page/router.js").View, link: HTMLElement, badge: HTMLElement, shown: string}} Item */

export class Navigation {
  constructor() {
    /** @type {Item[]} */
    this._items = [];
    const views = registeredViews();
    const id = newId("more");
    const everyday = views.filter((view) => !view.more);
    this._moreList = html.ul(
      { class: "nav-more", id, hidden: true },
      views
        .filter((view) => view.more || !ON_PHONE.has(view.id))
        .map((view) => html.li({ class: view.more ? "" : "on-phone" }, this._item(view))),
    );
    this._moreBadge = html.span({ class: "badge", hidden: true });
    this._moreButton = html.button(
      {
        type: "button",
        class: "nav-link",
        "aria-expanded": "false",
        "aria-controls": id,
        on: { click: () => this._toggle(Boolean(this._moreList.hidden)) },
      },
      icon("more", 20),
      html.span({ class: "nav-label" }, "More"),
      this._moreBadge,
    );
    this.node = html.nav(
      {
        class: "nav",
        "aria-label": "Views",
        on: {
          keydown: (/** @type {KeyboardEvent} */ event) => this._key(event),
          focusout: (/** @type {FocusEvent} */ event) => this._left(event),
        },
      },
      html.ul(
        { class: "nav-list" },
        everyday.map((view) => html.li({ class: ON_PHONE.has(view.id) ? "" : "off-phone" }, this._item(view))),
        html.li({ class: "nav-rest" }, this._moreButton, this._moreList),
      ),
    );
    this._moreList.addEventListener("click", (/** @type {Event} */ event) => {
      if (event.target instanceof Element && event.target.closest("a") && matchMedia(NARROW).matches)
        this._toggle(false);
    });
    this._closeOutside = (/** @type {Event} */ event) => {
      if (
        !this._moreList.hidden &&
        matchMedia(NARROW).matches &&
        event.target instanceof Node &&
        !this.node.contains(event.target)
      )
        this._toggle(false);
    };
    document.addEventListener("pointerdown", this._closeOutside);
    // Open beside the others on a wide page, it would cover the view on a narrow one, or when somebody zooms in.
    this._narrow = matchMedia(NARROW);
    this._becameNarrow = () => {
      if (this._narrow.matches) this._toggle(false);
    };
    this._narrow.addEventListener("change", this._becameNarrow);
  }

  /** @param {import("../../core/page/router.js").View} view */
  _item(view) {
    const badge = html.span({ class: "badge", hidden: true });
    const link = html.a(
      { class: "nav-link", href: "#", title: `${view.title} (g ${view.key})` },
      icon(view.icon, 20),
      html.span({ class: "nav-label" }, view.title),
      badge,
    );
    this._items.push({ view, link, badge, shown: "" });
    return link;
  }

  /**
   * Badges and the current item. Called in every frame under load: unchanged values are not set again, since that would cause a layout.
   * @param {string} space @param {string} current id of the view that is shown @param {import("../../core/state/state.js").State} state @param {import("../../core/connection/session.js").Session} session
   */
  refresh(space, current, state, session) {
    /** @type {Map<string, number>} */
    const counts = new Map();
    let inMore = 0;
    for (const item of this._items) {
      const { view } = item;
      let count = counts.get(view.id);
      if (count === undefined) {
        count = view.badge?.(state, session) ?? 0;
        counts.set(view.id, count);
        if (view.more) inMore += count;
      }
      const shown = [space, current === view.id, Math.min(count, 100)].join("\n");
      if (item.shown === shown) continue;
      item.shown = shown;
      item.link.setAttribute("href", routeAddress(space, view.id));
      if (current === view.id) item.link.setAttribute("aria-current", "page");
      else item.link.removeAttribute("aria-current");
      showCount(item.badge, count);
    }
    const here = this._items.find(({ view }) => view.id === current)?.view;
    this._moreButton.dataset.current = !here || ON_PHONE.has(here.id) ? "" : here.more ? "true" : "phone";
    if (this._moreCount !== inMore) {
      this._moreCount = inMore;
      showCount(this._moreBadge, inMore);
    }
    // Whoever comes by a link or a key sees where they are.
    if (this._current !== current) {
      this._current = current;
      if (!matchMedia(NARROW).matches && this._items.some(({ view }) => view.id === current && view.more))
        this._toggle(true);
    }
  }

  _moreCount = 0;
  _current = "";

  /** @param {boolean} open */
  _toggle(open) {
    this._moreList.hidden = !open;
    this._moreButton.setAttribute("aria-expanded", String(open));
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.key !== "Escape" || this._moreList.hidden || !matchMedia(NARROW).matches) return;
    event.preventDefault();
    this._toggle(false);
    this._moreButton.focus();
  }

  /** @param {FocusEvent} event */
  _left(event) {
    if (
      !this._moreList.hidden &&
      matchMedia(NARROW).matches &&
      event.relatedTarget instanceof Node &&
      !this.node.contains(event.relatedTarget)
    )
      this._toggle(false);
  }

  close() {
    document.removeEventListener("pointerdown", this._closeOutside);
    this._narrow.removeEventListener("change", this._becameNarrow);
    replace(this.node);
  }
}

/** @param {HTMLElement} badge @param {number} count */
function showCount(badge, count) {
  badge.hidden = count === 0;
  badge.textContent = count > 99 ? "99+" : String(count);
  badge.setAttribute("aria-label", `${count > 99 ? "more than 99" : count} pending`);
  badge.setAttribute("role", "img");
}
