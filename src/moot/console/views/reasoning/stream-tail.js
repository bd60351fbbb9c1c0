/**
 * The end of a stream, live: text as it is, binary data as size and hex. The shown part is
 * bounded; it can be paused, and follows the end until somebody scrolls up.
 */
import { button, html, replace } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { escapeHidden } from "../../core/page/text.js";
import { icon } from "../parts/icons.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/state-streams.js").Stream} Stream */

// About 400 lines: enough to read back, few enough to lay out sixty times a second.
const SHOWN_CHARACTERS = 32_768;
// Text is added in pieces; this many pieces are merged into one text node.
const MAX_PIECES = 200;
const HEX_BYTES = 256;

/** "1.4 MiB". @param {number} bytes */
export function formatBytes(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/** A hex dump: sixteen bytes per line, with the printable characters. @param {Uint8Array} bytes */
function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_BYTES); at += 16) {
    const line = bytes.subarray(at, Math.min(at + 16, HEX_BYTES));
    const hex = Array.from(line, (each) => each.toString(16).padStart(2, "0")).join(" ");
    const text = Array.from(line, (each) => (each >= 0x20 && each < 0x7f ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${at.toString(16).padStart(4, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

/**
 * @param {Context} context @param {Stream} stream
 * @returns {{node: HTMLElement, update: () => void, hold: (held?: boolean) => void, follow: () => void}}
 */
export function streamTail(context, stream) {
  let held = false;
  let following = true;
  // How far into the stream's text the page is.
  let shownTo = 0;
  let shownFrames = -1;
  const sent = html.span({ class: "soft tail-status", role: "status" });
  const body = html.pre({
    class: "tail mono",
    tabindex: "0",
    role: "log",
    "aria-live": "off",
    "aria-label": "End of the stream",
    on: { scroll: () => (following = body.scrollHeight - body.scrollTop - body.clientHeight < 24) },
  });
  const holding = button("Pause", () => hold(), {
    class: "small",
    icon: icon("pause", 14),
    aria: { pressed: "false" },
  });
  const ending = button("Jump to end", () => follow(), { class: "small quiet", icon: icon("down", 14) });
  const node = html.div(
    { class: "tail-box" },
    html.div({ class: "tail-bar" }, sent, html.span({ class: "grow" }), ending, holding),
    body,
  );

  /** The current stream object; it may have been replaced after a reconnect. */
  const current = () => context.state.streams.byId.get(stream.id) ?? stream;
  const isBinary = () => current().encoding !== "text" && current().tail === "";

  const text = () => {
    const now = current();
    const all = now.cut + now.tail.length;
    const waiting = held ? ` · paused, ${formatNumber(all - shownTo)} new characters` : "";
    const nothing =
      now.frames === 0
        ? "no data since you joined"
        : `${formatNumber(now.frames)} frame${now.frames === 1 ? "" : "s"}, ${formatBytes(now.bytes)}`;
    sent.textContent = nothing + (isBinary() ? "" : waiting);
  };

  const showBinary = () => {
    const now = current();
    if (now.frames === shownFrames || held) return;
    shownFrames = now.frames;
    const bytes = /** @type {any} */ (now).lastBytes;
    body.textContent =
      now.frames === 0
        ? ""
        : bytes instanceof Uint8Array
          ? `Start of the latest frame:\n${hexDump(bytes)}`
          : "Binary data.";
  };

  const showText = () => {
    const now = current();
    const all = now.cut + now.tail.length;
    if (held || all === shownTo) return;
    const added = all - shownTo;
    if (added >= SHOWN_CHARACTERS || shownTo < now.cut || body.childNodes.length > MAX_PIECES) {
      const kept = now.tail.slice(-SHOWN_CHARACTERS);
      const left = all - kept.length;
      replace(
        body,
        left > 0 && html.span({ class: "faint" }, `… ${formatNumber(left)} earlier characters\n`),
        escapeHidden(kept),
      );
    } else body.append(escapeHidden(now.tail.slice(now.tail.length - added)));
    shownTo = all;
  };

  const update = () => {
    if (isBinary()) showBinary();
    else showText();
    text();
    if (following && !held) body.scrollTop = body.scrollHeight;
    node.dataset.open = String(current().open);
  };
  const hold = (/** @type {boolean} */ wanted = !held) => {
    held = wanted;
    holding.setAttribute("aria-pressed", String(held));
    const label = holding.querySelector("span");
    if (label) label.textContent = held ? "Resume" : "Pause";
    update();
  };
  const follow = () => {
    following = true;
    hold(false);
  };
  return { node, update, hold, follow };
}
