/**
 * A form made from a JSON Schema. Its value is JSON text, not a JavaScript value: a number is sent with the digits
 * that were typed. Every field returns its text, or null when it is not set, and shows its own errors.
 */
import { button, html, replace } from "../../core/page/dom.js";
import { isObject, membersOf } from "../../core/state/json-text.js";
import { oneLine, escapeHidden } from "../../core/page/text.js";
import {
  MAX_DEPTH,
  alternatives,
  resolveSchema,
  schemaLabel,
  strings,
  titleOfSchema,
  typesOf,
} from "./call-validation.js";
import { fieldFrame, textField, constantField, choiceField, canonical, jsonField } from "./form-fields.js";

/**
 * @typedef {object} FormField one field, with those inside it
 * @property {HTMLElement} node
 * @property {() => string | null} text JSON, or null when it is not set
 * @property {(text: string | null) => void} fill
 * @property {(path: string[], message: string) => boolean} fault show the error at its field; false if the field is not here
 * @property {() => void} clear remove the shown errors
 * @property {() => boolean} check whether the input can be parsed; shows errors where not
 */

const MAX_ITEMS = 200;
// A recursive schema could grow without end: after this many fields the rest is edited as JSON.
const MAX_FIELDS = 400;

/** @param {any} schema of the arguments @param {() => void} changed @returns {FormField} */
export function schemaForm(schema, changed) {
  return fieldFor(schema, { root: schema, changed, depth: 0, name: "", required: true, built: { fields: 0 } });
}

/** @typedef {{root: any, changed: () => void, depth: number, name: string, required: boolean, label?: string, built: {fields: number}}} FieldContext `label` is for screen readers where none is shown */

/** @param {any} given @param {FieldContext} context @returns {FormField} */
function fieldFor(given, context) {
  const schema = resolveSchema(given, context.root);
  const choices = alternatives(schema, context.root);
  const types = typesOf(schema);
  context.built.fields += 1;
  if (context.depth > MAX_DEPTH || context.built.fields > MAX_FIELDS || schema["x-unresolved"])
    return jsonField(schema, context);
  if (schema.const !== undefined) return constantField(schema, context);
  if (Array.isArray(schema.enum)) return choiceField(schema, context);
  if (choices.length > 0) {
    // `anyOf: [X, null]` is a common way to write optional fields: show one field that may stay empty.
    const real = choices.filter((each) => each.type !== "null");
    if (real.length === 1 && choices.length === 2) return fieldFor({ ...real[0], ...withoutChoices(schema) }, context);
    return alternativesField(schema, choices, context);
  }
  const single = types.filter((each) => each !== "null");
  if (single.length > 1)
    return alternativesField(
      schema,
      single.map((type) => ({ ...schema, type, title: undefined })),
      context,
    );
  switch (single[0]) {
    case "object":
      return isObject(schema.properties) || context.depth === 0
        ? objectField(schema, context)
        : jsonField(schema, context);
    case "array":
      return Array.isArray(schema.prefixItems) ? jsonField(schema, context) : listField(schema, context);
    case "boolean":
      return choiceField({ ...schema, enum: [true, false] }, context, ["Yes", "No"]);
    case "integer":
    case "number":
      return textField(schema, context, "number");
    case "string":
      return textField(schema, context, "text");
    default:
      return context.depth === 0 ? objectField(schema, context) : jsonField(schema, context);
  }
}

/** @param {any} schema */
function withoutChoices(schema) {
  const { anyOf, oneOf, ...rest } = schema;
  return rest;
}

/** A choice between several schemas. @param {any} schema @param {any[]} choices @param {FieldContext} context @returns {FormField} */
function alternativesField(schema, choices, context) {
  const inner = html.div({ class: "form-inner" });
  const pick = html.select(
    {
      class: "field",
      on: {
        change: () => {
          take(Number(pick.value));
          context.changed();
        },
      },
    },
    !context.required && html.option({ value: "-1" }, "(not set)"),
    choices.map((each, index) => html.option({ value: String(index) }, oneLine(schemaLabel(each), 80))),
  );
  const frame = fieldFrame(schema, context, pick, "One of several:");
  frame.node.append(inner);
  /** @type {FormField | null} */
  let current = null;
  const take = (/** @type {number} */ index) => {
    current =
      index < 0
        ? null
        : fieldFor(
            { ...choices[index], title: undefined },
            {
              ...context,
              depth: context.depth + 1,
              name: "",
              label: titleOfSchema(schema, context.name) || context.label,
              required: true,
            },
          );
    pick.value = String(index);
    replace(inner, current?.node);
  };
  take(context.required ? 0 : -1);
  if (schema.default !== undefined) fill(JSON.stringify(schema.default));
  /** @param {string | null} text */
  function fill(text) {
    if (text === null) {
      take(context.required ? 0 : -1);
      return;
    }
    const shape = text.startsWith('"')
      ? "string"
      : text.startsWith("{")
        ? "object"
        : text.startsWith("[")
          ? "array"
          : /^[tf]/.test(text)
            ? "boolean"
            : text === "null"
              ? "null"
              : "number";
    const keys = shape === "object" ? membersOf(text).map((each) => each.key) : [];
    const found = choices.findIndex((each) => {
      const types = typesOf(each);
      if (Array.isArray(each.enum))
        return each.enum.some((/** @type {any} */ one) => JSON.stringify(one) === canonical(text));
      if (each.const !== undefined) return JSON.stringify(each.const) === canonical(text);
      return (
        (types.includes(shape) || (shape === "number" && types.includes("integer"))) &&
        (shape !== "object" || strings(each.required).every((name) => keys.includes(name)))
      );
    });
    take(found);
    current?.fill(text);
  }
  return {
    node: frame.node,
    text: () => current?.text() ?? null,
    fill,
    fault: (path, text) => (current?.fault(path, text) ?? false) || frame.fault(path, text),
    clear: () => {
      frame.clear();
      current?.clear();
    },
    check: () => current?.check() ?? true,
  };
}

/** An optional object is built only when it is added, because a schema may be recursive. @param {any} schema @param {FieldContext} context @returns {FormField} */
function objectField(schema, context) {
  if (context.depth === 0) {
    const inside = objectMembers(schema, context);
    return { ...inside, node: html.div({}, inside.isEmpty && html.p({ class: "soft" }, "No arguments."), inside.node) };
  }
  const title = oneLine(titleOfSchema(schema, context.name), 80);
  const about =
    typeof schema.description === "string" &&
    html.p({ class: "form-about soft" }, escapeHidden(schema.description.slice(0, 1000)));
  if (context.required) {
    const inside = objectMembers(schema, context);
    if (!title) return inside;
    return {
      ...inside,
      node: html.fieldset(
        { class: "form-group" },
        html.legend({}, title, html.span({ class: "required-mark" }, " required")),
        about,
        inside.node,
      ),
    };
  }
  /** @type {ReturnType<typeof objectMembers> | null} */
  let inside = null;
  const body = html.div({});
  const include = html.input({
    type: "checkbox",
    on: {
      change: () => {
        wanted(include.checked);
        context.changed();
      },
    },
  });
  const wanted = (/** @type {boolean} */ isWanted) => {
    include.checked = isWanted;
    if (isWanted && !inside) {
      inside = objectMembers(schema, context);
      body.append(inside.node);
    }
    body.hidden = !isWanted;
  };
  const self = {
    node: html.fieldset(
      { class: "form-group" },
      html.legend({}, html.label({ class: "choice" }, include, title || "Include")),
      about,
      body,
    ),
    text: () => (include.checked ? (inside?.text() ?? null) : null),
    fill: (/** @type {string | null} */ text) => {
      wanted(text !== null);
      if (text !== null) inside?.fill(text);
    },
    fault: (/** @type {string[]} */ path, /** @type {string} */ text) => {
      wanted(true);
      return inside?.fault(path, text) ?? false;
    },
    clear: () => inside?.clear(),
    check: () => !include.checked || (inside?.check() ?? true),
  };
  wanted(false);
  if (isObject(schema.default)) self.fill(JSON.stringify(schema.default));
  return self;
}

/** The properties of an object, required ones first. @param {any} schema @param {FieldContext} context */
function objectMembers(schema, context) {
  const needed = strings(schema.required);
  const names = Object.keys(isObject(schema.properties) ? schema.properties : {}).slice(0, MAX_ITEMS);
  names.sort((a, b) => Number(needed.includes(b)) - Number(needed.includes(a)));
  const inside = new Map(
    names.map((name) => [
      name,
      fieldFor(schema.properties[name], {
        ...context,
        depth: context.depth + 1,
        name,
        label: undefined,
        required: needed.includes(name),
      }),
    ]),
  );
  const isOpen =
    schema.additionalProperties === true ||
    isObject(schema.additionalProperties) ||
    (names.length === 0 && schema.additionalProperties !== false);
  const more = isOpen
    ? jsonField(
        {
          title: names.length > 0 ? "More fields" : "Fields",
          description: "A JSON object; its fields are added.",
          type: "object",
        },
        { ...context, depth: context.depth + 1, name: "", required: false },
      )
    : null;
  const fault = html.p({ class: "fault" });
  const self = {
    node: html.div(
      { class: "form-object" },
      [...inside.values()].map((each) => each.node),
      more?.node,
      fault,
    ),
    isEmpty: names.length === 0 && !more,
    text: () => {
      const stated = [...inside]
        .map(([name, each]) => [name, each.text()])
        .filter(([, text]) => text !== null)
        .map(([name, text]) => `${JSON.stringify(name)}:${text}`);
      const others = more?.text();
      if (others?.startsWith("{"))
        stated.push(
          ...membersOf(others)
            .filter((each) => !inside.has(each.key))
            .map((each) => `${JSON.stringify(each.key)}:${each.text}`),
        );
      return `{${stated.join(",")}}`;
    },
    fill: (/** @type {string | null} */ text) => {
      if (text === null || !text.startsWith("{")) return;
      const given = membersOf(text);
      for (const [name, each] of inside) each.fill(given.find((one) => one.key === name)?.text ?? null);
      const others = given.filter((each) => !inside.has(each.key));
      more?.fill(
        others.length > 0 ? `{${others.map((each) => `${JSON.stringify(each.key)}:${each.text}`).join(",")}}` : null,
      );
    },
    fault: (/** @type {string[]} */ path, /** @type {string} */ text) => {
      const [first, ...rest] = path;
      if (first !== undefined && inside.get(first)?.fault(rest, text)) return true;
      if (first !== undefined && more && !inside.has(first)) return more.fault(path, text);
      replace(fault, escapeHidden(`${path.join(".")} ${text}`));
      return true;
    },
    clear: () => {
      replace(fault);
      more?.clear();
      for (const each of inside.values()) each.clear();
    },
    check: () => [...inside.values(), ...(more ? [more] : [])].map((each) => each.check()).every(Boolean),
  };
  if (isObject(schema.default)) self.fill(JSON.stringify(schema.default));
  return self;
}

/** @param {any} schema @param {FieldContext} context @returns {FormField} */
function listField(schema, context) {
  /** @type {FormField[]} */
  let items = [];
  const rows = html.ol({ class: "form-items" });
  const add = button(
    "Add item",
    () => {
      put(null);
      context.changed();
      /** @type {HTMLElement | null} */ (rows.lastElementChild?.querySelector("input, textarea, select"))?.focus();
    },
    { class: "small" },
  );
  const fault = html.p({ class: "fault" });
  const title = oneLine(titleOfSchema(schema, context.name), 80);
  const node = html.fieldset(
    { class: "form-group" },
    html.legend({}, title, context.required && html.span({ class: "required-mark" }, " required")),
    html.p(
      { class: "form-about soft" },
      typeof schema.description === "string" ? escapeHidden(schema.description.slice(0, 1000)) : "",
      " List.",
    ),
    rows,
    add,
    fault,
  );
  const put = (/** @type {string | null} */ text) => {
    if (items.length >= MAX_ITEMS) return;
    const item = fieldFor(
      { ...resolveSchema(schema.items ?? {}, context.root) },
      { ...context, depth: context.depth + 1, name: "", label: `${title} ${items.length + 1}`, required: true },
    );
    if (text !== null) item.fill(text);
    items.push(item);
    const row = html.li(
      {},
      item.node,
      button(
        "Remove",
        () => {
          items = items.filter((each) => each !== item);
          row.remove();
          context.changed();
        },
        { class: "small quiet", aria: { label: `Remove an item of ${title}` } },
      ),
    );
    rows.append(row);
  };
  const self = {
    node,
    text: () =>
      items.length === 0 && !context.required ? null : `[${items.map((each) => each.text() ?? "null").join(",")}]`,
    fill: (/** @type {string | null} */ text) => {
      items = [];
      replace(rows);
      if (text?.startsWith("[")) for (const each of membersOf(text).slice(0, MAX_ITEMS)) put(each.text);
    },
    fault: (/** @type {string[]} */ path, /** @type {string} */ text) => {
      const [first, ...rest] = path;
      if (first !== undefined && items[Number(first)]?.fault(rest, text)) return true;
      replace(fault, escapeHidden(`${path.join(".")} ${text}`));
      return true;
    },
    clear: () => {
      replace(fault);
      items.forEach((each) => each.clear());
    },
    check: () => items.map((each) => each.check()).every(Boolean),
  };
  if (Array.isArray(schema.default)) self.fill(JSON.stringify(schema.default));
  return self;
}
