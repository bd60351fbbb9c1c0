/** "Away until …, Bo decides for me" (decision 0210): made, seen and ended here. */
import { button, html, newId, replace } from "../../core/page/dom.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { formatMinute } from "../../core/page/time.js";
import { callPermissions, isAllowed, anyAllows } from "../capabilities/capability-match.js";
import { labelledField, refusalBox, runAndNotify } from "../parts/action-dialog.js";
import { openDialog } from "../parts/dialog.js";
import { icon } from "../parts/icons.js";

/** @typedef {import("../../core/connection/open-space.js").OpenSpace} OpenSpace */
/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../../core/state/delegations.js").Delegation} Delegation */

const DAY_MILLISECONDS = 86_400_000;
const MAX_REASON_CHARACTERS = 500;

/** In whose place this person may decide on it, where their own rights do not allow it. The gateway decides. @param {import("../../core/state/state.js").State} state @param {Proposal} proposal @param {"mcp/request" | "moot/approve" | "mcp/reject"} kind */
export function giverFor(state, proposal, kind) {
  const me = state.me.id;
  if (proposal.from === me || proposal.status !== "pending") return "";
  const allows = (/** @type {Delegation} */ { from }) => {
    const capabilities = state.roster.get(from)?.capabilities ?? [];
    return kind === "mcp/request"
      ? callPermissions(capabilities, state, proposal.to, proposal.call).request !== "no"
      : anyAllows(capabilities, kind, {}, []) !== "no";
  };
  const found = state.proposals.delegations
    .living()
    .find((each) => each.to === me && each.from !== proposal.from && allows(each));
  return found?.from ?? "";
}

/** @param {Delegation} each */
function untilText(each) {
  const when = new Date(each.until);
  const isToday = when.toDateString() === new Date().toDateString();
  return isToday
    ? formatMinute(each.until)
    : when.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** In the inbox: who decides for this person, and for whom this person does. @param {import("../../app.js").Context} context */
export function delegationNotice(context) {
  const me = context.state.me.id;
  const mine = context.state.proposals.delegations.living().filter((each) => each.from === me || each.to === me);
  return (
    mine.length > 0 &&
    html.div(
      { class: "plan-notice away-notice", role: "status" },
      mine.map((each) => html.p({}, delegationText(each, me))),
      button("Change…", () => delegationDialog(context.openSpace, context), { class: "small quiet" }),
    )
  );
}

/** @param {Delegation} each @param {string} me */
function delegationText(each, me) {
  return [
    ...(each.to === me ? ["You decide"] : [nameOf(each.to), " decides"]),
    ...(each.from === me ? [" in your place"] : [" in the place of ", nameOf(each.from)]),
    ` until ${untilText(each)}`,
    each.reason && [": ", html.bdi({}, oneLine(each.reason, 120))],
  ];
}

/** @param {OpenSpace} openSpace @param {Pick<import("../../app.js").Context, "notify">} context */
export function delegationDialog(openSpace, { notify }) {
  const { state, sender } = openSpace;
  const me = state.me.id;
  const list = html.div({ class: "delegations", "aria-live": "polite" });
  const fault = html.div({ class: "dialog-fault" });
  const id = newId("delegate");
  const others = [...state.roster.members.values()].filter((each) => each.id !== me);
  const who = html.select(
    { class: "field", id },
    html.option({ value: "" }, "Choose a member…"),
    others.map((each) => html.option({ value: each.id }, oneLine(each.id, 60))),
  );
  const until = labelledField("Until", { type: "datetime-local", value: localMinute(Date.now() + DAY_MILLISECONDS) });
  const reason = labelledField("Reason (optional)", { maxlength: MAX_REASON_CHARACTERS, placeholder: "On holiday" });
  const isAble = isAllowed(state, "moot/delegate", {}) || isAllowed(state, "capability/grant", {});
  const send = async () => {
    const seconds = Math.floor((new Date(until.value()).getTime() - Date.now()) / 1000);
    const problem = !who.value
      ? "Choose who decides for you."
      : !(seconds > 0)
        ? "Choose a time that is still to come."
        : "";
    if (problem) return replace(fault, html.p({ class: "fault", role: "alert" }, problem));
    try {
      const why = reason.value();
      await sender.send("moot/delegate", {
        to: who.value,
        expires_in_seconds: seconds,
        ...(why ? { reason: why } : {}),
      });
      replace(fault);
      notify(`${oneLine(who.value, 40)} decides in your place`, "good");
    } catch (problem) {
      replace(fault, refusalBox(problem));
    }
  };
  const end = (/** @type {Delegation} */ each) =>
    void runAndNotify(
      /** @type {any} */ ({ notify }),
      sender.send("moot/end-delegation", each.from === me ? { to: each.to } : { from: each.from }),
      "Ended: everyone decides for themselves again",
    );
  const draw = () => {
    const found = state.proposals.delegations.living();
    replace(
      list,
      found.map((each) =>
        html.p(
          { class: "field-row" },
          html.span({ class: "grow" }, delegationText(each, me)),
          (each.from === me || each.to === me) &&
            button(each.from === me ? "End" : "Give back", () => end(each), { class: "small" }),
        ),
      ),
      openSpace.sync.knowledge !== "known"
        ? html.p({ class: "soft" }, "Who decides in whose place is not known yet.")
        : found.length === 0 && html.p({ class: "soft" }, "Now everyone in this space decides for themselves."),
    );
  };
  const dialog = openDialog(
    "While you are away",
    [
      list,
      isAble
        ? [
            html.div({ class: "labelled" }, html.label({ for: id }, "Who decides in your place"), who),
            until.node,
            reason.node,
            html.p(
              { class: "soft" },
              "They approve, vote and reject what you may, and no more; not their own proposals and not yours. In a vote you count once. Everyone sees it. It ends by itself, after 31 days at most.",
            ),
          ]
        : html.p(
            { class: "caution" },
            icon("warning", 16),
            "Letting somebody decide in your place needs a permission to grant, or moot/delegate: ask who runs this space.",
          ),
      fault,
    ],
    {
      actions: [
        button("Close", () => dialog.close(), { class: "quiet" }),
        ...(isAble ? [button("Let them decide", () => void send(), { class: "primary" })] : []),
      ],
      closed: () => stop(),
    },
  );
  const stop = state.on("proposals", draw);
  draw();
}

/** For a field of a form, in the time of this place. @param {number} at */
function localMinute(at) {
  return new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
