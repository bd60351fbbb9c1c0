/** Members on a circle, with a curve for each pair that is thicker the more messages it has. */
import { html, svg } from "../../core/page/dom.js";
import { hue, nameOf, oneLine } from "../../core/page/text.js";

// More names than this cannot be read on a circle.
const MAX_MEMBERS = 24;
const WIDE = 560;
const HIGH = 440;
const RADIUS = 150;

/** @param {import("../../app.js").Context} context */
export function memberGraph(context) {
  const { roster, messageCounts } = context.state;
  /** @type {Map<string, number>} */
  const sentCounts = new Map();
  /** @type {{from: string, to: string, count: number}[]} */
  const pairs = [];
  for (const [key, count] of messageCounts) {
    const [from, to] = key.split("\n");
    sentCounts.set(from, (sentCounts.get(from) ?? 0) + count);
    if (to !== "*") pairs.push({ from, to, count });
  }
  const names = new Set([
    ...roster.present().map((each) => each.id),
    ...sentCounts.keys(),
    ...pairs.map((each) => each.to),
  ]);
  const shown = [...names]
    .sort((a, b) => (sentCounts.get(b) ?? 0) - (sentCounts.get(a) ?? 0))
    .slice(0, MAX_MEMBERS)
    .sort((a, b) => a.localeCompare(b));
  if (shown.length === 0) return html.p({ class: "soft" }, "No members.");
  const places = new Map(shown.map((name, index) => [name, placeOf(index, shown.length)]));
  const shownPairs = pairs
    .filter((each) => places.has(each.from) && places.has(each.to) && each.from !== each.to)
    .sort((a, b) => b.count - a.count)
    .slice(0, 120);
  const max = Math.max(1, ...shownPairs.map((each) => each.count));
  return html.div(
    {},
    svg.svg(
      {
        viewBox: `0 0 ${WIDE} ${HIGH}`,
        role: "img",
        "aria-label": `${shown.length} members; the table below has the same data`,
        class: "member-graph",
      },
      arrowTip("graph-arrow"),
      shownPairs.map((each) =>
        curve(places.get(each.from), places.get(each.to), each.count / max, `${each.from} → ${each.to}: ${each.count}`),
      ),
      shown.map((name) =>
        memberNode(
          name,
          /** @type {any} */ (places.get(name)),
          roster.get(name)?.present ?? false,
          sentCounts.get(name) ?? 0,
        ),
      ),
    ),
    html.details({ class: "graph-table" }, html.summary({}, "Table"), table(shownPairs, sentCounts, messageCounts)),
  );
}

/** @param {number} index @param {number} count */
function placeOf(index, count) {
  const angle = (index / count) * 2 * Math.PI - Math.PI / 2;
  return {
    x: WIDE / 2 + RADIUS * Math.cos(angle),
    y: HIGH / 2 + RADIUS * Math.sin(angle),
    right: Math.cos(angle) >= -0.001,
    middle: Math.abs(Math.cos(angle)) < 0.2,
    top: Math.sin(angle) < 0,
  };
}

/** @param {any} from @param {any} to @param {number} share @param {string} text */
function curve(from, to, share, text) {
  // Bent towards the middle and to one side, so that both directions are visible.
  const bend = 0.22;
  const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
  const control = {
    x: middle.x + (WIDE / 2 - middle.x) * 0.25 - (to.y - from.y) * bend * 0.5,
    y: middle.y + (HIGH / 2 - middle.y) * 0.25 + (to.x - from.x) * bend * 0.5,
  };
  const end = shortened(control, to, 13);
  const start = shortened(control, from, 11);
  return svg.path(
    {
      class: "graph-line",
      d: `M${round(start.x)} ${round(start.y)}Q${round(control.x)} ${round(control.y)} ${round(end.x)} ${round(end.y)}`,
      "stroke-width": String(1 + share * 4),
      "marker-end": "url(#graph-arrow)",
    },
    svg.title({}, text),
  );
}

/** @param {{x: number, y: number}} from @param {{x: number, y: number}} to @param {number} by */
function shortened(from, to, by) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  return { x: to.x - ((to.x - from.x) / length) * by, y: to.y - ((to.y - from.y) / length) * by };
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 10) / 10;
}

/** @param {string} name @param {any} position @param {boolean} present @param {number} sent */
function memberNode(name, position, present, sent) {
  const anchor = position.middle ? "middle" : position.right ? "start" : "end";
  const dx = position.middle ? 0 : position.right ? 16 : -16;
  const dy = position.middle ? (position.top ? -16 : 28) : 6;
  return svg.g(
    { class: present ? "graph-member" : "graph-member away" },
    svg.circle({ cx: String(round(position.x)), cy: String(round(position.y)), r: "8", class: `hue-${hue(name)}` }),
    svg.text(
      { x: String(round(position.x + dx)), y: String(round(position.y + dy)), "text-anchor": anchor },
      oneLine(name, 18),
    ),
    svg.title({}, `${oneLine(name, 64)}: ${sent} ${sent === 1 ? "message" : "messages"}${present ? "" : ", offline"}`),
  );
}

/** @param {{from: string, to: string, count: number}[]} pairs @param {Map<string, number>} sent @param {Map<string, number>} messageCounts */
function table(pairs, sent, messageCounts) {
  const toAll = [...sent.keys()]
    .map((from) => ({ from, to: "", count: messageCounts.get(`${from}\n*`) ?? 0 }))
    .filter((each) => each.count > 0);
  return html.table(
    { class: "plain-table" },
    html.thead(
      {},
      html.tr(
        {},
        ["From", "To", "Messages"].map((text) => html.th({ scope: "col" }, text)),
      ),
    ),
    html.tbody(
      {},
      [...toAll, ...pairs]
        .slice(0, 150)
        .map((each) =>
          html.tr(
            {},
            html.td({}, nameOf(each.from)),
            html.td({}, each.to ? nameOf(each.to) : html.span({ class: "soft" }, "everyone")),
            html.td({}, String(each.count)),
          ),
        ),
    ),
  );
}

/** The tip of its arrows, by its id. @param {string} id */
export function arrowTip(id) {
  const size = { viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "9", markerHeight: "9" };
  const tip = svg.path({ d: "M0 0L8 4L0 8z", class: "graph-tip" });
  return svg.defs({}, svg.marker({ id, ...size, markerUnits: "userSpaceOnUse", orient: "auto" }, tip));
}
