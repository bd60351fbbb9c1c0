/**
 * A button that counts only when it is held, by pointer or by key, for what cannot be undone. Who cannot hold, and
 * software that presses for people, presses twice: the second press counts after the same time.
 */
import { html } from "../../core/page/dom.js";

// Longer than any slip, shorter than impatience.
const HOLD_MILLISECONDS = 800;
// The second of two presses comes within this time.
const TWICE_MILLISECONDS = 8_000;

/**
 * @param {string} text @param {() => void} act
 * @param {{class?: string, shortcut?: string, data?: object}} [options]
 * @returns {HTMLButtonElement & {holdUntilKeyUp: () => void}}
 */
export function holdButton(text, act, options = {}) {
  /** @type {any} */
  let timer;
  let isHeld = false;
  let firstPress = -Infinity;
  const label = html.span({}, text);
  const begin = () => {
    if (isHeld || node.disabled) return;
    isHeld = true;
    node.classList.add("holding");
    timer = setTimeout(() => {
      end();
      act();
    }, HOLD_MILLISECONDS);
  };
  const end = () => {
    isHeld = false;
    clearTimeout(timer);
    node.classList.remove("holding");
  };
  /** A press of somebody who does not hold. */
  const press = () => {
    const since = performance.now() - firstPress;
    if (since >= HOLD_MILLISECONDS && since < TWICE_MILLISECONDS) return act();
    if (since >= TWICE_MILLISECONDS) firstPress = performance.now();
    label.textContent = "Hold, or press once more";
  };
  const isKey = (/** @type {KeyboardEvent} */ event) => event.key === "Enter" || event.key === " ";
  const node = html.button(
    {
      type: "button",
      class: ["button hold", options.class],
      title: `Hold for a second: red hints were found`,
      aria: { keyshortcuts: options.shortcut },
      data: options.data ?? {},
      on: {
        pointerdown: (/** @type {PointerEvent} */ event) => event.button === 0 && begin(),
        pointerup: end,
        pointerleave: end,
        pointercancel: end,
        contextmenu: (/** @type {Event} */ event) => event.preventDefault(),
        keydown: (/** @type {KeyboardEvent} */ event) => {
          if (!isKey(event)) return;
          event.preventDefault();
          if (!event.repeat) begin();
        },
        keyup: (/** @type {KeyboardEvent} */ event) => {
          if (!isKey(event)) return;
          event.preventDefault();
          if (isHeld) press();
          end();
        },
        blur: end,
        click: press,
      },
    },
    label,
    options.shortcut && html.kbd({ "aria-hidden": "true" }, options.shortcut),
  );
  /** For a key of the page: as long as it is down. */
  const holdUntilKeyUp = () => {
    const stop = () => {
      if (isHeld) press();
      end();
    };
    addEventListener("keyup", stop, { once: true });
    begin();
  };
  return Object.assign(node, { holdUntilKeyUp });
}
