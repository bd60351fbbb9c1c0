/** One member proposes too much: everything of it that is pending is rejected, and it is paused so that no more comes. */
import { html } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { actionDialog, reasonField } from "../parts/action-dialog.js";
import { reject, reviewedProposal, titleOf } from "../proposals/proposal-decisions.js";
import { isAllowed } from "../capabilities/capability-match.js";

/** @typedef {import("../../app.js").Context} Context */

// So many tools are named.
const MAX_TOOLS = 6;

/** What of a member waits for this person. @param {Context} context @param {string} from */
export function pendingOf({ state }, from) {
  return state.proposals.toDecide(state.me.id).filter((each) => each.from === from);
}

/** Whether this person may do both. @param {Context} context @param {string} from */
export function mayRejectAll({ state }, from) {
  return (
    from !== state.me.id &&
    isAllowed(state, "mcp/reject", {}, [from]) &&
    isAllowed(state, "participant/pause", {}, [from])
  );
}

/** @param {Context} context @param {string} from */
export function rejectAllDialog(context, from) {
  const who = oneLine(from, 40);
  const count = pendingOf(context, from).length;
  /** @type {Map<string, number>} */
  const tools = new Map();
  for (const each of pendingOf(context, from)) tools.set(titleOf(each), (tools.get(titleOf(each)) ?? 0) + 1);
  const named = [...tools].sort((a, b) => b[1] - a[1]);
  const reason = reasonField();
  return actionDialog(
    `Reject all of ${who} and pause it?`,
    [
      html.p(
        {},
        nameOf(from),
        " is paused until somebody resumes it, and what it has pending then is rejected. Others can still approve it.",
      ),
      html.ul(
        { class: "losses" },
        named
          .slice(0, MAX_TOOLS)
          .map(([tool, times]) =>
            html.li({}, html.bdi({ class: "mono" }, oneLine(tool, 60)), `: ${formatNumber(times)} pending`),
          ),
        named.length > MAX_TOOLS && html.li({}, `and ${named.length - MAX_TOOLS} other tools`),
      ),
      reason.node,
    ],
    {
      verb: `Reject ${formatNumber(count)} and pause ${who}`,
      danger: true,
      act: async () => {
        const words = reason.value();
        await context.send("participant/pause", words ? { reason: words } : {}, { to: [from] });
        // What came in before it was paused, too.
        const shown = pendingOf(context, from).map((each) => reviewedProposal(each));
        const outcomes = await Promise.all(shown.map((each) => reject(context, each, "disagree", "")));
        return { all: shown.length, done: outcomes.filter((each) => each.status === "done").length };
      },
      done: ({ all, done }) =>
        context.notify(
          `${who} is paused; ${formatNumber(done)} of ${formatNumber(all)} rejected`,
          done < all ? "bad" : "good",
        ),
    },
  );
}
