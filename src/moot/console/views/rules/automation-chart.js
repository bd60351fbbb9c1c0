/** The share of decisions that rules took, day by day: a chart, a sentence, and a table. */
import { html, svg } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";

/** @typedef {import("./rule-record.js").Day} Day */

// Two months; more days would not be readable.
const MAX_DAYS = 60;
const WIDTH = 600;
const HEIGHT = 160;

/** @param {Day} day */
const all = (day) => day.people + day.rules;
/** @param {Day} day */
const share = (day) => (all(day) === 0 ? 0 : day.rules / all(day));
/** Never "100 %" or "0 %" of what is not all or nothing. @param {number} part */
const percentText = (part) =>
  `${part > 0 && part < 0.01 ? "under\u00a01" : part < 1 && part > 0.99 ? "over\u00a099" : Math.round(part * 100)}\u00a0%`;
const dayFormat = new Intl.DateTimeFormat(undefined, {
  day: "numeric",
  month: "short",
  year: "numeric",
  timeZone: "UTC",
});

/** @param {string} day as 2026-11-16 */
export const dayText = (day) =>
  Number.isNaN(Date.parse(`${day}T00:00:00Z`)) ? day : dayFormat.format(Date.parse(`${day}T00:00:00Z`));

/** The end of the axis: round, with a round middle. @param {number} max */
export function axisEnd(max) {
  const half = Math.max(1, Math.ceil(max / 2));
  const size = 10 ** Math.floor(Math.log10(half));
  const step = size < 10 ? 1 : size / 10;
  return 2 * Math.ceil(half / step) * step;
}

/** Fill in the days without decisions. @param {Day[]} known @returns {Day[]} */
function everyDay(known) {
  if (known.length === 0) return [];
  const by = new Map(known.map((each) => [each.day, each]));
  const days = [];
  const last = Date.parse(`${known[known.length - 1].day}T00:00:00Z`);
  let at = Math.max(Date.parse(`${known[0].day}T00:00:00Z`), last - (MAX_DAYS - 1) * 86_400_000);
  for (; at <= last; at += 86_400_000) {
    const day = new Date(at).toISOString().slice(0, 10);
    days.push(by.get(day) ?? { day, people: 0, rules: 0 });
  }
  return days;
}

/** @param {Day[]} known */
export function automationChart(known) {
  const days = everyDay(known);
  const decided = days.reduce((sum, each) => sum + all(each), 0);
  if (decided === 0) return html.p({ class: "soft" }, "No decisions yet.");
  const rules = days.reduce((sum, each) => sum + each.rules, 0);
  const latest = days[days.length - 1];
  const text = `${percentText(rules / decided)} of ${formatNumber(decided)} ${decided === 1 ? "decision was" : "decisions were"} automatic${days.length > 1 ? `; on ${dayText(latest.day)}, ${percentText(share(latest))} of ${formatNumber(all(latest))}` : ""}.`;
  const max = axisEnd(Math.max(...days.map(all)));
  const step = WIDTH / days.length;
  const middle = (/** @type {number} */ index) => (index + 0.5) * step;
  const bars = days.flatMap((each, index) => {
    const height = (all(each) / max) * HEIGHT;
    const width = Math.min(step * 0.72, 48);
    const x = middle(index) - width / 2;
    const automatic = height * share(each);
    const title = svg.title(
      {},
      `${dayText(each.day)}: ${formatNumber(each.rules)} by rules, ${formatNumber(each.people)} by people`,
    );
    return [
      svg.rect(
        {
          class: "plot-people",
          x: String(x),
          y: String(HEIGHT - height),
          width: String(width),
          height: String(height - automatic),
        },
        title,
      ),
      svg.rect(
        {
          class: "plot-rules",
          x: String(x),
          y: String(HEIGHT - automatic),
          width: String(width),
          height: String(automatic),
        },
        title.cloneNode(true),
      ),
    ];
  });
  // Days without decisions have no share, so the line skips them.
  const points = days
    .map((each, index) => ({ each, x: middle(index) }))
    .filter(({ each }) => all(each) > 0)
    .map(({ each, x }) => [x, HEIGHT - share(each) * HEIGHT]);
  const line = points.map(([x, y], index) => `${index === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`).join(" ");
  return html.figure(
    { class: "plot" },
    html.div(
      { class: "plot-area" },
      html.div(
        { class: "plot-scale", "aria-hidden": "true" },
        html.span({}, "100 %"),
        html.span({}, "50 %"),
        html.span({}, "0 %"),
      ),
      svg.svg(
        {
          class: "plot-image",
          viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
          preserveAspectRatio: "none",
          role: "img",
          "aria-label": text,
        },
        [0, 0.5, 1].map((part) => svg.path({ class: "plot-grid", d: `M0 ${HEIGHT * part}H${WIDTH}` })),
        bars,
        svg.path({ class: "plot-line", d: line }),
        points.map(([x, y]) => svg.path({ class: "plot-point", d: `M${x.toFixed(1)} ${y.toFixed(1)}h0` })),
      ),
      html.div(
        { class: "plot-counts", "aria-hidden": "true" },
        html.span({}, formatNumber(max)),
        html.span({}, formatNumber(max / 2)),
        html.span({}, "0"),
      ),
      html.div(
        { class: "plot-days", "aria-hidden": "true" },
        html.span({}, dayText(days[0].day)),
        days.length > 1 && html.span({}, dayText(latest.day)),
      ),
    ),
    html.figcaption(
      {},
      html.p({}, text),
      html.ul(
        { class: "plot-key soft" },
        [
          ["key-line", "share (left)"],
          ["key-rules", "by rules (right)"],
          ["key-people", "by people (right)"],
        ].map(([sign, text]) => html.li({}, html.span({ class: sign }), text)),
      ),
    ),
    html.details(
      { data: { fold: "days" } },
      html.summary({}, "Table"),
      html.table(
        { class: "plot-table" },
        html.thead(
          {},
          html.tr(
            {},
            ["Day", "People", "Rules", "Automatic"].map((each) => html.th({ scope: "col" }, each)),
          ),
        ),
        html.tbody(
          {},
          days
            .filter((each) => all(each) > 0)
            .reverse()
            .map((each) =>
              html.tr(
                {},
                html.th({ scope: "row" }, dayText(each.day)),
                html.td({}, formatNumber(each.people)),
                html.td({}, formatNumber(each.rules)),
                html.td({}, percentText(share(each))),
              ),
            ),
        ),
      ),
    ),
  );
}
