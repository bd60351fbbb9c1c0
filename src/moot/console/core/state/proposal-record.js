/** What is known of one proposal. Messages change it: see state-proposals.js and proposal-life.js. */
import { addressees, callOf, correlations } from "./envelope-fields.js";

/**
 * @typedef {object} Call what a proposal or a request asks for
 * @property {string} method
 * @property {string} name of the tool, resource or prompt; empty if the method has none
 * @property {any} params parsed: numbers may be rounded, so show and send `bodyText` instead
 * @property {string} bodyText {"method":…,"params":…} exactly as it was received
 *
 * @typedef {object} Proposal
 * @property {string} id
 * @property {string} from
 * @property {string[]} to who should execute it
 * @property {Call} call
 * @property {string} raw the whole envelope as it was received
 * @property {number} at
 * @property {string} context
 * @property {string[]} about
 * @property {import("./proposal-life.js").Status} status
 * @property {"" | "withdrawn" | "expired" | "forgotten"} ending how one ended that nobody approved; a rejected one, too
 * @property {boolean} uncertain it may have changed while we were away
 * @property {number} expiresAt by the gateway's clock; 0 if it was not told
 * @property {number} votesNeeded before it can be carried out; 0 if none are needed or it was not told
 * @property {number} votesMissing of these, in the gateway's own count
 * @property {string[]} exempt members who need no votes of others
 * @property {boolean} [passkey] each vote is confirmed with a passkey
 * @property {string[]} counters those that it is a changed version of (decision 0208)
 * @property {string} changedBy the changed version that ran in its place
 * @property {Record<string, string>} delegatedVotes in whose place somebody voted
 * @property {{text: string, verdict: string}[]} [budgets] what it would take of the space’s budgets, as the gateway says
 * @property {{text: string, verdict: string, earlier?: {request_id: string}}[]} [effects] what it would bring about, and whether that was done before
 * @property {{by: string, reason: string, at: number, id: string, comments: string[]}[]} rejections
 * @property {{by: string, at: number, id: string}[]} approvals of a quorum
 * @property {string} fulfilledBy
 * @property {string[]} requests those that carry it out; the last is `requestId`, others were answered with a question
 * @property {string} requestId
 * @property {string[]} asked by it
 * @property {string[]} waiting who of them has not answered
 * @property {boolean} isAnswered by somebody
 * @property {boolean} hasFailed at one of them
 * @property {{at: number, id: string, given: any}[]} inputs what its proposer answered where the host asked for input
 * @property {string} reason of a withdrawal, or why the outcome is unknown
 * @property {string} assessedBy the person who said what came of it, in place of the host
 * @property {string} note what they said about it
 * @property {import("./proposal-talk.js").Comment[]} comments
 * @property {string[]} assigned whom it is for; empty: everybody
 * @property {import("./origin-report.js").OriginReport | null} origins where its values came from, as the last that counts says
 * @property {Map<string, import("./origin-report.js").OriginReport>} originsBy as each said last
 * @property {Map<string, import("./opinion.js").Opinion>} opinions what models think of it, by who asked them
 * @property {Map<string, import("./preview-report.js").PreviewReport>} previews what it did in a preview, by who says so
 * @property {{by: string, at: number, id: string} | null} undone who took back what it changed
 * @property {number} settledAt
 * @property {number} outcomeAt when it became unknown, or somebody said what came of it
 */

/** One that nothing is known of but its envelope. @param {any} envelope @param {string} raw @param {number} at @returns {Proposal} */
export function newProposal(envelope, raw, at) {
  return {
    id: envelope.id,
    from: String(envelope.from ?? ""),
    to: addressees(envelope),
    call: callOf(envelope, raw),
    raw,
    at,
    context: typeof envelope.context === "string" ? envelope.context : "",
    about: correlations(envelope),
    status: "pending",
    ending: "",
    uncertain: false,
    expiresAt: 0,
    votesNeeded: 0,
    votesMissing: 0,
    exempt: [],
    counters: [],
    changedBy: "",
    delegatedVotes: {},
    rejections: [],
    approvals: [],
    inputs: [],
    fulfilledBy: "",
    requests: [],
    requestId: "",
    asked: [],
    waiting: [],
    isAnswered: false,
    hasFailed: false,
    reason: "",
    assessedBy: "",
    note: "",
    comments: [],
    assigned: [],
    origins: null,
    originsBy: new Map(),
    opinions: new Map(),
    previews: new Map(),
    undone: null,
    settledAt: 0,
    outcomeAt: 0,
  };
}
