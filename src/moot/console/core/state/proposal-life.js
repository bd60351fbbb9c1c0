/**
 * The life of a proposal, in the words and by the transitions of moot/protocol/proposal_life.py. Both are held to the
 * same stories (tests/proposals).
 *
 *     pending ──a request──▶ fulfilled ──every host answered──▶ done | failed
 *        │                       └──nobody can tell──▶ unknown ──late answer, or a person──▶ done | failed
 *        ├──withdrawn, or its proposer is removed──▶ withdrawn   (either is rejected if
 *        └──time──▶ expired                                       somebody had rejected it)
 *
 * Each transition returns whether something changed.
 *
 * @typedef {"pending" | "fulfilled" | "done" | "failed" | "unknown" | "rejected" | "withdrawn" | "expired" | "forgotten"} Status
 * @typedef {import("./state-proposals.js").Proposal} Proposal
 */

import { readOpinion } from "./opinion.js";
import { readPreview } from "./preview-report.js";
import { readReport } from "./origin-report.js";

/** Members who say where its values came from: one, unless somebody pretends to know. */
const MAX_REPORTERS = 8;

/** Somebody approved it. @param {Proposal} proposal */
export function isFulfilled(proposal) {
  return ["fulfilled", "done", "failed", "unknown"].includes(proposal.status);
}

/** @param {Proposal} proposal @param {"withdrawn" | "expired" | "forgotten"} status @param {number} at @param {string} [reason] */
export function settle(proposal, status, at, reason = "") {
  if (proposal.status !== "pending") return false;
  proposal.status = proposal.rejections.length > 0 && status !== "forgotten" ? "rejected" : status;
  Object.assign(proposal, { ending: status, reason, settledAt: at });
  return true;
}

/** Once each; in place of what the gateway told of it, which has the proposal's own id. @param {Proposal} proposal @param {Proposal["rejections"][number]} rejection */
export function reject(proposal, rejection) {
  const known = proposal.rejections.find((each) => each.by === rejection.by);
  if (!["pending", "expired"].includes(proposal.status) || (known && known.id !== proposal.id)) return false;
  if (known?.reason) rejection.reason = known.reason;
  proposal.rejections = [...proposal.rejections.filter((each) => each !== known), rejection];
  return true;
}

/** @param {Proposal} proposal @param {Proposal["approvals"][number]} vote */
export function addVote(proposal, vote) {
  const known = proposal.approvals.find((each) => each.by === vote.by);
  if (proposal.status !== "pending" || (known && known.id !== proposal.id)) return false;
  setVotes(proposal, [...proposal.approvals.filter((each) => each !== known), vote]);
  return true;
}

/** @param {Proposal} proposal @param {Proposal["approvals"]} votes */
export function setVotes(proposal, votes) {
  proposal.approvals = votes;
  proposal.votesMissing = Math.max(0, proposal.votesNeeded - votes.length);
}

/** The gateway has accepted a request that carries it out, so it was pending there. @param {Proposal} proposal @param {string} request @param {string} by @param {string[]} asked @param {number} at */
export function fulfil(proposal, request, by, asked, at) {
  if (isFulfilled(proposal)) return false;
  Object.assign(proposal, {
    status: "fulfilled",
    ending: "",
    fulfilledBy: by,
    requests: [request],
    requestId: request,
    reason: "",
    settledAt: at,
  });
  Object.assign(proposal, { asked, waiting: asked, isAnswered: false, hasFailed: false });
  return true;
}

/** Its proposer brings the input that its host asked for. @param {Proposal} proposal @param {string} request @param {number} at @param {any} given */
export function resume(proposal, request, at, given) {
  if (!isFulfilled(proposal) || proposal.inputs.some((each) => each.id === request)) return false;
  proposal.inputs.push({ at, id: request, given });
  // One that is over takes no more: the gateway's list told its end before the history told this.
  if (proposal.requestId === request || proposal.status !== "fulfilled") return true;
  // The gateway's list may have told of it before the history told of an earlier one.
  proposal.requests = [...proposal.requests.filter((each) => each !== request), request];
  Object.assign(proposal, {
    status: "fulfilled",
    requestId: request,
    reason: "",
    waiting: proposal.asked,
    isAnswered: false,
    hasFailed: false,
  });
  return true;
}

/** Of several hosts all have to answer; of everybody, the first. @param {Proposal} proposal @param {string} host */
export function expectsAnswer(proposal, host) {
  return isFulfilled(proposal) && (proposal.asked.length > 0 ? proposal.waiting.includes(host) : !proposal.isAnswered);
}

/** @param {Proposal} proposal @param {string} host @param {boolean} failed */
export function answer(proposal, host, failed) {
  proposal.isAnswered = true;
  proposal.hasFailed ||= failed;
  proposal.waiting = proposal.waiting.filter((each) => each !== host);
  if (proposal.waiting.length > 0) return;
  Object.assign(proposal, { status: proposal.hasFailed ? "failed" : "done", reason: "", assessedBy: "", note: "" });
}

/** @param {Proposal} proposal @param {string} reason @param {number} at */
export function loseTrack(proposal, reason, at) {
  if (proposal.status !== "fulfilled") return false;
  Object.assign(proposal, { status: "unknown", reason, outcomeAt: at });
  return true;
}

/** A person says what came of it; that nobody knew is not part of the history. @param {Proposal} proposal @param {any} payload @param {string} by @param {number} at */
export function assess(proposal, payload, by, at) {
  if (!["fulfilled", "unknown"].includes(proposal.status) || !["done", "failed"].includes(payload?.outcome))
    return false;
  const note = typeof payload.note === "string" ? payload.note : "";
  Object.assign(proposal, { status: payload.outcome, reason: "", assessedBy: by, note, outcomeAt: at });
  return true;
}

/** Where its values came from: nobody takes back what another says. @param {Proposal} proposal @param {import("./origin-report.js").OriginReport} report @param {string} by */
function noteOrigins(proposal, report, by) {
  const { originsBy } = proposal;
  if (!originsBy.has(by) && originsBy.size >= MAX_REPORTERS) return false;
  originsBy.set(by, report);
  const reports = [...originsBy.values()];
  proposal.origins = reports.find((each) => each.asks) ?? reports[0];
  return true;
}

/** What a model thinks of it, in the last words of who asked it. @param {Proposal} proposal @param {import("./opinion.js").Opinion} opinion @param {string} by */
function noteOpinion(proposal, opinion, by) {
  if (!proposal.opinions.has(by) && proposal.opinions.size >= MAX_REPORTERS) return false;
  proposal.opinions = new Map([...proposal.opinions, [by, opinion]]);
  return true;
}

/** What it did in a preview, as each said last. @param {Proposal} proposal @param {import("./preview-report.js").PreviewReport} preview @param {string} by */
function notePreview(proposal, preview, by) {
  if (!proposal.previews.has(by) && proposal.previews.size >= MAX_REPORTERS) return false;
  proposal.previews = new Map([...proposal.previews, [by, preview]]);
  return true;
}

/** What others say about a proposal without deciding on it: how it is read, and noted. @type {Record<string, {read: (payload: any) => any, note: (proposal: Proposal, report: any, by: string) => boolean}>} */
export const REPORTS = {
  "moot/origins": { read: readReport, note: noteOrigins },
  "moot/opinion": { read: readOpinion, note: noteOpinion },
  "moot/preview": { read: readPreview, note: notePreview },
};

/**
 * Whether others, not this member, have to act: it is their own, they rejected it, or they voted and votes are missing.
 * @param {Proposal} proposal @param {string} me
 */
export function waitsForOthers(proposal, me) {
  if (proposal.from === me || hasRejected(proposal, me)) return true;
  return proposal.votesMissing > 0 && hasVoted(proposal, me);
}

/** @param {Proposal} proposal @param {string} me */
export function hasRejected(proposal, me) {
  return proposal.rejections.some((each) => each.by === me);
}

/** @param {Proposal} proposal @param {string} me */
export function hasVoted(proposal, me) {
  // A vote in somebody's place counts as theirs, and its giver does not count again.
  return proposal.approvals.some((each) => each.by === me) || Object.values(proposal.delegatedVotes).includes(me);
}

/** How many votes are missing before this member can carry it out. @param {Proposal} proposal @param {string} me */
export function votesMissingFor(proposal, me) {
  return proposal.exempt.includes(me) ? 0 : proposal.votesMissing;
}

/** How far the vote on a pending one is; empty where none is needed. @param {Proposal} proposal */
export function voteText(proposal) {
  const { votesNeeded: needed, votesMissing: missing } = proposal;
  if (proposal.status !== "pending" || needed === 0) return "";
  return `${needed - missing} of ${needed} ${needed === 1 ? "vote" : "votes"}${proposal.passkey ? " with a passkey" : ""}${missing > 0 ? `, ${missing} more needed` : ": complete, approve it now"}`;
}
