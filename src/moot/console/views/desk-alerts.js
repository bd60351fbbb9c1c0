// @ts-check
/**
 * A tone and a notification when something new waits, if the person chose so. The choice is remembered in this
 * browser; what is proposed is named in a line of plain text, never in full.
 */
import { button, el, replace } from "../core/dom.js";
import { address } from "../core/router.js";
import { oneLine } from "../core/text.js";
import { titleOf } from "./desk-decide.js";
import { icon } from "./icons.js";

const KEPT = "moot.desk.alerts";
// Two soft beeps, as short as a key click.
const TONES = [[0, 660], [0.14, 880]];
const TONE_SECONDS = 0.12;
const TONE_VOLUME = 0.08;
// A flood of proposals makes one sound.
const QUIET_MILLISECONDS = 3_000;

/** @returns {{sound: boolean, notification: boolean}} */
export function alertsChosen() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) ?? "{}");
    return { sound: kept.sound === true, notification: kept.notification === true && "Notification" in globalThis && Notification.permission === "granted" };
  } catch {
    return { sound: false, notification: false };
  }
}

/** @param {{sound: boolean, notification: boolean}} chosen */
function keep(chosen) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(chosen));
  } catch {
    // Private windows may keep nothing: it holds until the page is closed.
  }
}

/** @type {WeakMap<import("../core/state.js").State, Set<string>>} */
const known = new WeakMap();
let lastAlert = 0;

/** Look for proposals that were not there before. Called whenever the badge is drawn, so it works in every view. @param {import("../core/state.js").State} state */
export function watchFor(state) {
  const seen = known.get(state) ?? new Set();
  known.set(state, seen);
  const fresh = [...state.proposals.pending.values()].filter((each) => !seen.has(each.id));
  for (const id of seen) if (!state.proposals.pending.has(id)) seen.delete(id);
  for (const each of fresh) seen.add(each.id);
  const others = fresh.filter((each) => each.from !== state.me.id);
  if (others.length === 0) return;
  const chosen = alertsChosen();
  if ((!chosen.sound && !chosen.notification) || Date.now() - lastAlert < QUIET_MILLISECONDS) return;
  lastAlert = Date.now();
  if (chosen.sound) beep();
  if (chosen.notification && !document.hasFocus()) notify(state, others);
}

/** @type {WeakSet<object>} */
const watched = new WeakSet();

/** The same for every space that is open, not only the one that is shown. @param {import("../core/session.js").Session} session */
export function watchAll(session) {
  if (watched.has(session)) return;
  watched.add(session);
  session.on("places", () => session.places.forEach((place) => watchFor(place.state)));
}

/** @type {AudioContext | null} */
let audio = null;

function beep() {
  audio ??= new AudioContext();
  // Without a gesture on the page the browser keeps it silent, and that is that.
  void audio.resume().catch(() => {});
  for (const [after, pitch] of TONES) {
    const tone = audio.createOscillator();
    const volume = audio.createGain();
    const at = audio.currentTime + after;
    tone.frequency.value = pitch;
    volume.gain.setValueAtTime(0, at);
    volume.gain.linearRampToValueAtTime(TONE_VOLUME, at + 0.01);
    volume.gain.exponentialRampToValueAtTime(0.0001, at + TONE_SECONDS);
    tone.connect(volume).connect(audio.destination);
    tone.start(at);
    tone.stop(at + TONE_SECONDS);
  }
}

/** @param {import("../core/state.js").State} state @param {import("../core/state-proposals.js").Proposal[]} fresh */
function notify(state, fresh) {
  const [first] = fresh;
  const words = fresh.length > 1 ? `${fresh.length} proposals wait for a decision` : `${oneLine(first.from, 40)} proposes ${oneLine(titleOf(first), 60)}`;
  try {
    const shown = new Notification(`Moot · ${oneLine(state.space, 40)}`, { body: words, tag: `moot-desk-${state.space}` });
    shown.onclick = () => {
      focus();
      location.hash = address(state.space, "desk", first.id);
      shown.close();
    };
  } catch {
    // Some phones want a service worker for this; the sound and the badge remain.
  }
}

/** Two switches. @param {import("../app.js").Context} context */
export function alertSwitches(context) {
  const holder = el("div", { class: "alert-switches", role: "group", "aria-label": "Tell me about new proposals" });
  const draw = () => {
    const chosen = alertsChosen();
    replace(
      holder,
      button("Sound", () => {
        keep({ ...chosen, sound: !chosen.sound });
        if (!chosen.sound) beep();
        draw();
      }, { class: "quiet small", icon: icon("bell", 16), aria: { pressed: chosen.sound }, title: "A short tone when something new waits" }),
      button("Notify", async () => {
        if (!chosen.notification && !(await permitted(context))) return;
        keep({ ...chosen, notification: !chosen.notification });
        draw();
      }, { class: "quiet small", icon: icon("desk", 16), aria: { pressed: chosen.notification }, title: "A notification of the system while you look elsewhere" }),
    );
  };
  draw();
  return holder;
}

/** @param {import("../app.js").Context} context */
async function permitted(context) {
  if (!("Notification" in globalThis)) {
    context.notify("This browser shows notifications only over https or on this very computer.", "bad");
    return false;
  }
  if ((await Notification.requestPermission()) === "granted") return true;
  context.notify("The browser does not allow notifications here: change that beside its address line.", "bad");
  return false;
}
