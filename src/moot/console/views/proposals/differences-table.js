/**
 * Calls that are alike, as a table: what is equal in all of them once, what differs in rows, and what amounts come to.
 * Every value is shown whole, so that who reads the table has read the calls.
 */
import { html } from "../../core/page/dom.js";
import { formatJson, membersOf, textAt } from "../../core/state/json-text.js";
import { escapeHidden, nameOf, oneLine } from "../../core/page/text.js";
import { AMOUNT_NAMES, CURRENCY_NAMES } from "./call-risks.js";
import { titleOf } from "./proposal-decisions.js";
import { row, valueView } from "./proposal-content.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */

// A longer name of an argument would be cut.
const MAX_NAME_CHARACTERS = 100;

/** The arguments as they were written, if names and values tell everything about the call. @param {Proposal} proposal @returns {{key: string, text: string}[] | null} */
export function plainArguments(proposal) {
  const { bodyText, method } = proposal.call;
  const given = textAt(bodyText, ["params", "arguments"]) ?? "";
  const parts = given.startsWith("{") ? membersOf(given) : [];
  const isPlain =
    method === "tools/call" &&
    parts.length > 0 &&
    membersOf(textAt(bodyText, ["params"]) ?? "").length === 2 &&
    new Set(parts.map((each) => each.key)).size === parts.length &&
    parts.every((each) => each.key.length <= MAX_NAME_CHARACTERS);
  return isPlain ? parts : null;
}

/** An argument whole. @param {string} text */
export function argumentView(text) {
  return text.startsWith('"') ? valueView(text) : html.span({ class: "argument-text" }, escapeHidden(formatJson(text)));
}

/**
 * @param {Proposal[]} proposals alike, each with plain arguments
 * @param {(proposal: Proposal) => (Element | null | false)[]} remarksOf what else is to be read about one
 */
export function differencesTable(proposals, remarksOf) {
  const all = proposals.map((each) => new Map((plainArguments(each) ?? []).map(({ key, text }) => [key, text])));
  const keys = [...all[0].keys()];
  const isEqual = (/** @type {string} */ key) => all.every((each) => each.get(key) === all[0].get(key));
  const [equal, differing] = [keys.filter(isEqual), keys.filter((each) => !isEqual(each))];
  const remarks = proposals.map((each) => remarksOf(each).filter((node) => node instanceof Element));
  const common = new Set(
    remarks[0].map((node) => node.textContent).filter((text) => remarks.every((list) => has(list, text))),
  );
  const [first] = proposals;
  return html.section(
    { class: "differences" },
    html.p(
      {},
      nameOf(first.from),
      " proposes ",
      html.strong({ class: "mono" }, oneLine(titleOf(first), 80)),
      " on ",
      first.to.length > 0 ? first.to.map((id, index) => [index > 0 && ", ", nameOf(id)]) : "any host",
      proposals.length > 1 && html.strong({}, ` ${proposals.length} times`),
      ".",
    ),
    remarks[0].filter((node) => common.has(node.textContent)),
    equal.length > 0 && [
      proposals.length > 1 && html.p({ class: "soft" }, "The same in all:"),
      html.dl(
        { class: "arguments" },
        equal.map((key) => row(key, argumentView(all[0].get(key) ?? ""))),
      ),
    ],
    amounts(all, keys, proposals.length),
    html.div(
      { class: "differences-scroll", tabindex: "0", role: "group", "aria-label": "What differs" },
      html.table(
        {},
        html.thead(
          {},
          html.tr(
            {},
            html.th({ scope: "col" }, "#"),
            differing.map((key) => heading(key, all)),
            differing.length === 0 && html.th({ scope: "col" }, "Call"),
            html.td({}),
          ),
        ),
        html.tbody(
          {},
          proposals.map((proposal, index) =>
            html.tr(
              { data: { id: proposal.id } },
              html.th({ scope: "row" }, String(index + 1)),
              differing.map((key) =>
                html.td({ class: isNumber(key, all) && "number" }, argumentView(all[index].get(key) ?? "")),
              ),
              differing.length === 0 && html.td({ class: "soft" }, "exactly the same call"),
              html.td(
                { class: "differences-remarks" },
                remarks[index].filter((node) => !common.has(node.textContent)),
                html.p({ class: "fault" }),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

/** @param {Element[]} list @param {string | null} text */
function has(list, text) {
  return list.some((node) => node.textContent === text);
}

/** @param {string} key @param {Map<string, string>[]} all */
function isNumber(key, all) {
  return all.every((each) => /^-?\d/.test(each.get(key) ?? "0"));
}

/** @param {string} key @param {Map<string, string>[]} all */
function heading(key, all) {
  const count = new Set(all.map((each) => each.get(key))).size;
  return html.th(
    { scope: "col", class: isNumber(key, all) && "number" },
    html.bdi({ class: "mono" }, oneLine(key, MAX_NAME_CHARACTERS)),
    count < all.length && html.span({ class: "faint" }, ` ${count} different`),
  );
}

/** What amounts come to, for each currency. @param {Map<string, string>[]} all @param {string[]} keys @param {number} count */
function amounts(all, keys, count) {
  const currency = keys.find((each) => CURRENCY_NAMES.test(each));
  return keys
    .filter((key) => AMOUNT_NAMES.test(key))
    .flatMap((key) => {
      const values = all.map((each) => numberIn(each.get(key) ?? ""));
      if (values.some((each) => each === "")) return [];
      /** @type {Map<string, string[]>} */
      const byUnit = new Map();
      all.forEach((each, index) => {
        const unit = currency ? unitIn(each.get(currency) ?? "") : "";
        byUnit.set(unit, [...(byUnit.get(unit) ?? []), values[index]]);
      });
      const sums = [...byUnit].map(([unit, list]) => `${sumOf(list)}${unit && ` ${unit}`}`);
      return html.p(
        { class: "differences-sum" },
        html.bdi({ class: "mono" }, oneLine(key, MAX_NAME_CHARACTERS)),
        `, sum of ${count}: `,
        html.strong({}, html.bdi({}, escapeHidden(sums.join(", ")))),
      );
    });
}

/** Digits of a number or of a text that is one; empty if it is none. @param {string} text */
function numberIn(text) {
  const digits = text.replace(/^"|"$/g, "");
  return /^-?\d{1,40}(\.\d{1,20})?$/.test(digits) ? digits : "";
}

/** @param {string} text */
function unitIn(text) {
  return text.startsWith('"') ? oneLine(JSON.parse(text), 8) : "";
}

/** To the last digit. @param {string[]} numbers */
export function sumOf(numbers) {
  const places = Math.max(...numbers.map((each) => (each.split(".")[1] ?? "").length));
  const scaled = numbers.map((each) => {
    const [whole, part = ""] = each.split(".");
    return BigInt(whole + part.padEnd(places, "0"));
  });
  const sum = scaled.reduce((a, b) => a + b, 0n);
  const digits = String(sum < 0n ? -sum : sum).padStart(places + 1, "0");
  const whole = digits.slice(0, digits.length - places);
  return `${sum < 0n ? "-" : ""}${whole}${places > 0 ? `.${digits.slice(-places)}` : ""}`;
}
