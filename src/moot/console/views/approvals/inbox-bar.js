/** Above a list of many: search, groups, order, and which risk. Groups and order are remembered on this device. */
import { button, html, newId } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { CHOICES, PLAIN_CHOICE } from "./inbox-order.js";
import { icon } from "../parts/icons.js";

/** @typedef {import("./inbox-order.js").InboxChoice} InboxChoice */

// With fewer than this a list needs no help.
const FEW = 5;
const STORAGE_KEY = "moot.approvals.order";

export class InboxBar {
  /** @param {() => void} changed */
  constructor(changed) {
    this._changed = changed;
    /** @type {InboxChoice} */
    this.choice = { ...PLAIN_CHOICE, ...storedChoice() };
    this._search = html.input({
      type: "search",
      class: "field small",
      "aria-label": "Search pending proposals",
      placeholder: "Search",
      on: {
        input: () => this._set("search", this._search.value),
        keydown: (/** @type {KeyboardEvent} */ event) => this._key(event),
      },
    });
    this._selects = /** @type {const} */ (["group", "sort", "risk"]).map((name) => this._select(name));
    this._found = html.p({ class: "soft", role: "status", hidden: true });
    this._isOpen = false;
    this.node = html.div(
      { class: "inbox-bar", role: "search", "aria-label": "Pending proposals", hidden: true },
      html.label({ class: "inbox-search" }, icon("search", 14), this._search),
      html.div({ class: "inbox-choices" }, this._selects),
      this._found,
    );
  }

  /** @param {"group" | "sort" | "risk"} name */
  _select(name) {
    const labels = { group: "Group", sort: "Order", risk: "Risk" };
    const select = html.select(
      {
        id: newId("inbox"),
        class: "field small",
        "aria-label": labels[name],
        value: this.choice[name],
        on: { change: () => this._set(name, select.value) },
      },
      Object.entries(CHOICES[name]).map(([value, text]) => html.option({ value }, text)),
    );
    return select;
  }

  /** @param {keyof InboxChoice} name @param {string} value */
  _set(name, value) {
    this.choice = /** @type {InboxChoice} */ ({ ...this.choice, [name]: value });
    store(this.choice);
    this._changed();
  }

  /** The last that came, before all others. */
  showNewest() {
    this._selects[1].value = "newest";
    this._set("sort", "newest");
  }

  get isFiltered() {
    return this.choice.search !== "" || this.choice.risk !== "all";
  }

  clear() {
    this.choice = { ...this.choice, search: "", risk: "all" };
    this._search.value = "";
    this._selects[2].value = "all";
    this._changed();
  }

  /** The next way to group. @returns {string} how it is grouped now */
  cycle() {
    const ways = Object.keys(CHOICES.group);
    const next = ways[(ways.indexOf(this.choice.group) + 1) % ways.length];
    this._selects[0].value = next;
    this._isOpen = true;
    this._set("group", next);
    return CHOICES.group[this.choice.group];
  }

  focus() {
    this._isOpen = true;
    this.node.hidden = false;
    this._search.focus();
  }

  /** @param {number} all @param {number} shown */
  draw(all, shown) {
    // Once it is there it stays: nothing moves under the pointer when one is decided.
    this._isOpen ||= all >= FEW || this.isFiltered;
    this.node.hidden = !this._isOpen;
    this._found.hidden = !this.isFiltered;
    const text = shown === 0 ? "No match. " : `${formatNumber(shown)} of ${formatNumber(all)}. `;
    if (!this.isFiltered || this._found.firstChild?.textContent === text) return;
    this._found.replaceChildren(
      text,
      button("Show all", () => this.clear(), { class: "quiet small" }),
    );
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    if (this._search.value) this._set("search", (this._search.value = ""));
    else this._search.blur();
  }
}

/** @returns {Partial<InboxChoice>} */
function storedChoice() {
  try {
    const { group, sort } = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "{}");
    return {
      ...(Object.hasOwn(CHOICES.group, group) ? { group } : {}),
      ...(Object.hasOwn(CHOICES.sort, sort) ? { sort } : {}),
    };
  } catch {
    return {};
  }
}

/** @param {InboxChoice} choice */
function store({ group, sort }) {
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify({ group, sort }));
  } catch {
    // Until the page is closed.
  }
}
