/**
 * What a proposed call would change, as its server said after a try in an overlay; the differences for who may ask; and
 * taking back what was applied.
 */
import { button, html, redraw, replace } from "../../core/page/dom.js";
import { escapeHidden } from "../../core/page/text.js";
import { previewOf } from "../../core/state/preview-report.js";
import { isAllowed } from "../capabilities/capability-match.js";
import { refusalBox, runAndNotify } from "../parts/action-dialog.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../../app.js").Context} Context */

/** @param {Context} context @param {Proposal} proposal @returns {{node: HTMLElement, refresh: () => void}} */
export function previewView(context, proposal) {
  const node = html.section({ class: "proposal-preview", "aria-label": "Preview" });
  const refresh = () => {
    const preview = proposal.status === "pending" ? previewOf(context.state, proposal) : null;
    const applied = appliedEffect(context, proposal);
    node.hidden = !preview && !applied;
    redraw(node, JSON.stringify([preview, applied, proposal.status]), () =>
      preview ? pendingView(context, proposal, preview) : applied ? undoView(context, proposal) : [],
    );
  };
  refresh();
  return { node, refresh };
}

/** What its answer says was applied. @param {Context} context @param {Proposal} proposal @returns {string} */
function appliedEffect({ state }, proposal) {
  if (proposal.undone) return "";
  const meta = state.proposals.requests.get(proposal.requestId)?.answer?.result?._meta?.["moot/effect"];
  return meta && Number(meta.applied) > 0 ? String(meta.effect) : "";
}

/** @param {Context} context @param {Proposal} proposal @param {import("../../core/state/preview-report.js").PreviewReport} preview */
function pendingView(context, proposal, preview) {
  const found = html.div({});
  const params = { proposal: proposal.id };
  const show = async () => {
    try {
      replace(found, differencesView(await context.call(proposal.to[0], "moot/preview", params)));
    } catch (fault) {
      replace(found, refusalBox(fault));
    }
  };
  return [
    html.h3({}, "Preview"),
    html.ul(
      {},
      // The heading says already that it is one.
      preview.text.map((each) => html.li({}, html.bdi({}, escapeHidden(each.replace(/^preview: /, ""))))),
    ),
    mayAsk(context, proposal, "moot/preview") &&
      button("Show differences", show, { class: "small", title: "Everybody in the space reads the answer" }),
    found,
  ];
}

/** @param {any} whole */
function differencesView(whole) {
  const listed = Array.isArray(whole?.differences) ? whole.differences : [];
  return listed.map((/** @type {any} */ each) => [
    html.h4({ class: "mono" }, escapeHidden(String(each?.path))),
    html.pre({ class: "mono" }, escapeHidden((Array.isArray(each?.lines) ? each.lines : []).join("\n"))),
  ]);
}

/** @param {Context} context @param {Proposal} proposal */
function undoView(context, proposal) {
  const method = mayAsk(context, proposal, "moot/undo");
  const undo = () =>
    runAndNotify(
      context,
      context.call(proposal.to[0], "moot/undo", { proposal: proposal.id }),
      "Taken back: the files are as before",
    );
  return method ? [button("Undo what it changed", undo, { class: "small" })] : [];
}

/** @param {Context} context @param {Pick<Proposal, "id" | "to">} proposal @param {string} method */
export function mayAsk(context, proposal, method) {
  const payload = { jsonrpc: "2.0", id: 0, method, params: { proposal: proposal.id } };
  return isAllowed(context.state, "mcp/request", payload, proposal.to);
}
