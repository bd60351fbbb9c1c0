/**
 * Decisions that are held back for some seconds, so that a person can take them back, if they chose that.
 *
 * Nothing of a decision leaves this page before its time is over. It is not sent when the page is closed, when the
 * person signs out, or when the page slept past the time: then nobody was there who could have taken it back. A held decision is
 * shown in every view. What is sent is bound to what was shown, as without this.
 */
import { button, html, newId, replace } from "../../core/page/dom.js";
import { icon } from "../parts/icons.js";

/** @typedef {import("../../app.js").Context} Context */

/**
 * @typedef {object} HeldDecision
 * @property {Context} context
 * @property {string} id of the proposal; empty for several
 * @property {string} text "Approving write_file"
 * @property {string} undone "write_file was not approved"
 * @property {number} due
 * @property {() => Promise<void> | void} send
 * @property {any} timer
 */

const STORAGE_KEY = "moot.approvals.takeBackSeconds";
const CHOICES = [0, 5, 10];
// A timer of a page in the background may be late by about a second; one that is later was asleep.
const LATE_MILLISECONDS = 5_000;

// Long enough to read it.
const SAID_MILLISECONDS = 4_000;

let lastTaken = "";
/** @type {any} */
let forgetting;
/** Oldest first. @type {HeldDecision[]} */
let held = [];
/** @type {Set<() => void>} */
const listeners = new Set();
const bar = html.div({
  class: "take-back",
  role: "region",
  "aria-label": "Decisions that can be undone",
  hidden: true,
});
/** @type {any} */
let ticking;
/** @type {() => void} */
let removeKeys = () => {};

/** Seconds in which a decision can be taken back; 0: it is sent at once. @returns {number} */
export function takeBackSeconds() {
  try {
    const seconds = Number(localStorage.getItem(STORAGE_KEY) ?? 0);
    return CHOICES.includes(seconds) ? seconds : 0;
  } catch {
    return chosenHere;
  }
}

// For browsers without storage: until the page is closed.
let chosenHere = 0;

/** @param {number} seconds */
function store(seconds) {
  chosenHere = seconds;
  try {
    localStorage.setItem(STORAGE_KEY, String(seconds));
  } catch {
    // As above.
  }
}

/** The setting. */
export function takeBackChoice() {
  const id = newId("take-back");
  const choice = html.select(
    {
      id,
      class: "field small",
      title: "How long a decision waits before it is sent",
      on: { change: () => store(Number(choice.value)) },
    },
    CHOICES.map((seconds) => html.option({ value: String(seconds) }, seconds ? `${seconds} s` : "off")),
  );
  choice.value = String(takeBackSeconds());
  return html.div({ class: "take-back-choice" }, html.label({ for: id }, "Undo delay"), choice);
}

/**
 * Send a decision after the time that the person chose. Returns false if they chose none: then the caller sends it.
 * @param {Context} context @param {string} id @param {string} text @param {string} undone what to say when it is undone @param {() => Promise<void> | void} send
 */
export function hold(context, id, text, undone, send) {
  const seconds = takeBackSeconds();
  if (seconds === 0) return false;
  /** @type {HeldDecision} */
  const one = { context, id, text, undone, due: Date.now() + seconds * 1000, send, timer: undefined };
  one.timer = setTimeout(() => finish(one), seconds * 1000);
  held.push(one);
  context.announce(`${text} in ${seconds} seconds. Press z to undo.`);
  changed();
  return true;
}

/** The seconds that are left until a decision about this proposal is sent; 0: none is held. @param {Context} context @param {string} id */
export function secondsLeft(context, id) {
  const one = held.find((each) => each.id === id && each.context.state === context.state);
  return one ? left(one) : 0;
}

/** The latest one, or the one about this proposal. @param {string} [id] */
export function takeBack(id) {
  const one = id === undefined ? held.at(-1) : held.find((each) => each.id === id);
  if (one) takeBackOne(one);
}

/** @param {HeldDecision} one */
function takeBackOne(one) {
  lastTaken = `Undone: ${one.undone}`;
  clearTimeout(forgetting);
  forgetting = setTimeout(() => {
    lastTaken = "";
    draw();
  }, SAID_MILLISECONDS);
  one.context.announce(lastTaken);
  remove(one);
}

/** @param {() => void} listener @returns {() => void} */
export function onHeldChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** @param {HeldDecision} one */
function left(one) {
  return Math.max(1, Math.ceil((one.due - Date.now()) / 1000));
}

/** @param {HeldDecision} one */
function finish(one) {
  if (!held.includes(one)) return;
  remove(one);
  if (Date.now() - one.due > LATE_MILLISECONDS)
    one.context.notify(`Not sent, because this page was asleep: ${one.text}. Decide again.`, "bad");
  else if (!one.context.session.logins.some((each) => each.space === one.context.state.space))
    one.context.notify(`Not sent, because you signed out: ${one.text}`, "bad");
  else void one.send();
}

/** @param {HeldDecision} one */
function remove(one) {
  clearTimeout(one.timer);
  held = held.filter((each) => each !== one);
  changed();
}

function changed() {
  if (!bar.isConnected) document.body.append(bar);
  clearInterval(ticking);
  removeKeys();
  removeKeys = () => {};
  if (held.length > 0) {
    ticking = setInterval(draw, 1000);
    removeKeys = held[0].context.keys.add("Decision on its way", { z: ["Undo", () => void takeBack()] });
    addEventListener("beforeunload", askToStay);
  } else removeEventListener("beforeunload", askToStay);
  draw();
  for (const listener of listeners) listener();
}

/** Closing the page is not a yes. @param {BeforeUnloadEvent} event */
function askToStay(event) {
  event.preventDefault();
}

function draw() {
  bar.hidden = held.length === 0 && !lastTaken;
  document.body.classList.toggle("undo-open", !bar.hidden);
  replace(
    bar,
    lastTaken && html.p({ class: "take-back-row taken" }, icon("check", 16), lastTaken),
    held.map((one) =>
      html.div(
        { class: "take-back-row" },
        icon("pause", 16),
        html.p(
          { class: "grow" },
          html.strong({}, one.text),
          ` in ${left(one)} s. `,
          html.span({ class: "soft" }, "Not sent if you close this page."),
        ),
        button("Undo", () => takeBackOne(one), {
          class: "small primary",
          shortcut: one === held.at(-1) ? "z" : undefined,
        }),
        button(
          "Send now",
          () => {
            remove(one);
            void one.send();
          },
          { class: "small quiet" },
        ),
      ),
    ),
  );
}
