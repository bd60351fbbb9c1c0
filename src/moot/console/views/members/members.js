/** Members: who is online, what each can do and who granted it, and how to stop them. */
import { button, html, newId, redraw, stepRow } from "../../core/page/dom.js";
import { registerView } from "../../core/page/router.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { memberNamed } from "../../core/state/state-roster.js";
import { roleOf } from "../capabilities/capability-text.js";
import { grantDialog, revokeDialog } from "../capabilities/grants.js";
import { ledgerOf } from "../capabilities/grant-ledger.js";
import { icon } from "../parts/icons.js";
import { inviteDialog } from "./invite-dialog.js";
import { MemberDetail } from "./member-detail.js";
import { CONTROLS, lacksCapability, pauseDialog, resume } from "./member-controls.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/state-roster.js").Member} Member */

// Many members may have left after a week; the others can be found by name.
const MAX_AWAY = 50;
const MAX_HERE = 500;
const TICK_MILLISECONDS = 1_000;

class MembersView {
  /** @param {HTMLElement} outlet @param {Context} context */
  constructor(outlet, context) {
    this.context = context;
    this.state = context.state;
    this._chosen = "";
    this._paused = 0;
    /** @type {Set<string>} */
    this._thinking = new Set();
    const id = newId("find");
    this._find = html.input({
      id,
      class: "field",
      type: "search",
      placeholder: "Search",
      autocomplete: "off",
      spellcheck: "false",
      on: { input: () => this.show() },
    });
    this._count = html.span({ class: "soft" });
    this._list = html.div({ class: "panes-list" });
    this._detail = new MemberDetail(context);
    this._panes = html.div({ class: "panes" }, this._list, this._detail.node);
    this._allControls = html.div({ class: "field-row" });
    outlet.append(
      html.div(
        { class: "view-head" },
        html.h1({}, "Members"),
        this._count,
        html.span({ class: "grow" }),
        html.label({ class: "sr", for: id }, "Search members"),
        html.div({ class: "find" }, this._find),
        button("Invite…", () => inviteDialog(context), { class: "primary", shortcut: "i", icon: icon("plus", 16) }),
        this._allControls,
      ),
      this._panes,
    );
    this._stops = [
      context.state.on(["roster", "grants", "proposals", "streams", "reasoning"], () => this.show()),
      this._keys(),
    ];
    const timer = setInterval(() => this._tick(), TICK_MILLISECONDS);
    this._stops.push(() => clearInterval(timer));
    this.show();
  }

  close() {
    this._stops.forEach((stop) => stop());
  }

  /** @param {string[]} rest */
  openRoute(rest) {
    this._chosen = rest[0] ?? "";
    this.show();
    if (this._chosen) {
      this._detail.node.scrollTop = 0;
      this._list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
    }
  }

  /** The selected member. @returns {Member | undefined} */
  get member() {
    return this._chosen
      ? (this.state.roster.get(this._chosen) ?? this._invitedMembers().find((each) => each.id === this._chosen))
      : undefined;
  }

  /** Participants that we invited and that have not joined yet. @returns {Member[]} */
  _invitedMembers() {
    return [...ledgerOf(this.state).invited]
      .filter(([name]) => !this.state.roster.get(name))
      .map(([name, at]) => ({ ...memberNamed(name), invited: true, since: at, invitedBy: this.state.me.id }));
  }

  /** @returns {{online: Member[], invited: Member[], away: Member[]}} */
  _sorted() {
    const wanted = this._find.value.trim().toLowerCase();
    const all = [...this.state.roster.members.values(), ...this._invitedMembers()]
      .filter((each) => !wanted || each.id.toLowerCase().includes(wanted) || each.name.toLowerCase().includes(wanted))
      .sort((a, b) => a.id.localeCompare(b.id));
    const me = this.state.me.id;
    return {
      online: all.filter((each) => each.present).sort((a, b) => Number(b.id === me) - Number(a.id === me)),
      invited: all.filter((each) => !each.present && each.invited && each.messageCount === 0),
      away: all
        .filter((each) => !each.present && !(each.invited && each.messageCount === 0))
        .sort((a, b) => b.since - a.since),
    };
  }

  show() {
    const { online: current, invited, away } = this._sorted();
    this._thinking = new Set(this.state.reasoning.active().map((each) => each.from));
    this._paused = this._pausedNow();
    this._count.textContent = `${this.state.roster.present().length} online`;
    redraw(this._allControls, [this._paused > 1, this.state.me.capabilities], () => [
      button("Pause everyone…", () => pauseDialog(this.context, null), {
        class: "danger",
        icon: icon("pause", 16),
        disabled: lacksCapability(this.context, "participant/pause"),
        data: { focus: "pause-all" },
      }),
      this._paused > 1 &&
        button("Resume everyone", () => void resume(this.context, null), {
          disabled: lacksCapability(this.context, "participant/resume"),
          data: { focus: "resume-all" },
        }),
    ]);
    const facts = [current, invited, away].map((each) =>
      each
        .slice(0, MAX_HERE)
        .map((member) => [member.id, this._role(member), this.state.roster.isPaused(member), this._activity(member)]),
    );
    redraw(this._list, [facts, this.member?.id], () => [
      this._section("Online", current.slice(0, MAX_HERE), current.length),
      this._section("Invited", invited.slice(0, MAX_AWAY), invited.length),
      this._section("Offline", away.slice(0, MAX_AWAY), away.length),
      current.length + invited.length + away.length === 0 && html.p({ class: "empty" }, "No matching members."),
    ]);
    this._panes.dataset.open = this.member ? "detail" : "list";
    this._detail.show(this.member, this._chosen);
  }

  /** @param {Member} member */
  _role(member) {
    const ledger = ledgerOf(this.state);
    return ledger.isKnown(member.name) ? roleOf(ledger.permissionsOf(member.name).map((each) => each.capability)) : "";
  }

  /** @param {Member} member */
  _activity(member) {
    return this._thinking.has(member.id) ? "reasoning" : "";
  }

  /** @param {string} title @param {Member[]} members @param {number} all */
  _section(title, members, all) {
    if (members.length === 0) return null;
    const id = newId("section");
    return html.section(
      { "aria-labelledby": id },
      html.h2({ class: "list-title", id }, `${title} `, html.span({ class: "faint" }, String(all))),
      html.ul(
        {},
        members.map((member) => html.li({}, this._row(member))),
      ),
      all > members.length && html.p({ class: "faint list-more" }, `and ${all - members.length} more: search by name`),
    );
  }

  /** @param {Member} member */
  _row(member) {
    const paused = this.state.roster.isPaused(member);
    return html.a(
      {
        class: "member-row",
        href: this.context.link("members", member.id),
        "aria-current": this.member?.id === member.id ? "true" : null,
        data: { focus: `member-${member.id}`, presence: member.present ? "here" : "away" },
      },
      html.span({ class: "presence-dot", "aria-hidden": "true" }),
      html.span(
        { class: "grow member-name" },
        nameOf(member.id, { you: member.id === this.state.me.id }),
        member.name !== member.id && html.small({}, " ", html.bdi({}, oneLine(member.name, 40))),
      ),
      paused && html.span({ class: "tag", data: { tone: "warn" } }, icon("pause", 12), "paused"),
      this._activity(member) && html.span({ class: "tag", data: { tone: "accent" } }, "reasoning"),
      html.span({ class: "faint member-role" }, this._role(member)),
    );
  }

  _tick() {
    // An expired pause changes the buttons and the list, but no message announces it.
    if (this._paused !== this._pausedNow()) this.show();
    if (this.member) this._detail.tick(this.member);
  }

  _pausedNow() {
    return this.state.roster.present().filter((each) => this.state.roster.isPaused(each)).length;
  }

  /** @param {(member: Member) => void} act */
  _on(act) {
    const member = this.member;
    if (!member) this.context.announce("Select a member first");
    else if (member.id === this.state.me.id) this.context.notify("This is you: select another member", "info");
    else act(member);
  }

  _revoke() {
    const member = this.member;
    if (!member) return;
    const focused = /** @type {HTMLElement | null} */ (document.activeElement?.closest?.("[data-grant]"))?.dataset
      .grant;
    const ledger = ledgerOf(this.state);
    const grant = focused ? ledger.byId.get(focused) : ledger.to(member.name)[0];
    if (grant) revokeDialog(this.context, grant);
    else this.context.notify("There is no grant to revoke", "info");
  }

  _keys() {
    const { context } = this;
    return context.keys.add("Members", {
      j: ["Next member", () => stepRow(this._list, 1)],
      k: ["Previous member", () => stepRow(this._list, -1)],
      "/": ["Search members", () => this._find.focus()],
      i: ["Invite a member", () => inviteDialog(context)],
      p: [
        "Pause or resume",
        () =>
          this._on((member) =>
            member.present
              ? this.state.roster.isPaused(member)
                ? void resume(context, member)
                : pauseDialog(context, member)
              : context.notify("This member is offline", "info"),
          ),
      ],
      ...Object.fromEntries(
        CONTROLS.filter((each) => each.key).map((each) => [
          each.key,
          [
            each.label.replace("…", ""),
            () =>
              this._on((member) =>
                member.present || each.away
                  ? void each.run(context, member)
                  : context.notify("This member is offline", "info"),
              ),
          ],
        ]),
      ),
      n: ["Add permission", () => this._on((member) => grantDialog(context, member))],
      r: ["Revoke the focused grant, or the newest", () => this._revoke()],
      x: ["Show or hide the JSON of permissions", () => this._detail.toggleExact()],
      Escape: ["Back to the list", () => this._chosen && context.go("members")],
    });
  }
}

registerView({
  id: "members",
  title: "Members",
  icon: "members",
  order: 40,
  key: "p",
  mount(outlet, context) {
    const view = new MembersView(outlet, context);
    return { unmount: () => view.close(), openRoute: (rest) => view.openRoute(rest) };
  },
});
