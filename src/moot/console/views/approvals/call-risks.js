/**
 * What in a call's arguments deserves a second look before it is approved: paths that leave their folder, commands
 * that chain or delete, secrets, letters of another alphabet that look alike, addresses that mislead. They are hints
 * for the eye; that none is found does not make a call harmless, and nothing is decided by them.
 */

import { NumberText, hasFragileNumbers, parseForDisplay, textAt } from "../../core/state/json-text.js";

/** @typedef {{tone: "bad" | "warn" | "info", text: string}} Risk */

// Text beyond this is not examined; the view says that it is long.
const MAX_CHARACTERS = 200_000;
const MAX_VALUES = 2_000;
const MAX_RISKS = 8;
// In a longer call an amount that is not exact here is not shown; the call itself shows it.
const MAX_EXACT_CHARACTERS = 64 * 1024;
const QUOTE_CHARACTERS = 60;

const COMMAND_NAMES = /^(command|cmd|commandline|command_line|script|shell|bash|exec|args|argv)$/i;
const AMOUNT_NAMES = /^(amount|price|total|sum|value|budget|limit|quantity)(_?(cents|minor|eur|usd|gbp))?$/i;
const CURRENCY_NAMES = /^(currency|unit)$/i;
const PARENT = /(^|[\\/]|%2f|%5c)(\.|%2e){2}([\\/]|%2f|%5c|$)/i;
const SENSITIVE =
  /(^|[\\/])(\.env(\.[\w-]+)?|\.ssh|\.aws|\.gnupg|\.netrc|\.npmrc|\.pypirc|\.kube|\.docker|id_(rsa|dsa|ecdsa|ed25519)|authorized_keys|shadow|sudoers|[\w.-]+\.(pem|key|p12|pfx|kdbx))($|[\\/])/i;
const SECRET =
  /AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[\w-]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY-----|eyJ[\w-]{10,500}\.eyJ[\w-]{10,}/;
// A value that is given to a name such as API_KEY: letters and digits, not the name of a function or a variable.
const NAMED_SECRET =
  /(secret|token|passw(or)?d|api_?key|private_?key|access_?key)\w{0,40}["']?\s{0,4}[:=]\s{0,4}["']?(?=[^\s"']{0,60}\d)[A-Za-z0-9+/_=-]{16,}(?![\w.([])/i;
const WHOLE_TEXT_NAMES = /^(content|contents|text|file_text|new_content|body|data)$/i;
const WRITERS = /write|save|overwrite|replace|update|put/i;
// No expression looks far ahead from each of many starts: the texts are the proposer's choice.
const SHELL_SIGNS = /&&|\|\||[;|&`\n]|\$\(|>{1,2}|<{1,2}|\$\{/g;
/** @type {[RegExp, string][]} */
const COMMAND_WORDS = [
  [/(^|[\s;&|(])rm\s+(-\w*\s+)*/, "deletes files (rm)"],
  [/(^|[\s;&|(])(sudo|doas|su)\s/, "runs as another user"],
  [/\b(curl|wget)\b[^\n|]{0,500}\|\s{0,9}(sudo\s+)?(ba|z|da)?sh\b/, "runs what it downloads"],
  [/\bgit\s+(push\b[^\n]{0,200}(--force|-f\b)|reset\s+--hard|clean\s+-\w*f)/, "discards commits or files (git)"],
  [/(^|[\s;&|(])(dd|mkfs(\.\w+)?|shred|truncate)\s/, "overwrites disks or files"],
  [/\bchmod\s+(-R\s+)?(0?777|a\+\w*w)/, "lets everybody write (chmod)"],
  [
    /\b(kubectl\s+delete|terraform\s+(destroy|apply)|docker\s+(rm|system\s+prune)|helm\s+uninstall)\b/,
    "removes or changes infrastructure",
  ],
];
/** @type {[RegExp, string][]} */
const SQL_WORDS = [
  [/\b(drop|truncate)\s+(table|database|schema|view|index)\b/i, "drops or empties a table"],
  [/\bdelete\s+from\s+[\w."`[\]]+\s*(;|$)/i, "deletes every row (no condition)"],
  [/\bupdate\s+[\w."`[\]]+\s+set\b(?![\s\S]*\bwhere\b)/i, "changes every row (no condition)"],
];
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
    examineText(text, name, add);
    if (text === "" && WHOLE_TEXT_NAMES.test(name) && WRITERS.test(call.name))
      add("warn", `${name} is empty: what is there now would be lost`);
    if (COMMAND_NAMES.test(name) || /shell|bash|terminal|command|exec/i.test(call.name)) examineCommand(text, add);
    else examineHiddenCommand(text, name, add);
    for (const [pattern, words] of SQL_WORDS)
      if (pattern.test(text)) add("bad", `The statement ${words}: ${quote(text)}`);
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

/** @param {string} text @param {string} name @param {(tone: Risk["tone"], text: string) => void} add */
function examineText(text, name, add) {
  if (text.length <= 4096 && !text.includes("\n")) {
    if (PARENT.test(text)) add("bad", `${name} leaves its folder (..): ${quote(text)}`);
    if (SENSITIVE.test(text)) add("warn", `${name} looks like a file with secrets: ${quote(text)}`);
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
  for (const word of text.matchAll(/[\p{L}\p{M}\p{N}_.-]+/gu)) {
    if (/^[\x20-\x7e]*$/.test(word[0]) || !/[A-Za-z]/.test(word[0])) continue;
    const alphabet = LOOK_ALIKES.find(([pattern]) => pattern.test(word[0]));
    if (alphabet) {
      add("bad", `${name}: ${quote(word[0])} mixes Latin with ${alphabet[1]} letters`);
      break;
    }
  }
}

/** @param {string} text @param {(tone: Risk["tone"], text: string) => void} add */
function examineCommand(text, add) {
  for (const [pattern, words] of COMMAND_WORDS) if (pattern.test(text)) add("bad", `The command ${words}`);
  const signs = [...new Set((text.match(SHELL_SIGNS) ?? []).map((each) => (each === "\n" ? "a line break" : each)))];
  if (signs.length > 0) add("warn", `The command chains, redirects or substitutes: ${signs.slice(0, 6).join(" ")}`);
}

/** A command in an argument that is none, such as a folder: "src; rm -rf /". @param {string} text @param {string} name @param {(tone: Risk["tone"], text: string) => void} add */
function examineHiddenCommand(text, name, add) {
  const signs = text.length <= 1024 && !text.includes("\n") ? text.search(/[;&|`]|\$\(/) : -1;
  if (signs < 0) return;
  for (const [pattern, words] of COMMAND_WORDS)
    if (pattern.test(text.slice(signs))) add("warn", `${name} contains a command that ${words}: ${quote(text)}`);
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
