// @ts-check
/** Who talks to whom: members on a circle, a curve for each pair, as thick as they talk much. */
import { el, svg } from "../core/dom.js";
import { hue, nameOf, oneLine } from "../core/text.js";

// More names than this cannot be read on a circle.
const MOST_MEMBERS = 24;
const WIDE = 560;
const HIGH = 440;
const RADIUS = 150;

/** @param {import("../app.js").Context} context */
export function talkingCircle(context) {
  const { roster, talking } = context.state;
  /** @type {Map<string, number>} */
  const said = new Map();
  /** @type {{from: string, to: string, count: number}[]} */
  const pairs = [];
  for (const [key, count] of talking) {
    const [from, to] = key.split("\n");
    said.set(from, (said.get(from) ?? 0) + count);
    if (to !== "*") pairs.push({ from, to, count });
  }
  const names = new Set([...roster.present().map((each) => each.id), ...said.keys(), ...pairs.map((each) => each.to)]);
  const shown = [...names].sort((a, b) => (said.get(b) ?? 0) - (said.get(a) ?? 0)).slice(0, MOST_MEMBERS).sort((a, b) => a.localeCompare(b));
  if (shown.length === 0) return el("p", { class: "soft" }, "Nobody is here.");
  const places = new Map(shown.map((name, index) => [name, placeOf(index, shown.length)]));
  const visible = pairs.filter((each) => places.has(each.from) && places.has(each.to) && each.from !== each.to).sort((a, b) => b.count - a.count).slice(0, 120);
  const most = Math.max(1, ...visible.map((each) => each.count));
  return el(
    "div",
    {},
    svg(
      "svg",
      { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": `${shown.length} members; the table below says the same`, class: "talk" },
      svg("defs", {}, svg("marker", { id: "talk-arrow", viewBox: "0 0 8 8", refX: "7", refY: "4", markerUnits: "userSpaceOnUse", markerWidth: "9", markerHeight: "9", orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z", class: "talk-tip" }))),
      visible.map((each) => curve(places.get(each.from), places.get(each.to), each.count / most, `${each.from} → ${each.to}: ${each.count}`)),
      shown.map((name) => memberNode(name, /** @type {any} */ (places.get(name)), roster.get(name)?.present ?? false, said.get(name) ?? 0)),
    ),
    el("details", { class: "talk-table" }, el("summary", {}, "As a table"), table(visible, said, talking)),
  );
}

/** @param {number} index @param {number} count */
function placeOf(index, count) {
  const angle = (index / count) * 2 * Math.PI - Math.PI / 2;
  return { x: WIDE / 2 + RADIUS * 1.15 * Math.cos(angle), y: HIGH / 2 + RADIUS * Math.sin(angle), right: Math.cos(angle) >= -0.001, middle: Math.abs(Math.cos(angle)) < 0.2, top: Math.sin(angle) < 0 };
}

/** @param {any} from @param {any} to @param {number} share @param {string} words */
function curve(from, to, share, words) {
  // Bent towards the middle, and to one side, so that both directions can be seen.
  const bend = 0.22;
  const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
  const control = { x: middle.x + (WIDE / 2 - middle.x) * 0.25 - (to.y - from.y) * bend * 0.5, y: middle.y + (HIGH / 2 - middle.y) * 0.25 + (to.x - from.x) * bend * 0.5 };
  const end = shortened(control, to, 13);
  const start = shortened(control, from, 11);
  return svg("path", { class: "talk-line", d: `M${round(start.x)} ${round(start.y)}Q${round(control.x)} ${round(control.y)} ${round(end.x)} ${round(end.y)}`, "stroke-width": String(1 + share * 4), "marker-end": "url(#talk-arrow)" }, svg("title", {}, words));
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

/** @param {string} name @param {any} place @param {boolean} present @param {number} said */
function memberNode(name, place, present, said) {
  const anchor = place.middle ? "middle" : place.right ? "start" : "end";
  const dx = place.middle ? 0 : place.right ? 16 : -16;
  const dy = place.middle ? (place.top ? -16 : 26) : 5;
  return svg(
    "g",
    { class: present ? "talk-member" : "talk-member away" },
    svg("circle", { cx: String(round(place.x)), cy: String(round(place.y)), r: "8", class: `hue-${hue(name)}` }),
    svg("text", { x: String(round(place.x + dx)), y: String(round(place.y + dy)), "text-anchor": anchor }, oneLine(name, 18)),
    svg("title", {}, `${oneLine(name, 64)}: said ${said}${present ? "" : ", not here"}`),
  );
}

/** @param {{from: string, to: string, count: number}[]} pairs @param {Map<string, number>} said @param {Map<string, number>} talking */
function table(pairs, said, talking) {
  const toAll = [...said.keys()].map((from) => ({ from, to: "", count: talking.get(`${from}\n*`) ?? 0 })).filter((each) => each.count > 0);
  return el(
    "table",
    { class: "plain-table" },
    el("thead", {}, el("tr", {}, ["From", "To", "Messages"].map((words) => el("th", { scope: "col" }, words)))),
    el("tbody", {}, [...toAll, ...pairs].slice(0, 150).map((each) => el("tr", {}, el("td", {}, nameOf(each.from)), el("td", {}, each.to ? nameOf(each.to) : el("span", { class: "soft" }, "everybody")), el("td", {}, String(each.count))))),
  );
}
