/** Who signed in, was refused and was signed out, from the gateway’s journal: newest first, page by page. */
import { button, html, replace } from "../../core/page/dom.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { formatTime, isoTime, parseTime } from "../../core/page/time.js";
import { hostOf } from "./administration-tokens.js";

/** @typedef {import("../../core/connection/administration.js").Administration} Administration @typedef {import("../../core/connection/administration.js").SignInEvent} SignInEvent */

const PAGE = "50";
// Of a long journal in which nobody signed in, so much is read before a person is asked to go on.
const MAX_EMPTY_PAGES = 8;
/** @type {Record<string, [string, string]>} title and tone */
const EVENTS = {
  signed_in: ["Signed in", "good"],
  refused: ["Refused", "bad"],
  signed_out: ["Signed out", "warn"],
  token_made: ["Token made", "accent"],
  token_replaced: ["Token replaced", "accent"],
  restored: ["Restored", "accent"],
};

export class SignInAudit {
  /** @param {Administration} client @param {(fault: unknown) => void} fail */
  constructor(client, fail) {
    this._client = client;
    this._fail = fail;
    /** @type {string | null} */
    this._before = "";
    this._list = html.ol({ class: "administration-events", "aria-label": "Sign-ins, newest first" });
    this._foot = html.div({ class: "administration-foot" });
    const choice = html.input({ type: "checkbox", on: { change: () => void this._restart() } });
    this._refusedOnly = choice;
    this.node = html.div(
      { class: "administration-audit" },
      html.label({ class: "choice" }, choice, html.span({}, "Refused only")),
      this._list,
      this._foot,
    );
    /** The row that is still growing: a token that is renewed every few minutes is one row. @type {{key: string, row: HTMLElement, events: SignInEvent[]} | null} */
    this._last = null;
    this._turn = 0;
  }

  _restart() {
    this._before = "";
    this._last = null;
    replace(this._list);
    return this.more();
  }

  /** Load the next page, and further ones while there is nothing in them. */
  async more() {
    const turn = (this._turn += 1);
    replace(this._foot, html.span({ class: "soft" }, "Loading…"));
    try {
      for (let pages = 0, found = 0; this._before !== null && found === 0 && pages < MAX_EMPTY_PAGES; pages += 1) {
        const page = await this._client.signIns({
          limit: PAGE,
          ...(this._before ? { before: this._before } : {}),
          ...(this._refusedOnly.checked ? { event: "refused" } : {}),
        });
        if (turn !== this._turn) return;
        this._before = page.before === null ? null : String(page.before);
        found = page.sign_ins.length;
        for (const event of page.sign_ins) this._add(event);
        if (!page.is_kept)
          return replace(
            this._foot,
            html.span({ class: "soft" }, "This space keeps no journal, so that nobody knows who signed in."),
          );
      }
      replace(
        this._foot,
        this._before === null
          ? html.span(
              { class: "soft" },
              this._list.childElementCount === 0
                ? "Nobody has signed in at a provider. Connections with tokens of the gateway are in the journal as join."
                : "That is all that the journal has.",
            )
          : button("Show older", () => void this.more()),
      );
    } catch (fault) {
      if (turn === this._turn && this.node.isConnected) this._fail(fault);
    }
  }

  /** @param {SignInEvent} event */
  _add(event) {
    const key = JSON.stringify([
      event.event,
      event.participant,
      event.subject,
      event.client,
      event.issuer,
      event.rule,
      event.by,
      event.why,
      event.count,
    ]);
    if (this._last?.key === key) {
      this._last.events.push(event);
      replace(this._last.row, eventCells(this._last.events));
      return;
    }
    const row = html.li({ class: "administration-row", data: { event: event.event } }, eventCells([event]));
    this._last = { key, row, events: [event] };
    this._list.append(row);
  }
}

/** The same event once or several times, the newest first. @param {SignInEvent[]} events */
function eventCells(events) {
  const [newest] = events;
  const oldest = events[events.length - 1];
  if (!newest || !oldest) return [];
  const at = parseTime(newest.at, 0);
  const [title, tone] = EVENTS[newest.event] ?? [oneLine(newest.event, 40), ""];
  return [
    html.time({ class: "faint", datetime: isoTime(at) }, formatTime(at)),
    html.span({ class: "tag", data: { tone } }, title),
    html.div(
      { class: "grow" },
      sentence(newest),
      events.length > 1 &&
        html.span({ class: "soft" }, ` · ${events.length} times since ${formatTime(parseTime(oldest.at, 0))}`),
      detail(newest),
    ),
  ];
}

/** @param {SignInEvent} event */
function sentence(event) {
  const who =
    event.participant === undefined
      ? html.bdi({ class: "name" }, oneLine(event.account ?? event.subject ?? "somebody", 80))
      : nameOf(event.participant);
  if (event.count !== undefined) return [`${event.count} more sign-ins, too many to record one by one`];
  const by = event.by === undefined || event.by === event.participant ? null : event.by;
  switch (event.event) {
    case "signed_out":
      return event.by === "themselves"
        ? [who]
        : event.by === "the rules"
          ? [who, ", because the rules changed"]
          : [who, " by ", html.bdi({}, oneLine(event.by ?? "", 200))];
    case "token_made":
    case "token_replaced":
    case "restored":
      return ["for ", who, by && [" by ", html.bdi({}, oneLine(by, 200))]];
    default:
      return [
        who,
        event.client !== undefined && [" with ", html.bdi({ class: "mono" }, oneLine(event.client, 80))],
        event.why !== undefined && [": ", html.bdi({}, oneLine(event.why, 300))],
      ];
  }
}

/** Where an account is from, and by which rule it came. @param {SignInEvent} event */
function detail(event) {
  if (event.issuer === undefined) return null;
  const rule =
    event.rule === undefined
      ? ""
      : `by rule ${event.rule}${event.profile === undefined ? "" : ` (profile ${oneLine(event.profile, 60)})`}, `;
  return html.div(
    { class: "soft administration-facts" },
    html.span(
      {},
      rule,
      "account ",
      html.bdi({ class: "mono" }, oneLine(event.subject ?? "", 80)),
      ` at ${hostOf(event.issuer)}`,
    ),
  );
}
