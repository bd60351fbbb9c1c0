/** Pending proposals of the same call: approving each of them carries it out each time. */
import { membersOf, textAt } from "./json-text.js";

/** @typedef {import("./state-proposals.js").Proposal} Proposal */

/** Cached, because the text may be a megabyte. @type {WeakMap<Proposal, string>} */
const keys = new WeakMap();

/** The same for proposals that ask for the same: digit by digit, in any order of the members. @param {Proposal} proposal */
function keyOf(proposal) {
  let key = keys.get(proposal);
  if (key === undefined) {
    const { bodyText, method } = proposal.call;
    // `_meta` is for the programs in between.
    const params = membersOf(textAt(bodyText, ["params"]) ?? "{}").filter((each) => each.key !== "_meta");
    key = JSON.stringify([
      [...proposal.to].sort(),
      method,
      params.map((each) => [each.key, inOrder(each.text)]).sort(),
    ]);
    keys.set(proposal, key);
  }
  return key;
}

/** JSON text with its members in one order. @param {string} text @returns {any} */
function inOrder(text) {
  if (text.startsWith("[")) return membersOf(text).map((each) => inOrder(each.text));
  if (!text.startsWith("{")) return text;
  return [
    "{",
    ...membersOf(text)
      .map((each) => [each.key, inOrder(each.text)])
      .sort(),
  ];
}

/** How many ask for the same, for each of which there are several. @param {Iterable<Proposal>} pending @returns {Map<Proposal, number>} */
export function countAlike(pending) {
  /** @type {Map<string, Proposal[]>} */
  const groups = new Map();
  for (const each of pending) {
    const group = groups.get(keyOf(each));
    if (group) group.push(each);
    else groups.set(keyOf(each), [each]);
  }
  return new Map(
    [...groups.values()]
      .filter((group) => group.length > 1)
      .flatMap((group) => group.map((each) => /** @type {[Proposal, number]} */ ([each, group.length]))),
  );
}

/** The others that ask for the same as this one, oldest first. @param {Iterable<Proposal>} pending @param {Proposal} proposal @returns {Proposal[]} */
export function alikeOf(pending, proposal) {
  const key = keyOf(proposal);
  return [...pending].filter(
    (each) => each !== proposal && each.call.name === proposal.call.name && keyOf(each) === key,
  );
}
