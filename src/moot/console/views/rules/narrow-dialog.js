/** Accepting a narrower rule than suggested: the fields of a rule that can be narrowed. The approver checks that they were. */
import { button, html, newId, replace } from "../../core/page/dom.js";
import { oneLine, escapeHidden } from "../../core/page/text.js";
import { openDialog } from "../parts/dialog.js";
import { labelledField, refusalBox } from "../parts/action-dialog.js";
import { CommandRejected, rejectionBox, sendCommand } from "./rule-commands.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("./approver-state.js").ApproverState} ApproverState @typedef {import("./rule-record.js").Suggestion} Suggestion */

const LASTING = /^\d{1,6}[smhdw]$/;
const HOURS = /^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d( [A-Za-z0-9_+/-]{1,64})?$/;

/** A pattern as it is typed: text as it is, anything else as JSON. @param {any} pattern */
function typed(pattern) {
  return typeof pattern === "string" ? pattern : JSON.stringify(pattern);
}

/** @param {string} text @param {any} before */
function read(text, before) {
  if (typeof before === "string" && !/^\s*\[/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    if (typeof before === "string") return text;
    throw new Error(`invalid JSON: ${oneLine(text, 80)}`);
  }
}

/** A flat list of the ranges by path, also of those for each text: [payee, {ACME: [1, 300]}]. @param {any} range @param {string[]} [path] @returns {{path: string[], name: string, low: number, high: number}[]} */
function spans(range, path = []) {
  return Object.entries(range ?? {}).flatMap(([key, inner]) => {
    const place = [...path, key];
    const name = place.join(".");
    if (!Array.isArray(inner)) return spans(inner, place);
    if (typeof inner[0] !== "string") return [{ path: place, name, low: inner[0], high: inner[1] }];
    return Object.entries(inner[1]).map(([text, [low, high]]) => ({
      path: [...place, "1", text],
      name: `${name} for ${text}`,
      low,
      high,
    }));
  });
}

// The kinds of values that a rule has templates for.
const KINDS = ["shell", "path", "url", "email", "sql", "id", "amount", "day", "time", "text"];

/** The templates of one kind by path. @param {any} values @param {string[]} [path] @returns {{path: string[], templates: any}[]} */
function templatesOf(values, path = []) {
  return Object.entries(values ?? {}).flatMap(([key, inner]) =>
    typeof inner === "string" || Array.isArray(inner)
      ? [{ path: [...path, key], templates: inner }]
      : templatesOf(inner, [...path, key]),
  );
}

/** @param {any} values @param {string[]} path @param {any} value */
function setAt(values, path, value) {
  let current = values;
  for (const key of path.slice(0, -1)) current = current[key];
  current[path[path.length - 1]] = value;
}

/** @param {Context} context @param {ApproverState} approverState @param {Suggestion} suggestion */
export function narrowDialog(context, approverState, suggestion) {
  const rule = suggestion.rule;
  /** @type {{node: Node, apply: (edited: any) => void}[]} */
  const fields = [];
  const add = (
    /** @type {ReturnType<typeof labelledField>} */ field,
    /** @type {(edited: any, value: string) => void} */ apply,
  ) => fields.push({ node: field.node, apply: (edited) => checked(field, () => apply(edited, field.value())) });
  for (const [name, pattern] of Object.entries(rule.arguments ?? {})) {
    add(
      labelledField(
        oneLine(name, 60),
        { value: typed(pattern), class: "field mono", spellcheck: "false" },
        "A value, a JSON list, a glob or a /regular expression/ that matches less than this one",
      ),
      (edited, value) => {
        edited.arguments[name] = read(value, pattern);
      },
    );
  }
  for (const kind of KINDS) {
    for (const { path, templates } of templatesOf(rule[kind])) {
      add(
        labelledField(
          oneLine(path.join("."), 60),
          { value: typed(templates), class: "field mono", spellcheck: "false" },
          "A value, a template such as reports/<name>.md, or a JSON list of them, that matches less than this one",
        ),
        (edited, value) => {
          setAt(edited[kind], path, read(value, templates));
        },
      );
    }
  }
  for (const { path, name, low, high } of spans(rule.range)) {
    const text = oneLine(name, 60);
    const least = labelledField(`${text} (min)`, { value: String(low), inputmode: "decimal" });
    const limit = labelledField(`${text} (max)`, { value: String(high), inputmode: "decimal" });
    fields.push({
      node: html.div({ class: "two-fields" }, least.node, limit.node),
      apply: (edited) =>
        setAt(
          edited.range,
          path,
          [least, limit].map((field) => checked(field, () => numberOf(field.value()))),
        ),
    });
  }
  const limits = rule.limits ?? {};
  add(
    labelledField("Hours (optional)", { value: rule.hours ?? "", placeholder: "09:00-17:00 Europe/Berlin" }),
    (edited, value) => {
      if (!value && !rule.hours) return;
      if (!HOURS.test(value)) throw new Error("Enter two times of day, such as 09:00-17:00");
      edited.hours = value;
    },
  );
  const count = labelledField("Maximum uses", { value: String(limits.count ?? ""), inputmode: "numeric" });
  const per = labelledField("per", { value: limits.per ?? "1h", placeholder: "1h" });
  fields.push({
    node: html.div({ class: "two-fields" }, count.node, per.node),
    apply: (edited) => {
      if (!count.value()) return;
      edited.limits = {
        ...edited.limits,
        count: checked(count, () => wholeOf(count.value())),
        per: checked(per, () => lastingOf(per.value())),
      };
    },
  });
  add(
    labelledField("Expires (optional)", { value: limits.expires_at ?? "", placeholder: "2026-12-31T12:00:00Z" }),
    (edited, value) => {
      if (!value) return;
      if (Number.isNaN(Date.parse(value))) throw new Error("Enter a time such as 2026-12-31T12:00:00Z");
      edited.limits = { ...edited.limits, expires_at: value };
    },
  );
  add(
    labelledField(
      "Only while these members are online (optional)",
      { value: (limits.while_present ?? []).join(", "), placeholder: context.state.me.name },
      "Names, separated by commas",
    ),
    (edited, value) => {
      const names = value
        .split(",")
        .map((each) => each.trim())
        .filter(Boolean);
      if (names.length > 0) edited.limits = { ...edited.limits, while_present: names };
    },
  );
  add(
    labelledField("Sample left to people (%)", {
      value: String(Math.round((limits.check_share ?? 0) * 1000) / 10),
      inputmode: "decimal",
    }),
    (edited, value) => {
      const share = numberOf(value) / 100;
      if (share < 0 || share > 1) throw new Error("Enter a percentage from 0 to 100");
      edited.limits = { ...edited.limits, check_share: share };
    },
  );
  show(context, approverState, suggestion, fields);
}

/** @param {Context} context @param {ApproverState} approverState @param {Suggestion} suggestion @param {{node: Node, apply: (edited: any) => void}[]} fields */
function show(context, approverState, suggestion, fields) {
  const fault = html.div({ class: "dialog-fault" });
  const id = newId("exact");
  const exact = html.textarea({
    id,
    class: "field mono",
    rows: "12",
    spellcheck: "false",
    value: JSON.stringify(suggestion.rule, null, 2),
  });
  const folded = html.details(
    {},
    html.summary({}, "Edit the rule as JSON"),
    html.label({ class: "sr", for: id }, "Rule as JSON"),
    exact,
  );
  let byHand = false;
  exact.addEventListener("input", () => (byHand = true));
  const accept = button("Accept", () => void run(), { class: "primary" });
  async function run() {
    if (accept.disabled) return;
    replace(fault);
    let edited;
    try {
      edited = byHand ? JSON.parse(exact.value) : structuredClone(suggestion.rule);
      if (!byHand) for (const field of fields) field.apply(edited);
    } catch (error) {
      replace(
        fault,
        html.p(
          { class: "fault", role: "alert" },
          byHand
            ? `Invalid JSON: ${oneLine(String(error), 120)}`
            : oneLine(error instanceof Error ? error.message : String(error), 200),
        ),
      );
      return;
    }
    // The description was about the wider rule.
    if (JSON.stringify(edited) !== JSON.stringify(suggestion.rule)) delete edited.words;
    accept.disabled = true;
    try {
      const answer = await sendCommand(context, approverState, "trust/accept", {
        suggestion: suggestion.suggestion,
        rule: edited,
      });
      dialog.close();
      context.notify(
        answer ? `${oneLine(answer.payload?.rule?.name ?? "", 60)} is active` : "Sent; the approver has not replied",
        answer ? "good" : "info",
      );
    } catch (reason) {
      replace(fault, reason instanceof CommandRejected ? rejectionBox(reason) : refusalBox(reason));
    } finally {
      accept.disabled = false;
    }
  }
  const dialog = openDialog(
    "Narrow and accept",
    [
      html.p({ class: "soft" }, "The approver accepts only a rule that matches less than the suggestion."),
      html.p({}, html.bdi({}, escapeHidden(suggestion.words))),
      html.div(
        { class: "narrow-fields" },
        fields.map((each) => each.node),
      ),
      folded,
      fault,
    ],
    { class: "wide", actions: [button("Cancel", () => dialog.close(), { class: "quiet" }), accept] },
  );
  dialog.node.querySelector("input")?.focus();
  dialog.node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      void run();
    }
  });
}

/** Also shows an error at its field. @template T @param {ReturnType<typeof labelledField>} field @param {() => T} run @returns {T} */
function checked(field, run) {
  field.input.removeAttribute("aria-invalid");
  try {
    return run();
  } catch (error) {
    field.input.setAttribute("aria-invalid", "true");
    field.input.focus();
    throw error;
  }
}

/** @param {string} text */
function numberOf(text) {
  const found = Number(text);
  if (text === "" || !Number.isFinite(found)) throw new Error(`Enter a number, not “${oneLine(text, 40)}”`);
  return found;
}

/** @param {string} text */
function wholeOf(text) {
  const found = numberOf(text);
  if (!Number.isInteger(found) || found < 1) throw new Error("Enter a whole number, 1 or more");
  return found;
}

/** @param {string} text */
function lastingOf(text) {
  if (!LASTING.test(text)) throw new Error("Enter a duration such as 90s, 15m, 1h or 7d");
  return text;
}
