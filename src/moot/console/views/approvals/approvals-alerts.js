/**
 * A sound and a notification for new proposals, if the person turned them on. The choice is remembered in this
 * browser. The notification has one line of plain text, never the whole proposal.
 */
import { button, html, replace } from "../../core/page/dom.js";
import { routeAddress } from "../../core/page/router.js";
import { oneLine } from "../../core/page/text.js";
import { originCautions } from "../proposals/proposal-origins.js";
import { wishText } from "../proposals/proposal-sentence.js";
import { icon } from "../parts/icons.js";

const STORAGE_KEY = "moot.approvals.alerts";
// Two soft beeps, as short as a key click.
const TONES = [
  [0, 660],
  [0.14, 880],
];
const TONE_SECONDS = 0.12;
const TONE_VOLUME = 0.08;
// A flood of proposals makes one sound.
const QUIET_MILLISECONDS = 3_000;

/** @returns {{sound: boolean, notification: boolean}} */
function readAlertSettings() {
  try {
    const kept = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "{}");
    return {
      sound: kept.sound === true,
      notification: kept.notification === true && "Notification" in globalThis && Notification.permission === "granted",
    };
  } catch {
    return { sound: false, notification: false };
  }
}

/** @param {{sound: boolean, notification: boolean}} chosen */
function storeAlertSettings(chosen) {
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(chosen));
  } catch {
    // Private windows may have no storage: the choice then lasts until the page is closed.
  }
}

/** @type {WeakMap<import("../../core/state/state.js").State, Set<string>>} */
const known = new WeakMap();
let lastAlert = -Infinity;

/** Look for new proposals. Called whenever the badge is drawn, so it works in every view. @param {import("../../core/state/state.js").State} state */
export function alertNewProposals(state) {
  const seen = known.get(state) ?? new Set();
  known.set(state, seen);
  const added = [...state.proposals.pending.values()].filter((each) => !seen.has(each.id));
  for (const id of seen) if (!state.proposals.pending.has(id)) seen.delete(id);
  for (const each of added) seen.add(each.id);
  const others = added.filter((each) => each.from !== state.me.id);
  if (others.length === 0) return;
  const chosen = readAlertSettings();
  if ((!chosen.sound && !chosen.notification) || performance.now() - lastAlert < QUIET_MILLISECONDS) return;
  lastAlert = performance.now();
  if (chosen.sound) beep();
  if (chosen.notification && !document.hasFocus()) notify(state, others);
}

/** @type {WeakSet<object>} */
const watched = new WeakSet();

/** The same for every space that is open, not only the one that is shown. @param {import("../../core/connection/session.js").Session} session */
export function alertInAllSpaces(session) {
  if (watched.has(session)) return;
  watched.add(session);
  session.on("spaces", () => session.openSpaces.forEach((openSpace) => alertNewProposals(openSpace.state)));
}

/** @type {AudioContext | null} */
let audio = null;

function beep() {
  audio ??= new AudioContext();
  // The browser blocks sound until the person has interacted with the page.
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

/** @param {import("../../core/state/state.js").State} state @param {import("../../core/state/state-proposals.js").Proposal[]} added */
function notify(state, added) {
  const [first] = added;
  const text =
    added.length > 1
      ? `${added.length} pending proposals`
      : [`${oneLine(first.from, 40)} ${wishText(first)}`, ...originCautions(first).slice(0, 1)]
          .map((each) => oneLine(each, 160))
          .join("\n");
  try {
    const shown = new Notification(`Moot · ${oneLine(state.space, 40)}`, {
      body: text,
      tag: `moot-approvals-${state.space}`,
    });
    shown.onclick = () => {
      focus();
      location.hash = routeAddress(state.space, "approvals", first.id);
      shown.close();
    };
  } catch {
    // Some phones require a service worker for this; the sound and the badge remain.
  }
}

/** Two switches. @param {import("../../app.js").Context} context */
export function alertSwitches(context) {
  const holder = html.div({ class: "alert-switches", role: "group", "aria-label": "Alerts for new proposals" });
  const draw = () => {
    const chosen = readAlertSettings();
    replace(
      holder,
      button(
        "Sound",
        () => {
          storeAlertSettings({ ...chosen, sound: !chosen.sound });
          if (!chosen.sound) beep();
          draw();
        },
        {
          class: "quiet small",
          icon: icon("sound", 16),
          aria: { pressed: chosen.sound },
          title: "Play a short sound for new proposals",
        },
      ),
      button(
        "Notify",
        async () => {
          if (!chosen.notification && !(await requestPermission(context))) return;
          storeAlertSettings({ ...chosen, notification: !chosen.notification });
          draw();
        },
        {
          class: "quiet small",
          icon: icon("bell", 16),
          aria: { pressed: chosen.notification },
          title: "Show a system notification for new proposals while this window is not in focus",
        },
      ),
    );
  };
  draw();
  return holder;
}

/** @param {import("../../app.js").Context} context */
async function requestPermission(context) {
  if (!("Notification" in globalThis)) {
    context.notify("The browser shows notifications only over HTTPS or on localhost.", "bad");
    return false;
  }
  if ((await Notification.requestPermission()) === "granted") return true;
  context.notify("Notifications are blocked: allow them in the browser’s site settings.", "bad");
  return false;
}
