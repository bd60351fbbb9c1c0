/** How many pending proposals are kept in view: what is searched for, in which order, and in which groups. */
import { membersOf, textAt } from "../../core/state/json-text.js";
import { oneLine } from "../../core/page/text.js";
import { sentenceOf, toneOf } from "../proposals/proposal-sentence.js";
import { titleOf } from "../proposals/proposal-decisions.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {{search: string, group: "none" | "agent" | "tool" | "alike", sort: "oldest" | "newest" | "risk" | "expiry", risk: "all" | "warn" | "bad"}} InboxChoice */
/** @typedef {{key: string, title: string, from: string, proposals: Proposal[]}} InboxGroup `from`: all are of this member; else empty */

/** @type {InboxChoice} */
export const PLAIN_CHOICE = { search: "", group: "none", sort: "oldest", risk: "all" };

export const CHOICES = /** @type {const} */ ({
  group: { none: "No groups", agent: "By agent", tool: "By tool", alike: "Alike" },
  sort: { oldest: "Oldest", newest: "Newest", risk: "Riskiest", expiry: "Expiring" },
  risk: { all: "Any risk", warn: "Caution or red", bad: "Red only" },
});

// A list longer than this is not read; decide on part of it first.
export const MAX_AT_ONCE = 50;
// Of a megabyte, this much is searched.
const SEARCHED_CHARACTERS = 20_000;
const RANKS = /** @type {Record<string, number>} */ ({ bad: 2, warn: 1, "": 0 });

/** @type {WeakMap<Proposal, {text: string, alike: string}>} */
const facts = new WeakMap();

/** @param {Proposal} proposal */
function factsOf(proposal) {
  let found = facts.get(proposal);
  if (!found) {
    const { bodyText, method, name } = proposal.call;
    const given = bodyText.length > SEARCHED_CHARACTERS ? null : textAt(bodyText, ["params", "arguments"]);
    const names = given?.startsWith("{") ? membersOf(given).map((each) => each.key) : [];
    const { verb, what } = sentenceOf(proposal);
    const text = [proposal.from, ...proposal.to, verb, what, proposal.id, bodyText.slice(0, SEARCHED_CHARACTERS)];
    found = {
      text: text.join(" ").toLowerCase(),
      alike: JSON.stringify([proposal.from, proposal.to, method, name, names.sort()]),
    };
    facts.set(proposal, found);
  }
  return found;
}

/** The same for proposals of one member that call the same tool with arguments of the same names. @param {Proposal} proposal */
export function likenessOf(proposal) {
  return factsOf(proposal).alike;
}

/** Those of one member that call the same tool with the same arguments by name, this one too. @param {Proposal[]} pending @param {Proposal} proposal */
export function likeOnes(pending, proposal) {
  const { alike } = factsOf(proposal);
  return pending.filter((each) => each.call.name === proposal.call.name && factsOf(each).alike === alike);
}

/** The pending ones as chosen; those that are not shown are counted. @param {Proposal[]} pending oldest first @param {InboxChoice} choice @returns {{groups: InboxGroup[], listed: Proposal[]}} */
export function arrangeInbox(pending, choice) {
  const words = choice.search.toLowerCase().split(/\s+/).filter(Boolean);
  const least = choice.risk === "all" ? 0 : RANKS[choice.risk];
  const shown = pending.filter(
    (each) => words.every((word) => factsOf(each).text.includes(word)) && (least === 0 || RANKS[toneOf(each)] >= least),
  );
  const sorted = inOrder(shown, choice.sort);
  if (choice.group === "none") return { groups: [{ key: "", title: "", from: "", proposals: sorted }], listed: sorted };
  /** @type {Map<string, InboxGroup>} */
  const groups = new Map();
  for (const each of sorted) {
    const { key, title, from } = groupOf(each, choice.group);
    const group = groups.get(key);
    if (group) group.proposals.push(each);
    else groups.set(key, { key, title, from, proposals: [each] });
  }
  return { groups: [...groups.values()], listed: [...groups.values()].flatMap((each) => each.proposals) };
}

/** @param {Proposal} proposal @param {"agent" | "tool" | "alike"} by */
function groupOf(proposal, by) {
  const tool = oneLine(titleOf(proposal), 60);
  const host = proposal.to.length > 0 ? ` on ${proposal.to.map((each) => oneLine(each, 40)).join(", ")}` : "";
  if (by === "agent") return { key: `agent ${proposal.from}`, title: oneLine(proposal.from, 60), from: proposal.from };
  if (by === "tool") return { key: `tool ${titleOf(proposal)}${host}`, title: `${tool}${host}`, from: "" };
  const title = `${tool}${host}, by ${oneLine(proposal.from, 40)}`;
  return { key: factsOf(proposal).alike, title, from: proposal.from };
}

/** @param {Proposal[]} proposals oldest first @param {InboxChoice["sort"]} sort */
function inOrder(proposals, sort) {
  if (sort === "newest") return [...proposals].reverse();
  if (sort === "risk") return [...proposals].sort((a, b) => RANKS[toneOf(b)] - RANKS[toneOf(a)]);
  const end = (/** @type {Proposal} */ each) => each.expiresAt || Infinity;
  if (sort === "expiry") return [...proposals].sort((a, b) => (end(a) === end(b) ? 0 : end(a) - end(b)));
  return proposals;
}
