/** What became of each rule, day by day: its decisions, those that people contradicted, and its suspensions. */
import { html, svg } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { oneLine } from "../../core/page/text.js";
import { dayText } from "./automation-chart.js";

/** @typedef {import("./rule-record.js").RuleDay} RuleDay @typedef {{rule: string, days: RuleDay[], automatic: number, wrong: number, tripped: number}} RuleOutcomes */

const MAX_RULES = 50;
const MAX_ROWS = 120;
const WIDTH = 120;
const HEIGHT = 24;

/** The rules with most decisions first. @param {RuleDay[]} days @returns {RuleOutcomes[]} */
function byRule(days) {
  /** @type {Map<string, RuleOutcomes>} */
  const found = new Map();
  for (const each of days) {
    let known = found.get(each.rule);
    if (!known) found.set(each.rule, (known = { rule: each.rule, days: [], automatic: 0, wrong: 0, tripped: 0 }));
    known.days.push(each);
    known.automatic += each.automatic;
    known.wrong += each.wrong;
    known.tripped += each.tripped;
  }
  return [...found.values()].sort((a, b) => b.automatic - a.automatic || b.wrong - a.wrong).slice(0, MAX_RULES);
}

/** @param {{automatic: number, wrong: number, tripped: number}} each */
function outcomeText(each) {
  return `${formatNumber(each.automatic)} ${each.automatic === 1 ? "decision" : "decisions"}, ${formatNumber(each.wrong)} contradicted, suspended ${each.tripped === 1 ? "once" : `${formatNumber(each.tripped)} times`}`;
}

/** One bar for each day of the whole time, so that rules can be compared. @param {RuleOutcomes} outcomes @param {string[]} all */
function dayBars(outcomes, all) {
  const by = new Map(outcomes.days.map((each) => [each.day, each]));
  const max = Math.max(1, ...outcomes.days.map((each) => Math.max(each.automatic, each.wrong)));
  const step = WIDTH / all.length;
  const text = `${outcomeText(outcomes)}, on ${formatNumber(outcomes.days.length)} ${outcomes.days.length === 1 ? "day" : "days"}`;
  return svg.svg(
    {
      class: "outcome-bars",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": text,
    },
    all.flatMap((day, index) => {
      const known = by.get(day);
      if (!known) return [];
      const bar = (/** @type {number} */ count, /** @type {string} */ name) =>
        count > 0 &&
        svg.rect(
          {
            class: name,
            x: String(index * step),
            y: String(HEIGHT - (count / max) * HEIGHT),
            width: String(Math.max(1, Math.min(step * 0.8, 10))),
            height: String((count / max) * HEIGHT),
          },
          svg.title({}, `${dayText(day)}: ${outcomeText(known)}`),
        );
      return [bar(known.automatic, "plot-rules"), bar(known.wrong, "plot-wrong")].filter((each) => each !== false);
    }),
  );
}

/** @param {RuleDay[]} days */
export function ruleOutcomes(days) {
  const rules = byRule(days);
  if (rules.length === 0) return html.p({ class: "soft" }, "No rule has decided anything yet.");
  const all = [...new Set(days.map((each) => each.day))].sort();
  const head = (/** @type {string[]} */ names) =>
    html.thead(
      {},
      html.tr(
        {},
        names.map((each) => html.th({ scope: "col" }, each)),
      ),
    );
  return html.div(
    {},
    html.table(
      { class: "plot-table outcome-table" },
      head(["Rule, by day", "Automatic", "Wrong", "Suspended"]),
      html.tbody(
        {},
        rules.map((each) =>
          html.tr(
            { data: { outcome: each.rule } },
            html.th({ scope: "row" }, html.bdi({}, oneLine(each.rule, 64)), dayBars(each, all)),
            html.td({}, formatNumber(each.automatic)),
            html.td({ data: { tone: each.wrong > 0 ? "bad" : null } }, formatNumber(each.wrong)),
            html.td({}, formatNumber(each.tripped)),
          ),
        ),
      ),
    ),
    html.p({ class: "faint small-text" }, "Wrong: a person decided otherwise, or objected."),
    html.details(
      { data: { fold: "rule-days" } },
      html.summary({}, "Each day"),
      html.table(
        { class: "plot-table" },
        head(["Day", "Rule", "Automatic", "Wrong", "Suspended"]),
        html.tbody(
          {},
          [...days]
            .reverse()
            .slice(0, MAX_ROWS)
            .map((each) =>
              html.tr(
                {},
                html.th({ scope: "row" }, dayText(each.day)),
                html.td({}, html.bdi({}, oneLine(each.rule, 64))),
                html.td({}, formatNumber(each.automatic)),
                html.td({}, formatNumber(each.wrong)),
                html.td({}, formatNumber(each.tripped)),
              ),
            ),
        ),
      ),
    ),
  );
}
