/** A rule as YAML for rules.yaml, or as the JSON that is sent. */
import { button, html, replace } from "../../core/page/dom.js";
import { isObject } from "../../core/state/json-text.js";
import { escapeHidden } from "../../core/page/text.js";

// Words that YAML would not read as text, and characters with a special meaning at the start.
const PLAIN = /^[A-Za-z_][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*$/;
const WORDS = new Set(["true", "false", "null", "yes", "no", "on", "off", "y", "n"]);

/** A rule in the YAML of rules.yaml. @param {any} rule */
function ruleYaml(rule) {
  return `rules:\n${indented(mapping(rule), "    ").replace("    ", "  - ")}\n`;
}

/** @param {Record<string, any>} fields @returns {string} */
function mapping(fields) {
  return Object.entries(fields)
    .map(([key, value]) => {
      if (isObject(value) && Object.keys(value).length > 0) return `${scalar(key)}:\n${indented(mapping(value), "  ")}`;
      return `${scalar(key)}: ${flow(value)}`;
    })
    .join("\n");
}

/** @param {any} value @returns {string} */
function flow(value) {
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  if (isObject(value))
    return `{${Object.entries(value)
      .map(([key, each]) => `${scalar(key)}: ${flow(each)}`)
      .join(", ")}}`;
  return typeof value === "string" ? scalar(value) : JSON.stringify(value);
}

/** @param {string} text */
function scalar(text) {
  return PLAIN.test(text) && !WORDS.has(text.toLowerCase()) ? text : JSON.stringify(text);
}

/** @param {string} text @param {string} by */
function indented(text, by) {
  return text
    .split("\n")
    .map((line) => by + line)
    .join("\n");
}

/** Both forms, one at a time. @param {any} rule */
export function ruleText(rule) {
  const pre = html.pre({ class: "text-block mono rule-text", tabindex: "0", "aria-label": "Rule text" });
  let json = false;
  const turn = button(
    "Show JSON",
    () => {
      json = !json;
      draw();
    },
    { class: "quiet small" },
  );
  function draw() {
    pre.textContent = escapeHidden(json ? JSON.stringify(rule, null, 2) : ruleYaml(rule));
    replace(turn, html.span({}, json ? "Show YAML" : "Show JSON"));
  }
  draw();
  return html.div({ class: "rule-block" }, pre, turn);
}
