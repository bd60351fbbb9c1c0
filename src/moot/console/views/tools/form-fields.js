/** Fields of a form that hold one value: a text, a number, a choice, a constant, or JSON. */
import { button, html, newId, replace } from "../../core/page/dom.js";
import { parseJson } from "../../core/state/json-text.js";
import { oneLine, escapeHidden } from "../../core/page/text.js";
import { schemaLabel, titleOfSchema } from "./call-validation.js";

/** @typedef {import("./call-form.js").FieldContext} FieldContext @typedef {import("./call-form.js").FormField} FormField */

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$/;
const LONG_TEXTS = /content|text|body|message|query|code|prompt|description|old|new/i;

/** A label, the tool's description of the field, the field, and room for an error. @param {any} schema @param {FieldContext} context @param {HTMLElement} field @param {string} [hint] */
export function fieldFrame(schema, context, field, hint = "") {
  const title = titleOfSchema(schema, context.name);
  const message = [typeof schema.description === "string" ? escapeHidden(schema.description.slice(0, 1000)) : "", hint]
    .filter(Boolean)
    .join(" ");
  const describe = newId("about");
  const fault = html.p({ class: "fault", id: `${describe}-fault` });
  field.id ||= newId("field");
  field.setAttribute("aria-describedby", `${describe} ${describe}-fault`);
  if (context.required) field.setAttribute("aria-required", "true");
  if (!title) field.setAttribute("aria-label", context.label ?? "value");
  const node = html.div(
    { class: "form-field" },
    title &&
      html.label(
        { for: field.id },
        html.bdi({}, oneLine(title, 80)),
        title !== context.name && context.name && html.bdi({ class: "mono faint" }, ` ${oneLine(context.name, 60)}`),
        context.required ? html.span({ class: "required-mark" }, " required") : null,
      ),
    html.p({ class: "form-about soft", id: describe }, message),
    field,
    fault,
  );
  return {
    node,
    fault: (/** @type {string[]} */ path, /** @type {string} */ text) => {
      field.setAttribute("aria-invalid", "true");
      replace(fault, escapeHidden(`${path.length > 0 ? `${path.join(".")} ` : ""}${text}`));
      return true;
    },
    clear: () => {
      field.removeAttribute("aria-invalid");
      replace(fault);
    },
    check: () => true,
  };
}

/** @param {any} schema @param {FieldContext} context @param {"text" | "number"} kind @returns {FormField} */
export function textField(schema, context, kind) {
  const isLong =
    kind === "text" &&
    (schema.contentMediaType !== undefined || (schema.maxLength ?? 1e9) > 200) &&
    !schema.format &&
    !schema.pattern &&
    LONG_TEXTS.test(context.name);
  const attributes = {
    class: ["field", kind === "number" && "number-field"],
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "off",
    placeholder: example(schema),
    on: { input: context.changed },
  };
  const field = isLong
    ? html.textarea({ ...attributes, rows: "4" })
    : html.input({
        ...attributes,
        type: schema.format === "password" ? "password" : "text",
        inputmode:
          kind === "number" ? "decimal" : schema.format === "email" ? "email" : schema.format === "uri" ? "url" : null,
      });
  const frame = fieldFrame(schema, context, field, bounds(schema, kind));
  // An empty field counts as not set, unless it was filled with an empty text, or a person says that this is meant.
  let isGiven = false;
  field.addEventListener("input", () => (isGiven = false));
  const empty =
    kind === "text" && context.required && !((schema.minLength ?? 0) > 0)
      ? button(
          "Send an empty text",
          () => {
            isGiven = true;
            frame.clear();
            empty?.remove();
            field.setAttribute("placeholder", "(empty text)");
            context.changed();
            field.focus();
          },
          { class: "small" },
        )
      : null;
  const self = {
    ...frame,
    fault: (/** @type {string[]} */ path, /** @type {string} */ message) => {
      frame.fault(path, message);
      if (empty && field.value === "" && !isGiven) frame.node.append(empty);
      return true;
    },
    clear: () => {
      frame.clear();
      empty?.remove();
    },
    text: () => {
      const value = field.value;
      if (kind === "number")
        return value.trim() === "" ? null : NUMBER.test(value.trim()) ? value.trim() : JSON.stringify(value);
      return value === "" && !isGiven ? null : JSON.stringify(value);
    },
    fill: (/** @type {string | null} */ text) => {
      field.value = text === null ? "" : text.startsWith('"') ? JSON.parse(text) : text;
      isGiven = text === '""';
    },
  };
  if (schema.default !== undefined) self.fill(JSON.stringify(schema.default));
  return self;
}

/** @param {any} schema */
function example(schema) {
  const first = Array.isArray(schema.examples) ? schema.examples[0] : undefined;
  return first === undefined ? null : oneLine(typeof first === "string" ? first : JSON.stringify(first), 80);
}

/** @param {any} schema @param {string} kind */
function bounds(schema, kind) {
  const found = [];
  if (kind === "number") {
    found.push(schema.type === "integer" ? "Whole number." : "Number.");
    if (schema.minimum !== undefined || schema.maximum !== undefined)
      found.push(`From ${schema.minimum ?? "any"} to ${schema.maximum ?? "any"}.`);
  } else if (typeof schema.format === "string") found.push(`Format: ${oneLine(schema.format, 40)}.`);
  return found.join(" ");
}

/** @param {any} schema @param {FieldContext} context @returns {FormField} */
export function constantField(schema, context) {
  const field = html.input({ class: "field mono", readonly: true, value: JSON.stringify(schema.const) });
  const frame = fieldFrame(schema, context, field);
  return { ...frame, text: () => JSON.stringify(schema.const), fill: () => {} };
}

/** @param {any} schema @param {FieldContext} context @param {string[]} [message] @returns {FormField} */
export function choiceField(schema, context, message) {
  const values = schema.enum.slice(0, 1000).map((/** @type {any} */ each) => JSON.stringify(each));
  const field = html.select(
    { class: "field", on: { change: context.changed } },
    html.option({ value: "" }, context.required ? "Choose…" : "(not set)"),
    values.map((/** @type {string} */ value, /** @type {number} */ index) =>
      html.option(
        { value },
        message?.[index] ?? oneLine(typeof schema.enum[index] === "string" ? schema.enum[index] : value, 100),
      ),
    ),
  );
  const frame = fieldFrame(schema, context, field);
  const self = {
    ...frame,
    text: () => (field.value === "" ? null : field.value),
    fill: (/** @type {string | null} */ text) => {
      field.value = text !== null && values.includes(canonical(text)) ? canonical(text) : "";
    },
  };
  if (schema.default !== undefined) self.fill(JSON.stringify(schema.default));
  return self;
}

/** @param {string} text */
export function canonical(text) {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text;
  }
}

/** A JSON editor, for schemas that no form fits. @param {any} schema @param {FieldContext} context @returns {FormField} */
export function jsonField(schema, context) {
  const field = html.textarea({
    class: "field mono",
    rows: "3",
    spellcheck: "false",
    autocapitalize: "off",
    placeholder: context.required ? "JSON" : "JSON (optional)",
    on: { input: context.changed },
  });
  const frame = fieldFrame(schema, context, field, `As JSON: ${schemaLabel(schema)}.`);
  if (schema.default !== undefined) field.value = JSON.stringify(schema.default);
  return {
    ...frame,
    text: () => (field.value.trim() === "" || parseJson(field.value) === undefined ? null : field.value.trim()),
    fill: (text) => (field.value = text ?? ""),
    check: () => {
      const fault =
        field.value.trim() === ""
          ? ""
          : parseJson(field.value) === undefined
            ? "Invalid JSON."
            : schema.type === "object" && !field.value.trim().startsWith("{")
              ? "Must be an object: {…}."
              : "";
      if (fault) frame.fault([], fault);
      return fault === "";
    },
  };
}
