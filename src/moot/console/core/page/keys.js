/**
 * Keyboard shortcuts. Keys are plain letters, as in a mail program, and are ignored while the person types. Two-step
 * keys are written "g t". `?` shows all of them.
 */

/** @typedef {{keys: string, label: string, run: (event: KeyboardEvent) => void, scope: string, whileTyping?: boolean}} Shortcut */

// The longest time between the two steps of "g t".
const STEP_MILLISECONDS = 1200;

export class Keys {
  constructor() {
    /** @type {Shortcut[]} */
    this._shortcuts = [];
    this._first = "";
    /** @type {any} */
    this._timer = undefined;
    this._listen = (/** @type {KeyboardEvent} */ event) => this._onKey(event);
    addEventListener("keydown", this._listen);
  }

  /**
   * @param {string} scope heading in the help
   * @param {Record<string, [string, (event: KeyboardEvent) => void]>} shortcuts keys → label and action
   * @param {{whileTyping?: boolean}} [options]
   * @returns {() => void} removes them again
   */
  add(scope, shortcuts, options = {}) {
    const added = Object.entries(shortcuts).map(
      ([keys, [label, run]]) => /** @type {Shortcut} */ ({ keys, label, run, scope, whileTyping: options.whileTyping }),
    );
    this._shortcuts.push(...added);
    return () => {
      this._shortcuts = this._shortcuts.filter((each) => !added.includes(each));
    };
  }

  /** Stop listening. */
  close() {
    removeEventListener("keydown", this._listen);
  }

  /** All active shortcuts, by scope. @returns {Map<string, Shortcut[]>} */
  all() {
    const scopes = new Map();
    for (const each of this._shortcuts) scopes.set(each.scope, [...(scopes.get(each.scope) ?? []), each]);
    return scopes;
  }

  /** @param {KeyboardEvent} event */
  _onKey(event) {
    if (event.defaultPrevented || event.isComposing || event.altKey || event.metaKey) return;
    // While a dialog is open, keys do nothing on the page below it, wherever the focus is.
    if (document.querySelector("dialog:modal")) return;
    const typing = isTyping(event.target);
    const key = (event.ctrlKey ? "Ctrl+" : "") + keyName(event);
    const steps = this._first ? `${this._first} ${key}` : key;
    clearTimeout(this._timer);
    this._first = "";
    const usable = this._shortcuts.filter((each) => !typing || each.whileTyping);
    // The shortcut added last wins: a view may override a key.
    const found = usable.findLast((each) => each.keys === steps) ?? usable.findLast((each) => each.keys === key);
    // Enter and Space belong to whatever button or link has the focus.
    if (
      (key === "Enter" || key === "Space") &&
      event.target instanceof Element &&
      event.target.closest("button, a, summary, input, [role=button]")
    )
      return;
    if (found) {
      event.preventDefault();
      found.run(event);
    } else if (!typing && usable.some((each) => each.keys.startsWith(`${key} `))) {
      event.preventDefault();
      this._first = key;
      this._timer = setTimeout(() => (this._first = ""), STEP_MILLISECONDS);
    }
  }
}

/** @param {KeyboardEvent} event */
function keyName(event) {
  if (event.key === " ") return "Space";
  // Shift is part of the character for letters and signs, not for Enter and the arrows.
  return event.shiftKey && event.key.length > 1 && event.key !== "Shift" ? `Shift+${event.key}` : event.key;
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement)
    return true;
  return (
    target instanceof HTMLInputElement && !["checkbox", "radio", "button", "submit", "range"].includes(target.type)
  );
}
