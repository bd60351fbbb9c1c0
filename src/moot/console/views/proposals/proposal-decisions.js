/**
 * Sends decisions, bound to what the person saw.
 *
 * `shownOf` is called when a proposal is drawn; every decision uses only that copy. If the space
 * has something else by then, or it is settled, nothing is sent. The gateway has the last word: one proposal, at
 * most one execution, of exactly what was reviewed (D-28).
 */
import { escapeHidden, oneLine } from "../../core/page/text.js";
import { ago } from "../../core/page/time.js";
import { confirmApproval } from "../../core/connection/passkeys.js";
import { previewOf, readPreview } from "../../core/state/preview-report.js";
import { votesMissingFor, voteText } from "../../core/state/proposal-life.js";
import { unknownReason } from "../../core/state/envelope-fields.js";
import { Refused } from "../../core/connection/envelope-sender.js";
import { describeError, reasonText } from "../parts/error-text.js";
import { mayAsk } from "./proposal-preview.js";
import { approverStateOf } from "../rules/approver-state.js";
import { sendCommand } from "../rules/rule-commands.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */

/**
 * @typedef {object} ReviewedProposal a proposal as it was before somebody's eyes
 * @property {string} id
 * @property {string} from
 * @property {string[]} to
 * @property {string} raw
 * @property {string} bodyText
 * @property {string[]} repeats earlier calls of the same effect, which were shown with it
 * @property {string} effect the hash of its preview; empty: there was none that binds
 *
 * @typedef {object} Outcome what became of a decision
 * @property {"done" | "settled" | "mismatch" | "approvals" | "refused" | "lost"} status
 * @property {string} message
 * @property {boolean} [voted] it was a vote: others may have to vote, too
 * @property {boolean} [granted] a permission was granted with it
 */

const STALE =
  "Nothing was done: what it would do has changed since the preview. There is a new one: review it, then approve again.";
const GRANT_REASON = "approved, and allowed without asking";

/** @param {Proposal} proposal @param {import("../../core/state/state.js").State} [state] with it, what its preview said is what is approved @returns {ReviewedProposal} */
export function reviewedProposal(proposal, state) {
  return {
    id: proposal.id,
    from: proposal.from,
    to: [...proposal.to],
    raw: proposal.raw,
    bodyText: proposal.call.bodyText,
    repeats: (proposal.effects ?? []).flatMap(({ earlier }) => (earlier ? [String(earlier.request_id)] : [])),
    effect: state ? (previewOf(state, proposal)?.effect ?? "") : "",
  };
}

/** `write_file on files`. @param {Proposal} proposal */
export function titleOf(proposal) {
  const { method, name } = proposal.call;
  return method === "tools/call" && name ? name : name ? `${method} ${name}` : method || "(no method)";
}

/** "write_file of agent: …", for a message that is read apart from its proposal. @param {Proposal | undefined} proposal @param {string} message */
export function aboutProposal(proposal, message) {
  return proposal ? `${oneLine(titleOf(proposal), 60)} of ${oneLine(proposal.from, 40)}: ${message}` : message;
}

/** The outcome of a proposal as text. @param {Proposal} proposal @param {string} me */
export function settledText(proposal, me) {
  const when = proposal.settledAt ? ` ${ago(proposal.settledAt)}` : "";
  const by = proposal.fulfilledBy === me ? "you" : proposal.fulfilledBy || "someone";
  switch (proposal.ending || proposal.status) {
    case "pending":
      return "pending";
    case "withdrawn":
      if (isOrphaned(proposal)) return `withdrawn${when}, because ${proposal.from} was removed`;
      return `${proposal.from === me ? "you" : proposal.from} withdrew it${when}${proposal.reason ? ` (${reasonText(proposal.reason)})` : ""}`;
    case "expired":
      return `it expired${when}`;
    case "forgotten":
      return "it is not pending any more, and the gateway does not remember what became of it";
    case "unknown":
      return `${by} approved it${when}; whether it was carried out is not known (${unknownReason(proposal.reason)})`;
    default:
      return `${by} approved it${proposal.changedBy ? " with changes" : ""}${when}${proposal.status === "failed" ? "; it failed" : ""}${undoneText(proposal, me)}`;
  }
}

/** @param {Proposal} proposal @param {string} me */
function undoneText({ undone }, me) {
  return undone ? `; ${undone.by === me ? "you" : undone.by} undid it ${ago(undone.at)}` : "";
}

/** Whether it was withdrawn because its proposer is no longer a member (decision 0015). @param {Proposal} proposal */
export function isOrphaned(proposal) {
  return proposal.ending === "withdrawn" && proposal.reason === "removed";
}

/** A settled proposal as the gateway tells it, as text. @param {any} told */
export function recordText(told) {
  if (told.state !== "fulfilled") return told.state === "open" ? "pending" : String(told.state);
  const outcome = {
    done: "it was carried out",
    failed: "it failed",
    pending: "it is running",
    unknown: `whether it was carried out is not known (${unknownReason(String(told.reason ?? ""))})`,
  }[String(told.outcome)];
  return `${told.fulfilled_by ?? "someone"} approved it${outcome ? `; ${outcome}` : ""}`;
}

/**
 * Say what came of a call whose outcome nobody knows (D-99).
 * @param {import("../../app.js").Context} context @param {string} id @param {"done" | "failed"} outcome @param {string} note
 */
export function settle(context, id, outcome, note) {
  return context.send("moot/settle", note ? { outcome, note } : { outcome }, { about: id });
}

/** Why the shown proposal cannot be decided; empty if it can. @param {import("../../app.js").Context} context @param {ReviewedProposal} shown */
export function obstacleText(context, shown) {
  const proposal = context.state.proposals.byId.get(shown.id);
  if (!proposal) return "This proposal is no longer in memory.";
  if (proposal.raw !== shown.raw) return "The proposal differs from what was shown: review it again.";
  if (proposal.status !== "pending") return `Too late: ${settledText(proposal, context.state.me.id)}.`;
  return "";
}

/**
 * Send exactly the proposed request. `host` is only for a proposal that names none.
 * @param {import("../../app.js").Context} context @param {ReviewedProposal} shown @param {string} [host] @returns {Promise<Outcome>}
 */
export async function approve(context, shown, host = "") {
  const proposal = context.state.proposals.byId.get(shown.id);
  if (proposal && votesMissingFor(proposal, context.state.me.id) > 0) return vote(context, shown);
  const stale = await staleOutcome(context, shown);
  if (stale) return stale;
  const outcome = await runDecision(
    context,
    shown,
    () =>
      // The proposer's own text of method and params: no digit of a number may change.
      context.send("mcp/request", null, {
        to: shown.to.length > 0 ? shown.to : [host],
        about: [shown.id, ...originalsOf(context, shown.id), ...shown.repeats],
        payloadText: `{"jsonrpc":"2.0","id":${nextRequestId()},${effectText(shown)}${shown.bodyText.slice(1)}`,
      }),
    "Approved",
  );
  // The gateway's count is what counts, if ours is not known yet.
  return outcome.status === "approvals" ? vote(context, shown) : outcome;
}

/**
 * Files may have changed since the preview: then there is a new one to look at, and nothing is sent. Who cannot ask, or
 * gets no answer, goes on: what is applied is what was seen, or nothing.
 * @param {import("../../app.js").Context} context @param {ReviewedProposal} shown @returns {Promise<Outcome | null>}
 */
async function staleOutcome(context, shown) {
  if (!shown.effect || !mayAsk(context, shown, "moot/preview")) return null;
  const params = { proposal: shown.id, check: true };
  const answer = await context.call(shown.to[0], "moot/preview", params).catch(() => null);
  const report = readPreview(answer?.report);
  return report && report.effect !== shown.effect ? { status: "mismatch", message: STALE } : null;
}

/** What was seen is what is applied. @param {ReviewedProposal} shown */
function effectText(shown) {
  return shown.effect ? `"effect":${JSON.stringify(shown.effect)},` : "";
}

/** What running a changed version settles beside it. @param {import("../../app.js").Context} context @param {string} id */
function originalsOf({ state }, id) {
  const { byId } = state.proposals;
  return (byId.get(id)?.counters ?? []).filter((each) => byId.get(each)?.status === "pending");
}

/**
 * Propose the changed call as ours, and carry it out in place of the original, which it settles. Where votes are needed,
 * it waits for those of others.
 * @param {import("../../app.js").Context} context @param {ReviewedProposal} shown @param {string} bodyText of the changed call @returns {Promise<Outcome>}
 */
export async function approveWithChanges(context, shown, bodyText) {
  let made = "";
  const outcome = await runDecision(
    context,
    shown,
    async () => {
      const { to } = shown;
      made = (await context.send("mcp/proposal", null, { to, about: shown.id, payloadText: bodyText })).id;
      const payloadText = `{"jsonrpc":"2.0","id":${nextRequestId()},${bodyText.slice(1)}`;
      await context.send("mcp/request", null, { to, about: [made, shown.id, ...shown.repeats], payloadText });
    },
    "Approved with changes",
  );
  const counter = context.state.proposals.byId.get(made);
  if (outcome.status === "done" || outcome.status === "lost" || !counter) return outcome;
  const isVoted = counter.votesMissing > 0;
  const voted = isVoted && counter.passkey ? await vote(context, reviewedProposal(counter)) : null;
  if (isVoted && (!voted || voted.status === "done"))
    return {
      status: "done",
      voted: true,
      message: `Your changed version is proposed: ${voteText(counter) || "voted"}`,
    };
  // Nothing was carried out, so nobody else should do it by mistake.
  await withdraw(context, reviewedProposal(counter));
  return voted ?? outcome;
}

/** MEW 3.3.2: reject; the comment follows as a chat about the rejection. @param {import("../../app.js").Context} context @param {ReviewedProposal} shown @param {string} reason @param {string} explanation @returns {Promise<Outcome>} */
export function reject(context, shown, reason, explanation) {
  return runDecision(
    context,
    shown,
    async () => {
      const echo = await context.send("mcp/reject", { reason }, { to: [shown.from], about: shown.id });
      if (explanation)
        await context.send("chat", { text: explanation, format: "plain" }, { to: [shown.from], about: echo.id });
    },
    `Rejected: ${reason}`,
  );
}

/** Vote for it, where the space requires several approvals; the last vote carries it out. @param {import("../../app.js").Context} context @param {ReviewedProposal} shown @returns {Promise<Outcome>} */
export async function vote(context, shown) {
  const stale = await staleOutcome(context, shown);
  if (stale) return stale;
  const outcome = await runDecision(
    context,
    shown,
    async () => {
      const { base, login } = context.openSpace;
      const asks = context.state.proposals.byId.get(shown.id)?.passkey === true;
      const passkey = asks && (await confirmApproval(base, login, shown.id));
      await context.send("moot/approve", passkey ? { passkey } : {}, { about: [shown.id, ...shown.repeats] });
    },
    "Vote recorded",
  );
  return { ...outcome, voted: outcome.status === "done" };
}

/** @param {import("../../app.js").Context} context @param {ReviewedProposal} shown @returns {Promise<Outcome>} */
export function withdraw(context, shown) {
  return runDecision(
    context,
    shown,
    () => context.send("mcp/withdraw", { reason: "no_longer_needed" }, { about: shown.id }),
    "Withdrawn",
  );
}

/**
 * The approval comes first: a permission is granted only with a successful approval.
 * @param {import("../../app.js").Context} context @param {ReviewedProposal} shown @param {string} capability JSON text, sent as it was shown @param {import("../capabilities/grant-terms.js").GrantTerm} term @param {string} [host] @returns {Promise<Outcome>}
 */
export async function approveAndGrant(context, shown, capability, term, host) {
  const outcome = await approve(context, shown, host);
  if (outcome.status !== "done") return outcome;
  if (outcome.voted)
    return { ...outcome, message: "Vote recorded. Nothing was granted: a permission does not lift the vote" };
  const now = Date.now();
  const limits = Object.entries(term.limits(now))
    .map(([name, value]) => `,${JSON.stringify(name)}:${value}`)
    .join("");
  const payloadText = `{"recipient":${JSON.stringify(shown.from)},"capabilities":[${capability}],"reason":${JSON.stringify(GRANT_REASON)}${limits}}`;
  try {
    await context.send("capability/grant", null, { to: [shown.from], payloadText });
  } catch (fault) {
    return {
      status: "refused",
      message: `Approved, but the grant to ${escapeHidden(shown.from)} failed: ${errorText(fault)}`,
    };
  }
  return {
    status: "done",
    granted: true,
    message: `Approved; ${escapeHidden(shown.from)} can do this without asking ${term.text(now)}`,
  };
}

/**
 * Approve it, and have the very same call approved from now on, as it was offered. The approver remembers nothing of what
 * was not approved.
 * @param {import("../../app.js").Context} context @param {ReviewedProposal} shown @param {{until: string, text: string, count: number | null}} offer @param {string} [host] @returns {Promise<Outcome>}
 */
export async function approveAgain(context, shown, offer, host) {
  const outcome = await approve(context, shown, host);
  if (outcome.status !== "done") return outcome;
  if (outcome.voted) return { ...outcome, message: "Vote recorded. Nothing is remembered: several people decide" };
  try {
    const answer = await sendCommand(context, approverStateOf(context), "trust/accept", againPayload(shown.id, offer));
    const text = answer ? `the same call is approved again, ${offer.text}` : "the approver has not replied yet";
    return { status: "done", granted: true, message: `Approved; ${escapeHidden(text)}` };
  } catch (fault) {
    return { status: "refused", message: `Approved, but the call is not remembered: ${errorText(fault)}` };
  }
}

/** @param {string} id @param {{until: string, count: number | null}} offer */
export function againPayload(id, offer) {
  return { again: id, until: offer.until, ...(offer.count === null ? {} : { count: offer.count }) };
}

/** @param {import("../../app.js").Context} context @param {ReviewedProposal} shown @param {() => Promise<any>} act @param {string} done @returns {Promise<Outcome>} */
async function runDecision(context, shown, act, done) {
  const late = obstacleText(context, shown);
  if (late) return { status: "settled", message: escapeHidden(late) };
  try {
    await act();
    return { status: "done", message: done };
  } catch (fault) {
    return outcomeOf(context, shown, fault);
  }
}

/** @param {import("../../app.js").Context} context @param {ReviewedProposal} shown @param {unknown} fault @returns {Outcome} */
function outcomeOf(context, shown, fault) {
  if (!(fault instanceof Refused)) return { status: "refused", message: errorText(fault) };
  const proposal = context.state.proposals.byId.get(shown.id);
  switch (fault.code) {
    case "proposal_settled":
      return {
        status: "settled",
        message: `Too late: ${escapeHidden(proposal && proposal.status !== "pending" ? settledText(proposal, context.state.me.id) : fault.message)}. Your decision had no effect.`,
      };
    case "proposal_mismatch":
      return {
        status: "mismatch",
        message: `Not run: the gateway’s proposal differs from what was shown (${escapeHidden(fault.message)}).`,
      };
    case "approval_required": {
      if (fault.payload?.effect) return { status: "refused", message: `Not yet: ${escapeHidden(fault.message)}.` };
      if (fault.payload?.budget) return { status: "approvals", message: `Not yet: ${escapeHidden(fault.message)}.` };
      const needed = Number(fault.payload?.approvals_needed) || 0;
      return {
        status: "approvals",
        message: `Not yet: this space requires ${needed || "more"} ${needed === 1 ? "vote" : "votes"} first (${escapeHidden(fault.message)}).`,
      };
    }
    case "lost":
      return { status: "lost", message: `${escapeHidden(fault.message)}. Check the timeline before you decide again.` };
    default:
      return { status: "refused", message: errorText(fault) };
  }
}

/** @param {unknown} fault */
export function errorText(fault) {
  if (!(fault instanceof Refused)) return escapeHidden(fault instanceof Error ? fault.message : fault);
  return `${describeError(fault.code).means.replace(/\.$/, "")}: ${escapeHidden(fault.message)}`;
}

let numbers = 0;
/** A JSON-RPC id; it needs to be unique only for its sender. */
function nextRequestId() {
  numbers += 1;
  return numbers + Math.floor(performance.timeOrigin % 1_000_000) * 1000;
}
