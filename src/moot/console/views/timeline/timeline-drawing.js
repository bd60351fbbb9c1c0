/** Drawing the lines of the timeline: one message or one conversation each, and how often. */
import { html } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { icon } from "../parts/icons.js";
import { drawHead, drawRow } from "./timeline-rows.js";

/** @typedef {import("./timeline-groups.js").Item} Item @typedef {import("./older-search.js").RowsWithOlder} Rows */

// Sorting the matches of a filter takes a few milliseconds, so it is not done in every frame.
const MANY = 5_000;
const MANY_MILLISECONDS = 200;
// Fast lines cannot be read. From this many at a time on they are drawn ten times a second instead of sixty, and three
// times when a screenful arrives at once, so that clicks are still handled.
const RUSH = 4;
const RUSH_MILLISECONDS = 100;
const SCREENFUL = 24;
const SCREENFUL_MILLISECONDS = 300;
const LONGEST_MILLISECONDS = 1_000;

/**
 * How long the next drawing waits. It takes at most a tenth of the time on a slow machine, but happens at least once a second.
 * @param {number} took milliseconds of the last one @param {number} added lines since @param {number} filtered rows that a filter went through
 */
export function pauseAfter(took, added, filtered) {
  return Math.max(
    filtered > MANY ? MANY_MILLISECONDS : 0,
    added > SCREENFUL ? SCREENFUL_MILLISECONDS : added > RUSH ? RUSH_MILLISECONDS : 0,
    Math.min(LONGEST_MILLISECONDS, took * 10),
  );
}

/** Lines of the same shape reuse an element. @param {Rows} store @param {Item} item */
export function shapeOf(store, item) {
  const row = store.at(typeof item === "number" ? item : item.rows[0]);
  return row ? `${typeof item} ${row.kind} ${row.failed} ${row.from} ${row.to.join()}` : "";
}

/**
 * @param {HTMLElement} element @param {Item} item @param {Rows} store @param {string} me
 * @param {import("./timeline-groups.js").Folds | null} folds null if lines are not grouped by conversation
 */
export function drawItem(element, item, store, me, folds) {
  const row = store.at(typeof item === "number" ? item : item.rows[0]);
  if (!row) return;
  if (typeof item === "number") {
    const group = folds ? store.conversations.get(row.root) : undefined;
    drawRow(element, row, (group?.rows.length ?? 0) > 1, me);
  } else drawHead(element, row, item.rows.length, folds?.has(item.root) ?? false, me);
}

export function emptyNotice() {
  return html.div(
    { class: "empty", hidden: true },
    icon("timeline", 28),
    html.strong({}, "Nothing has happened yet"),
    html.span(
      {},
      "What people, agents and tools say and do in this space appears here, and stays: proposals, calls and their results, chat, permissions.",
    ),
  );
}

/** @param {number} size @param {number | undefined} found by a filter @param {boolean} isDone */
export function countText(size, found, isDone) {
  if (found === undefined) return `${formatNumber(size)} ${size === 1 ? "message" : "messages"}`;
  return `${formatNumber(found)} of ${formatNumber(size)}${isDone ? "" : "…"}`;
}
