/** What members say about proposals (moot/participant/decisions/proposal_talk.py): comments, and whom one is for. */
import { trimMap } from "../page/bounded-map.js";

/** @typedef {import("./state-proposals.js").Proposal} Proposal */
/** @typedef {{id: string, by: string, at: number, text: string}} Comment */

const MAX_COMMENTS = 200;
const MAX_KNOWN = 5_000;
const MAX_ASSIGNED = 32;

export class ProposalTalk {
  constructor() {
    /** The proposal that a comment is about. @type {Map<string, Proposal>} */
    this._about = new Map();
  }

  /** A chat that names a proposal, or a comment on one. @param {any} envelope @param {import("./envelopes.js").Row} row @param {string[]} ids @param {Map<string, Proposal>} byId @returns {boolean} */
  addComment(envelope, row, ids, byId) {
    const proposal = ids.map((id) => byId.get(id) ?? this._about.get(id)).find((each) => each !== undefined);
    if (!proposal || proposal.comments.length >= MAX_COMMENTS || this._about.has(row.id)) return false;
    proposal.comments = [...proposal.comments, { id: row.id, by: row.from, at: row.at, text: envelope.payload.text }];
    this._about.set(row.id, proposal);
    trimMap(this._about, MAX_KNOWN);
    return true;
  }
}

/** @param {Proposal} proposal @param {any} payload */
export function assign(proposal, payload) {
  if (proposal.status !== "pending" || !Array.isArray(payload?.to)) return false;
  proposal.assigned = payload.to.filter((/** @type {any} */ each) => typeof each === "string").slice(0, MAX_ASSIGNED);
  return true;
}
