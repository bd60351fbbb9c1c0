/** What a member has pending, and what became of its last proposals. */
import { button, html } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { oneLine, escapeHidden } from "../../core/page/text.js";
import { capitalize } from "../approvals/approvals-buttons.js";
import { settledText } from "../proposals/proposal-decisions.js";
import { wishText } from "../proposals/proposal-sentence.js";
import { mayRejectAll, pendingOf, rejectAllDialog } from "../approvals/reject-all.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/state-roster.js").Member} Member */

const MAX_LATEST = 5;

/** What is shown of its proposals. @param {Context} context @param {Member} member */
export function proposalFacts({ state }, member) {
  const all = [...state.proposals.byId.values()].filter((each) => each.from === member.id);
  return {
    pending: all.filter((each) => each.status === "pending").length,
    latest: all
      .filter((each) => each.status !== "pending")
      .sort((a, b) => b.settledAt - a.settledAt)
      .slice(0, MAX_LATEST),
  };
}

/** @param {Context} context @param {Member} member */
export function memberProposals(context, member) {
  const { pending, latest } = proposalFacts(context, member);
  if (pending === 0 && latest.length === 0) return null;
  const mine = pendingOf(context, member.id);
  return html.section(
    { class: "detail-part", "aria-label": "Proposals" },
    html.div(
      { class: "part-head" },
      html.h3({}, "Proposals"),
      html.span({ class: "soft" }, pending === 0 ? "none pending" : `${formatNumber(pending)} pending`),
      mine.length > 0 &&
        html.a({ class: "button small", href: context.link("approvals", mine[0].id) }, "Open in the inbox"),
      mine.length > 0 &&
        mayRejectAll(context, member.id) &&
        button("Reject all and pause…", () => rejectAllDialog(context, member.id), {
          class: "small danger",
          data: { focus: "reject-all" },
        }),
    ),
    latest.length > 0 &&
      html.ul(
        { class: "member-decisions", "aria-label": "Last decisions" },
        latest.map((each) =>
          html.li(
            {},
            html.a({ href: context.link("approvals", each.id) }, oneLine(wishText(each).replace(/^wants to /, ""), 80)),
            html.span({ class: "soft" }, ": ", escapeHidden(capitalize(settledText(each, context.state.me.id)))),
          ),
        ),
      ),
  );
}
