// @ts-check
/** What can be done to a member besides giving and taking rights (MEW 3.6.7, 3.9): each a button and a key. */
import { button, el } from "../core/dom.js";
import { nameOf, oneLine, visible } from "../core/text.js";
import { ago, duration } from "../core/time.js";
import { inWords } from "./capability-words.js";
import { mayAllow } from "./grants-covers.js";
import { ledgerOf } from "./grants-ledger.js";
import { icon } from "./icons.js";
import { askDialog, askMember, attempt, labelled, reasonField } from "./people-acts.js";

/** @typedef {import("../app.js").Context} Context @typedef {import("../core/state-roster.js").Member} Member */

/** How long a pause may be asked for; none means until somebody resumes. @type {[string, number][]} */
const PAUSES = [["until somebody resumes it", 0], ["1 minute", 60], ["5 minutes", 300], ["30 minutes", 1_800], ["2 hours", 7_200]];

/** Whether our rights surely do not allow a kind. @param {Context} context @param {string} kind */
export function cannot(context, kind) {
  return !mayAllow(context.state.me.capabilities, kind);
}

/** @param {string} reason */
const because = (reason) => (reason ? { reason } : {});

/** @param {Context} context @param {Member | null} member null for everybody but ourselves */
export function pauseDialog(context, member) {
  const who = member ? oneLine(member.id, 40) : "everybody";
  const time = labelled("For how long", { tag: "select" });
  for (const [words, seconds] of PAUSES) time.input.append(el("option", { value: String(seconds) }, words));
  const reason = reasonField();
  askDialog(`Pause ${who}?`, [
    el("p", {}, member ? [nameOf(member.id), " falls silent: the gateway lets nothing pass but acknowledgements, cancellations and the like."] : "Everybody who is here but you falls silent, at once."),
    member?.paused && el("p", { class: "soft" }, "It is paused already: this can make the pause longer, not shorter."),
    time.node, reason.node,
  ], {
    verb: `Pause ${who}`, danger: true, safe: true,
    act: () => {
      const seconds = Number(time.value());
      return context.say("participant/pause", { ...because(reason.value()), ...(seconds > 0 ? { timeout_seconds: seconds } : {}) }, { to: member ? [member.id] : [] });
    },
    then: () => context.notify(`${who} ${member ? "is" : "are"} paused`, "good"),
  });
}

/** @param {Context} context @param {Member | null} member */
export function resume(context, member) {
  const who = member ? oneLine(member.id, 40) : "everybody";
  return attempt(context, context.say("participant/resume", {}, { to: member ? [member.id] : [], about: member?.paused ? [member.paused.id] : [] }), `${who} may speak again`);
}

/** @param {Context} context @param {Member} member */
export function shutdownDialog(context, member) {
  const who = oneLine(member.id, 40);
  const reason = reasonField();
  askDialog(`Shut down ${who}?`, [
    el("p", {}, nameOf(member.id), " is asked to end. It has five seconds to tidy up; then its connections are closed. Its rights and its token stay: it may join again when somebody starts it."),
    reason.node,
  ], {
    verb: `Shut down ${who}`, danger: true,
    act: () => context.say("participant/shutdown", because(reason.value()), { to: [member.id] }),
    then: () => context.notify(`${who} was asked to end`, "good"),
  });
}

/** What goes with a member that is removed. @param {Context} context @param {Member} member */
function losses(context, member) {
  const state = context.state;
  const fall = ledgerOf(state).cascadeOfRemoval(member.name);
  const streams = state.streams.open().filter((each) => each.owner === member.id);
  const proposals = state.proposals.open().filter((each) => each.from === member.id);
  return el("ul", { class: "losses" },
    el("li", {}, "Its token is void: only a new invitation lets it back in."),
    el("li", {}, proposals.length > 0 ? `${proposals.length} open proposal${proposals.length > 1 ? "s" : ""} of it will be withdrawn.` : "It has no open proposal."),
    streams.map((each) => el("li", {}, "Closed: the stream ", el("bdi", { class: "mono" }, oneLine(each.description || each.id, 60)))),
    fall.map(({ grant, lost }) => el("li", {}, nameOf(grant.recipient), " loses: ", el("bdi", {}, oneLine(lost.map(inWords).join(", "), 160)))));
}

/** @param {Context} context @param {Member} member */
export function kickDialog(context, member) {
  const who = oneLine(member.id, 40);
  const reason = reasonField();
  askDialog(`Remove ${who} from the space?`, [el("p", {}, nameOf(member.id), " is disconnected at once."), losses(context, member), reason.node], {
    verb: `Remove ${who}`, danger: true,
    act: () => context.say("space/kick", { participant_id: member.id, ...because(reason.value()) }, { to: [member.id] }),
    then: () => context.notify(`${who} was removed`, "good"),
  });
}

/** @param {Context} context @param {Member} member */
export function askStatus(context, member) {
  return askMember(context, "participant/request-status", {}, member.id, "for its status");
}

/** @param {Context} context @param {Member} member */
export function forgetDialog(context, member) {
  const which = labelled("Which end", { tag: "select" });
  which.input.append(el("option", { value: "oldest" }, "the oldest"), el("option", { value: "newest" }, "the newest"));
  const entries = labelled("How many", { inputmode: "numeric", pattern: "[0-9]*", maxlength: 9 }, "May be left empty: then the member decides.");
  askDialog(`Let ${oneLine(member.id, 40)} forget?`, [which.node, entries.node], {
    verb: "Forget", safe: true,
    act: async () => {
      const count = entries.value();
      if (!/^\d*$/.test(count) || count === "0") {
        entries.input.setAttribute("aria-invalid", "true");
        entries.input.focus();
        return undefined;
      }
      void askMember(context, "participant/forget", { direction: which.value(), ...(count ? { entries: Number(count) } : {}) }, member.id, "to forget");
      return null;
    },
  });
}

/** @param {Context} context @param {Member} member */
export function compactDialog(context, member) {
  const reason = reasonField();
  askDialog(`Let ${oneLine(member.id, 40)} compact its memory?`, [el("p", { class: "soft" }, "It keeps the gist and drops the rest, as it sees fit."), reason.node], {
    verb: "Compact", safe: true,
    act: async () => {
      void askMember(context, "participant/compact", because(reason.value()), member.id, "to compact");
      return null;
    },
  });
}

/** @param {Context} context @param {Member} member @param {"clear" | "restart"} what */
export function wipeDialog(context, member, what) {
  const who = oneLine(member.id, 40);
  const clear = what === "clear";
  askDialog(clear ? `Clear all that ${who} remembers?` : `Restart ${who}?`, [el("p", {}, clear ? "Its whole context is wiped. It goes on, knowing nothing." : "It goes back to its beginning: what it is doing is dropped, its streams are closed. Its rights stay.")], {
    verb: clear ? "Clear" : "Restart", danger: true,
    act: async () => {
      void askMember(context, `participant/${what}`, {}, member.id, clear ? "to clear its memory" : "to restart");
      return null;
    },
  });
}

/** The controls of a member: what each is called, its kind, its key, and how. @type {{id: string, words: string, kind: string, key?: string, class?: string, more?: boolean, away?: boolean, run: (context: Context, member: Member) => any}[]} */
export const CONTROLS = [
  { id: "status", words: "Ask for status", kind: "participant/request-status", key: "s", run: askStatus },
  { id: "shutdown", words: "Shut down…", kind: "participant/shutdown", key: "d", class: "danger", run: shutdownDialog },
  { id: "kick", words: "Remove…", kind: "space/kick", key: "Delete", class: "danger", away: true, run: kickDialog },
  { id: "forget", words: "Forget…", kind: "participant/forget", more: true, run: forgetDialog },
  { id: "compact", words: "Compact…", kind: "participant/compact", more: true, run: compactDialog },
  { id: "clear", words: "Clear…", kind: "participant/clear", more: true, run: (context, member) => wipeDialog(context, member, "clear") },
  { id: "restart", words: "Restart…", kind: "participant/restart", more: true, run: (context, member) => wipeDialog(context, member, "restart") },
];

/** The buttons for one member. @param {Context} context @param {Member} member */
export function controls(context, member) {
  const paused = context.state.roster.isPaused(member);
  const kind = paused ? "participant/resume" : "participant/pause";
  const usable = CONTROLS.filter((each) => member.present || each.away);
  const one = (/** @type {(typeof CONTROLS)[0]} */ each) => button(each.words, () => each.run(context, member), { class: ["small", each.class].filter(Boolean).join(" "), shortcut: each.key === "Delete" ? "Del" : each.key, disabled: cannot(context, each.kind), data: { place: each.id } });
  const missing = [...new Set([...(member.present ? [kind] : []), ...usable.map((each) => each.kind)])].filter((each) => cannot(context, each));
  const more = usable.filter((each) => each.more);
  return el(
    "div", { class: "controls" },
    el("div", { class: "control-row", role: "group", "aria-label": "Control this member" },
      member.present && button(paused ? "Resume" : "Pause…", () => (paused ? void resume(context, member) : pauseDialog(context, member)), { class: paused ? "small good" : "small", shortcut: "p", icon: icon(paused ? "call" : "pause", 14), disabled: cannot(context, kind), data: { place: "pause" } }),
      usable.filter((each) => !each.more).map(one),
    ),
    more.length > 0 && el("details", { class: "more-controls", data: { fold: "more" } }, el("summary", { data: { place: "more" } }, "Its memory"), el("div", { class: "control-row" }, more.map(one))),
    missing.length > 0 && el("p", { class: "faint small-words" }, "You hold no right to send: ", missing.join(", "), ". Somebody who holds it can grant it to you."),
  );
}

/** How long a pause goes on. @param {Member} member @param {number} now */
export function pauseWords(member, now) {
  if (!member.paused) return "";
  const left = member.paused.until - now;
  return `${Number.isFinite(left) ? `${duration(Math.ceil(left / 1000) * 1000).replace(".0", "")} left` : "until somebody resumes it"}, by ${visible(member.paused.by)}${member.paused.reason ? `: ${oneLine(member.paused.reason, 120)}` : ""}`;
}

/** What a member last said of itself. @param {Member} member */
export function statusTable(member) {
  if (!member.status) return null;
  const { at, payload } = member.status;
  const rows = Object.entries(payload ?? {}).slice(0, 30);
  const used = typeof payload?.tokens === "number" && typeof payload?.max_tokens === "number" && payload.max_tokens > 0 ? Math.min(1, payload.tokens / payload.max_tokens) : null;
  return el("div", { class: "status-report" },
    used !== null && el("div", { class: "meter-row" }, el("meter", { min: "0", max: "1", value: used, "aria-label": "share of its tokens in use" }), el("span", { class: "soft" }, `${Math.round(used * 100)} % of its tokens`)),
    el("table", {}, el("tbody", {}, rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, oneLine(name.replaceAll("_", " "), 40)), el("td", {}, el("bdi", {}, oneLine(typeof value === "string" || typeof value === "number" ? (typeof value === "number" ? value.toLocaleString("en") : value) : JSON.stringify(value), 200))))))),
    el("p", { class: "faint small-words" }, `reported ${ago(at)}`));
}
