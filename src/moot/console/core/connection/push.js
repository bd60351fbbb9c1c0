/**
 * Notifications on this device by Web Push: this browser subscribes at its push service, and the gateway is told where
 * it can be reached, for every token of this session. What was turned on here is remembered without any secret, so that
 * a page can say when it is not on any more.
 */
import { askGateway } from "./gateway-fetch.js";
import { canInstall, registration } from "../page/installation.js";

const STORAGE_KEY = "moot.push";

/** @typedef {{from: string, to: string, time_zone: string}} QuietHours */
/** @typedef {{key: string, subscriptions: {id: string, since: string, quiet_hours: QuietHours | null}[], refused?: string | null, ends_after_seconds?: number | null}} Listing `refused`: why no device can be added with this token; `ends_after_seconds`: how long an account is told after it was last here */
/** @typedef {import("./session.js").Login} Login */

/** Why this browser cannot be told here, and what to do; empty if it can. */
export function whyImpossible() {
  if (!isSecureContext)
    return "Browsers allow notifications only over HTTPS and on localhost, and this page was opened over plain HTTP. Open it at an HTTPS address of this gateway; whoever runs it can set one up.";
  if (canInstall() && "PushManager" in globalThis && "Notification" in globalThis) return "";
  const isApple =
    /iPhone|iPad/.test(navigator.userAgent) ||
    (navigator.userAgent.includes("Macintosh") && navigator.maxTouchPoints > 1);
  if (isApple)
    return "On an iPhone or iPad, put this page on the home screen first (Share, then Add to Home Screen), open it from there and sign in.";
  return "This browser has no push notifications here. A private window has none; other browsers do.";
}

/**
 * Whether notifications are on here for every token of these logins that can have them, the quiet hours, and why none can.
 * @param {URL} base @param {Login[]} logins
 * @returns {Promise<{isOn: boolean, quietHours: QuietHours | null, refused: string, endsAfterSeconds: number | null}>}
 */
export async function readPush(base, logins) {
  const found = await (await registration(base))?.pushManager?.getSubscription();
  const id = found ? await idOf(found.endpoint) : "";
  /** @type {QuietHours | null} */
  let quietHours = null;
  let isOn = Boolean(found);
  /** @type {number | null} */
  let endsAfterSeconds = null;
  const refused = [];
  const tokens = tokensOf(logins);
  for (const token of tokens) {
    const listing = await list(base, token);
    if (listing.refused) {
      refused.push(listing.refused);
      continue;
    }
    const own = listing.subscriptions.find((each) => each.id === id);
    isOn &&= own !== undefined && found !== null && found !== undefined && isFor(found, listing.key);
    quietHours ??= own?.quiet_hours ?? null;
    endsAfterSeconds ??= listing.ends_after_seconds ?? null;
  }
  return { isOn, quietHours, refused: refused.length === tokens.length ? (refused[0] ?? "") : "", endsAfterSeconds };
}

/**
 * Turn them on, or change the quiet hours. Throws an error with words for the person.
 * @param {URL} base @param {Login[]} logins @param {QuietHours | null} quietHours
 */
export async function turnOn(base, logins, quietHours) {
  if ((await Notification.requestPermission()) !== "granted")
    throw new Error("Notifications are blocked for this page: allow them in the browser’s site settings.");
  const worker = await registration(base, { make: true });
  if (!worker) throw new Error("The browser did not install the page’s service worker. Reload the page and try again.");
  const listings = await Promise.all(tokensOf(logins).map(async (token) => ({ token, ...(await list(base, token)) })));
  const tokens = listings.filter((each) => !each.refused).map((each) => each.token);
  if (tokens.length === 0) throw new Error(listings[0]?.refused ?? "Sign in first.");
  const [{ key }] = listings;
  let subscription = await worker.pushManager.getSubscription();
  // Made for a key that the gateway has lost: nothing that it sends would arrive.
  if (subscription && !isFor(subscription, key)) {
    await subscription.unsubscribe();
    subscription = null;
  }
  try {
    subscription ??= await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: bytesOf(key) });
  } catch (fault) {
    throw new Error(`The browser’s push service does not answer: ${fault instanceof Error ? fault.message : fault}`);
  }
  for (const token of tokens) await ask(base, "POST", "", token, { ...subscription.toJSON(), quiet_hours: quietHours });
  remember(base, logins);
}

/** Turn them off on this device. @param {URL} base @param {Login[]} logins */
export async function turnOff(base, logins) {
  forget(base, logins);
  const subscription = await (await registration(base))?.pushManager?.getSubscription();
  if (!subscription) return;
  const id = await idOf(subscription.endpoint);
  // Both, whichever fails: either of them is enough.
  const answers = await Promise.allSettled([
    subscription.unsubscribe(),
    ...tokensOf(logins).map((token) => ask(base, "DELETE", `/${id}`, token)),
  ]);
  const [browser, ...gateway] = answers.map((each) => each.status === "fulfilled");
  if (!browser && gateway.includes(false))
    throw new Error("Neither the gateway nor the push service answered. Try again when you are connected.");
}

/** Signing out: nobody is told here any more. @param {URL} base @param {Login[]} logins */
export async function stopOnSignOut(base, logins) {
  if (whyImpossible() || !remembered(base).length) return;
  await turnOff(base, logins).catch(() => {
    // Not connected: the gateway stops when the push service says that this browser is gone.
  });
}

/** Whether they were turned on here for these logins, and are not any more. @param {URL} base @param {Login[]} logins */
export async function hasStopped(base, logins) {
  if (whyImpossible()) return false;
  const known = remembered(base);
  const expected = logins.filter((login) => known.includes(nameOf(login)));
  if (expected.length === 0) return false;
  try {
    return !(await readPush(base, expected)).isOn;
  } catch {
    return false;
  }
}

/** @param {URL} base @param {string} token @returns {Promise<Listing>} */
function list(base, token) {
  return ask(base, "GET", "", token);
}

/** @param {URL} base @param {string} method @param {string} path @param {string} token @param {any} [body] @returns {Promise<any>} */
function ask(base, method, path, token, body) {
  return askGateway(base, method, `push-subscriptions${path}`, token, body);
}

/** @param {Login[]} logins */
function tokensOf(logins) {
  return [...new Set(logins.map((login) => login.token))];
}

/** What the gateway calls a subscription. @param {string} endpoint */
async function idOf(endpoint) {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(endpoint));
  return textOf(hash);
}

/** @param {PushSubscription} subscription @param {string} key */
function isFor(subscription, key) {
  const made = subscription.options.applicationServerKey;
  return made !== null && textOf(made) === key;
}

/** base64url without padding. @param {ArrayBuffer} bytes */
function textOf(bytes) {
  return btoa(String.fromCharCode(...new Uint8Array(bytes)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replace(/=+$/, "");
}

/** @param {string} text base64url */
function bytesOf(text) {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
}

/** @param {Login} login */
function nameOf(login) {
  return `${login.space}/${login.participant}`;
}

/** @param {URL} base */
function storageKey(base) {
  return `${STORAGE_KEY} ${base.pathname}`;
}

/** @param {URL} base @returns {string[]} */
function remembered(base) {
  try {
    const kept = JSON.parse(localStorage.getItem(storageKey(base)) ?? "[]");
    return Array.isArray(kept) ? kept : [];
  } catch {
    return [];
  }
}

/** @param {URL} base @param {Login[]} logins */
function remember(base, logins) {
  store(base, [...new Set([...remembered(base), ...logins.map(nameOf)])]);
}

/** @param {URL} base @param {Login[]} logins */
function forget(base, logins) {
  const gone = logins.map(nameOf);
  store(
    base,
    remembered(base).filter((each) => !gone.includes(each)),
  );
}

/** @param {URL} base @param {string[]} names */
function store(base, names) {
  try {
    if (names.length === 0) localStorage.removeItem(storageKey(base));
    else localStorage.setItem(storageKey(base), JSON.stringify(names));
  } catch {
    // Without storage, nobody is told when it stops.
  }
}
