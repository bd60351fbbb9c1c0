/**
 * What a proposal asks for, as a sentence: "wants to replace notes.md, +1 −2". Only what the call itself says, by the
 * name of its tool and the shape of its arguments; the name stands beside it, and whatever is not clear is just a call.
 */
import { html } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { escapeHidden, oneLine } from "../../core/page/text.js";
import { COMMAND_NAMES, risksOf } from "./call-risks.js";
import { markedText } from "./odd-letters.js";
import { titleOf } from "./proposal-decisions.js";
import { pathIn, countChanges, editsIn, replacementIn, wholeTextIn } from "../parts/text-diff.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {{verb: string, what: string, isName: boolean}} Sentence `isName`: `what` is the tool's name */

const WHAT_CHARACTERS = 80;
// In a list, comparing stays this cheap.
const LIST_LINES = 120;
const CHANGERS = /write|save|edit|replace|update|put|patch|create/i;
const RUNNERS = /shell|bash|terminal|command|cmd|exec|run|script/i;
const APPENDERS = /append/i;
const REMOVERS = /^(delete|remove|unlink|rm|erase)([_-]?(text[_-]?)?(file|path|dir|directory|folder|document))?$/i;
const READERS = /^(read|view|open|cat|get|show)([_-]?(text[_-]?)?(file|document|resource)(_?contents?)?)?$/i;

/** @type {WeakMap<Proposal, Sentence>} */
const sentences = new WeakMap();

/** @param {Proposal} proposal @returns {Sentence} */
export function sentenceOf(proposal) {
  let found = sentences.get(proposal);
  if (!found) sentences.set(proposal, (found = read(proposal)));
  const kind = changes.get(proposal)?.kind;
  return kind ? { ...found, verb: kind } : found;
}

/** @param {Proposal} proposal @returns {Sentence} */
function read(proposal) {
  const { method, name, params } = proposal.call;
  const call = { verb: "call", what: titleOf(proposal), isName: true };
  if (method === "resources/read" && name) return { verb: "read", what: name, isName: false };
  // What coding agents ask for stands in `input`, beside the folder that it is done in.
  const given = params?.arguments?.input ?? params?.arguments;
  if (method !== "tools/call" || given === null || typeof given !== "object") return call;
  const one = (/** @type {string} */ verb, /** @type {string} */ what) =>
    what.trim() ? { verb, what, isName: false } : call;
  const path = pathIn(given);
  const mail = mailIn(given);
  if (mail && /draft/i.test(name)) return one("draft e-mail to", [mail.to].flat().join(", "));
  if (mail && /send|reply|forward/i.test(name)) return one("send e-mail to", [mail.to].flat().join(", "));
  if (path !== null && CHANGERS.test(name) && (replacementIn(given) || editsIn(given))) return one("edit", path);
  if (wholeTextIn(given) && path !== null && APPENDERS.test(name)) return one("append to", path);
  if (wholeTextIn(given) && path !== null && CHANGERS.test(name)) return one("write", path);
  const command = RUNNERS.test(name) && Object.entries(given).find(([key]) => COMMAND_NAMES.test(key))?.[1];
  if (typeof command === "string") return one("run", command);
  if (Array.isArray(command) && command.every((each) => typeof each === "string")) return one("run", command.join(" "));
  if (path !== null && REMOVERS.test(name)) return one("delete", path);
  if (path !== null && READERS.test(name)) return one("read", path);
  return call;
}

/** The names of the parts of an e-mail, if these arguments are one. @param {any} given @returns {{to: string | string[], toName: string, subjectName: string, bodyName: string} | null} */
export function mailIn(given) {
  const keys = Object.keys(given ?? {});
  const named = (/** @type {RegExp} */ pattern) => keys.find((each) => pattern.test(each));
  const toName = named(/^(to|recipients?|to_?(address|email|addresses))$/i);
  const subjectName = named(/^(subject|title)$/i);
  const bodyName = named(/^(body|text|html|message|content)(_?(text|html))?$/i);
  if (!toName || !subjectName || !bodyName) return null;
  const to = given[toName];
  const isText = typeof given[subjectName] === "string" && typeof given[bodyName] === "string";
  const all = Array.isArray(to) ? to : [to];
  const isMail = all.length > 0 && all.every((each) => typeof each === "string" && each.includes("@"));
  return isText && isMail ? { to, toName, subjectName, bodyName } : null;
}

/** @typedef {{kind: "replace" | "create" | "", text: string, known?: string}} Change `known`: what it was compared with, if nobody has looked at the file */

/** @type {WeakMap<Proposal, Change>} */
const changes = new WeakMap();

/** The content of the file is known now; null: there is none. @param {Proposal} proposal @param {string | null} old @param {string} text */
export function noteChange(proposal, old, text) {
  changes.set(proposal, { kind: old === null ? "create" : "replace", text: countText(countChanges(old ?? "", text)) });
}

/** How the file changes, as far as that is known. @param {Proposal} proposal */
export function changeText(proposal) {
  return changes.get(proposal)?.text ?? "";
}

/** @type {WeakMap<Proposal, string>} */
const sizes = new WeakMap();

/**
 * How much it changes or is about, for its row: "+1 −2", "12 lines", "amount: 120 EUR", "1.2 KB".
 * @param {Proposal} proposal @param {(host: string, path: string) => string | undefined} knownText of a file
 */
export function sizeOf(proposal, knownText) {
  const whole = wholeTextIn(proposal.call.params?.arguments);
  if (whole && ["write", "replace", "create"].includes(sentenceOf(proposal).verb)) {
    const known = proposal.to.length === 1 ? knownText(proposal.to[0], whole.path) : undefined;
    // Once it was carried out, its file is what it wrote.
    const isOpen = proposal.status === "pending";
    const text = isOpen
      ? comparedText(proposal, proposal.call.params.arguments[whole.name], known)
      : changeText(proposal);
    if (text) return text;
  }
  let found = sizes.get(proposal);
  if (found === undefined) sizes.set(proposal, (found = measure(proposal)));
  return found;
}

/** How a written text differs from what is known of its file now, which may change. @param {Proposal} proposal @param {string} text @param {string | undefined} known */
function comparedText(proposal, text, known) {
  const told = changes.get(proposal);
  if (told && (told.known === undefined || told.known === known)) return told.text;
  const count = known === undefined ? null : countChanges(known, text, LIST_LINES);
  if (count) changes.set(proposal, { kind: "replace", text: countText(count), known });
  else changes.delete(proposal);
  return countText(count);
}

/** @param {Proposal} proposal */
function measure(proposal) {
  const { params, bodyText } = proposal.call;
  const given = params?.arguments;
  if (sentenceOf(proposal).verb === "edit") {
    const pairs = (editsIn(given)?.edits ?? [given]).map((each) => [each, replacementIn(each)]);
    const counts = pairs.map(([each, pair]) => pair && countChanges(each[pair[0]] ?? "", each[pair[1]], LIST_LINES));
    if (counts.every(Boolean))
      return countText(counts.reduce((a, b) => (a && b ? [a[0] + b[0], a[1] + b[1]] : null), [0, 0]));
  }
  const whole = wholeTextIn(given);
  if (whole && ["write", "replace", "create"].includes(sentenceOf(proposal).verb)) return linesText(given[whole.name]);
  return amountText(proposal) || bytesText(bodyText.length);
}

/** @param {[number, number] | null} count */
function countText(count) {
  return count ? `+${formatNumber(count[0])} −${formatNumber(count[1])}` : "";
}

/** @param {string} text */
function linesText(text) {
  const lines = text === "" ? 0 : text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
  return lines === 0 ? "empty" : `${formatNumber(lines)} ${lines === 1 ? "line" : "lines"}`;
}

/** @param {number} bytes */
function bytesText(bytes) {
  return bytes < 1024 ? `${formatNumber(bytes)} B` : `${formatNumber(Math.round(bytes / 102.4) / 10)} KB`;
}

/** All amounts on one line; empty if there is none. @param {Proposal} proposal */
export function amountText(proposal) {
  return risksFor(proposal)
    .filter((each) => each.tone === "info")
    .map((each) => each.text)
    .join(" · ");
}

/** @type {WeakMap<Proposal, import("./call-risks.js").Risk[]>} */
const risks = new WeakMap();

/** Looked for once: the text may be a megabyte. @param {Proposal} proposal */
export function risksFor(proposal) {
  let found = risks.get(proposal);
  if (!found) {
    found = risksOf(proposal.call);
    if (hasHiddenCharacters(proposal.call.bodyText)) {
      const at = found.findLastIndex((each) => each.tone === "bad") + 1;
      found = found.toSpliced(at, 0, { tone: "warn", text: "Contains invisible characters, shown as ⟨U+…⟩" });
    }
    risks.set(proposal, found);
  }
  return found;
}

/** Escaped ones count, too; carriage returns do not, since many files have them. @param {string} text */
function hasHiddenCharacters(text) {
  // As nearly every call is.
  if (!/[^ -~\r\n\t]|\\u/.test(text)) return false;
  const plain = text
    .replace(
      /(?<!\\)((?:\\\\)*)\\u([0-9a-fA-F]{4})/g,
      (_, before, code) => before + String.fromCharCode(parseInt(code, 16)),
    )
    .replace(/[\r\n\t]/g, "");
  return escapeHidden(plain) !== plain;
}

const LIMIT_TONES = /** @type {Record<string, string>} */ ({ refused: "bad", asks: "warn" });

/** What budgets and effects of the space say of it, in the gateway’s words. @param {Proposal} proposal @returns {{tone: string, text: string}[]} */
export function limitsOf({ effects, budgets }) {
  return [...(effects ?? []), ...(budgets ?? [])].map(({ text, verdict }) => ({
    tone: LIMIT_TONES[verdict] ?? "info",
    text: String(text),
  }));
}

/** "bad", "warn" or "": the worst of its hints. @param {Proposal} proposal */
export function toneOf(proposal) {
  const [worst] = risksFor(proposal);
  return worst && worst.tone !== "info" ? worst.tone : "";
}

/** "wants to write notes.md". @param {Proposal} proposal */
export function wishText(proposal) {
  const { verb, what } = sentenceOf(proposal);
  return `wants to ${verb} ${oneLine(what, WHAT_CHARACTERS)}`;
}

/** The same for a heading or a row. @param {Proposal} proposal @param {number} [max] */
export function wishView(proposal, max = WHAT_CHARACTERS) {
  const { verb, what } = sentenceOf(proposal);
  const shown = oneLine(what, max);
  return [` wants to ${verb} `, html.bdi({ class: "mono proposal-what" }, markedText(shown) ?? shown)];
}
