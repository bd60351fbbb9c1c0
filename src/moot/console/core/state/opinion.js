/**
 * What `moot/opinion` says of a proposal: a model's no, or that a person should look. Checked and bounded as in
 * moot/protocol/opinion.py.
 *
 * @typedef {object} Opinion
 * @property {"no" | "ask"} says
 * @property {string} because the model's own sentence
 */

const MAX_CHARS = 200;
/** As Python's `isprintable`. */
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;

/** @param {any} payload @returns {Opinion | null} null: it says nothing that can be shown */
export function readOpinion(payload) {
  const { says, because, model = "" } = payload ?? {};
  if (says !== "no" && says !== "ask") return null;
  if (![because, model].every((each) => typeof each === "string" && !UNSEEN.test(each))) return null;
  if (because === "" || [...because].length > MAX_CHARS || [...model].length > MAX_CHARS) return null;
  return { says, because };
}

/** For people, marked as what it is. @param {Opinion} opinion @param {string} by */
export function opinionText(opinion, by) {
  const word = opinion.says === "no" ? "no" : "ask a person";
  return `Second opinion of ${by}, in a model's words: ${word}, because ${opinion.because}`;
}
