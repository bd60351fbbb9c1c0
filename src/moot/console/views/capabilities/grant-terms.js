/** How long a grant lasts. The gateway keeps it, so that it ends whether or not this page is open. */
import { formatMinute } from "../../core/page/time.js";

/**
 * @typedef {object} GrantTerm
 * @property {"once" | "hour" | "today" | "lasting"} name
 * @property {string} title
 * @property {(now: number) => Record<string, number>} limits the fields of `capability/grant`
 * @property {(now: number) => string} text for "agent can do this …"
 * @property {(now: number) => string} after what is not allowed any more, for "still asks"; empty if nothing ends
 */

const HOUR_SECONDS = 3_600;

/** When the day ends where this person is. @param {number} now */
function midnight(now) {
  const day = new Date(now);
  day.setHours(24, 0, 0, 0);
  return day.getTime();
}

/** Shortest first. @type {GrantTerm[]} */
export const GRANT_TERMS = [
  {
    name: "once",
    title: "Once",
    limits: () => ({ max_uses: 1 }),
    text: () => "one more time",
    after: () => "a second such call",
  },
  {
    name: "hour",
    title: "One hour",
    limits: () => ({ expires_in_seconds: HOUR_SECONDS }),
    text: (now) => `until ${formatMinute(now + HOUR_SECONDS * 1000)}`,
    after: (now) => `anything after ${formatMinute(now + HOUR_SECONDS * 1000)}`,
  },
  {
    name: "today",
    title: "Today",
    limits: (now) => ({ expires_in_seconds: Math.max(1, Math.floor((midnight(now) - now) / 1000)) }),
    text: () => "until midnight",
    after: () => "anything from midnight on",
  },
  {
    name: "lasting",
    title: "Until revoked",
    limits: () => ({}),
    text: () => "until someone revokes it",
    after: () => "",
  },
];

/** What a grant in the journal says about its end. @param {any} payload of `capability/grant` @param {number} at when it was granted */
export function readTerm(payload, at) {
  const seconds = payload?.expires_in_seconds;
  const uses = payload?.max_uses;
  return {
    expiresAt: typeof seconds === "number" && seconds > 0 ? at + seconds * 1000 : 0,
    maxUses: typeof uses === "number" && uses > 0 ? uses : 0,
  };
}

/** "until 14:03, once". @param {{expiresAt: number, maxUses: number}} term */
export function termText(term) {
  const parts = [];
  if (term.expiresAt) parts.push(`until ${formatMinute(term.expiresAt)}`);
  if (term.maxUses) parts.push(term.maxUses === 1 ? "once" : `${term.maxUses} times`);
  return parts.join(", ");
}
