// @ts-check
/** The line above the oldest message: whether there is more before it, and the way to it. */
import { button, el, redraw } from "../core/dom.js";
import { formatNumber } from "../core/numbers.js";
import { END_TEXTS } from "../core/older-messages.js";
import { oneLine } from "../core/text.js";

export class OlderBar {
  /** @param {() => void} load @param {() => void} search */
  constructor(load, search) {
    this._load = load;
    this._search = search;
    this._isSearch = false;
    this._isInSight = true;
    this.node = el("div", { class: "tl-older", role: "status", hidden: true });
  }

  /** Whether the oldest line is in sight; a search is told about wherever one is. @param {boolean} inSight */
  setInSight(inSight) {
    if (this._isInSight === inSight) return;
    this._isInSight = inSight;
    this._hide();
  }

  _hide() {
    const hidden = this.node.childElementCount === 0 || (!this._isInSight && !this._isSearch);
    if (this.node.hidden !== hidden) this.node.hidden = hidden;
  }

  /**
   * @param {import("../core/older-messages.js").OlderMessages} older
   * @param {{older: import("./older-search.js").OlderSearch | null, found: number} | null} search
   * @param {boolean} isConversation only one conversation is shown
   */
  draw(older, search, isConversation) {
    this._isSearch = search !== null;
    const facts = [older.status, older.reason, search?.older?.status, search?.older?.reason, search?.found, search !== null, isConversation].join("\n");
    redraw(this.node, facts, () => (isConversation ? [] : search ? this._searchParts(older, search.older, search.found) : this._loadParts(older)));
    this._hide();
  }

  /** @param {import("../core/older-messages.js").OlderMessages} older */
  _loadParts(older) {
    if (older.status === "loading") return [el("span", { class: "soft" }, "Loading older messages…")];
    if (older.status === "failed") return [el("span", { class: "fault" }, `Older messages could not be loaded: ${oneLine(older.reason, 120)}`), button("Retry", () => this._load(), { class: "small" })];
    if (older.status === "end") return [el("span", { class: "soft" }, END_TEXTS[older.reason] ?? END_TEXTS.beginning)];
    return [button("Load older messages", () => this._load(), { class: "small quiet" })];
  }

  /** @param {import("../core/older-messages.js").OlderMessages} older @param {import("./older-search.js").OlderSearch | null} search @param {number} found */
  _searchParts(older, search, found) {
    if (older.status === "end" && older.reason !== "full" && !search) return [el("span", { class: "soft" }, "All messages were searched. ", END_TEXTS[older.reason] ?? "")];
    if (!search) return [el("span", { class: "soft" }, "Searched the messages that are loaded."), button("Search older messages", () => this._search(), { class: "small" })];
    const count = `${formatNumber(found)} found in older messages.`;
    if (search.status === "searching") return [el("span", { class: "soft" }, `Searching older messages… ${found > 0 ? count : ""}`)];
    if (search.status === "failed") return [el("span", { class: "fault" }, `The search stopped: ${oneLine(search.reason, 120)}`), button("Retry", () => this._search(), { class: "small" })];
    return [el("span", { class: "soft" }, `${count} ${END_TEXTS[search.reason] ?? ""}`)];
  }
}
