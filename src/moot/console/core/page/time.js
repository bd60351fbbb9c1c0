/** Times for people: the clock of today, the date of other days, and how long ago. */

// Seconds with the digits of the language, ready for a thousand lines a second.
const twoDigits = new Intl.NumberFormat(undefined, { minimumIntegerDigits: 2, useGrouping: false });
const SECONDS = Array.from({ length: 60 }, (_, second) => twoDigits.format(second));
const plain = new Intl.NumberFormat(undefined, { useGrouping: false });
const tenths = new Intl.NumberFormat(undefined, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const day = new Intl.DateTimeFormat(undefined, {
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  hour12: false,
});

/** Milliseconds of an RFC 3339 time; `otherwise` if it is not one. @param {unknown} text @param {number} otherwise */
export function parseTime(text, otherwise) {
  const at = typeof text === "string" ? Date.parse(text) : NaN;
  return Number.isFinite(at) ? at : otherwise;
}

/** @type {{minute: number, text: string}} */
let lastDay = { minute: -1, text: "" };

/** 14:03:07, or with the date when it was not in the last day. @param {number} at */
export function formatTime(at) {
  if (Math.abs(Date.now() - at) < 86_400_000) {
    // Formatting is slow and the timeline needs it a thousand times a second, so seconds are added by hand.
    const minute = Math.floor(at / 60_000);
    if (minute !== lastDay.minute)
      lastDay = { minute, text: clock.format(minute * 60_000).replace(/\p{Nd}\p{Nd}\P{Nd}*$/u, "") };
    return lastDay.text + SECONDS[Math.floor((((at % 60_000) + 60_000) % 60_000) / 1000)];
  }
  return day.format(at);
}

/** 14:03, or with the date when it was not in the last day. @param {number} at */
export function formatMinute(at) {
  return Math.abs(Date.now() - at) < 86_400_000 ? formatTime(at).slice(0, -3) : formatTime(at);
}

/** @param {number} at */
export function isoTime(at) {
  return new Date(at).toISOString();
}

/** "just now", "3 min ago", "in 5 s". @param {number} at @param {number} [now] */
export function ago(at, now = Date.now()) {
  const seconds = Math.round((now - at) / 1000);
  const size = Math.abs(seconds);
  if (size < 2) return "just now";
  const [count, unit] =
    size < 60
      ? [size, "s"]
      : size < 3600
        ? [size / 60, "min"]
        : size < 172_800
          ? [size / 3600, "h"]
          : [size / 86_400, "days"];
  const text = `${plain.format(Math.floor(count))} ${unit}`;
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

/** 850 ms, 12.3 s, 4 min 5 s. @param {number} milliseconds */
export function duration(milliseconds) {
  if (milliseconds < 1000) return `${plain.format(Math.max(0, Math.round(milliseconds)))} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${tenths.format(seconds)} s`;
  return `${plain.format(Math.floor(seconds / 60))} min ${plain.format(Math.round(seconds % 60))} s`;
}
