/** One member: who it is, what it can do and who granted that. */
import { button, html, redraw } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { ago, isoTime } from "../../core/page/time.js";
import { copyButton } from "../timeline/envelope-details.js";
import { endedGrants, grantDialog, grantsList, revokeAll, rightsList } from "../capabilities/grants.js";
import { ledgerOf } from "../capabilities/grant-ledger.js";
import { icon } from "../parts/icons.js";
import { memberProposals, proposalFacts } from "./member-proposals.js";
import { lacksCapability, controls, pauseText, statusTable } from "./member-controls.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/state-roster.js").Member} Member */

export class MemberDetail {
  /** @param {Context} context */
  constructor(context) {
    this.context = context;
    this.state = context.state;
    this._exact = false;
    /** @type {{member: Member | undefined, chosen: string}} */
    this._shown = { member: undefined, chosen: "" };
    this.node = html.section({ class: "panes-detail", "aria-label": "Member" });
    this._head = html.div({ class: "detail-head" });
    this._controls = html.div();
    this._permissions = html.div();
    this._grants = html.div({ class: "detail-parts" });
    this._status = html.div();
    this._proposals = html.div();
  }

  /** @param {Member | undefined} member @param {string} chosen what the address names */
  show(member, chosen) {
    this._shown = { member, chosen };
    if (!member) {
      redraw(this.node, ["nobody", chosen], () =>
        html.div(
          { class: "empty" },
          icon("members", 32),
          html.strong({}, chosen ? "Unknown member" : "Select a member"),
          html.p(
            {},
            chosen
              ? "It may have left before you joined."
              : "to see its permissions and grants, and to pause or remove it. ",
            !chosen && html.kbd({}, "j"),
            !chosen && " selects the next one.",
          ),
        ),
      );
      return;
    }
    redraw(this.node, ["member", member.id], () => [
      this._head,
      this._controls,
      this._proposals,
      this._status,
      this._permissions,
      this._grants,
    ]);
    const ledger = ledgerOf(this.state);
    const me = member.id === this.state.me.id;
    const paused = this.state.roster.isPaused(member);
    redraw(
      this._head,
      [
        member.id,
        member.present,
        member.since,
        member.invitedBy,
        member.leaveReason,
        paused,
        member.violations,
        this.state.me.id,
      ],
      () => this._heading(member),
    );
    redraw(this._controls, [member.id, member.present, me, paused, this.state.me.capabilities], () =>
      me ? html.p({ class: "soft" }, "This is you.") : controls(this.context, member),
    );
    const { pending, latest } = proposalFacts(this.context, member);
    redraw(this._proposals, [member.id, pending, latest.map((each) => [each.id, each.status])], () =>
      memberProposals(this.context, member),
    );
    redraw(
      this._status,
      [member.id, member.status],
      () => member.status && html.section({ class: "detail-part" }, html.h3({}, "Last status"), statusTable(member)),
    );
    const given = ledger.to(member.name);
    const gave = ledger.from(member.name);
    const ended = ledger.ended(member.name);
    redraw(
      this._permissions,
      [
        member.id,
        ledger.permissionsOf(member.name).map((each) => [each.capability, each.grant?.id]),
        this._exact,
        this.state.me.capabilities,
      ],
      () =>
        html.section(
          { class: "detail-part" },
          html.div(
            { class: "part-head" },
            html.h3({}, "Permissions"),
            button(this._exact ? "Hide JSON" : "Show JSON", () => this.toggleExact(), {
              class: "quiet small",
              shortcut: "x",
              aria: { pressed: String(this._exact) },
              data: { focus: "exact" },
            }),
            !me &&
              button("Add permission…", () => grantDialog(this.context, member), {
                class: "small",
                shortcut: "n",
                disabled: lacksCapability(this.context, "capability/grant"),
                data: { focus: "grant" },
              }),
          ),
          rightsList(this.context, member, this._exact),
        ),
    );
    redraw(
      this._grants,
      [
        member.id,
        given.map((each) => [
          each.id,
          each.capabilities,
          this.state.grants.byId.get(each.id)?.acknowledged,
          ledger.chainOf(each).grants.map((one) => one.id),
        ]),
        gave.map((each) => [each.id, each.capabilities]),
        ended.map((each) => each.id),
        this._exact,
        this.state.me.capabilities,
      ],
      () => [
        given.length > 0 &&
          html.section(
            { class: "detail-part" },
            html.div(
              { class: "part-head" },
              html.h3({}, me ? "Granted to you" : `Granted to ${oneLine(member.id, 40)}`),
              given.length > 1 &&
                button(`Revoke all ${given.length}`, () => void revokeAll(this.context, given), {
                  class: "small danger",
                  disabled: lacksCapability(this.context, "capability/revoke"),
                  data: { focus: "revoke-all" },
                }),
            ),
            grantsList(this.context, given, this._exact, false),
          ),
        gave.length > 0 &&
          html.section(
            { class: "detail-part" },
            html.h3({}, me ? "Granted by you" : "Grants given"),
            grantsList(this.context, gave, this._exact, true),
          ),
        ended.length > 0 && endedGrants(ended),
      ],
    );
    this.tick(member);
  }

  /** @param {Member} member */
  _heading(member) {
    const paused = this.state.roster.isPaused(member);
    const invited = !member.present && member.invited && member.messageCount === 0;
    const [text, tone] = invited
      ? ["invited", "accent"]
      : !member.present
        ? ["offline", ""]
        : paused
          ? ["paused", "warn"]
          : ["online", "good"];
    return [
      html.a(
        { class: "back button quiet small", href: this.context.link("members") },
        icon("right", 14),
        html.span({}, "All members"),
      ),
      html.div(
        { class: "detail-title" },
        html.h2({}, nameOf(member.id, { you: member.id === this.state.me.id })),
        html.span(
          { class: "state-mark presence", data: { tone } },
          html.span({ class: "dot", "aria-hidden": "true" }),
          text,
        ),
      ),
      html.p(
        { class: "soft" },
        member.name !== member.id && ["name ", html.bdi({}, oneLine(member.name, 64)), " · "],
        invited
          ? ["invited", member.invitedBy && [" by ", nameOf(member.invitedBy)]]
          : [
              member.since === 0
                ? member.present
                  ? "joined before you"
                  : "left before you joined"
                : [
                    member.present ? "joined " : "left ",
                    html.time({ datetime: isoTime(member.since), class: "since" }, ago(member.since)),
                  ],
              member.leaveReason && [": ", html.bdi({}, oneLine(member.leaveReason, 160))],
            ],
        member.violations > 0 &&
          ` · ${member.violations} protocol ${member.violations === 1 ? "violation" : "violations"}`,
        " · ",
        html.span({ class: "activity" }),
      ),
      html.p(
        { class: "copy-row" },
        copyButton(
          new URL(this.context.link("members", member.id), location.href).href,
          "Copy link to this member",
          this.context,
          { icon: "link", text: "Copy link", isQuiet: true },
        ),
        copyButton(member.id, "Copy name of this member", this.context, { text: "Copy name", isQuiet: true }),
      ),
      html.p({ class: "pause-line warn-text", hidden: true }),
    ];
  }

  /** Update what changes over time: times and message counts. @param {Member} member */
  tick(member) {
    const set = (/** @type {string} */ selector, /** @type {string} */ text) => {
      const node = this._head.querySelector(selector);
      if (node && node.textContent !== text) node.textContent = text;
      return node;
    };
    set(".since", ago(member.since));
    set(
      ".activity",
      member.messageCount === 0
        ? "no messages yet"
        : `${formatNumber(member.messageCount)} ${member.messageCount === 1 ? "message" : "messages"}, last ${ago(member.lastMessageAt)}`,
    );
    const paused = this.state.roster.isPaused(member);
    const line = set(".pause-line", paused ? `Paused${escapeHidden(pauseText(member, Date.now()))}` : "");
    if (line instanceof HTMLElement) line.hidden = !paused;
  }

  toggleExact() {
    this._exact = !this._exact;
    this.context.announce(this._exact ? "JSON shown" : "JSON hidden");
    this.show(this._shown.member, this._shown.chosen);
  }
}
