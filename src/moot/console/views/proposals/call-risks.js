/**
 * What in a call's arguments deserves a second look before it is approved: paths that leave their folder, commands
 * that chain or delete, secrets, letters of another alphabet that look alike, addresses that mislead. They are hints
 * for the eye; that none is found does not make a call harmless, and nothing is decided by them.
 */

import { NumberText, hasFragileNumbers, parseForDisplay, textAt } from "../../core/state/json-text.js";

import { UNREADABLE, isWriter, pathRisk, shellRisks, sqlRisks } from "./shell-risks.js";

/** @typedef {{tone: "bad" | "warn" | "info", text: string}} Risk */

// Text beyond this is not examined; the view says that it is long.
const MAX_CHARACTERS = 200_000;
const MAX_VALUES = 2_000;
const MAX_RISKS = 8;
// In a longer call an amount that is not exact here is not shown; the call itself shows it.
const MAX_EXACT_CHARACTERS = 64 * 1024;
const QUOTE_CHARACTERS = 60;

export const COMMAND_NAMES = /^(command|cmd|commandline|command_line|script|shell|bash|exec|args|argv)$/i;
export const AMOUNT_NAMES = /^(amount|price|total|sum|value|budget|limit|quantity)(_?(cents|minor|eur|usd|gbp))?$/i;
export const CURRENCY_NAMES = /^(currency|unit)$/i;
const PARENT = /(^|[\\/]|%2f|%5c)(\.|%2e){2}([\\/]|%2f|%5c|$)/i;
const SECRET =
  /AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[\w-]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY-----|eyJ[\w-]{10,500}\.eyJ[\w-]{10,}/;
// A value that is given to a name such as API_KEY: letters and digits, not the name of a function or a variable.
const NAMED_SECRET =
  /(secret|token|passw(or)?d|api_?key|private_?key|access_?key)\w{0,40}["']?\s{0,4}[:=]\s{0,4}["']?(?=[^\s"']{0,60}\d)[A-Za-z0-9+/_=-]{16,}(?![\w.([])/i;
const WHOLE_TEXT_NAMES = /^(content|contents|text|file_text|new_content|body|data)$/i;
const WRITERS = /write|save|overwrite|replace|update|put/i;
const DELETERS = /^(delete|drop|destroy|purge|wipe|erase|truncate|terminate)(_|-|[A-Z]|$)/i;
const OWN_ADDRESSES = /^(file:|[a-z]+:\/\/(169\.254\.169\.254|metadata\.google\.internal|\[fd00:ec2::254\])([:/]|$))/i;
// A unit: micrometre, microsecond.
const UNIT = /^([\u00b5\u03bc][A-Za-z]{1,3}|[A-Za-z]?\u03a9)$/;
const MAX_HIDDEN_COMMAND_WORDS = 8;
/** Alphabets whose letters look like Latin ones. @type {[RegExp, string][]} */
const LOOK_ALIKES = [
  [/\p{Script=Cyrillic}/u, "Cyrillic"],
  [/\p{Script=Greek}/u, "Greek"],
  [/\p{Script=Armenian}/u, "Armenian"],
  [/\p{Script=Cherokee}/u, "Cherokee"],
  [/[\uff21-\uff3a\uff41-\uff5a]/u, "full-width"],
  [/[\u{1d400}-\u{1d7ff}]/u, "mathematical"],
];

/** The risks in a call, most serious first. @param {{name: string, params: any, bodyText?: string}} call @returns {Risk[]} */
export function risksOf(call) {
  /** @type {Map<string, Risk>} */
  const found = new Map();
  const add = (/** @type {Risk["tone"]} */ tone, /** @type {string} */ text) => found.set(text, { tone, text });
  if (DELETERS.test(call.name)) add("warn", "The tool’s name says that it deletes something");
  const writes = isWriter(call.name);
  let left = MAX_CHARACTERS;
  let count = 0;
  for (const { name, value, siblings } of valuesIn(argumentsOf(call))) {
    if ((count += 1) > MAX_VALUES || left <= 0) break;
    if (
      AMOUNT_NAMES.test(name) &&
      (value instanceof NumberText ||
        (typeof value === "number" && (Number.isSafeInteger(value) || !Number.isInteger(value))) ||
        (typeof value === "string" && /^[-+]?[\d.,' ]+$/.test(value)))
    )
      add("info", `${name}: ${value}${currencyIn(siblings)}`);
    if (typeof value !== "string") continue;
    const text = value.slice(0, left);
    left -= text.length;
    examineText(text, name, add, writes);
    if (name.toLowerCase() === "method" && text.toUpperCase() === "DELETE")
      add("warn", "The request deletes something (DELETE)");
    if (text === "" && WHOLE_TEXT_NAMES.test(name) && WRITERS.test(call.name))
      add("warn", `${name} is empty: what is there now would be lost`);
    if (COMMAND_NAMES.test(name) || /shell|bash|terminal|command|exec/i.test(call.name)) {
      for (const words of shellRisks(text)) add("bad", `The command ${words}`);
    } else {
      examineHiddenCommand(text, name, add);
      for (const words of sqlRisks(text)) add("bad", `The statement ${words}: ${quote(text)}`);
    }
  }
  const order = { bad: 0, warn: 1, info: 2 };
  return [...found.values()].sort((a, b) => order[a.tone] - order[b.tone]).slice(0, MAX_RISKS);
}

/** With numbers as they were written. @param {{params: any, bodyText?: string}} call */
function argumentsOf(call) {
  const text = call.bodyText ?? "";
  const params =
    text.length <= MAX_EXACT_CHARACTERS && hasFragileNumbers(text)
      ? parseForDisplay(textAt(text, ["params"]) ?? "null")
      : call.params;
  return params?.arguments ?? params;
}

/** @param {string} text @param {string} name @param {(tone: Risk["tone"], text: string) => void} add @param {boolean} writes */
function examineText(text, name, add, writes) {
  if (text.length <= 4096 && !text.includes("\n")) {
    if (PARENT.test(text)) add("bad", `${name} leaves its folder (..): ${quote(text)}`);
    const what = pathRisk(text, writes);
    if (what) add("warn", `${name} looks like ${what}: ${quote(text)}`);
    if (OWN_ADDRESSES.test(text)) add("bad", `${name} is an address of the machine itself: ${quote(text)}`);
    const address = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)/i.exec(text);
    if (address?.[1].includes("@"))
      add(
        "bad",
        `${name}: the host is ${quote(address[1].slice(address[1].lastIndexOf("@") + 1))}, not what is before the @`,
      );
    if (address && /(^|\.)xn--/i.test(address[1]))
      add("warn", `${name}: the host name is encoded (xn--…) and may look like another`);
  }
  if (SECRET.test(text) || NAMED_SECRET.test(text)) add("bad", `${name} contains what looks like a secret`);
  for (const word of text.matchAll(/\p{L}[\p{L}\p{M}]*/gu)) {
    if (/^[\x20-\x7e]*$/.test(word[0]) || !/[A-Za-z]/.test(word[0]) || UNIT.test(word[0])) continue;
    const alphabet = LOOK_ALIKES.find(([pattern]) => pattern.test(word[0]));
    if (alphabet) {
      add("bad", `${name}: ${quote(word[0])} mixes Latin with ${alphabet[1]} letters`);
      break;
    }
  }
}

/** The letters that look like others, with their alphabet: all that mix with Latin ones in a word, and all in an address. @param {string} text @returns {{at: number, letter: string, alphabet: string}[]} */
export function oddLetters(text) {
  const isAddress = /^[^\s@]+@[^\s@]+$/.test(text) || /^[a-z][a-z0-9+.-]*:\/\/\S+$/i.test(text);
  return [...text.matchAll(/\p{L}[\p{L}\p{M}]*/gu)]
    .filter(([word]) => /[^\x20-\x7e]/.test(word) && (isAddress || (/[A-Za-z]/.test(word) && !UNIT.test(word))))
    .flatMap((word) =>
      [...word[0].matchAll(/\P{ASCII}/gu)].flatMap(({ 0: letter, index }) => {
        const alphabet = LOOK_ALIKES.find(([pattern]) => pattern.test(letter))?.[1];
        return alphabet ? [{ at: word.index + index, letter, alphabet }] : [];
      }),
    );
}

/** A command in an argument that is none, such as a folder: "src; rm -rf /". @param {string} text @param {string} name @param {(tone: Risk["tone"], text: string) => void} add */
function examineHiddenCommand(text, name, add) {
  if (text.length > 1024 || text.includes("\n") || text.trim().split(/\s+/).length > MAX_HIDDEN_COMMAND_WORDS) return;
  const sign = text.search(/[;&|`]|\$\(/);
  if (sign < 0) return;
  for (const words of shellRisks(text.slice(sign)))
    if (words !== UNREADABLE) add("warn", `${name} contains a command that ${words}: ${quote(text)}`);
}

/** @param {Record<string, any>} siblings */
function currencyIn(siblings) {
  const found = Object.entries(siblings).find(([key, value]) => CURRENCY_NAMES.test(key) && typeof value === "string");
  return found ? ` ${found[1].slice(0, 8)}` : "";
}

/** Every value with the name of its argument; not recursive, because depth is the proposer's choice. @param {any} root */
function* valuesIn(root) {
  /** @type {{name: string, value: any, siblings: Record<string, any>}[]} */
  const waiting = [{ name: "arguments", value: root, siblings: {} }];
  for (let each = waiting.pop(); each !== undefined; each = waiting.pop()) {
    const { name, value } = each;
    if (Array.isArray(value))
      for (const item of value.slice(0, MAX_VALUES).reverse()) waiting.push({ name, value: item, siblings: {} });
    else if (value !== null && typeof value === "object" && !(value instanceof NumberText))
      for (const [key, item] of Object.entries(value).slice(0, MAX_VALUES).reverse())
        waiting.push({ name: key, value: item, siblings: value });
    else yield each;
  }
}

/** @param {string} text */
function quote(text) {
  return `“${text.length > QUOTE_CHARACTERS ? `${text.slice(0, QUOTE_CHARACTERS)}…` : text}”`;
}
