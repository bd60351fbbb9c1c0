/** Every argument of a proposed call in full; a new text is compared with the file that it replaces, as far as that is known. */
import { button, html, replace } from "../../core/page/dom.js";
import { membersOf, textAt } from "../../core/state/json-text.js";
import { listsOnlyShown, referenceIn } from "../../core/connection/large-values.js";
import { formatNumber } from "../../core/page/numbers.js";
import { textBlock, nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { formatTime } from "../../core/page/time.js";
import { callPermissions } from "../capabilities/capability-match.js";
import { toolCatalogueOf } from "../tools/tool-catalogue.js";
import { errorText } from "./proposal-decisions.js";
import { originsOf, otherOrigins } from "./proposal-origins.js";
import { mailIn, noteChange, sentenceOf } from "./proposal-sentence.js";
import { COMMAND_NAMES } from "./call-risks.js";
import { markedText } from "./odd-letters.js";
import { isStatement } from "./shell-risks.js";
import {
  PATHS,
  addedView,
  diffView,
  editsIn,
  lastKnownText,
  onlyText,
  replacementIn,
  wholeTextIn,
} from "../parts/text-diff.js";
import { MAX_CODE_CHARACTERS, codeView } from "../parts/code-view.js";
import { icon } from "../parts/icons.js";
import { jsonTree } from "../parts/json-tree.js";
import { largeValueView } from "../parts/large-value.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../../app.js").Context} Context */

// A longer text is cut, with a button for the rest; until that is pressed it counts as not read.
const TEXT_CHARACTERS = 6_000;
// A tree of more text than this is built on demand.
export const TREE_CHARACTERS = 40_000;
// Going back and forth between proposals takes less.
const CURRENT_MILLISECONDS = 30_000;
// How hosts say that a file is not there.
const NO_FILE = /no such file|does not exist|doesn.t exist|not found|there is no |ENOENT/i;
const NEW_FILE = "new file";
const MAIL_NAMES = /^(from|to|recipients?|to_?(address|email|addresses)|cc|bcc|subject|title)$/i;
const READERS = ["read_file", "read_text_file", "read", "view_file", "get_file_contents", "cat"];

/** Every parameter, those of a tool first; nothing is left out. @param {Context} context @param {Proposal} proposal @param {(() => void)[]} later looks again when more is known @param {() => void} changed when it is known what it changes */
export function readableCall(context, proposal, later, changed) {
  const params = textAt(proposal.call.bodyText, ["params"]);
  if (params === null) return html.p({ class: "soft" }, "No parameters.");
  if (!params.startsWith("{")) return valueView(params);
  const isListed = listsOnlyShown(proposal.call.params);
  const all = membersOf(params);
  const given = all.find((each) => each.key === "arguments");
  const plain = given?.text.startsWith("{") ? given : undefined;
  const others = all.filter(
    (each) =>
      !(each.key === "_meta" && isListed) &&
      (each.key !== "arguments" || !plain) &&
      !(each.key === "name" && proposal.call.method === "tools/call" && each.text.startsWith('"')),
  );
  const isLarge = referenceIn(proposal.call.params?.arguments ?? {}) !== null;
  const names = plain && !isLarge ? membersOf(plain.text).map((each) => each.key) : [];
  return [
    plain && argumentsView(context, proposal, plain.text, later, changed),
    otherOrigins(context, proposal, names, later),
    !given && proposal.call.method === "tools/call" && html.p({ class: "soft" }, "No arguments."),
    others.length > 0 && [
      proposal.call.method === "tools/call" && html.h4({}, "Other parameters"),
      html.dl(
        { class: "arguments" },
        others.map((each) => row(each.key, valueView(each.text, context))),
      ),
    ],
  ];
}

/** @param {Context} context @param {Proposal} proposal @param {string} text @param {(() => void)[]} later @param {() => void} changed */
function argumentsView(context, proposal, text, later, changed) {
  const given = proposal.call.params?.arguments ?? {};
  const all = membersOf(text);
  if (all.length === 0) return html.p({ class: "soft" }, "No arguments.");
  if (referenceIn(given)) return valueView(text, context);
  const pair = replacementIn(given);
  const whole = wholeTextIn(given);
  const edits = editsIn(given);
  const rows = [];
  const origins = (/** @type {string} */ name) => originsOf(context, proposal, name, later);
  const mail = mailIn(given);
  for (const part of mail ? all.filter((each) => !MAIL_NAMES.test(each.key) && each.key !== mail.bodyName) : all) {
    if (pair && part.key === pair[1]) continue;
    if (pair && part.key === pair[0]) {
      const compared = diffView(given[pair[0]], given[pair[1]]);
      rows.push(row(`${pair[0]} → ${pair[1]}`, [compared, pair.map(origins)]));
    } else if (edits && part.key === edits.name)
      rows.push(row(edits.name, [editsView(edits.edits, part.text), origins(part.key)]));
    else if (!pair && whole && part.key === whole.name) {
      const known = (/** @type {string | null} */ old) => {
        noteChange(proposal, old, given[whole.name]);
        changed();
      };
      const content = contentView(context, proposal, whole.path, given[whole.name], later, known);
      rows.push(row(part.key, [content, origins(part.key)]));
    } else rows.push(row(part.key, [codeIn(proposal, part) ?? valueView(part.text, context), origins(part.key)]));
  }
  return [
    mail &&
      html.dl(
        { class: "arguments mail" },
        mailRows(all, mail).map((part) => row(part.key, [mailValue(part, mail), origins(part.key)])),
      ),
    rows.length > 0 && html.dl({ class: "arguments" }, rows),
  ];
}

/** The head of a letter first, then its text. @param {{key: string, text: string}[]} all @param {NonNullable<ReturnType<typeof mailIn>>} mail */
function mailRows(all, mail) {
  const order = (/** @type {string} */ key) =>
    [/^from/i, /^(to|recip)/i, /^cc/i, /^bcc/i].findIndex((each) => each.test(key));
  const place = (/** @type {string} */ key) => (key === mail.bodyName ? 9 : order(key) < 0 ? 8 : order(key));
  return all
    .filter((each) => MAIL_NAMES.test(each.key) || each.key === mail.bodyName)
    .sort((a, b) => place(a.key) - place(b.key));
}

/** @param {{key: string, text: string}} part @param {NonNullable<ReturnType<typeof mailIn>>} mail */
function mailValue(part, mail) {
  const value = JSON.parse(part.text);
  if (part.key === mail.bodyName)
    return textBlock(value, { maxCharacters: TEXT_CHARACTERS, label: "text of the e-mail" });
  if (part.key === mail.subjectName) return html.strong({}, markedText(value) ?? escapeHidden(value));
  const all = Array.isArray(value) && value.every((each) => typeof each === "string") ? value : null;
  return all
    ? html.span(
        {},
        all.map((each, index) => [index > 0 && ", ", html.bdi({}, markedText(each) ?? escapeHidden(each))]),
      )
    : valueView(part.text);
}

/** A command line or a statement in colours; null if it is none. @param {Proposal} proposal @param {{key: string, text: string}} part */
function codeIn(proposal, part) {
  if (!part.text.startsWith('"') || part.text.length > MAX_CODE_CHARACTERS) return null;
  const value = String(JSON.parse(part.text));
  if (/^(sql|query|statement|stmt)$/i.test(part.key) && isStatement(value)) return codeView(value, "sql");
  const isCommand = COMMAND_NAMES.test(part.key) && sentenceOf(proposal).verb === "run";
  return isCommand && value ? codeView(value, "shell") : null;
}

/** @param {any[]} edits @param {string} text of all of them */
function editsView(edits, text) {
  const texts = membersOf(text).map((each) => each.text);
  return html.ol(
    { class: "edits" },
    edits.map((edit, index) => {
      const [old, added] = /** @type {[string, string]} */ (replacementIn(edit));
      const others = membersOf(texts[index]).filter(({ key }) => key !== old && key !== added);
      return html.li(
        {},
        others.length > 0 &&
          html.dl(
            { class: "arguments" },
            others.map((each) => row(each.key, valueView(each.text))),
          ),
        diffView(edit[old], edit[added]),
      );
    }),
  );
}

/** A new text for a path, compared with the known content of the file. @param {Context} context @param {Proposal} proposal @param {string} path @param {string} text @param {(() => void)[]} later @param {(old: string | null) => void} known null: there is no file */
function contentView(context, proposal, path, text, later, known) {
  const host = proposal.to.length === 1 ? proposal.to[0] : "";
  const body = html.div({ class: "content-change" });
  const size = sizeOf(text);
  const whole = button("Full text", () => show(null, "", "full text"), { class: "quiet small" });
  const read = async () => {
    const ask = readCallFor(context, host, path);
    if (!ask) return;
    compare.disabled = again.disabled = true;
    try {
      const result = await context.call(host, "tools/call", ask, { background: true });
      const now = onlyText(result);
      // The text of a failure is not the content of the file.
      if (result?.isError === true) show(null, "", unreadText(host, now ?? "no reason given"));
      else if (now === null) show(null, "", "not compared, the reply is not text");
      else show(now, "now");
    } catch (fault) {
      show(null, "", unreadText(host, errorText(fault)));
    }
    compare.disabled = again.disabled = false;
  };
  const compare = button("Compare with current file", () => void read(), {
    class: "small",
    title: `Reads the file from ${oneLine(host, 60)}; everyone sees its content`,
  });
  const again = button("Read again", () => void read(), { class: "quiet small", title: compare.title });
  const show = (/** @type {string | null} */ old, /** @type {string} */ when, problem = "") => {
    if (old !== null || problem.startsWith(NEW_FILE)) known(old);
    replace(
      body,
      html.div(
        { class: "content-bar" },
        html.span(
          { class: "soft" },
          old === null
            ? [size, ` · ${problem || "replaces the file if there is one; its current content is not known here"}`]
            : ["compared with the file on ", nameOf(host), ` ${when}`],
        ),
        html.span({ class: "grow" }),
        html.span({ class: "button-pair" }, old === null ? compare : [again, whole]),
      ),
      old !== null && lossView(old, text),
      // Only what is known to be new is called added.
      old === null ? addedView(text, problem.startsWith(NEW_FILE) ? "+" : " ") : diffView(old, text),
    );
  };
  later.push(() => {
    if (!last && proposal.status === "pending") look();
    compare.hidden = again.hidden = !host || readCallFor(context, host, path) === null;
    if (isCompared || compare.hidden || proposal.status !== "pending" || !mayReadItself(context, proposal, host, path))
      return;
    isCompared = true;
    void read();
  });
  let isCompared = false;
  /** @type {ReturnType<typeof lastKnownText>} */
  let last = null;
  // What was read before may be heard later than the proposal, with the history.
  const look = () => {
    // For a settled proposal, show what it changed, not the present content.
    last = host ? lastKnownText(context.state.proposals, host, path, proposal.settledAt || Infinity) : null;
    if (!last) return;
    // Everybody sees that the file is read, so what has just been read is not read again.
    isCompared ||= isCurrent(context.state.proposals, host, last.at);
    show(last.text, `at ${formatTime(last.at)}`);
  };
  show(null, "");
  look();
  return body;
}

/** Why there is nothing to compare with: most often because the file is new. @param {string} host @param {string} why as its host said */
function unreadText(host, why) {
  if (NO_FILE.test(why)) return `${NEW_FILE}: ${oneLine(host, 40)} has none at this path`;
  return `not compared, the file could not be read: ${oneLine(why, 200)}`;
}

/** Whether nothing can have changed a file of that host since it was read a moment ago. @param {import("../../core/state/state-proposals.js").Proposals} proposals @param {string} host @param {number} readAt */
function isCurrent(proposals, host, readAt) {
  if (Math.abs(Date.now() - readAt) > CURRENT_MILLISECONDS) return false;
  return ![...proposals.requests.values()].some(
    (each) => each.to.includes(host) && each.call.method === "tools/call" && (each.answer?.at ?? Infinity) > readAt,
  );
}

/** What is lost when a file is replaced, in red. @param {string} old @param {string} text */
function lossView(old, text) {
  const count = linesIn(old);
  if (count === 0) return null;
  const lines = `${formatNumber(count)} ${count === 1 ? "line" : "lines"}`;
  const left = linesIn(text);
  if (text.trim() === "")
    return html.p(
      { class: "caution", data: { tone: "bad" } },
      icon("warning", 16),
      `Empties the file: removes all ${lines}.`,
    );
  if (left * 2 < count)
    return html.p(
      { class: "caution", data: { tone: "bad" } },
      icon("warning", 16),
      `Shortens the file from ${lines} to ${formatNumber(left)}.`,
    );
  return null;
}

/** The same for a list of proposals, where nothing is read: by what is known of the file. @param {Context} context @param {Proposal} proposal */
export function knownLossView(context, proposal) {
  const given = proposal.call.params?.arguments ?? {};
  const whole = wholeTextIn(given);
  const known =
    whole && proposal.to.length === 1
      ? lastKnownText(context.state.proposals, proposal.to[0], whole.path, Infinity)
      : null;
  return whole && known ? lossView(known.text, given[whole.name]) : null;
}

/** @param {string} text */
function linesIn(text) {
  return text === "" ? 0 : text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
}

/** "12 lines, 340 bytes". @param {string} text */
function sizeOf(text) {
  const bytes = new TextEncoder().encode(text).length;
  if (bytes === 0) return "empty (0 bytes)";
  const lines = linesIn(text);
  return `${formatNumber(lines)} ${lines === 1 ? "line" : "lines"}, ${formatNumber(bytes)} ${bytes === 1 ? "byte" : "bytes"}`;
}

/** The call that reads a path on that host, if there is a tool for it and we may call it. @param {Context} context @param {string} host @param {string} path */
function readCallFor(context, host, path) {
  const tools = toolCatalogueOf(context).of(host)?.tools ?? [];
  const tool = READERS.map((name) => tools.find((each) => each.name === name)).find((each) => each !== undefined);
  if (!tool) return null;
  const wanted = Object.keys(tool.inputSchema?.properties ?? {}).find((each) => PATHS.includes(each));
  if (!wanted) return null;
  const params = { name: tool.name, arguments: { [wanted]: path } };
  return callPermissions(context.state.me.capabilities, context.state, [host], { method: "tools/call", params })
    .request === "yes"
    ? params
    : null;
}

/**
 * Whether the proposer may read the file anyway. Only then is it read without asking: everybody sees the answer, so a
 * proposal to write must not be a way to have a file read.
 * @param {Context} context @param {Proposal} proposal @param {string} host @param {string} path
 */
function mayReadItself(context, proposal, host, path) {
  const params = readCallFor(context, host, path);
  const capabilities = context.state.roster.get(proposal.from)?.capabilities ?? [];
  return (
    params !== null &&
    callPermissions(capabilities, context.state, [host], { method: "tools/call", params }).request === "yes"
  );
}

/** @param {string} name @param {any} value */
export function row(name, value) {
  return html.div({}, html.dt({}, html.bdi({ class: "mono" }, oneLine(name, 120))), html.dd({}, value));
}

/** An exact value: texts keep their lines, numbers their digits. @param {string} text @param {Context} [context] to fetch large ones */
export function valueView(text, context) {
  if (text.startsWith('"')) {
    const value = String(JSON.parse(text));
    if (value === "") return html.span({ class: "soft" }, "(empty)");
    if (value.length <= 200 && !/[\n\r]/.test(value))
      return html.bdi({ class: "argument-text" }, markedText(value) ?? showEdgeSpaces(escapeHidden(value)));
    return textBlock(value, { maxCharacters: TEXT_CHARACTERS, label: "text" });
  }
  if (text.startsWith("{") || text.startsWith("[")) {
    const large = context && text.length < TREE_CHARACTERS ? referenceIn(JSON.parse(text)) : null;
    if (context && large) return largeValueView(context, large);
    return text.length > TREE_CHARACTERS
      ? textBlock(text, { maxCharacters: TEXT_CHARACTERS, label: "JSON" })
      : jsonTree(text, { label: "value" });
  }
  return html.span({ class: "mono json-number" }, oneLine(text, 400));
}

/** Makes spaces at the start and the end visible. @param {string} text */
function showEdgeSpaces(text) {
  return text.replace(/^ +| +$/g, (each) => "␣".repeat(each.length)).replaceAll("\t", "⇥");
}
