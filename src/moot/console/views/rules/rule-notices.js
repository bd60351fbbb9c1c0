/** Beside the rules: the state of their approver, and permissions that were granted instead of a rule. */
import { button, html } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { ago } from "../../core/page/time.js";
import { isAllowed } from "../capabilities/capability-match.js";
import { describeCapability, roleOf } from "../capabilities/capability-text.js";
import { ledgerOf } from "../capabilities/grant-ledger.js";
import { revokeDialog } from "../capabilities/grants.js";
import { inviteDialog } from "../members/invite-dialog.js";
import { icon } from "../parts/icons.js";

/** @typedef {import("./approver-state.js").ApproverState} ApproverState */

/** What is wrong with the approver, or what is special about it now. @param {import("../../app.js").Context} context @param {ApproverState} approverState */
export function approverNotices(context, approverState) {
  const { approver, record, isOnline: current } = approverState;
  const box = (/** @type {string} */ tone, /** @type {any[]} */ ...text) =>
    html.div(
      { class: "rules-box", role: "status", data: { tone } },
      icon(tone === "info" ? "help" : "warning", 18),
      html.div({}, text),
    );
  if (approverState.doubt === "asking") return box("info", html.p({}, "Looking for an approver…"));
  if (approverState.doubt === "hidden")
    return box(
      "info",
      html.p({}, html.strong({}, "Whether an approver is running is not known.")),
      html.p({}, "A member that may be one did not tell its tools to you. Decisions shows what rules have decided."),
    );
  if (!approver) {
    return box(
      "info",
      html.p({}, html.strong({}, "No approver is running, so people decide every proposal.")),
      html.p(
        {},
        "An approver learns from people’s decisions, suggests narrow rules, and applies those that someone accepted. It is a program with a name and a token of its own: you invite it here, and start it in a terminal.",
      ),
      isAllowed(context.state, "space/invite") &&
        html.div(
          {},
          button("Turn on rules…", () => inviteApprover(context), { class: "primary", icon: icon("plus", 16) }),
        ),
      html.p(
        { class: "soft" },
        "Where moot.yaml has one, as most templates of ",
        html.code({}, "moot init"),
        " do, the operator starts it with ",
        html.code({}, "moot up"),
        ", or alone with:",
      ),
      html.pre({ class: "mono" }, "moot rules run --as approver"),
    );
  }
  return [
    !current &&
      box(
        "warn",
        html.p({}, html.strong({}, nameOf(approver.name), " is offline, so no rules are applied. ")),
        html.p(
          {},
          "You see its last known state. Start it with ",
          html.code({}, "moot rules run --as ", oneLine(approver.name, 40)),
          ".",
        ),
      ),
    record?.stopped &&
      box(
        "bad",
        html.p(
          {},
          html.strong({}, "All rules are stopped"),
          " by ",
          nameOf(record.stopped.by),
          ": ",
          html.bdi({}, escapeHidden(record.stopped.why)),
          ". People decide every proposal.",
        ),
      ),
    record?.fault &&
      box(
        "bad",
        html.p(
          {},
          html.strong({}, "The rules cannot be read, so none apply: "),
          html.bdi({}, escapeHidden(record.fault)),
        ),
      ),
    record?.observe &&
      box(
        "info",
        html.p(
          {},
          html.strong({}, "Observe mode: "),
          "rules only predict; the predictions are compared with people’s decisions.",
        ),
      ),
    record?.budget &&
      record.budgetLeft !== null &&
      !record.stopped &&
      !record.fault &&
      (record.budgetLeft === 0
        ? box(
            "warn",
            html.p(
              {},
              html.strong(
                {},
                `All rules together may take ${formatNumber(record.budget.count)} decisions in ${spanText(record.budget.seconds)}, and have taken them. `,
              ),
              "People decide until some of that time has passed.",
            ),
          )
        : html.p(
            { class: "soft small-text" },
            `All rules together: at most ${formatNumber(record.budget.count)} decisions in ${spanText(record.budget.seconds)}, ${formatNumber(record.budgetLeft)} left.`,
          )),
    current &&
      !approverState.canQuery &&
      box(
        "info",
        html.p(
          {},
          "Your permissions do not allow querying ",
          nameOf(approver.name),
          ": you see only what was sent since you joined.",
        ),
      ),
    record?.error &&
      box(
        "warn",
        html.p({}, nameOf(approver.name), " could not be queried: ", html.bdi({}, escapeHidden(record.error))),
      ),
  ];
}

/** Where no rule is shown: that there is none is said only when the approver said so. @param {ApproverState} approverState */
export function noRulesText({ approver, isOnline, doubt, record }) {
  if (!approver)
    return { asking: "Looking for an approver", hidden: "Whether rules decide is not known", "": "No approver" }[doubt];
  if (record?.isKnown) return "No rules yet: you are asked every time";
  const isAsked = isOnline && record?.status !== "refused" && record?.status !== "failed";
  return isAsked ? "Loading" : "Which rules there are is not known";
}

/** Below the rules. @param {ApproverState} approverState */
export function rulesNote(approverState) {
  return approverState.record?.isKnown
    ? "You are asked about everything that no rule matches. To reorder or widen rules, edit the approver’s rules.yaml."
    : `${noRulesText(approverState)}: there may be more.`;
}

/** What it may approve at most is up to the person: calls of those who are here to answer some. @param {import("../../app.js").Context} context */
function inviteApprover(context) {
  const hosts = context.state.roster.present().filter((each) => roleOf(each.capabilities) === "answers");
  const calls = { kind: "mcp/request", to: hosts.map((each) => each.id), payload: { method: "tools/call" } };
  inviteDialog(context, {
    name: "approver",
    profile: "approver",
    more: hosts.length > 0 ? JSON.stringify(calls) : "",
    run: "rules run",
  });
}

/** @param {number} seconds */
function spanText(seconds) {
  const [count, unit] =
    seconds % 86_400 === 0
      ? [seconds / 86_400, "day"]
      : seconds % 3_600 === 0
        ? [seconds / 3_600, "hour"]
        : seconds % 60 === 0
          ? [seconds / 60, "minute"]
          : [seconds, "second"];
  return count === 1 ? `${unit === "hour" ? "an" : "a"} ${unit}` : `${formatNumber(count)} ${unit}s`;
}

/** Grants for a suggestion that are still valid, newest first. @param {import("../../core/state/state.js").State} state */
export function suggestedGrants(state) {
  const ledger = ledgerOf(state);
  return [...ledger.byId.values()].filter((each) => !each.ended && /^suggestion s-/.test(each.reason)).reverse();
}

/** Permissions that were granted instead of rules. @param {import("../../app.js").Context} context @param {import("../capabilities/grant-ledger.js").Entry[]} grants @param {boolean} mayRevoke */
export function grantedInstead(context, grants, mayRevoke) {
  return html.section(
    { class: "rules-part", "aria-label": "Granted instead" },
    html.h2({}, "Granted instead of a rule"),
    html.ul(
      { class: "rule-decisions" },
      grants.map((each, index) =>
        html.li(
          { data: { grant: each.id } },
          html.span(
            { class: "grow" },
            html.a({ href: context.link("members", each.recipient) }, nameOf(each.recipient)),
            " can ",
            html.bdi({}, oneLine(each.capabilities.map(describeCapability).join(", "), 240)),
            html.small({ class: "faint" }, " by ", nameOf(each.granter), `, ${ago(each.at)}`),
          ),
          button("Revoke…", () => revokeDialog(context, each), {
            class: "small danger",
            shortcut: index === 0 ? "u" : undefined,
            disabled: !mayRevoke,
            data: { focus: `back-${each.id}` },
          }),
        ),
      ),
    ),
  );
}
