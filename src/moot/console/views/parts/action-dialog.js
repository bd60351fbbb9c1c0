/** Dialogs for actions: confirmation where something cannot be undone, and a plain message when it is refused. */
import { button, html, newId, replace } from "../../core/page/dom.js";
import { oneLine, escapeHidden } from "../../core/page/text.js";
import { openDialog } from "./dialog.js";
import { describeError } from "./error-text.js";
import { icon } from "./icons.js";

/** @typedef {import("../../app.js").Context} Context */

// The longest reason that can be typed; the gateway has its own limit.
const MAX_REASON_CHARACTERS = 500;

/** A refusal in one sentence. @param {any} fault */
export function refusalText(fault) {
  const code = typeof fault?.code === "string" ? fault.code : "";
  const message = oneLine(fault?.message ?? "", 300);
  return code
    ? `Refused (${oneLine(code, 40)}): ${describeError(code).means} ${message && message !== code ? `Gateway: ${message}` : ""}`.trim()
    : message;
}

/** The same, with advice on what to do. @param {any} fault */
export function refusalBox(fault) {
  const { means, todo } = describeError(typeof fault?.code === "string" ? fault.code : "");
  return html.div(
    { class: "refusal-box", role: "alert" },
    icon("warning", 16),
    html.div(
      {},
      html.p({}, html.strong({}, "Refused: "), means),
      fault?.message && html.p({}, escapeHidden(fault.message)),
      html.p({ class: "soft" }, todo),
    ),
  );
}

/**
 * Run an action and report the outcome; returns the echo, or null if it was refused.
 * @param {Context} context @param {Promise<any>} doing @param {string} [done]
 */
export async function runAndNotify(context, doing, done) {
  try {
    const echo = await doing;
    if (done) context.notify(done, "good");
    return echo;
  } catch (fault) {
    context.notify(refusalText(fault), "bad");
    return null;
  }
}

/**
 * A dialog with fields. `act` runs the action; if it is refused, the dialog stays open and shows the reason.
 * Enter in a field confirms only harmless actions (`safe`).
 * @param {string} title @param {import("../../core/page/dom.js").Child[]} content
 * @param {{verb: string, danger?: boolean, safe?: boolean, class?: string, act: () => Promise<any>, done?: (result: any) => void, closed?: () => void}} options
 */
export function actionDialog(title, content, options) {
  const fault = html.div({ class: "dialog-fault" });
  const run = async () => {
    if (confirm.disabled) return;
    confirm.disabled = true;
    replace(fault);
    try {
      const result = await options.act();
      // Undefined: a field is invalid, and the error is shown beside it.
      if (result !== undefined) {
        dialog.close();
        options.done?.(result);
      }
    } catch (error) {
      replace(fault, refusalBox(error));
    } finally {
      confirm.disabled = false;
    }
  };
  const confirm = button(options.verb, () => void run(), { class: options.danger ? "danger" : "primary" });
  const dialog = openDialog(title, [...content, fault], {
    class: options.class,
    actions: [button("Cancel", () => dialog.close(), { class: "quiet" }), confirm],
    closed: options.closed,
  });
  dialog.node.addEventListener("keydown", (event) => {
    const field =
      event.target instanceof HTMLInputElement && event.target.type !== "checkbox" && event.target.type !== "radio";
    if (event.key === "Enter" && ((options.safe && field) || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      void run();
    }
  });
  /** @type {HTMLElement | null} */ (
    dialog.node.querySelector("input:not([type=radio]):not([type=checkbox]), textarea, select")
  )?.focus();
  return dialog;
}

/** A labelled field; `node` is shown, `value()` is its content. @param {string} label @param {Record<string, any>} [attributes] @param {string} [hint] */
export function labelledField(label, attributes = {}, hint = "") {
  const id = newId("field");
  const { tag, ...rest } = attributes;
  const input = html[/** @type {"input"} */ (tag ?? "input")]({
    id,
    class: "field",
    autocomplete: "off",
    type: tag ? null : "text",
    "aria-describedby": hint ? `${id}-hint` : null,
    ...rest,
  });
  return {
    node: html.div(
      { class: "labelled" },
      html.label({ for: id }, label),
      input,
      hint && html.small({ id: `${id}-hint` }, hint),
    ),
    input,
    value: () => String(input.value).trim(),
  };
}

export function reasonField() {
  return labelledField("Reason (optional)", { maxlength: MAX_REASON_CHARACTERS }, "Everyone in the space can read it.");
}
