// @ts-check
/**
 * Carrying out what somebody decided, bound to what they saw.
 *
 * `shownOf` is taken when a proposal is drawn; every decision is made of that and of nothing else. If the space
 * holds something else by then, or it is settled, nothing is sent. The gateway has the last word: one proposal, at
 * most one execution, of exactly what was reviewed (D-28).
 */
import { visible } from "../core/text.js";
import { ago } from "../core/time.js";
import { Refused } from "../core/speaking.js";
import { explain } from "./explain.js";

/** @typedef {import("../core/state-proposals.js").Proposal} Proposal */

/**
 * @typedef {object} Shown a proposal as it was before somebody's eyes
 * @property {string} id
 * @property {string} from
 * @property {string[]} to
 * @property {string} raw
 * @property {string} bodyText
 *
 * @typedef {object} Outcome what became of a decision
 * @property {"done" | "settled" | "mismatch" | "approvals" | "refused" | "lost"} status
 * @property {string} words
 * @property {number} [needed] approvals that the space asks for
 * @property {boolean} [granted] a right was given with it
 */

const GRANT_REASON = "approved, and allowed from now on";

/** @param {Proposal} proposal @returns {Shown} */
export function shownOf(proposal) {
  return { id: proposal.id, from: proposal.from, to: [...proposal.to], raw: proposal.raw, bodyText: proposal.call.bodyText };
}

/** `write_file at files`. @param {Proposal} proposal */
export function titleOf(proposal) {
  const { method, name } = proposal.call;
  return method === "tools/call" && name ? name : name ? `${method} ${name}` : method || "(no method)";
}

/** What became of a proposal, in words. @param {Proposal} proposal @param {string} me */
export function fateOf(proposal, me) {
  const when = proposal.settledAt ? ` ${ago(proposal.settledAt)}` : "";
  const by = proposal.fulfilledBy === me ? "you" : proposal.fulfilledBy || "somebody";
  switch (proposal.status) {
    case "open":
      return "waits for a decision";
    case "withdrawn":
      return `${proposal.from === me ? "you" : proposal.from} withdrew it${when}${proposal.reason ? ` (${proposal.reason})` : ""}`;
    case "expired":
      return `it ran out of time${when}`;
    default:
      return `${by} approved it${when}`;
  }
}

/** Why nothing can be decided on what was shown; empty if it can. @param {import("../app.js").Context} context @param {Shown} shown */
export function whyNot(context, shown) {
  const proposal = context.state.proposals.byId.get(shown.id);
  if (!proposal) return "This proposal is not known any more: too many came after it.";
  if (proposal.raw !== shown.raw) return "This is not the proposal that was shown to you: look at it again.";
  if (proposal.status !== "open") return `Too late: ${fateOf(proposal, context.state.me.id)}.`;
  return "";
}

/**
 * Make the request that was proposed, exactly so. `host` is only for a proposal that names none.
 * @param {import("../app.js").Context} context @param {Shown} shown @param {string} [host] @returns {Promise<Outcome>}
 */
export function approve(context, shown, host = "") {
  return decided(context, shown, () =>
    // The proposer's own text of method and params: no digit of a number may change on the way.
    context.say("mcp/request", null, { to: shown.to.length > 0 ? shown.to : [host], about: shown.id, payloadText: `{"jsonrpc":"2.0","id":${freshNumber()},${shown.bodyText.slice(1)}` }),
  "Approved");
}

/** MEW 3.3.2: say no; words follow as a chat about the rejection. @param {import("../app.js").Context} context @param {Shown} shown @param {string} reason @param {string} explanation @returns {Promise<Outcome>} */
export function reject(context, shown, reason, explanation) {
  return decided(context, shown, async () => {
    const echo = await context.say("mcp/reject", { reason }, { to: [shown.from], about: shown.id });
    if (explanation) await context.say("chat", { text: explanation, format: "plain" }, { to: [shown.from], about: echo.id });
  }, `Rejected: ${reason}`);
}

/** One voice for it, where the space asks for several. @param {import("../app.js").Context} context @param {Shown} shown @returns {Promise<Outcome>} */
export function vote(context, shown) {
  return decided(context, shown, () => context.say("moot/approve", {}, { about: shown.id }), "Your vote counts");
}

/** @param {import("../app.js").Context} context @param {Shown} shown @returns {Promise<Outcome>} */
export function withdraw(context, shown) {
  return decided(context, shown, () => context.say("mcp/withdraw", { reason: "no_longer_needed" }, { about: shown.id }), "Withdrawn");
}

/**
 * The approval first: a right is only given with a decision that stands.
 * @param {import("../app.js").Context} context @param {Shown} shown @param {string} capability JSON text, sent as it was shown @param {string} [host] @returns {Promise<Outcome>}
 */
export async function approveAndGrant(context, shown, capability, host) {
  const outcome = await approve(context, shown, host);
  if (outcome.status !== "done") return outcome;
  const payloadText = `{"recipient":${JSON.stringify(shown.from)},"capabilities":[${capability}],"reason":${JSON.stringify(GRANT_REASON)}}`;
  try {
    await context.say("capability/grant", null, { to: [shown.from], payloadText });
  } catch (fault) {
    return { status: "refused", words: `Approved, but nothing was granted to ${visible(shown.from)}: ${wordsOf(fault)}` };
  }
  return { status: "done", granted: true, words: `Approved; ${visible(shown.from)} may do this from now on` };
}

/** @param {import("../app.js").Context} context @param {Shown} shown @param {() => Promise<any>} act @param {string} done @returns {Promise<Outcome>} */
async function decided(context, shown, act, done) {
  const late = whyNot(context, shown);
  if (late) return { status: "settled", words: visible(late) };
  try {
    await act();
    return { status: "done", words: done };
  } catch (fault) {
    return outcomeOf(context, shown, fault);
  }
}

/** @param {import("../app.js").Context} context @param {Shown} shown @param {unknown} fault @returns {Outcome} */
function outcomeOf(context, shown, fault) {
  if (!(fault instanceof Refused)) return { status: "refused", words: wordsOf(fault) };
  const proposal = context.state.proposals.byId.get(shown.id);
  switch (fault.code) {
    case "proposal_settled":
      return { status: "settled", words: `Too late: ${visible(proposal && proposal.status !== "open" ? fateOf(proposal, context.state.me.id) : fault.message)}. Your decision changed nothing.` };
    case "proposal_mismatch":
      return { status: "mismatch", words: `Nothing was run: what the gateway holds is not what was shown here (${visible(fault.message)}).` };
    case "approval_required": {
      const needed = Number(fault.payload?.approvals_needed) || 0;
      return { status: "approvals", needed, words: `Not yet: this space asks for ${needed || "more"} ${needed === 1 ? "vote" : "votes"} first (${visible(fault.message)}).` };
    }
    case "lost":
      return { status: "lost", words: `${visible(fault.message)}. Look at the timeline before you decide again.` };
    default:
      return { status: "refused", words: wordsOf(fault) };
  }
}

/** @param {unknown} fault */
export function wordsOf(fault) {
  if (!(fault instanceof Refused)) return visible(fault instanceof Error ? fault.message : fault);
  return `${explain(fault.code).means} ${visible(fault.message)}`;
}

let numbers = 0;
/** An id of JSON-RPC; only its asker has to tell it from its others. */
function freshNumber() {
  numbers += 1;
  return numbers + Math.floor(performance.timeOrigin % 1_000_000) * 1000;
}
