// @ts-check
/** A question or a sheet above the page. The browser's own <dialog> keeps the focus inside and gives it back. */
import { el, newId } from "../core/dom.js";
import { icon } from "./icons.js";

/**
 * Open a dialog; `close` in the answer ends it. It is gone from the page when it is closed. While `stays` says so, neither Escape nor a click beside it closes it.
 * @param {string} title
 * @param {(Node | string)[]} content
 * @param {{class?: string, actions?: Node[], stays?: () => boolean, closed?: () => void}} [options]
 * @returns {{node: HTMLDialogElement, close: () => void}}
 */
export function openDialog(title, content, options = {}) {
  const id = newId("dialog");
  const close = () => {
    if (!node.isConnected) return;
    node.close();
    // Now, not in the `close` event, which comes later: until then what had the focus in here would swallow the next key.
    node.remove();
    options.closed?.();
  };
  const node = el(
    "dialog",
    { class: ["dialog", options.class], "aria-labelledby": id },
    el(
      "header",
      { class: "dialog-head" },
      el("h2", { id }, title),
      el("button", { type: "button", class: "button quiet icon-only", "aria-label": "Close", on: { click: close } }, icon("close")),
    ),
    el("div", { class: "dialog-body" }, content),
    options.actions && el("footer", { class: "dialog-actions" }, options.actions),
  );
  // However the browser came to close it.
  node.addEventListener("close", close);
  node.addEventListener("cancel", (event) => {
    event.preventDefault();
    if (!options.stays?.()) close();
  });
  // A click beside it closes it: it lands on the dialog itself, not on what is in it.
  node.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    if (event.target === node && event.detail > 0 && !options.stays?.()) close();
  });
  // Keys of the page below do nothing meanwhile.
  node.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => event.stopPropagation());
  document.body.append(node);
  node.showModal();
  return { node, close };
}
