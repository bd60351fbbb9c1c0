// @ts-check
/**
 * One proposal for whoever decides on it: who, what, on which tool, every argument in full, and what a grant would
 * change. It is drawn once from the text that was received, so that it stands still while somebody reads; what
 * happens to it is told in its story, which grows.
 */
import { button, el, freshId, replace } from "../core/dom.js";
import { parts, pretty, textAt } from "../core/exact.js";
import { block, nameOf, oneLine, visible } from "../core/text.js";
import { ago, shortTime } from "../core/time.js";
import { mayCall } from "./call-rights.js";
import { claimsOf, toolboxOf } from "./call-tools.js";
import { faultsOf } from "./call-validate.js";
import { inWords } from "./capability-words.js";
import { titleOf, wordsOf } from "./desk-decide.js";
import { addedView, diffView, editsIn, knownText, onlyText, pairIn, wholeTextIn } from "./desk-diff.js";
import { widthsOf } from "./desk-widths.js";
import { copyButton } from "./envelope-details.js";
import { icon } from "./icons.js";
import { jsonTree } from "./json-tree.js";

/** @typedef {import("../core/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../app.js").Context} Context */

// A longer text is cut, with a button for the rest; then it counts as not read.
const TEXT_CHARACTERS = 6_000;
// A tree of more text than this is not built at once.
const TREE_CHARACTERS = 40_000;
const READERS = ["read_file", "read_text_file", "read", "view_file", "get_file_contents", "cat"];

/**
 * The head, the call and what a grant would change. `refresh` looks again at what may become known: the tool, the roster.
 * @param {Context} context @param {Proposal} proposal
 * @returns {{node: HTMLElement, refresh: () => void, unread: () => boolean}}
 */
export function proposalView(context, proposal) {
  const tool = el("div", { class: "proposal-tool" });
  const cautions = el("div", { class: "proposal-cautions" });
  /** @type {(() => void)[]} */
  const later = [];
  const readable = el("div", { class: "proposal-readable" }, readableCall(context, proposal, later));
  const node = el(
    "article",
    { class: "proposal" },
    head(context, proposal),
    cautions,
    tool,
    callTabs(context, proposal, readable),
    changeView(context, proposal),
  );
  const refresh = () => {
    if (proposal.to.length === 1) toolboxOf(context).retry(proposal.to[0]);
    replace(tool, toolView(context, proposal));
    replace(cautions, cautionsOf(context, proposal).map((words) => el("p", { class: "caution" }, icon("warning", 16), el("span", {}, words))));
    cautions.hidden = cautions.childElementCount === 0;
    later.forEach((look) => look());
  };
  refresh();
  return { node, refresh, unread: () => readable.querySelector(".show-all, [data-cut], .json details:not([open]), .json button") !== null };
}

/** @param {Context} context @param {Proposal} proposal */
function head(context, proposal) {
  const host = proposal.to.length > 0 ? proposal.to.map((id, index) => [index > 0 && ", ", nameOf(id)]) : el("span", { class: "soft" }, "nobody in particular");
  return el(
    "header",
    { class: "proposal-head" },
    el("h2", { tabindex: "-1" }, nameOf(proposal.from, { you: proposal.from === context.state.me.id }), " proposes ", el("bdi", { class: "mono proposal-what" }, oneLine(titleOf(proposal), 120))),
    el(
      "p",
      { class: "soft proposal-facts" },
      el("span", {}, "on ", host),
      proposal.call.method !== "tools/call" && el("span", {}, "method ", el("bdi", { class: "mono" }, oneLine(proposal.call.method, 80))),
      el("span", {}, `made at ${shortTime(proposal.at)}, `, el("time", { class: "since", data: { at: String(proposal.at) } }, ago(proposal.at))),
      proposal.context && el("span", {}, "in ", el("bdi", { class: "mono" }, oneLine(proposal.context, 60))),
      el("a", { href: context.link("timeline", proposal.id) }, "Show in the timeline"),
      el("a", { href: context.link("picture", proposal.id) }, "Show as a picture"),
      proposal.call.method === "tools/call" && proposal.to.length === 1 && el("a", { href: context.link("call", proposal.to[0], proposal.call.name, proposal.id) }, "Call another version"),
    ),
  );
}

/** What the host says of the tool. @param {Context} context @param {Proposal} proposal */
function toolView(context, proposal) {
  if (proposal.call.method !== "tools/call") return null;
  const box = toolboxOf(context);
  const found = proposal.to.map((host) => box.tool(host, proposal.call.name)).find((each) => each !== undefined);
  if (!found) {
    const status = box.of(proposal.to[0] ?? "")?.status;
    if (status === "asking") return el("p", { class: "soft" }, "Asking what this tool is…");
    if (status === "known") return el("p", { class: "caution" }, icon("warning", 16), el("span", {}, nameOf(proposal.to[0]), " lists no tool of this name."));
    return null;
  }
  return [
    el("p", { class: "proposal-description" }, found.title && el("strong", {}, oneLine(found.title, 120), ": "), found.description ? visible(found.description.slice(0, 2000)) : el("span", { class: "soft" }, "It has no description.")),
    claimsOf(found).length > 0 && el("p", { class: "claims" }, el("span", { class: "soft" }, "It says of itself:"), claimsOf(found).map(([words, tone]) => el("span", { class: "tag", data: tone ? { tone } : {} }, words))),
  ];
}

/** What somebody should know before deciding. @param {Context} context @param {Proposal} proposal @returns {any[]} */
function cautionsOf(context, proposal) {
  const { state } = context;
  const found = [];
  if (proposal.uncertain) found.push("The connection was away: this may have been decided meanwhile. The gateway lets it run once at most.");
  for (const id of proposal.to) {
    const host = state.roster.get(id);
    if (!host || !host.present) found.push([nameOf(id), " is not here: nobody would carry it out now."]);
    else if (state.roster.isPaused(host)) found.push([nameOf(id), " is paused."]);
  }
  const member = state.roster.get(proposal.from);
  if (proposal.from !== state.me.id && !member?.present) found.push([nameOf(proposal.from), " has left the space."]);
  if (holdsHidden(proposal)) found.push("It holds characters that cannot be seen or turn the direction of writing; they are shown as ⟨U+…⟩.");
  const host = proposal.to.length === 1 ? proposal.to[0] : "";
  const tool = proposal.call.method === "tools/call" ? toolboxOf(context).tool(host, proposal.call.name) : undefined;
  if (tool) {
    const faults = faultsOf(tool.inputSchema, proposal.call.params?.arguments ?? {});
    if (faults.length > 0) found.push(`The arguments do not fit what the tool asks for: ${faults.slice(0, 3).map((each) => `${each.path.length > 0 ? `${oneLine(each.path.join("."), 60)} ` : ""}${each.words}`).join("; ")}.`);
  }
  return found;
}

/** @type {WeakMap<Proposal, boolean>} a megabyte is looked through once */
const hidden = new WeakMap();

/** @param {Proposal} proposal */
function holdsHidden(proposal) {
  let found = hidden.get(proposal);
  if (found === undefined) {
    // Escapes count as what they stand for; carriage returns are in many files.
    const text = proposal.call.bodyText.replace(/(?<!\\)((?:\\\\)*)\\u([0-9a-fA-F]{4})/g, (_, before, code) => before + String.fromCharCode(parseInt(code, 16))).replace(/[\r\n\t]/g, "");
    found = visible(text) !== text;
    hidden.set(proposal, found);
  }
  return found;
}

/** Readable first; the very bytes beside it. @param {Context} context @param {Proposal} proposal @param {HTMLElement} readable */
function callTabs(context, proposal, readable) {
  const exact = el("div", { hidden: true });
  const panels = { Readable: readable, "Exact text": exact };
  const tabs = Object.entries(panels).map(([words, panel]) => {
    panel.id = freshId("call");
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-label", words);
    return el("button", { type: "button", role: "tab", class: "tab", "aria-controls": panel.id, "aria-selected": String(panel === readable), tabindex: panel === readable ? "0" : "-1", on: { click: () => choose(words) } }, words);
  });
  const choose = (/** @type {string} */ chosen) => {
    Object.entries(panels).forEach(([words, panel], index) => {
      panel.hidden = words !== chosen;
      tabs[index].setAttribute("aria-selected", String(words === chosen));
      tabs[index].setAttribute("tabindex", words === chosen ? "0" : "-1");
    });
    if (!exact.hidden && exact.childElementCount === 0)
      replace(exact, el("p", { class: "soft" }, "Exactly this is repeated when it is approved."), block(safePretty(proposal.call.bodyText), { most: TREE_CHARACTERS, class: "exact-text", label: "exact text" }));
  };
  const list = el("div", { class: "tabs", role: "tablist", "aria-label": "How to show the call", on: { keydown: (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    event.preventDefault();
    const other = tabs.find((each) => each.getAttribute("aria-selected") !== "true");
    other?.click();
    other?.focus();
  } } }, tabs);
  return el("section", { class: "proposal-call" }, el("div", { class: "section-bar" }, el("h3", {}, "The call"), list, el("span", { class: "grow" }), copyButton(proposal.call.bodyText, "Copy the call as JSON", context)), readable, exact);
}

/** @param {string} text */
function safePretty(text) {
  try {
    return pretty(text);
  } catch {
    return text;
  }
}

/** Every parameter, those of a tool first; nothing is left out. @param {Context} context @param {Proposal} proposal @param {(() => void)[]} later looks again when more is known */
function readableCall(context, proposal, later) {
  const params = textAt(proposal.call.bodyText, ["params"]);
  if (params === null) return el("p", { class: "soft" }, "It has no parameters.");
  if (!params.startsWith("{")) return valueView(params);
  const all = parts(params);
  const given = all.find((each) => each.key === "arguments");
  const isPlain = given !== undefined && given.text.startsWith("{");
  const others = all.filter((each) => (each.key !== "arguments" || !isPlain) && !(each.key === "name" && proposal.call.method === "tools/call" && each.text.startsWith('"')));
  return [
    isPlain && argumentsView(context, proposal, given.text, later),
    !given && proposal.call.method === "tools/call" && el("p", { class: "soft" }, "No arguments."),
    others.length > 0 && [proposal.call.method === "tools/call" && el("h4", {}, "Besides the arguments"), el("dl", { class: "arguments" }, others.map((each) => row(each.key, valueView(each.text))))],
  ];
}

/** @param {Context} context @param {Proposal} proposal @param {string} text @param {(() => void)[]} later */
function argumentsView(context, proposal, text, later) {
  const given = proposal.call.params?.arguments ?? {};
  const all = parts(text);
  if (all.length === 0) return el("p", { class: "soft" }, "No arguments.");
  const pair = pairIn(given);
  const whole = wholeTextIn(given);
  const edits = editsIn(given);
  const rows = [];
  for (const part of all) {
    if (pair && part.key === pair[1]) continue;
    if (pair && part.key === pair[0]) rows.push(row(`${pair[0]} → ${pair[1]}`, diffView(given[pair[0]], given[pair[1]])));
    else if (edits.length > 0 && part.key === "edits") rows.push(row("edits", editsView(edits)));
    else if (!pair && whole && part.key === whole.name) rows.push(row(part.key, contentView(context, proposal, whole.path, given[whole.name], later)));
    else rows.push(row(part.key, valueView(part.text)));
  }
  return el("dl", { class: "arguments" }, rows);
}

/** @param {any[]} edits */
function editsView(edits) {
  return el("ol", { class: "edits" }, edits.map((edit) => {
    const [old, fresh] = /** @type {[string, string]} */ (pairIn(edit));
    const others = Object.entries(edit).filter(([key]) => key !== old && key !== fresh);
    return el("li", {}, others.length > 0 && el("dl", { class: "arguments" }, others.map(([key, value]) => row(key, valueView(JSON.stringify(value))))), diffView(edit[old], edit[fresh]));
  }));
}

/** A whole text for a path: compared with what is known to stand there. @param {Context} context @param {Proposal} proposal @param {string} path @param {string} text @param {(() => void)[]} later */
function contentView(context, proposal, path, text, later) {
  const host = proposal.to.length === 1 ? proposal.to[0] : "";
  const body = el("div", { class: "content-change" });
  const size = `${text.split("\n").length.toLocaleString("en")} lines, ${new TextEncoder().encode(text).length.toLocaleString("en")} bytes`;
  const whole = button("Whole text", () => show(null, ""), { class: "quiet small" });
  const compare = button("Compare with what stands there now", async () => {
    const ask = readerAt(context, host, path);
    if (!ask) return;
    compare.disabled = true;
    try {
      const now = onlyText(await context.call(host, "tools/call", ask));
      if (now === null) context.notify("What it answered is not a text to compare with.", "bad");
      else show(now, "as it stands now");
    } catch (fault) {
      context.notify(`It could not be read: ${wordsOf(fault)}`, "bad");
    }
    compare.disabled = false;
  }, { class: "small", title: `Asks ${oneLine(host, 60)} for the file, as everybody will see` });
  const show = (/** @type {string | null} */ old, /** @type {string} */ when) =>
    replace(
      body,
      el("div", { class: "content-bar" }, el("span", { class: "soft" }, old === null ? size : ["compared with what ", nameOf(host), ` had ${when}`]), el("span", { class: "grow" }), old !== null && whole, compare),
      old === null ? addedView(text) : diffView(old, text),
    );
  later.push(() => (compare.hidden = !host || readerAt(context, host, path) === null));
  // What it changed, when it is over: not what stands there since.
  const known = host ? knownText(context.state.proposals, host, path, proposal.settledAt || Infinity) : null;
  if (known) show(known.text, `at ${shortTime(known.at)}`);
  else show(null, "");
  return body;
}

/** How to read a path there, if we may and it has a tool for that. @param {Context} context @param {string} host @param {string} path */
function readerAt(context, host, path) {
  const tools = toolboxOf(context).of(host)?.tools ?? [];
  const tool = READERS.map((name) => tools.find((each) => each.name === name)).find((each) => each !== undefined);
  if (!tool) return null;
  const wanted = Object.keys(tool.inputSchema?.properties ?? {}).find((each) => ["path", "file_path", "file", "filename", "uri"].includes(each));
  if (!wanted) return null;
  const params = { name: tool.name, arguments: { [wanted]: path } };
  return mayCall(context.state.me.capabilities, context.state, [host], { method: "tools/call", params }).request === "yes" ? params : null;
}

/** @param {string} name @param {any} value */
function row(name, value) {
  return el("div", {}, el("dt", {}, el("bdi", { class: "mono" }, oneLine(name, 120))), el("dd", {}, value));
}

/** A value to the byte: texts keep their lines, numbers their digits. @param {string} text */
function valueView(text) {
  if (text.startsWith('"')) {
    const value = String(JSON.parse(text));
    if (value === "") return el("span", { class: "soft" }, "(empty)");
    if (value.length <= 200 && !/[\n\r]/.test(value)) return el("bdi", { class: "argument-text" }, edges(visible(value)));
    return block(value, { most: TEXT_CHARACTERS, label: "text" });
  }
  if (text.startsWith("{") || text.startsWith("[")) {
    return text.length > TREE_CHARACTERS ? block(text, { most: TEXT_CHARACTERS, label: "JSON" }) : jsonTree(text, { label: "value" });
  }
  return el("span", { class: "mono json-number" }, oneLine(text, 400));
}

/** Spaces at an edge are part of the text. @param {string} text */
function edges(text) {
  return text.replace(/^ +| +$/g, (each) => "␣".repeat(each.length)).replaceAll("\t", "⇥");
}

/** What the proposer may do now, and what each width of a grant would add. @param {Context} context @param {Proposal} proposal */
function changeView(context, proposal) {
  if (proposal.from === context.state.me.id) return null;
  const body = el("div", { class: "change-body" });
  const fold = el("details", { class: "change" }, el("summary", {}, "What “approve and grant” would change"), body);
  fold.addEventListener("toggle", () => {
    if (!fold.open) return;
    const holds = mayCall(context.state.roster.get(proposal.from)?.capabilities ?? [], context.state, proposal.to, proposal.call).request;
    replace(
      body,
      el("p", {}, nameOf(proposal.from), holds === "yes" ? " may make this call without asking already. " : " may not make this call itself. ", "“Approve once” changes no right."),
      el("ul", { class: "change-list" }, widthsOf(context.state, proposal).map((width) => el("li", {}, el("strong", {}, width.title), ": ", width.text ? el("bdi", {}, visible(inWords(JSON.parse(width.text)))) : el("span", { class: "soft" }, `not possible: ${visible(width.whyNot)}`)))),
    );
  });
  return fold;
}
