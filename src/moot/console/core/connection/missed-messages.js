/**
 * What was sent while this page was not connected, read from the gateway's journal, newest page first, until a message
 * that the page has already. It is bounded: whoever was away for a day sees the newest part at once.
 */
import { parseJson } from "../state/json-text.js";

// The page is not live before that, so people wait for it.
const MAX_READ_MILLISECONDS = 3_000;
const MAX_MESSAGES = 10_000;

/**
 * @typedef {object} Missed
 * @property {string[]} raws oldest first
 * @property {boolean} isWhole nothing is missing before them
 * @property {boolean} canLoad the rest can be loaded from the journal
 * @property {string} reason why it is not whole, for people
 */

/** Why the rest cannot be had. @type {Record<string, string>} */
const END_TEXTS = {
  removed: "messages sent in the meantime were removed from the journal",
  not_a_member: "messages sent in the meantime are from before you were a member",
  gap: "this gateway could not write its journal for a while, and may not have all messages sent in the meantime",
  elsewhere: "no gateway that answers has the messages sent in the meantime",
  unknown: "this gateway no longer has all messages sent in the meantime",
  not_kept: "this space keeps no journal, and the gateway no longer has all messages sent in the meantime",
};

/**
 * @param {import("./older-messages.js").OlderMessages} journal @param {(id: string) => boolean} isKnown
 * @returns {Promise<Missed>}
 */
export async function readMissed(journal, isKnown) {
  const deadline = performance.now() + MAX_READ_MILLISECONDS;
  /** @type {string[]} */
  let raws = [];
  try {
    for await (const page of journal.search({}, { from: "newest" })) {
      const last = page.raws.findLastIndex((raw) => isKnown(String(parseJson(raw)?.id ?? "")));
      raws = page.raws.slice(last + 1).concat(raws);
      if (page.hasGap) return { raws, isWhole: false, canLoad: page.before !== null, reason: END_TEXTS.gap };
      if (last >= 0 || (page.before === null && page.end === "beginning"))
        return { raws, isWhole: true, canLoad: false, reason: "" };
      if (page.before === null)
        return { raws, isWhole: false, canLoad: false, reason: END_TEXTS[page.end ?? ""] ?? END_TEXTS.unknown };
      if (raws.length >= MAX_MESSAGES || performance.now() > deadline) break;
    }
    return {
      raws,
      isWhole: false,
      canLoad: true,
      reason: "more messages were sent in the meantime than could be loaded at once",
    };
  } catch (fault) {
    const isOffered = !(fault instanceof Error && fault.name === "NotOffered");
    return {
      raws,
      isWhole: false,
      canLoad: isOffered,
      reason: isOffered
        ? "the messages sent in the meantime could not be loaded"
        : "the gateway no longer has all messages sent in the meantime",
    };
  }
}
