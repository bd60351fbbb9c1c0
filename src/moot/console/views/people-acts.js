// @ts-check
/** Doing something to a member: asking first where it cannot be undone, and saying plainly what was refused. */
import { button, el, freshId, replace } from "../core/dom.js";
import { oneLine, visible } from "../core/text.js";
import { openDialog } from "./dialog.js";
import { explain } from "./explain.js";
import { icon } from "./icons.js";

/** @typedef {import("../app.js").Context} Context */

// As long as the SDK gives a member to answer a control.
const ANSWER_MILLISECONDS = 10_000;
// The gateway sends what it adds to a revocation right behind it (D-18).
const ADDED_MILLISECONDS = 2_000;
// What one reads of a reason; nobody reads more, and the gateway has its own limit.
export const REASON_CHARACTERS = 500;

/** A refusal in one sentence. @param {any} fault */
export function refusalWords(fault) {
  const code = typeof fault?.code === "string" ? fault.code : "";
  const message = oneLine(fault?.message ?? "", 300);
  return code ? `Refused (${oneLine(code, 40)}): ${explain(code).means} ${message && message !== code ? `The gateway says: ${message}` : ""}`.trim() : message;
}

/** The same with what to do about it. @param {any} fault */
export function refusalBox(fault) {
  const { means, todo } = explain(typeof fault?.code === "string" ? fault.code : "");
  return el("div", { class: "refusal-box", role: "alert" }, icon("warning", 16), el("div", {}, el("p", {}, el("strong", {}, "Refused: "), means), fault?.message && el("p", {}, visible(fault.message)), el("p", { class: "soft" }, todo)));
}

/**
 * Do it and tell how it went; gives the echo, or null if it was refused.
 * @param {Context} context @param {Promise<any>} doing @param {string} [done]
 */
export async function attempt(context, doing, done) {
  try {
    const echo = await doing;
    if (done) context.notify(done, "good");
    return echo;
  } catch (fault) {
    context.notify(refusalWords(fault), "bad");
    return null;
  }
}

/**
 * A question with fields. `act` does it; while it is refused the dialog stays, with the reason.
 * Enter in a field acts only when nothing is lost by it (`safe`).
 * @param {string} title @param {(Node | string | null | false)[]} content
 * @param {{verb: string, danger?: boolean, safe?: boolean, class?: string, act: () => Promise<any>, then?: (result: any) => void, closed?: () => void}} how
 */
export function askDialog(title, content, how) {
  const fault = el("div", { class: "dialog-fault" });
  const run = async () => {
    if (confirm.disabled) return;
    confirm.disabled = true;
    replace(fault);
    try {
      const result = await how.act();
      // Undefined: the fields were not in order, and what is wrong is shown beside them.
      if (result !== undefined) {
        dialog.close();
        how.then?.(result);
      }
    } catch (why) {
      replace(fault, refusalBox(why));
    } finally {
      confirm.disabled = false;
    }
  };
  const confirm = button(how.verb, () => void run(), { class: how.danger ? "danger" : "primary" });
  const dialog = openDialog(title, [...content.filter((each) => each !== null && each !== false), fault].map((each) => /** @type {Node | string} */ (each)), {
    class: how.class,
    actions: [button("Cancel", () => dialog.close(), { class: "quiet" }), confirm],
    closed: how.closed,
  });
  dialog.node.addEventListener("keydown", (event) => {
    const field = event.target instanceof HTMLInputElement && event.target.type !== "checkbox" && event.target.type !== "radio";
    if (event.key === "Enter" && ((how.safe && field) || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      void run();
    }
  });
  /** @type {HTMLElement | null} */ (dialog.node.querySelector("input:not([type=radio]):not([type=checkbox]), textarea, select"))?.focus();
  return dialog;
}

/** A labelled field; `node` is shown, `value()` is what is in it. @param {string} label @param {Record<string, any>} [attributes] @param {string} [hint] */
export function labelled(label, attributes = {}, hint = "") {
  const id = freshId("field");
  const { tag, ...rest } = attributes;
  const input = el(tag ?? "input", { id, class: "field", autocomplete: "off", type: tag ? null : "text", "aria-describedby": hint ? `${id}-hint` : null, ...rest });
  return { node: el("div", { class: "labelled" }, el("label", { for: id }, label), input, hint && el("small", { id: `${id}-hint` }, hint)), input, value: () => String(input.value).trim() };
}

export function reasonField() {
  return labelled("Reason", { maxlength: REASON_CHARACTERS }, "Everybody in the space can read it. May be left empty.");
}

/**
 * Ask a member for something that it answers; tells what came back.
 * @param {Context} context @param {string} kind @param {any} payload @param {string} to @param {string} what
 */
export async function askMember(context, kind, payload, to, what) {
  const doing = context.say(kind, payload, { to: [to] });
  const id = doing.id;
  if ((await attempt(context, doing)) === null) return null;
  const answer = await answerTo(context, id, to);
  if (answer === null) {
    const refusal = context.state.refusalOf(id);
    context.notify(refusal ? refusalWords(refusal) : `${oneLine(to, 40)} was asked ${what}, and has not answered.`, refusal ? "bad" : "info");
    return null;
  }
  context.notify(`${oneLine(to, 40)} answered: ${answerWords(answer.payload)}`, "good");
  return answer;
}

/** What the member itself says about it, or null after a while. @param {Context} context @param {string} id @param {string} from @returns {Promise<any>} */
function answerTo(context, id, from) {
  return new Promise((resolve) => {
    const look = () => {
      const row = context.state.envelopes.effectsOf(id).find((each) => each.from === from);
      if (row || context.state.refusalOf(id)) end(row ? context.state.envelopes.envelope(row) : null);
    };
    const end = (/** @type {any} */ answer) => {
      stop();
      clearTimeout(timer);
      resolve(answer);
    };
    const timer = setTimeout(() => end(null), ANSWER_MILLISECONDS);
    const stop = context.state.on(["envelopes", "refusals"], look);
    look();
  });
}

/** A status or a compact-done in a line. @param {any} payload */
export function answerWords(payload) {
  const words = Object.entries(payload ?? {}).filter(([, value]) => value === null || typeof value !== "object").map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`);
  return oneLine(words.join(", ") || "done", 200);
}

/** D-18: rights that a revocation left are told right after it. @param {Context} context @param {string} id @param {(refusal: any) => void} tell */
export function watchForRest(context, id, tell) {
  const look = () => {
    const refusal = context.state.refusalOf(id);
    if (!refusal) return;
    stop();
    clearTimeout(timer);
    tell(refusal);
  };
  const stop = context.state.on("refusals", look);
  const timer = setTimeout(stop, ADDED_MILLISECONDS);
  look();
}

/** @type {WeakMap<Element, string>} */
const drawn = new WeakMap();

/**
 * Fill a part of the page anew only if what it shows has changed; the keyboard stays where it was.
 * @param {Element} node @param {any} facts whatever it depends on @param {() => any} build
 */
export function redraw(node, facts, build) {
  const now = JSON.stringify(facts) ?? "";
  if (drawn.get(node) === now) return;
  drawn.set(node, now);
  const active = document.activeElement;
  const place = active instanceof HTMLElement && node.contains(active) ? active.dataset.place : undefined;
  const open = new Set([...node.querySelectorAll("details[open][data-fold]")].map((each) => /** @type {HTMLElement} */ (each).dataset.fold));
  replace(node, build());
  for (const fold of node.querySelectorAll("details[data-fold]")) if (open.has(/** @type {HTMLElement} */ (fold).dataset.fold)) fold.setAttribute("open", "");
  if (place !== undefined) {
    const again = [...node.querySelectorAll("[data-place]")].find((each) => /** @type {HTMLElement} */ (each).dataset.place === place);
    /** @type {HTMLElement | undefined} */ (again)?.focus({ preventScroll: true });
  }
}
