/**
 * What a command line, a statement or a path does that deserves a second look: protocol/shell_risks.py in
 * JavaScript, held to the same table of cases. A command line is read into simple commands as a shell reads it; nothing
 * is expanded.
 */
import {
  COMMANDS,
  DATABASE_CLIENTS,
  SECRET_PATHS,
  SELF_STARTING_PATHS,
  SQL_START,
  STATEMENTS,
  SYSTEM_PATHS,
  WHOLE,
} from "./risk-table.js";

const MAX_COMMAND_CHARACTERS = 20_000;
const MAX_COMMANDS = 200;
const MAX_LINE_CHARACTERS = 4_000;
const MAX_DEPTH = 4;
export const UNREADABLE = "cannot be read to its end";

const WRITERS = /write|save|edit|create|append|replace|update|put|patch|move|copy|rename|upload|insert|delete|remove/i;
const WRITING_PROGRAMS = new Set("cp mv tee ln install dd rsync scp truncate touch sponge".split(" "));
const STARTERS = new Set(
  "sudo doas env nohup time nice ionice xargs parallel exec command builtin timeout busybox stdbuf setsid watch strace unbuffer then do else if while until ! coproc wsl rtk".split(
    " ",
  ),
);
const SHELLS = new Set("sh bash zsh dash ksh ash fish cmd cmd.exe".split(" "));
const WITH_COMMAND = new Set("su ssh docker podman kubectl watch nix-shell script".split(" "));
const WITH_EXEC = new Set("docker podman kubectl npx uvx poetry pipenv".split(" "));
const HARMLESS_DEVICES = new Set(["/dev/null", "/dev/stderr", "/dev/stdout", "/dev/tty"]);

/** @typedef {{words: string[], targets: string[]}} SimpleCommand */

class UnreadableCommand extends Error {}

/** @type {Map<string, RegExp>} */
const compiled = new Map();

/** @param {string} pattern */
function expression(pattern) {
  let found = compiled.get(pattern);
  if (!found) {
    found = pattern.startsWith("(?i)") ? new RegExp(pattern.slice(4), "i") : new RegExp(pattern);
    compiled.set(pattern, found);
  }
  return found;
}

/** The simple commands of a command line, those in substitutions too. @param {string} text @returns {SimpleCommand[]} */
function readCommands(text) {
  /** @type {SimpleCommand[]} */
  const found = [];
  /** @type {string[]} */
  const inner = [];
  /** @type {SimpleCommand} */
  let command = { words: [], targets: [] };
  /** @type {string | null} */
  let word = null;
  let isTarget = false;
  const endWord = () => {
    if (word !== null) {
      (isTarget ? command.targets : command.words).push(word);
      isTarget = false;
    }
    word = null;
  };
  const endCommand = () => {
    endWord();
    if (command.words.length + command.targets.length > 0) found.push(command);
    command = { words: [], targets: [] };
  };
  const add = (/** @type {string} */ part) => {
    word = (word ?? "") + part;
  };
  let at = 0;
  while (at < text.length) {
    const char = text[at];
    if (char === "\\") {
      add(text.slice(at + 1, at + 2).replace("\n", ""));
      at += 2;
    } else if (char === "'") {
      const end = text.indexOf("'", at + 1);
      if (end < 0) throw new UnreadableCommand();
      add(text.slice(at + 1, end));
      at = end + 1;
    } else if (char === '"') {
      const [value, next] = doubleQuoted(text, at + 1, inner);
      add(value);
      at = next;
    } else if (char === "`" || ["$(", "<(", ">("].some((each) => text.startsWith(each, at))) {
      const [body, next] = substitution(text, at);
      if (!text.startsWith("$((", at)) inner.push(body);
      add(text.slice(at, next));
      at = next;
    } else if (char === "#" && word === null) {
      const end = text.indexOf("\n", at);
      at = end < 0 ? text.length : end;
    } else if (char === "<" || char === ">" || text.startsWith("&>", at)) {
      if (word !== null && /^\d*$/.test(word)) word = null;
      endWord();
      at += (/^(&?>>?\|?|<{1,3}-?)/.exec(text.slice(at, at + 4)) ?? [" "])[0].length;
      if (text[at] === "&") at += 1 + (/^[\d-]*/.exec(text.slice(at + 1)) ?? [""])[0].length;
      else isTarget = char !== "<";
    } else if (";&|\n(){}".includes(char) && !("{}".includes(char) && word !== null)) {
      if ("{}".includes(char) && !["", " ", "\n", ";", "\t"].includes(text.slice(at + 1, at + 2))) word = char;
      else endCommand();
      at += 1;
    } else if (/\s/.test(char)) {
      endWord();
      at += 1;
    } else {
      let end = at + 1;
      while (end < text.length && !"\\'\"`$<>#;&|\n(){} \t\r".includes(text[end])) end += 1;
      add(text.slice(at, end));
      at = end;
    }
    if (found.length > MAX_COMMANDS) throw new UnreadableCommand();
  }
  endCommand();
  return [...found, ...inner.flatMap(readCommands)];
}

/** What a substitution at this place holds, and where it ends. @param {string} text @param {number} at @returns {[string, number]} */
function substitution(text, at) {
  const begin = at + (text[at] === "`" ? 1 : 2);
  const end = text[at] === "`" ? text.indexOf("`", begin) : closing(text, begin);
  if (end < 0) throw new UnreadableCommand();
  return [text.slice(begin, end), end + 1];
}

/** @param {string} text @param {number} at @param {string[]} inner @returns {[string, number]} */
function doubleQuoted(text, at, inner) {
  let value = "";
  while (at < text.length) {
    const char = text[at];
    if (char === '"') return [value, at + 1];
    if (char === "\\") {
      value += text.slice(at + 1, at + 2);
      at += 2;
    } else if (char === "`" || text.startsWith("$(", at)) {
      const [body, next] = substitution(text, at);
      inner.push(body);
      value += text.slice(at, next);
      at = next;
    } else {
      value += char;
      at += 1;
    }
  }
  throw new UnreadableCommand();
}

/** Where the bracket ends that began before; -1: nowhere. @param {string} text @param {number} at */
function closing(text, at) {
  let [depth, quote] = [1, ""];
  for (; at < text.length; at += 1) {
    const char = text[at];
    if (quote) quote = char === quote ? "" : quote;
    else if (char === "'" || char === '"') quote = char;
    else if (char === "(" || char === ")") {
      depth += char === "(" ? 1 : -1;
      if (depth === 0) return at;
    }
  }
  return -1;
}

/** What a command line does, each in a few words that go on after "The command". @param {string} given @returns {string[]} */
export function shellRisks(given, depth = 0) {
  const text = given.slice(0, MAX_COMMAND_CHARACTERS);
  const found = WHOLE.filter(([pattern]) => expression(pattern).test(text)).map(([, words]) => words);
  /** @type {SimpleCommand[]} */
  let commands;
  try {
    commands = readCommands(text);
  } catch (fault) {
    if (!(fault instanceof UnreadableCommand || fault instanceof RangeError)) throw fault;
    found.push(UNREADABLE);
    const lines = text.split(/[;&|\n()]/).slice(0, MAX_COMMANDS);
    commands = lines.map((line) => ({ words: line.split(/\s+/).filter(Boolean), targets: [] }));
  }
  for (const command of commands) found.push(...commandRisks(command, depth));
  const words = commands.flatMap((command) => command.words);
  if (words.some((word) => expression(DATABASE_CLIENTS).test(` ${word}`)))
    for (const word of words.filter((each) => each.includes(" ")))
      found.push(...sqlRisks(word).map((each) => `makes a statement that ${each}`));
  return found;
}

/** @param {SimpleCommand} command @param {number} depth @returns {string[]} */
function commandRisks(command, depth) {
  const found = [];
  const words = [...command.words];
  let head = "";
  while (words.length > 0) {
    if (/^\w+\+?=/.test(words[0])) {
      words.shift();
      continue;
    }
    head = (words[0].split(/[\\/]/).at(-1) || words[0]).toLowerCase().replace(/\.exe$/, "");
    if (!STARTERS.has(head)) break;
    if (head === "sudo" || head === "doas") found.push("runs as another user");
    words.shift();
    // Its own options, and what they take.
    while (words.length > 0 && /^(-|\d+[smhd]?$|\{\}$)/.test(words[0])) words.shift();
  }
  if (words.length > 0) {
    const given = words.slice(1);
    const line = ` ${given.join(" ").slice(0, MAX_LINE_CHARACTERS)} `;
    for (const [heads, pattern, said] of COMMANDS)
      if (expression(`^(?:${heads})$`).test(head) && expression(pattern).test(line)) found.push(said);
    if (depth < MAX_DEPTH) for (const text of startedBy(head, given)) found.push(...shellRisks(text, depth + 1));
  }
  const edits = (head === "sed" || head === "perl") && words.some((each) => each.startsWith("-i"));
  for (const word of words) {
    const value = (/^-*\w+=[/~.]/.test(word) ? word.slice(word.indexOf("=") + 1) : word).replace(/^@/, "");
    const said = pathRisk(value, WRITING_PROGRAMS.has(head) || edits);
    if (said) found.push(`touches ${said}: ${value.slice(0, 60)}`);
  }
  if (command.words.length === 0 && command.targets.length > 0) found.push("empties a file");
  for (const target of command.targets) {
    const said = HARMLESS_DEVICES.has(target) ? null : pathRisk(target, true);
    if (said) found.push(`touches ${said}: ${target.slice(0, 60)}`);
  }
  return found;
}

/** The command lines that a program is told to start. @param {string} head @param {string[]} given @returns {string[]} */
function startedBy(head, given) {
  const found = [];
  const rest = given.filter((each) => !each.startsWith("-"));
  if (SHELLS.has(head) || WITH_COMMAND.has(head))
    for (const [index, flag] of given.entries())
      if (/^(-\w*c|\/c|--command|--run)$/.test(flag) && index + 1 < given.length) found.push(given[index + 1]);
  if (head === "ssh") found.push(rest.slice(1).join(" "));
  if (head === "eval") found.push(given.join(" "));
  if (head === "find" || head === "fd")
    for (const [index, word] of given.entries())
      if (["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec"].includes(word)) {
        const words = given.slice(index + 1).filter((each) => ![";", "+", "{}"].includes(each));
        found.push(words.map((each) => `'${each}'`).join(" "));
      }
  if (WITH_EXEC.has(head) && given[0] === "exec") found.push(rest.slice(2).join(" "));
  return found;
}

/** What a path is, if it deserves a look. @param {string} given @param {boolean} writes @returns {string | null} */
export function pathRisk(given, writes) {
  if (given.length > 4096 || given.includes("\n")) return null;
  const path = given.replace(/^(\$HOME|\$\{HOME\})(?=\/)/, "~");
  if (expression(SYSTEM_PATHS).test(path) && (writes || !/^\/(usr\/|s?bin|lib)/.test(path)))
    return "a file of the system";
  if (expression(SECRET_PATHS).test(path) && !/\.(pub|example|sample|template)$/.test(path))
    return "a file with secrets";
  return writes && expression(SELF_STARTING_PATHS).test(path) ? "a file that other programs act by" : null;
}

/** @param {string} tool */
export function isWriter(tool) {
  return WRITERS.test(tool);
}

/** Whether a text begins as a statement does. @param {string} text */
export function isStatement(text) {
  return expression(SQL_START).test(text.slice(0, MAX_LINE_CHARACTERS));
}

/** What statements do, each in a few words that go on after "The statement". @param {string} given @returns {string[]} */
export function sqlRisks(given) {
  const found = [];
  const bare = given
    .slice(0, MAX_COMMAND_CHARACTERS)
    .replace(/'(''|[^'])*'/g, "'x'")
    .replace(/\/\*[\s\S]*?(\*\/|$)|(--|#)[^\n]*|\[[^\]\n]*\]/g, " ");
  for (const part of bare.split(";").slice(0, MAX_COMMANDS)) {
    let statement = part.trim().split(/\s+/).join(" ").toLowerCase();
    statement = statement.replace(/^[( ]+|[( ]+$/g, "").slice(0, MAX_LINE_CHARACTERS);
    if (!expression(SQL_START).test(statement)) continue;
    statement = statement.replace(/^(explain( analyze)?|begin|start transaction) /, "");
    for (const [pattern, words] of STATEMENTS) if (expression(pattern).test(statement)) found.push(words);
    const changed = /\b(delete from|delete|update \S+ .*?set)\b/.exec(statement);
    if (!changed || /^(select|create|insert)/.test(statement)) continue;
    const what = changed[0].startsWith("delete") ? "deletes" : "changes";
    const condition = /\bwhere\b(.*)/.exec(statement.slice(changed.index + changed[0].length));
    if (!condition) found.push(`${what} every row (no condition)`);
    else if (holdsAlways(condition[1])) found.push(`${what} every row (its condition always holds)`);
  }
  return found;
}

/** Whether a condition is true whatever the row holds. @param {string} given */
function holdsAlways(given) {
  const condition = given.replace(/[()]/g, " ").split(/\b(?:limit|returning|order by|group by)\b/)[0];
  return condition.split(/\bor\b|\|\|/).some((each) => each.split(/\band\b/).every((part) => isTrue(part.trim())));
}

/** @param {string} part */
function isTrue(part) {
  if (["true", "1", "not false", "'x'"].includes(part)) return true;
  const found = /^(\S+?) ?(=|<=|>=|<>|!=|<|>|like|is) ?(\S+)$/.exec(part);
  if (!found) return false;
  const [, left, sign, right] = found;
  if (left === right) return ["=", "<=", ">=", "like", "is"].includes(sign);
  if (/^-?\d{1,9}$/.test(left) && /^-?\d{1,9}$/.test(right)) {
    if (sign.startsWith("<") && sign !== "<>") return Number(left) < Number(right);
    if (sign.startsWith(">")) return Number(left) > Number(right);
    return sign === "<>" || sign === "!=";
  }
  return left.endsWith("id") && [">", ">=", "<>", "!="].includes(sign) && ["0", "-1", "''"].includes(right);
}
