/**
 * What `moot/preview` says of a proposal: what the call did in a preview, in the sentences of the member that would
 * carry it out. Bounded as in moot/protocol/preview_report.py.
 *
 * @typedef {object} PreviewReport
 * @property {string} effect the hash of what approving applies; empty: approving runs the call itself
 * @property {string[]} text
 */

const MAX_LINES = 200;
const MAX_CHARS = 6_000;

/** @param {any} payload @returns {PreviewReport | null} null: it says nothing that can be shown */
export function readPreview(payload) {
  const { effect = "", text } = payload ?? {};
  if (typeof effect !== "string" || !/^([0-9a-f]{64})?$/.test(effect)) return null;
  if (!Array.isArray(text) || text.length === 0 || text.length > MAX_LINES) return null;
  if (!text.every((each) => typeof each === "string" && each.length <= MAX_CHARS)) return null;
  return { effect, text };
}

/**
 * The preview of the one member that would carry it out: nobody else's counts.
 * @param {import("./state.js").State} state @param {import("./state-proposals.js").Proposal} proposal
 */
export function previewOf(state, proposal) {
  if (proposal.to.length !== 1) return null;
  return proposal.previews.get(state.roster.get(proposal.to[0])?.name ?? proposal.to[0]) ?? null;
}
