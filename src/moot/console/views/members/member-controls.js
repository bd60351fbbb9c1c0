/** The actions on a member besides grants (MEW 3.6.7, 3.9): each has a button and a key. */
import { button, html } from "../../core/page/dom.js";
import { membersOf } from "../../core/state/json-text.js";
import { formatNumber } from "../../core/page/numbers.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { ago, duration } from "../../core/page/time.js";
import { describeCapability } from "../capabilities/capability-text.js";
import { mayAllow } from "../capabilities/capability-covers.js";
import { ledgerOf } from "../capabilities/grant-ledger.js";
import { icon } from "../parts/icons.js";
import { actionDialog, runAndNotify, labelledField, reasonField } from "../parts/action-dialog.js";
import { requestFromMember } from "./member-requests.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/state-roster.js").Member} Member */

/** The durations of a pause; none means until somebody resumes. @type {[string, number][]} */
const PAUSES = [
  ["until resumed", 0],
  ["1 minute", 60],
  ["5 minutes", 300],
  ["30 minutes", 1_800],
  ["2 hours", 7_200],
];

/** Whether our capabilities surely do not allow a kind. @param {Context} context @param {string} kind */
export function lacksCapability(context, kind) {
  return !mayAllow(context.state.me.capabilities, kind);
}

/** @param {string} reason */
const reasonFields = (reason) => (reason ? { reason } : {});

/** @param {Context} context @param {Member | null} member null for everybody but ourselves */
export function pauseDialog(context, member) {
  const who = member ? oneLine(member.id, 40) : "everyone";
  const time = labelledField("Duration", { tag: "select" });
  for (const [text, seconds] of PAUSES) time.input.append(html.option({ value: String(seconds) }, text));
  const reason = reasonField();
  actionDialog(
    `Pause ${who}?`,
    [
      html.p(
        {},
        member
          ? [nameOf(member.id), " can then send only acknowledgements, cancellations and the like."]
          : "All other members who are online are paused at once.",
      ),
      member?.paused && html.p({ class: "soft" }, "Already paused: this can extend the pause but not shorten it."),
      time.node,
      reason.node,
    ],
    {
      verb: `Pause ${who}`,
      danger: true,
      safe: true,
      act: () => {
        const seconds = Number(time.value());
        return context.send(
          "participant/pause",
          { ...reasonFields(reason.value()), ...(seconds > 0 ? { timeout_seconds: seconds } : {}) },
          { to: member ? [member.id] : [] },
        );
      },
      done: () => context.notify(`${member ? who : "Everyone"} is paused`, "good"),
    },
  );
}

/** @param {Context} context @param {Member | null} member */
export function resume(context, member) {
  const who = member ? oneLine(member.id, 40) : "everyone";
  return runAndNotify(
    context,
    context.send(
      "participant/resume",
      {},
      { to: member ? [member.id] : [], about: member?.paused ? [member.paused.id] : [] },
    ),
    `${member ? who : "Everyone"} is resumed`,
  );
}

/** @param {Context} context @param {Member} member */
function shutdownDialog(context, member) {
  const who = oneLine(member.id, 40);
  const reason = reasonField();
  actionDialog(
    `Shut down ${who}?`,
    [
      html.p(
        {},
        nameOf(member.id),
        " is asked to stop and has five seconds to clean up; then its connections are closed. Its permissions and token stay valid, so it can join again.",
      ),
      reason.node,
    ],
    {
      verb: `Shut down ${who}`,
      danger: true,
      act: () => context.send("participant/shutdown", reasonFields(reason.value()), { to: [member.id] }),
      done: () => context.notify(`${who} is shutting down`, "good"),
    },
  );
}

/** What is lost when a member is removed. @param {Context} context @param {Member} member */
function losses(context, member) {
  const state = context.state;
  const fall = ledgerOf(state).cascadeOfRemoval(member.name);
  const streams = state.streams.open().filter((each) => each.owner === member.id);
  const proposals = state.proposals.open().filter((each) => each.from === member.id);
  return html.ul(
    { class: "losses" },
    html.li({}, "Its token becomes invalid: it needs a new invitation to come back."),
    html.li(
      {},
      proposals.length > 0
        ? `${proposals.length} pending proposal${proposals.length > 1 ? "s" : ""} will be withdrawn.`
        : "It has no pending proposals.",
    ),
    streams.map((each) =>
      html.li(
        {},
        "This stream will be closed: ",
        html.bdi({ class: "mono" }, oneLine(each.description || each.id, 60)),
      ),
    ),
    fall.map(({ grant, lost }) =>
      html.li(
        {},
        nameOf(grant.recipient),
        " loses permission to: ",
        html.bdi({}, oneLine(lost.map(describeCapability).join(", "), 160)),
      ),
    ),
  );
}

/** @param {Context} context @param {Member} member */
function kickDialog(context, member) {
  const who = oneLine(member.id, 40);
  const reason = reasonField();
  actionDialog(
    `Remove ${who} from the space?`,
    [html.p({}, nameOf(member.id), " is disconnected at once."), losses(context, member), reason.node],
    {
      verb: `Remove ${who}`,
      danger: true,
      act: () =>
        context.send("space/kick", { participant_id: member.id, ...reasonFields(reason.value()) }, { to: [member.id] }),
      done: () => context.notify(`${who} was removed`, "good"),
    },
  );
}

/** @param {Context} context @param {Member} member */
function askStatus(context, member) {
  return requestFromMember(context, "participant/request-status", {}, member.id, "for its status");
}

/** @param {Context} context @param {Member} member */
function forgetDialog(context, member) {
  const which = labelledField("Entries", { tag: "select" });
  which.input.append(html.option({ value: "oldest" }, "oldest"), html.option({ value: "newest" }, "newest"));
  const entries = labelledField(
    "Number (optional)",
    { inputmode: "numeric", pattern: "[0-9]*", maxlength: 9 },
    "If empty, the member decides.",
  );
  actionDialog(`Remove context entries of ${oneLine(member.id, 40)}?`, [which.node, entries.node], {
    verb: "Remove entries",
    safe: true,
    act: async () => {
      const count = entries.value();
      if (!/^\d*$/.test(count) || count === "0") {
        entries.input.setAttribute("aria-invalid", "true");
        entries.input.focus();
        return undefined;
      }
      void requestFromMember(
        context,
        "participant/forget",
        { direction: which.value(), ...(count ? { entries: Number(count) } : {}) },
        member.id,
        "to remove context entries",
      );
      return null;
    },
  });
}

/** @param {Context} context @param {Member} member */
function compactDialog(context, member) {
  const reason = reasonField();
  actionDialog(
    `Compact the context of ${oneLine(member.id, 40)}?`,
    [html.p({ class: "soft" }, "The member summarizes its context and drops the rest."), reason.node],
    {
      verb: "Compact",
      safe: true,
      act: async () => {
        void requestFromMember(
          context,
          "participant/compact",
          reasonFields(reason.value()),
          member.id,
          "to compact its context",
        );
        return null;
      },
    },
  );
}

/** @param {Context} context @param {Member} member @param {"clear" | "restart"} what */
function resetDialog(context, member, what) {
  const who = oneLine(member.id, 40);
  const clear = what === "clear";
  actionDialog(
    clear ? `Clear the context of ${who}?` : `Restart ${who}?`,
    [
      html.p(
        {},
        clear
          ? "Its whole context is deleted. It keeps running."
          : "Its current work is dropped and its streams are closed. Its permissions stay.",
      ),
    ],
    {
      verb: clear ? "Clear" : "Restart",
      danger: true,
      act: async () => {
        void requestFromMember(
          context,
          `participant/${what}`,
          {},
          member.id,
          clear ? "to clear its context" : "to restart",
        );
        return null;
      },
    },
  );
}

/** The controls of a member: label, kind, key and action of each. @type {{id: string, label: string, kind: string, key?: string, class?: string, more?: boolean, away?: boolean, run: (context: Context, member: Member) => any}[]} */
export const CONTROLS = [
  { id: "status", label: "Request status", kind: "participant/request-status", key: "s", run: askStatus },
  { id: "shutdown", label: "Shut down…", kind: "participant/shutdown", key: "d", class: "danger", run: shutdownDialog },
  { id: "kick", label: "Remove…", kind: "space/kick", key: "Delete", class: "danger", away: true, run: kickDialog },
  { id: "forget", label: "Remove entries…", kind: "participant/forget", more: true, run: forgetDialog },
  { id: "compact", label: "Compact…", kind: "participant/compact", more: true, run: compactDialog },
  {
    id: "clear",
    label: "Clear…",
    kind: "participant/clear",
    more: true,
    run: (context, member) => resetDialog(context, member, "clear"),
  },
  {
    id: "restart",
    label: "Restart…",
    kind: "participant/restart",
    more: true,
    run: (context, member) => resetDialog(context, member, "restart"),
  },
];

/** The buttons for one member. @param {Context} context @param {Member} member */
export function controls(context, member) {
  const paused = context.state.roster.isPaused(member);
  const kind = paused ? "participant/resume" : "participant/pause";
  const usable = CONTROLS.filter((each) => member.present || each.away);
  const one = (/** @type {(typeof CONTROLS)[0]} */ each) =>
    button(each.label, () => each.run(context, member), {
      class: ["small", each.class].filter(Boolean).join(" "),
      shortcut: each.key === "Delete" ? "Del" : each.key,
      disabled: lacksCapability(context, each.kind),
      data: { focus: each.id },
    });
  const missing = [...new Set([...(member.present ? [kind] : []), ...usable.map((each) => each.kind)])].filter((each) =>
    lacksCapability(context, each),
  );
  const more = usable.filter((each) => each.more);
  return html.div(
    { class: "controls" },
    html.div(
      { class: "control-row", role: "group", "aria-label": "Control this member" },
      member.present &&
        button(
          paused ? "Resume" : "Pause…",
          () => (paused ? void resume(context, member) : pauseDialog(context, member)),
          {
            class: paused ? "small good" : "small",
            shortcut: "p",
            icon: icon(paused ? "call" : "pause", 14),
            disabled: lacksCapability(context, kind),
            data: { focus: "pause" },
          },
        ),
      usable.filter((each) => !each.more).map(one),
    ),
    more.length > 0 &&
      html.details(
        { class: "more-controls", data: { fold: "more" } },
        html.summary({ data: { focus: "more" } }, "Context"),
        html.div({ class: "control-row" }, more.map(one)),
      ),
    missing.length > 0 &&
      html.p({ class: "faint small-text" }, "You have no permission to send: ", missing.join(", "), "."),
  );
}

/** The remaining time of a pause. @param {Member} member @param {number} now */
export function pauseText(member, now) {
  if (!member.paused) return "";
  const left = member.paused.until - now;
  return `${Number.isFinite(left) ? `, ${duration(Math.ceil(left / 1000) * 1000).replace(".0", "")} left` : " until resumed"}, by ${escapeHidden(member.paused.by)}${member.paused.reason ? `: ${oneLine(member.paused.reason, 120)}` : ""}`;
}

/** The last status of a member. @param {Member} member */
export function statusTable(member) {
  if (!member.status) return null;
  const { at, payload } = member.status;
  const texts = new Map(membersOf(member.status.text).map((each) => [each.key, each.text]));
  const rows = Object.entries(payload ?? {}).slice(0, 30);
  const used =
    typeof payload?.tokens === "number" && typeof payload?.max_tokens === "number" && payload.max_tokens > 0
      ? Math.min(1, payload.tokens / payload.max_tokens)
      : null;
  return html.div(
    { class: "status-report" },
    used !== null &&
      html.div(
        { class: "meter-row" },
        html.meter({ min: "0", max: "1", value: used, "aria-label": "Tokens used" }),
        html.span({ class: "soft" }, `${Math.round(used * 100)} % of tokens used`),
      ),
    html.table(
      {},
      html.tbody(
        {},
        rows.map(([name, value]) =>
          html.tr(
            {},
            html.th({ scope: "row" }, oneLine(name.replaceAll("_", " "), 40)),
            html.td(
              {},
              html.bdi(
                {},
                oneLine(
                  typeof value === "string"
                    ? value
                    : Number.isSafeInteger(value)
                      ? formatNumber(value)
                      : (texts.get(name) ?? JSON.stringify(value)),
                  200,
                ),
              ),
            ),
          ),
        ),
      ),
    ),
    html.p({ class: "faint small-text" }, `reported ${ago(at)}`),
  );
}
