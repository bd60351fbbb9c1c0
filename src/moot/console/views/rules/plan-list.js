/**
 * Plans: the calls of a task that a member laid out, in the approver's words, to approve once, to cut or to end. Read from the
 * approver's tool `trust_plans`; how many wait is known from its messages alone.
 */
import { button, html } from "../../core/page/dom.js";
import { isObject } from "../../core/state/json-text.js";
import { escapeHidden, nameOf, oneLine } from "../../core/page/text.js";
import { formatMinute, parseTime } from "../../core/page/time.js";
import { actionDialog, labelledField, reasonField } from "../parts/action-dialog.js";
import { runCommand } from "./rule-commands.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("./approver-state.js").ApproverState} ApproverState */

// Plans that are over; the shell lists all of them.
const MAX_ENDED = 3;

/** @type {WeakMap<object, {next: number, open: Map<string, string>}>} */
const waiting = new WeakMap();

/** Tasks of the plans that wait for people, by plan: as the approver announced. @param {import("../../core/state/state.js").State} state @returns {Map<string, string>} */
export function openPlans(state) {
  let known = waiting.get(state);
  if (!known) waiting.set(state, (known = { next: 0, open: new Map() }));
  const { envelopes } = state;
  for (known.next = Math.max(known.next, envelopes.first); known.next < envelopes.next; known.next += 1) {
    const row = envelopes.at(known.next);
    if (row?.kind !== "trust/rule") continue;
    const { state: what, plan } = envelopes.envelope(row).payload ?? {};
    if (what !== "plan" || !isObject(plan)) continue;
    if (plan.state === "open") known.open.set(String(plan.plan), `${String(plan.task)} (${String(plan.member)})`);
    else known.open.delete(String(plan.plan));
  }
  return known.open;
}

/** Above the inbox: that plans wait, too. @param {Context} context */
export function planNotice(context) {
  const open = openPlans(context.state);
  if (open.size === 0) return null;
  const [first] = open.values();
  const text = open.size === 1 ? `A plan waits: ${oneLine(first, 120)}.` : `${open.size} plans wait.`;
  return html.p(
    { class: "plan-notice", role: "status" },
    html.bdi({}, text),
    " ",
    html.a({ href: context.link("rules") }, "Look at it in Rules"),
  );
}

/** @param {Context} context @param {ApproverState} approverState @param {any} known its answer @param {(kind: string) => boolean} may */
export function planList(context, approverState, known, may) {
  /** @type {any[]} */
  const plans = Array.isArray(known.plans) ? known.plans.filter(isObject) : [];
  const ended = plans.filter((each) => each.state === "ended").slice(-MAX_ENDED);
  const shown = [...plans.filter((each) => each.state !== "ended"), ...ended.reverse()];
  if (shown.length === 0) return null;
  return html.section(
    { class: "rules-part", "aria-labelledby": "rules-plans" },
    html.h2({ id: "rules-plans" }, "Plans ", html.span({ class: "faint" }, String(shown.length - ended.length))),
    html.ul(
      { class: "cards" },
      shown.map((each) => planCard(context, approverState, each, may)),
    ),
  );
}

const TONES = { open: "warn", active: "good", ended: "" };
const WORDS = { open: "waits for you", active: "approved", ended: "over" };

/** @param {Context} context @param {ApproverState} approverState @param {any} plan @param {(kind: string) => boolean} may */
function planCard(context, approverState, plan, may) {
  const id = String(plan.plan);
  const state = /** @type {keyof typeof WORDS} */ (plan.state in WORDS ? plan.state : "ended");
  const able = approverState.isOnline && may("trust/accept");
  const options = (/** @type {string} */ what, /** @type {boolean} */ on) => ({
    disabled: !on,
    title: on ? undefined : "Your permissions do not allow this, or the approver is offline",
    data: { focus: `${what} ${id}` },
  });
  return html.li(
    { class: "card plan", tabindex: "-1", data: { focus: `plan-${id}` } },
    html.p(
      {},
      html.strong({}, html.bdi({}, escapeHidden(String(plan.task)))),
      " ",
      html.span({ class: "tag", data: { tone: TONES[state] } }, WORDS[state]),
    ),
    html.p(
      { class: "soft" },
      "For ",
      nameOf(String(plan.member)),
      plan.by !== plan.member && [", laid out by ", nameOf(String(plan.by))],
      `, ${endText(plan)}.`,
    ),
    lineList(plan),
    state !== "ended" &&
      html.p({ class: "faint small-text" }, "Runs without a question, within these lines. Everything else asks."),
    state !== "ended" &&
      html.div(
        { class: "action-row" },
        state === "open" &&
          button("Approve plan…", () => approveDialog(context, approverState, plan), {
            class: "good",
            ...options("approve", able),
          }),
        state === "open" && button("Cut…", () => cutDialog(context, approverState, plan), options("cut", able)),
        button(state === "open" ? "Do not approve…" : "End plan…", () => endDialog(context, approverState, plan), {
          class: "danger quiet",
          ...options("end", approverState.isOnline && may("trust/dismiss")),
        }),
      ),
  );
}

/** Each line in words, with the whole of it to look at. @param {any} plan @param {(index: number) => import("../../core/page/dom.js").Child} [after] */
function lineList(plan, after) {
  const words = Array.isArray(plan.words) ? plan.words : [];
  return html.ol(
    { class: "plan-lines" },
    words.map((/** @type {any} */ each, /** @type {number} */ index) =>
      html.li(
        {},
        html.bdi({}, escapeHidden(String(each))),
        plan.state === "active" && html.span({ class: "faint" }, ` (${Number(plan.used?.[index] ?? 0)} used)`),
        String(each).includes("… (") &&
          html.details(
            {},
            html.summary({}, "Whole line"),
            html.pre({ class: "mono" }, escapeHidden(JSON.stringify(plan.lines?.[index], null, 1))),
          ),
        after?.(index),
      ),
    ),
  );
}

/** @param {any} plan */
function endText(plan) {
  if (plan.state === "ended") return `over: ${oneLine(String(plan.why), 200)}`;
  const at = parseTime(plan.ends_at, 0);
  const until =
    at > 0
      ? `until ${formatMinute(at)}`
      : `for ${Number(plan.hours)} ${plan.hours === 1 ? "hour" : "hours"} once approved`;
  const message = plan.ends_with_message === true ? ", or until a person writes to it again" : "";
  const by = Array.isArray(plan.accepted_by)
    ? `, approved by ${plan.accepted_by.map((/** @type {any} */ each) => oneLine(String(each), 40)).join(", ")}`
    : "";
  const more = plan.state === "open" && by ? ` (${Number(plan.accepting_people)} people have to)` : "";
  return `${until}${message}${by}${more}`;
}

/** @param {Context} context @param {ApproverState} approverState @param {any} plan */
function approveDialog(context, approverState, plan) {
  actionDialog(
    "Approve this plan?",
    [
      html.p({}, nameOf(String(plan.member)), ` may then do this without a question, ${endText(plan)}:`),
      lineList(plan),
      html.p({ class: "soft" }, "You can end it at any time."),
    ],
    {
      verb: "Approve plan",
      act: async () =>
        (await runCommand(
          context,
          approverState,
          "trust/accept",
          { plan: plan.plan, fingerprint: plan.fingerprint },
          { done: "Plan approved" },
        )) || undefined,
    },
  );
}

/** Approve less: leave lines out, lower counts, sums and hours. @param {Context} context @param {ApproverState} approverState @param {any} plan */
function cutDialog(context, approverState, plan) {
  const hours = labelledField("Hours", { value: String(plan.hours), inputmode: "decimal" });
  const lines = (Array.isArray(plan.lines) ? plan.lines : []).map((/** @type {any} */ line) => ({
    line,
    keep: html.input({ type: "checkbox", checked: true }),
    count: labelledField("At most (times)", { value: String(line.count ?? 1), inputmode: "numeric" }),
    sums: Object.entries(isObject(line.sums) ? line.sums : {})
      .filter(([, most]) => typeof most === "number")
      .map(([name, most]) => ({
        name,
        field: labelledField(`${oneLine(name, 40)}, at most in all`, { value: String(most), inputmode: "decimal" }),
      })),
  }));
  actionDialog(
    "Approve less of this plan",
    [
      lineList(plan, (index) => {
        const { keep, count, sums } = lines[index];
        return html.div(
          { class: "plan-cut" },
          html.label({ class: "choice" }, keep, "Keep this line"),
          count.node,
          sums.map((/** @type {any} */ each) => each.field.node),
        );
      }),
      hours.node,
      html.p({ class: "soft" }, "Only less can be approved here. For more, lay out a plan of your own: moot plan new."),
    ],
    {
      verb: "Approve what is left",
      act: async () => {
        const kept = lines.flatMap((/** @type {any} */ { line, keep, count, sums }, /** @type {number} */ index) =>
          keep.checked
            ? [
                {
                  line: index + 1,
                  count: Number(count.value()),
                  ...(sums.length > 0
                    ? {
                        sums: {
                          ...line.sums,
                          ...Object.fromEntries(
                            sums.map((/** @type {any} */ each) => [each.name, Number(each.field.value())]),
                          ),
                        },
                      }
                    : {}),
                },
              ]
            : [],
        );
        const payload = { plan: plan.plan, fingerprint: plan.fingerprint, lines: kept, hours: Number(hours.value()) };
        return (
          (await runCommand(context, approverState, "trust/accept", payload, { done: "Approved what is left" })) ||
          undefined
        );
      },
    },
  );
}

/** @param {Context} context @param {ApproverState} approverState @param {any} plan */
function endDialog(context, approverState, plan) {
  const reason = reasonField();
  const isOpen = plan.state === "open";
  actionDialog(
    isOpen ? "Not approve this plan?" : "End this plan?",
    [html.p({}, isOpen ? "Its calls ask one by one." : "Nothing runs by it any more; calls ask again."), reason.node],
    {
      verb: isOpen ? "Do not approve" : "End plan",
      danger: true,
      safe: true,
      act: async () =>
        (await runCommand(
          context,
          approverState,
          "trust/dismiss",
          { plan: plan.plan, ...(reason.value() ? { reason: reason.value() } : {}) },
          { done: isOpen ? "Not approved" : "Plan ended" },
        )) || undefined,
    },
  );
}
