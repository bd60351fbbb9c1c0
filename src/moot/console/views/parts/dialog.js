/** A modal dialog. The browser's own <dialog> keeps the focus inside and restores it afterwards. */
import { html, newId } from "../../core/page/dom.js";
import { icon } from "./icons.js";

/**
 * Open a dialog; the returned `close` closes it and removes it from the page. While `stays` returns true, neither Escape nor a click beside it closes it.
 * @param {string} title
 * @param {import("../../core/page/dom.js").Child[]} content
 * @param {{class?: string, actions?: Node[], stays?: () => boolean, closed?: () => void}} [options]
 * @returns {{node: HTMLDialogElement, close: () => void}}
 */
export function openDialog(title, content, options = {}) {
  const id = newId("dialog");
  const close = () => {
    if (!node.isConnected) return;
    node.close();
    // Now, not in the later `close` event: until then the focused element in the dialog would swallow the next key.
    node.remove();
    options.closed?.();
  };
  const node = html.dialog(
    { class: ["dialog", options.class], "aria-labelledby": id },
    html.header(
      { class: "dialog-head" },
      html.h2({ id }, title),
      html.button(
        { type: "button", class: "button quiet icon-only", "aria-label": "Close", on: { click: close } },
        icon("close"),
      ),
    ),
    html.div({ class: "dialog-body" }, content),
    options.actions && html.footer({ class: "dialog-actions" }, options.actions),
  );
  // The browser may also close it by itself.
  node.addEventListener("close", close);
  node.addEventListener("cancel", (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!options.stays?.()) close();
  });
  // A click beside it closes it: such a click has the dialog itself as its target, not its content.
  node.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    if (event.target === node && event.detail > 0 && !options.stays?.()) close();
  });
  // Shortcuts of the page below are disabled meanwhile.
  node.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => event.stopPropagation());
  document.body.append(node);
  node.showModal();
  return { node, close };
}
