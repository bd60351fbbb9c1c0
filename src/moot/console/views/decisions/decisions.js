/** Who decided what, when and why, out of the gateway's journal (decision 0211): filtered, and as a file. */
import { addressIn, checkAnswer, fetchFrom } from "../../core/connection/gateway-fetch.js";
import { button, html, newId, replace } from "../../core/page/dom.js";
import { isObject } from "../../core/state/json-text.js";
import { formatNumber } from "../../core/page/numbers.js";
import { registerView } from "../../core/page/router.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { parseTime } from "../../core/page/time.js";
import { icon } from "../parts/icons.js";
import { save } from "../parts/large-value.js";

/** @typedef {import("../../app.js").Context} Context */

const SHOWN = 200;
const TYPING_MILLISECONDS = 300;
const MISSING =
  "Some are missing: the journal of this gateway does not have all. It is off, or another gateway of the cluster has them.";
const REPORT_MILLISECONDS = 60_000;

/** What the gateway calls it, and people. @type {[string, string][]} */
const HOW = [
  ["fulfilled,rejected", "Approved or rejected"],
  ["fulfilled", "Approved"],
  ["rejected", "Rejected"],
  ["withdrawn,expired", "Withdrawn or expired"],
  ["", "All, also pending"],
];
/** @type {[string, string][]} */
const DAYS = [
  ["1", "Last 24 hours"],
  ["7", "Last 7 days"],
  ["31", "Last 31 days"],
  ["", "Any time"],
];

class DecisionsView {
  /** @param {HTMLElement} outlet @param {Context} context */
  constructor(outlet, context) {
    this._context = context;
    /** Counts questions, so that a late answer replaces no newer one. */
    this._current = 0;
    /** @type {any} */
    this._timer = undefined;
    const choice = (
      /** @type {string} */ label,
      /** @type {[string, string][]} */ options,
      /** @type {string} */ value,
    ) =>
      html.select(
        { class: "field", "aria-label": label, value, on: { change: () => void this._load() } },
        options.map(([each, text]) => html.option({ value: each }, text)),
      );
    const named = (/** @type {string} */ label, /** @type {HTMLElement} */ names) =>
      html.input({
        class: "field",
        "aria-label": label,
        placeholder: label,
        list: names.id,
        autocomplete: "off",
        on: { input: () => this._typed() },
      });
    this._tools = html.datalist({ id: newId("tools") });
    this._people = html.datalist({ id: newId("people") });
    this._tool = named("Tool", this._tools);
    this._by = named("Decided by", this._people);
    this._how = choice("Decision", HOW, HOW[0][0]);
    this._days = choice("When", DAYS, "7");
    this._status = html.p({ class: "soft", role: "status" });
    this._body = html.tbody({});
    this._table = html.div(
      { class: "decisions-scroll", tabindex: "0", role: "group", "aria-label": "Decisions" },
      html.table(
        { class: "decisions-table" },
        html.thead(
          {},
          html.tr(
            {},
            ["Decided", "By", "Decision", "Call", "Proposed by"].map((text) => html.th({ scope: "col" }, text)),
          ),
        ),
        this._body,
      ),
    );
    outlet.append(
      html.div(
        { class: "view-head" },
        html.h1({}, "Decisions"),
        html.span({ class: "soft" }, "of this space, from its journal"),
        html.span({ class: "grow" }),
        ["CSV", "JSON"].map((form) =>
          button(form, () => void this._download(form.toLowerCase()), {
            class: "quiet small",
            icon: icon("down", 16),
            title: `Download what matches as ${form}`,
          }),
        ),
      ),
      html.div(
        { class: "decisions" },
        html.div({ class: "decisions-bar" }, this._tool, this._by, this._how, this._days, this._tools, this._people),
        this._status,
        this._table,
      ),
    );
    const names = [...new Set([...context.state.roster.members.values()].map((each) => each.name))].sort();
    replace(
      this._people,
      names.map((value) => html.option({ value })),
    );
    this._stop = context.keys.add("Decisions", { "/": ["Tool", () => this._tool.focus()] });
  }

  /** @param {string[]} rest a tool */
  openRoute(rest) {
    this._tool.value = rest[0] ?? "";
    void this._load();
  }

  _typed() {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => void this._load(), TYPING_MILLISECONDS);
  }

  /** @param {Record<string, string>} more @returns {Promise<Response>} */
  async _ask(more) {
    const { base, login } = this._context.openSpace;
    const address = addressIn(base, login.space, "decisions");
    const days = Number(this._days.value);
    const since = days > 0 ? new Date(Date.now() - days * 86_400_000).toISOString() : "";
    const asked = { tool: this._tool.value.trim(), by: this._by.value.trim(), how: this._how.value, since, ...more };
    for (const [name, value] of Object.entries(asked)) if (value) address.searchParams.set(name, value);
    return checkAnswer(await fetchFrom(address, { token: login.token, within: REPORT_MILLISECONDS }));
  }

  async _load() {
    this._current += 1;
    const current = this._current;
    replace(this._status, "Reading the journal…");
    try {
      const { decisions, left_out: leftOut, gap } = await (await this._ask({ limit: String(SHOWN) })).json();
      if (current === this._current) this._draw(decisions.toReversed(), leftOut, gap === true);
    } catch (fault) {
      if (current !== this._current) return;
      this._table.hidden = true;
      const why = fault instanceof Error ? fault.message : String(fault);
      replace(
        this._status,
        html.span({ class: "fault" }, `Not known: ${oneLine(why, 200)} `),
        button("Retry", () => void this._load(), { class: "small" }),
      );
    }
  }

  /** @param {any[]} decisions the newest first @param {number} leftOut @param {boolean} hasGap this gateway's journal lacks some */
  _draw(decisions, leftOut, hasGap) {
    this._table.hidden = decisions.length === 0;
    const count = formatNumber(decisions.length);
    replace(
      this._status,
      decisions.length === 0
        ? !hasGap && "Nobody decided anything like this in that time."
        : leftOut > 0
          ? `The latest ${count} are shown; ${formatNumber(leftOut)} older ones are in the files.`
          : `${count} ${decisions.length === 1 ? "decision" : "decisions"}.`,
      hasGap && ` ${MISSING}`,
    );
    const tools = [...new Set(decisions.map((each) => String(each.tool ?? "")))].sort();
    if (!this._tool.value.trim())
      replace(
        this._tools,
        tools.map((value) => html.option({ value })),
      );
    replace(
      this._body,
      decisions.map((each) => this._row(each)),
    );
  }

  /** @param {any} each */
  _row(each) {
    const at = parseTime(each.decided_at ?? each.proposed_at, 0);
    const votes = (each.votes ?? []).map(String);
    return html.tr(
      {},
      html.td(
        {},
        html.a(
          { href: this._context.link("approvals", String(each.id)) },
          html.time({}, new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })),
        ),
      ),
      html.td({}, each.decided_by ? nameOf(String(each.decided_by)) : html.span({ class: "soft" }, "nobody")),
      html.td(
        {},
        decisionText(each),
        each.rule && html.small({}, "by rule ", html.bdi({}, oneLine(each.rule, 60))),
        votes.length > 0 && html.small({}, `votes: ${oneLine(votes.join(", "), 120)}`),
        each.reason && html.small({}, html.bdi({}, oneLine(each.reason, 160))),
      ),
      html.td(
        {},
        html.bdi({ class: "mono" }, oneLine(each.tool || each.method, 60)),
        html.small({}, html.bdi({}, oneLine(argumentsText(each.arguments), 160))),
      ),
      html.td({}, nameOf(String(each.proposer))),
    );
  }

  /** @param {string} form */
  async _download(form) {
    try {
      save(await (await this._ask({ format: form })).arrayBuffer(), `decisions.${form}`);
    } catch (fault) {
      this._context.notify(`No file: ${fault instanceof Error ? fault.message : fault}`, "bad");
    }
  }

  close() {
    clearTimeout(this._timer);
    this._current += 1;
    this._stop();
  }
}

/** As in a row of the inbox. @param {unknown} given */
function argumentsText(given) {
  if (!isObject(given)) return JSON.stringify(given) ?? "";
  const texts = Object.entries(given).map(
    ([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`,
  );
  return texts.join(" ");
}

/** @param {any} each */
function decisionText(each) {
  // Somebody else may still approve what one person has rejected.
  const state = each.state === "pending" && each.decided_by ? "rejected, still open" : String(each.state);
  const word =
    { fulfilled: "approved", done: "approved", failed: "approved, failed", unknown: "approved, outcome unknown" }[
      state
    ] ?? state;
  return `${word}${each.original_arguments ? " with changes" : ""}`;
}

registerView({
  id: "decisions",
  title: "Decisions",
  icon: "approvals",
  order: 85,
  key: "e",
  more: true,
  mount(outlet, context) {
    const view = new DecisionsView(outlet, context);
    return { unmount: () => view.close(), openRoute: (rest) => view.openRoute(rest) };
  },
});
