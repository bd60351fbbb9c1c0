/**
 * Changes of files as people read them: removed and added lines.
 *
 * A pair of arguments such as `old` and `new` is compared. A whole text for a path is compared with what
 * was last read or written there in this space, if that is known; it is shown as what a member reported.
 * This is only a display: the arguments are what is approved.
 */
import { button, html, replace } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { escapeHidden } from "../../core/page/text.js";

// Names that common tools use for the old and the new passage.
const PAIRS = [
  ["old", "new"],
  ["old_string", "new_string"],
  ["old_str", "new_str"],
  ["old_text", "new_text"],
  ["oldText", "newText"],
  ["before", "after"],
];
const EDITS = ["edits", "changes"];
export const PATHS = ["path", "file_path", "file", "filename", "uri"];
export const TEXTS = ["text", "content", "contents", "file_text", "new_content"];

// Tools that read a file whole, that write one whole, and that leave it as it is, by their names.
const WHOLE_READERS =
  /(^|[_./-])((read|view|cat|open)|(read|view|get|open|show|fetch)[_-]?(text[_-]?)?(file|document)([_-]?contents?)?)$/i;
const WHOLE_WRITERS = /write|save|create|update|put|replace/i;
const PART_WRITERS = /append|prepend|insert|add|patch|edit|line|section/i;
const LOOKERS = /(^|[_./-])(read|view|get|list|stat|show|find|search|open|cat|head|tail|grep|check|diff)(?![a-z])/i;

// The time for comparing grows with the differences: beyond these limits, both sides are shown as they are.
const DIFF_LINES = 4_000;
const DIFF_STEPS = 800;
const CONTEXT_LINES = 3;
// More lines are shown on demand.
const LINES_AT_ONCE = 300;
const LINE_CHARACTERS = 2_000;

/** @typedef {{sign: " " | "+" | "-" | "@", text: string, old: number, new: number}} Line */

/** The names of the old and the new passage, if these arguments have both; a new file has null as the old one. @param {any} given @returns {[string, string] | null} */
export function replacementIn(given) {
  for (const [old, added] of PAIRS)
    if ((typeof given?.[old] === "string" || given?.[old] === null) && typeof given[added] === "string")
      return [old, added];
  return null;
}

/** The path, and the name of the argument that holds the whole text for it. @param {any} given @returns {{path: string, name: string} | null} */
export function wholeTextIn(given) {
  const path = pathIn(given);
  const name = TEXTS.find((each) => typeof given?.[each] === "string");
  return path === null || name === undefined ? null : { path, name };
}

/** @param {any} given @returns {string | null} */
export function pathIn(given) {
  const name = PATHS.find((each) => typeof given?.[each] === "string");
  return name === undefined ? null : given[name];
}

/** A list of changes and its name, for tools that make several at once and for coding agents. @param {any} given @returns {{name: string, edits: any[]} | null} */
export function editsIn(given) {
  for (const name of EDITS) {
    const edits = given?.[name];
    if (Array.isArray(edits) && edits.length > 0 && edits.every((each) => replacementIn(each) !== null))
      return { name, edits };
  }
  return null;
}

/**
 * The content at this path, from a complete read or a successful write; null where something else may have changed it since.
 * @param {import("../../core/state/state-proposals.js").Proposals} proposals @param {string} host @param {string} path
 * @param {number} before only what was asked for until then
 * @returns {{text: string, at: number, by: string} | null}
 */
export function lastKnownText(proposals, host, path, before) {
  for (const request of [...proposals.requests.values()].reverse()) {
    if (request.at >= before || request.to[0] !== host || pathIn(request.call.params?.arguments) !== path) continue;
    const text = textAfter(request);
    if (text === null && mayChange(request)) return null;
    if (text !== null && request.answer) return { text, at: request.answer.at, by: request.answer.from };
  }
  return null;
}

/** @param {any} result @returns {string | null} */
export function onlyText(result) {
  const content = result?.content;
  return Array.isArray(content) && content.length === 1 && typeof content[0]?.text === "string"
    ? content[0].text
    : null;
}

/** The lines of both texts as kept, removed and added; null when comparing would take too long. @param {string} old @param {string} added @returns {Line[] | null} */
function diffLines(old, added) {
  const [before, after] = [old.split("\n"), added.split("\n")];
  // There is no line after the final line feed.
  if (old.endsWith("\n") && added.endsWith("\n")) [before, after].forEach((lines) => lines.pop());
  if (before.length + after.length > DIFF_LINES) return null;
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (
    end < before.length - start &&
    end < after.length - start &&
    before[before.length - 1 - end] === after[after.length - 1 - end]
  )
    end += 1;
  const steps = shortestEdit(before.slice(start, before.length - end), after.slice(start, after.length - end));
  if (!steps) return null;
  /** @type {Line[]} */
  const lines = [];
  let oldNumber = 1;
  let newNumber = 1;
  const add = (/** @type {Line["sign"]} */ sign, /** @type {string} */ text) => {
    lines.push({ sign, text, old: sign === "+" ? 0 : oldNumber, new: sign === "-" ? 0 : newNumber });
    if (sign !== "+") oldNumber += 1;
    if (sign !== "-") newNumber += 1;
  };
  for (const text of before.slice(0, start)) add(" ", text);
  for (const step of steps) add(step.sign, step.text);
  for (const text of before.slice(before.length - end)) add(" ", text);
  return lines;
}

/** How many lines are added and removed; null when counting would take too long. @param {string} old @param {string} added @param {number} [max] lines @returns {[number, number] | null} */
export function countChanges(old, added, max = DIFF_LINES) {
  if (old.length + added.length > max * LINE_CHARACTERS) return null;
  if (old === "" || added === "") {
    const count = (/** @type {string} */ text) => (text === "" ? 0 : text.replace(/\n$/, "").split("\n").length);
    return [count(added), count(old)];
  }
  if (max < DIFF_LINES && old.split("\n").length + added.split("\n").length > max) return null;
  const lines = diffLines(old, added);
  return lines && [lines.filter((each) => each.sign === "+").length, lines.filter((each) => each.sign === "-").length];
}

/**
 * The content of every path as far as it is known, by host and path, for a list of many.
 * @param {import("../../core/state/state-proposals.js").Proposals} proposals @returns {(host: string, path: string) => string | undefined}
 */
export function knownTexts(proposals) {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const request of proposals.requests.values()) {
    const path = pathIn(request.call.params?.arguments);
    const text = path === null ? null : textAfter(request);
    if (text !== null) found.set(`${request.to[0]}\n${path}`, text);
    else if (path !== null && mayChange(request)) found.delete(`${request.to[0]}\n${path}`);
  }
  return (host, path) => found.get(`${host}\n${path}`);
}

/** What a file contains after a request that was answered; null if that does not tell. @param {import("../../core/state/state-proposals.js").CallRequest} request @returns {string | null} */
function textAfter(request) {
  if (request.to.length !== 1 || !request.answer || hasFailed(request)) return null;
  const given = request.call.params?.arguments;
  const whole = wholeTextIn(given);
  const { name } = request.call;
  if (whole) return WHOLE_WRITERS.test(name) && !PART_WRITERS.test(name) ? given[whole.name] : null;
  // A partial read does not contain the whole file, and what was said of a deletion is not its content.
  return WHOLE_READERS.test(name) && Object.keys(given).length === 1 ? onlyText(request.answer.result) : null;
}

/** @param {import("../../core/state/state-proposals.js").CallRequest} request */
function hasFailed({ answer }) {
  return Boolean(answer?.error) || answer?.result?.isError === true;
}

/** Whether a call about a path may have changed what is there. @param {import("../../core/state/state-proposals.js").CallRequest} request */
function mayChange(request) {
  return request.call.method === "tools/call" && !hasFailed(request) && !LOOKERS.test(request.call.name);
}

/** Myers' shortest script; null when there are more differences than DIFF_STEPS. @param {string[]} before @param {string[]} after */
function shortestEdit(before, after) {
  const max = Math.min(before.length + after.length, DIFF_STEPS);
  const reached = new Map([[1, 0]]);
  const trace = [];
  for (let d = 0; d <= max; d += 1) {
    trace.push(new Map(reached));
    for (let k = -d; k <= d; k += 2) {
      let x =
        k === -d || (k !== d && (reached.get(k - 1) ?? -1) < (reached.get(k + 1) ?? -1))
          ? (reached.get(k + 1) ?? 0)
          : (reached.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < before.length && y < after.length && before[x] === after[y]) {
        x += 1;
        y += 1;
      }
      reached.set(k, x);
      if (x >= before.length && y >= after.length) return walkBack(trace, before, after);
    }
  }
  return null;
}

/** @param {Map<number, number>[]} trace @param {string[]} before @param {string[]} after */
function walkBack(trace, before, after) {
  /** @type {{sign: " " | "+" | "-", text: string}[]} */
  const steps = [];
  let x = before.length;
  let y = after.length;
  for (let d = trace.length - 1; d >= 0; d -= 1) {
    const reached = trace[d];
    const k = x - y;
    const from = k === -d || (k !== d && (reached.get(k - 1) ?? -1) < (reached.get(k + 1) ?? -1)) ? k + 1 : k - 1;
    const fromX = reached.get(from) ?? 0;
    const fromY = fromX - from;
    while (x > fromX && y > fromY && x > 0 && y > 0) {
      steps.push({ sign: " ", text: before[x - 1] });
      x -= 1;
      y -= 1;
    }
    if (d === 0) break;
    if (x === fromX) steps.push({ sign: "+", text: after[y - 1] });
    else steps.push({ sign: "-", text: before[x - 1] });
    x = fromX;
    y = fromY;
  }
  return steps.reverse();
}

/** Only the changes, with some context lines. @param {Line[]} lines @returns {Line[]} */
function hunks(lines) {
  /** @type {Line[]} */
  const shown = [];
  let last = -1;
  lines.forEach((line, index) => {
    const near = lines
      .slice(Math.max(0, index - CONTEXT_LINES), index + CONTEXT_LINES + 1)
      .some((each) => each.sign !== " ");
    if (!near) return;
    if (index !== last + 1) shown.push({ sign: "@", text: unchangedText(index - last - 1), old: 0, new: 0 });
    shown.push(line);
    last = index;
  });
  if (shown.length > 0 && last < lines.length - 1)
    shown.push({ sign: "@", text: unchangedText(lines.length - 1 - last), old: 0, new: 0 });
  return shown;
}

/** @param {number} count */
function unchangedText(count) {
  return `${formatNumber(count)} unchanged ${count === 1 ? "line" : "lines"}`;
}

/** The rendered comparison; signs show the changes without colour, too. @param {string | null} old null: a new file @param {string} added */
export function diffView(old, added) {
  if (old === null) return addedView(added);
  if (old === added) return html.p({ class: "soft" }, "No changes.");
  const lines = diffLines(old, added);
  if (lines) return linesView(hunks(lines), "Change");
  return html.div(
    {},
    html.p({ class: "soft" }, "Too many differences to compare line by line: first the old text, then the new one."),
    linesView(
      old.split("\n").map((text, index) => ({ sign: "-", text, old: index + 1, new: 0 })),
      "Old text",
    ),
    linesView(
      added.split("\n").map((text, index) => ({ sign: "+", text, old: 0, new: index + 1 })),
      "New text",
    ),
  );
}

/** A whole text, as added lines or as it is. @param {string} text @param {Line["sign"]} [sign] */
export function addedView(text, sign = "+") {
  const lines = text.split("\n");
  if (text.endsWith("\n")) lines.pop();
  return linesView(
    lines.map((each, index) => ({ sign, text: each, old: 0, new: index + 1 })),
    "New content",
  );
}

/** @param {Line[]} lines @param {string} label */
function linesView(lines, label) {
  const body = html.div({ class: "diff", role: "group", "aria-label": label, tabindex: "0" });
  let shown = 0;
  const more = button("", () => show(lines.length), { class: "quiet small" });
  const show = (/** @type {number} */ upTo) => {
    for (const line of lines.slice(shown, upTo)) body.append(lineView(line));
    shown = Math.min(upTo, lines.length);
    more.hidden = shown >= lines.length;
    replace(more, `Show all ${formatNumber(lines.length)} lines`);
  };
  show(LINES_AT_ONCE);
  const holder = html.div({ class: "diff-holder" }, body, more);
  if (lines.length > LINES_AT_ONCE) holder.dataset.cut = "true";
  more.addEventListener("click", () => delete holder.dataset.cut);
  return holder;
}

/** @param {Line} line */
function lineView(line) {
  const sign = { " ": "same", "+": "added", "-": "removed", "@": "skipped" }[line.sign];
  const isCut = line.text.length > LINE_CHARACTERS;
  const text = html.span({ class: "diff-text" }, escapeHidden(isCut ? line.text.slice(0, LINE_CHARACTERS) : line.text));
  if (isCut) {
    const whole = button(
      `Show all ${formatNumber(line.text.length)} characters of this line`,
      () => {
        replace(text, escapeHidden(line.text));
        delete text.dataset.cut;
      },
      { class: "quiet small" },
    );
    text.append("… ", whole);
    text.dataset.cut = "true";
  }
  return html.div(
    { class: ["diff-line", sign] },
    html.span({ class: "diff-number", "aria-hidden": "true" }, line.sign === "@" ? "" : String(line.new || line.old)),
    html.span({ class: "diff-sign" }, line.sign === "@" ? "⋯" : line.sign),
    text,
  );
}
