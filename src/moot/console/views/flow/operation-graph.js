/**
 * The course of one operation: proposal, decisions, request, result, from left to right, or downwards on a phone. Correlations
 * form a graph, not a line: one answer may close two requests (MEW 3), and all causes are drawn.
 */
import { arrowTip } from "./member-graph.js";
import { html, svg } from "../../core/page/dom.js";
import { hue, nameOf, oneLine } from "../../core/page/text.js";
import { duration } from "../../core/page/time.js";
import { kindTag, operationText, tagOf } from "../timeline/timeline-rows.js";

/** @typedef {import("../../core/state/envelopes.js").Row} Row */

// What fits on a screen.
const MAX_NODES = 40;
const LEAST_SCALE = 0.8;
const BOX = { wide: 168, high: 58, gapStep: 46, gapLine: 16 };

/** @param {string} id @param {import("../../app.js").Context} context @returns {Node | null} */
export function operationGraph(id, context) {
  const start = context.state.envelopes.byId(id);
  if (!start || start.type === "gap") return null;
  const rows = linkedRows(start, context.state.envelopes);
  const layers = columnsOf(rows);
  const places = new Map();
  const isDownwards = matchMedia("(max-width: 40rem)").matches;
  const gap = isDownwards ? { x: BOX.gapLine, y: BOX.gapStep } : { x: BOX.gapStep, y: BOX.gapLine };
  layers.forEach((layer, step) =>
    layer.forEach((row, line) => {
      const [column, level] = isDownwards ? [line, step] : [step, line];
      places.set(row.id, { x: column * (BOX.wide + gap.x) + 4, y: level * (BOX.high + gap.y) + 4 });
    }),
  );
  const most = Math.max(...layers.map((layer) => layer.length));
  const [columns, levels] = isDownwards ? [most, layers.length] : [layers.length, most];
  const wide = columns * (BOX.wide + gap.x) - gap.x + 8;
  const high = levels * (BOX.high + gap.y) - gap.y + 8;
  const first = rows.reduce((least, row) => Math.min(least, row.at), Infinity);
  const open = (/** @type {string} */ target) => context.go("timeline", target);
  const picture = svg.svg(
    {
      viewBox: `0 0 ${wide} ${high}`,
      width: String(wide),
      height: String(high),
      role: "group",
      "aria-label": `${rows.length} ${rows.length === 1 ? "step" : "steps"}`,
    },
    arrowTip("path-arrow"),
    rows.flatMap((row) =>
      row.about
        .filter((cause) => places.has(cause))
        .map((cause) => edge(places.get(cause), places.get(row.id), isDownwards)),
    ),
    rows.map((row) => box(row, places.get(row.id), row.at - first, row.id === id, open)),
  );
  // It becomes a little smaller before it has to be scrolled.
  picture.style.minWidth = `${wide * LEAST_SCALE}px`;
  return html.div(
    {},
    html.p({ class: "path-summary" }, statusLine(start, rows, context)),
    html.div({ class: "path-scroll", tabindex: "0", role: "group", "aria-label": "Graph of the operation" }, picture),
  );
}

/** All rows connected with it, causes and effects, nearest first. @param {Row} start @param {import("../../core/state/envelopes.js").Envelopes} store @returns {Row[]} */
function linkedRows(start, store) {
  const seen = new Map([[start.id, start]]);
  const waiting = [start];
  for (let row = waiting.shift(); row && seen.size < MAX_NODES; row = waiting.shift()) {
    const causes = store.causesOf(row).map((each) => each.row);
    for (const each of [...causes, ...store.effectsOf(row.id)]) {
      if (!each || seen.has(each.id) || seen.size >= MAX_NODES) continue;
      seen.set(each.id, each);
      waiting.push(each);
    }
  }
  return [...seen.values()].sort((a, b) => a.n - b.n);
}

/** Places each row to the right of all rows that it correlates to. @param {Row[]} rows @returns {Row[][]} */
function columnsOf(rows) {
  /** @type {Map<string, number>} */
  const columns = new Map();
  /** @type {Row[][]} */
  const layers = [];
  // In order of arrival, so causes come first.
  for (const row of rows) {
    const column = row.about.reduce((max, cause) => Math.max(max, (columns.get(cause) ?? -1) + 1), 0);
    columns.set(row.id, column);
    (layers[column] ??= []).push(row);
  }
  return layers;
}

/** @param {{x: number, y: number}} from @param {{x: number, y: number}} to @param {boolean} isDownwards */
function edge(from, to, isDownwards) {
  if (isDownwards) {
    const a = { x: from.x + BOX.wide / 2, y: from.y + BOX.high };
    const b = { x: to.x + BOX.wide / 2, y: to.y - 2 };
    const middle = (a.y + b.y) / 2;
    return svg.path({
      class: "path-line",
      d: `M${a.x} ${a.y}C${a.x} ${middle} ${b.x} ${middle} ${b.x} ${b.y}`,
      "marker-end": "url(#path-arrow)",
    });
  }
  const a = { x: from.x + BOX.wide, y: from.y + BOX.high / 2 };
  const b = { x: to.x - 2, y: to.y + BOX.high / 2 };
  const middle = (a.x + b.x) / 2;
  return svg.path({
    class: "path-line",
    d: `M${a.x} ${a.y}C${middle} ${a.y} ${middle} ${b.y} ${b.x} ${b.y}`,
    "marker-end": "url(#path-arrow)",
  });
}

/** @param {Row} row @param {{x: number, y: number}} position @param {number} after @param {boolean} isCurrent @param {(id: string) => void} open */
function box(row, position, after, isCurrent, open) {
  const { family, word } = tagOf(row);
  const node = svg.g(
    {
      class: isCurrent ? "path-box here" : "path-box",
      transform: `translate(${position.x} ${position.y})`,
      tabindex: "0",
      role: "link",
      data: { family, id: row.id },
    },
    svg.rect({ width: String(BOX.wide), height: String(BOX.high), rx: "8" }),
    svg.text({ x: "10", y: "19", class: "path-kind" }, oneLine(word, 18)),
    svg.text(
      { x: String(BOX.wide - 10), y: "19", "text-anchor": "end", class: "path-after" },
      after > 0 ? `+${duration(after)}` : "",
    ),
    svg.text({ x: "10", y: "35", class: `path-name hue-text-${hue(row.from)}` }, oneLine(row.from, 22)),
    svg.text(
      { x: "10", y: "50", class: "path-text" },
      oneLine(row.kind === "mcp/response" || !row.operation ? row.summary : operationText(row.operation), 21),
    ),
  );
  node.addEventListener("click", () => open(row.id));
  node.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    open(row.id);
  });
  return node;
}

/** A one-sentence summary. @param {Row} start @param {Row[]} rows @param {import("../../app.js").Context} context */
function statusLine(start, rows, context) {
  const proposed = rows.map((row) => context.state.proposals.get(row.id)).find((each) => each !== undefined);
  if (!proposed)
    return [
      kindTag(start),
      " ",
      html.bdi({ class: "mono" }, oneLine(operationText(start.operation) || start.summary, 60)),
      " by ",
      nameOf(start.from),
    ];
  const text = {
    pending: proposed.rejections.length > 0 ? "rejected, still pending" : "pending",
    fulfilled: "approved, no result yet",
    done: "approved, done",
    failed: "approved, failed",
    unknown: "approved, outcome unknown",
    withdrawn: "withdrawn",
    rejected: `rejected, ${proposed.ending}`,
    expired: "expired",
    forgotten: "no longer known",
  }[proposed.status];
  const tone = {
    pending: "warn",
    fulfilled: "accent",
    done: "good",
    failed: "bad",
    unknown: "warn",
    rejected: "bad",
    withdrawn: "",
    expired: "",
    forgotten: "",
  }[proposed.status];
  return [
    nameOf(proposed.from),
    " proposed ",
    html.bdi({ class: "mono" }, oneLine(proposed.call.name || proposed.call.method, 60)),
    " ",
    html.span({ class: "tag", data: { tone } }, text),
    proposed.fulfilledBy && [" by ", nameOf(proposed.fulfilledBy)],
  ];
}
