// @ts-check
/** The current space, the other open ones with their pending proposals, and a way to add one. */
import { el, newId, redraw, replace } from "../core/dom.js";
import { oneLine } from "../core/text.js";
import { deviceDialog } from "./device-dialog.js";
import { openDialog } from "./dialog.js";
import { icon } from "./icons.js";
import { pushDialog } from "./push-dialog.js";
import { signInForm } from "./sign-in.js";

export class SpaceMenu {
  /** @param {import("../core/session.js").Session} session @param {(space: string) => void} choose @param {(text: string, tone?: "info" | "good" | "bad") => void} notify */
  constructor(session, choose, notify) {
    this._notify = notify;
    this._session = session;
    this._choose = choose;
    this._shown = "";
    const id = newId("spaces");
    this._list = el("div", { class: "menu", id, hidden: true, role: "menu", "aria-label": "Spaces", on: { keydown: (/** @type {KeyboardEvent} */ event) => this._key(event) } });
    this._name = el("span", { class: "space-name" });
    this._button = el("button", { type: "button", class: "button quiet space-button", "aria-haspopup": "menu", "aria-expanded": "false", "aria-controls": id, on: { click: () => (this._list.hidden ? this.open() : this._close()) } }, el("span", { class: "sr" }, "Space: "), this._name, icon("down", 14));
    this.node = el("div", { class: "menu-holder" }, this._button, this._list);
    this.node.addEventListener("focusout", (/** @type {FocusEvent} */ event) => {
      if (!this._isFilling && !this.node.contains(/** @type {Node} */ (event.relatedTarget))) this._close();
    });
  }

  refresh() {
    const openSpace = this._session.current;
    const text = openSpace ? oneLine(openSpace.name, 40) : "";
    const me = openSpace?.state.me.id || openSpace?.login.participant || "";
    if (this._shown !== `${text}\n${me}`) replace(this._name, el("bdi", { class: "space-title" }, text), el("span", { class: "space-me" }, el("span", { class: "sr" }, "you are "), el("bdi", {}, oneLine(me, 40))));
    this._shown = `${text}\n${me}`;
    if (!this._list.hidden) this._fill();
  }

  open() {
    this._fill();
    this._list.hidden = false;
    this._button.setAttribute("aria-expanded", "true");
    this._list.querySelector("button")?.focus();
  }

  _close() {
    this._list.hidden = true;
    this._button.setAttribute("aria-expanded", "false");
  }

  /** Redrawn only if something changed, and the focus stays: somebody may be choosing by keyboard meanwhile. */
  _fill() {
    const spaces = this._session.logins.map((login) => {
      const openSpace = this._session.openSpaces.get(login.space);
      const waiting = this._session.pendingIn(login.space).count;
      return { login, waiting, current: this._session.current === openSpace && openSpace !== undefined };
    });
    this._isFilling = true;
    redraw(this._list, spaces.map((each) => [each.login.space, each.login.participant, each.waiting, each.current]), () => this._items(spaces));
    this._isFilling = false;
  }

  _isFilling = false;

  /** @param {{login: import("../core/session.js").Login, waiting: number, current: boolean}[]} spaces */
  _items(spaces) {
    const items = spaces.map(({ login, waiting, current }) => {
      return el(
        "button",
        { type: "button", role: "menuitemradio", "aria-checked": String(current), class: "menu-item", data: { focus: login.space }, on: { click: () => { this._close(); this._button.focus(); this._choose(login.space); } } },
        el("bdi", { class: "grow" }, oneLine(login.space, 40)),
        el("small", {}, "as ", el("bdi", {}, oneLine(login.participant, 40))),
        waiting > 0 && el("span", { class: "badge" }, String(waiting)),
        current && icon("check", 16),
      );
    });
    const item = (/** @type {string} */ name, /** @type {string} */ text, /** @type {() => void} */ act) => el("button", { type: "button", role: "menuitem", class: "menu-item", data: { focus: ` ${name}` }, on: { click: () => { this._close(); act(); } } }, icon(name, 16), el("span", {}, text));
    return [...items, item("plus", "Add a space…", () => this._add()), item("bell", "Notifications on this device…", () => pushDialog(this._session, { notify: this._notify })), item("device", "Sign in on another device…", () => deviceDialog(this._session, { notify: this._notify }))];
  }

  _add() {
    const dialog = openDialog("Add a space", [
      signInForm(this._session, (logins) => {
        dialog.close();
        this._choose(logins[0].space);
      }),
    ]);
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    const items = /** @type {HTMLElement[]} */ ([...this._list.querySelectorAll("button")]);
    const at = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (next !== undefined) items[(next + items.length) % items.length]?.focus();
    else if (event.key === "Escape") {
      this._close();
      this._button.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
