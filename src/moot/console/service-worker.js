/**
 * Runs beside the page: the page opens without a connection too, and notifications arrive while it is closed.
 *
 * It keeps the page and the static files of one version, and nothing else: what the gateway answers, tokens and
 * proposals never pass through here. The page itself is asked for each time and kept only for when there is no
 * answer, so an upgraded gateway never meets an old page. The gateway puts `self.moot` in front of this file: the
 * version and the names of its files. Another version is another service worker with a cache of its own.
 */

const worker = /** @type {any} */ (self);
/** @type {{version: string, files: string[]}} */
const { version, files } = worker.moot;
const scope = new URL(worker.registration.scope);
// Behind a proxy, two gateways may share one origin and differ in their path.
const CACHE_PREFIX = `moot-console ${scope.pathname} `;
const CACHE = CACHE_PREFIX + version;
const STATIC_FILE = new RegExp(`^${escapeRegExp(scope.pathname)}console/[0-9a-f]{16}/`);
const PAGE_MILLISECONDS = 8_000;
// What a proxy answers while the gateway is down, and the gateway itself while it starts.
const DOWN = [502, 503, 504];
const MAX_TEXT_CHARS = 500;

worker.addEventListener("install", (/** @type {any} */ event) => event.waitUntil(install()));
worker.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(activate()));

async function install() {
  const cache = await caches.open(CACHE);
  const page = await fetch(scope.href, { cache: "reload", credentials: "same-origin" });
  // Upgraded in this moment: the next look for a new service worker finds the right one.
  if (!page.ok || !(await page.clone().text()).includes(`"console/${version}/app.js"`))
    throw new Error("the page is of another version");
  await cache.put(scope.href, page);
  await cache.addAll(files.map((file) => new URL(`console/${version}/${file}`, scope).href));
  await worker.skipWaiting();
}

/** Keeps one version before this one: pages of it may be open and still need a file. */
async function activate() {
  const older = (await caches.keys()).filter((name) => name.startsWith(CACHE_PREFIX) && name !== CACHE);
  await Promise.all(older.slice(0, -1).map((name) => caches.delete(name)));
  await worker.clients.claim();
}

worker.addEventListener("fetch", (/** @type {any} */ event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || url.origin !== scope.origin) return;
  if (event.request.mode === "navigate" && url.pathname === scope.pathname)
    event.respondWith(answerPage(event.request));
  else if (STATIC_FILE.test(url.pathname)) event.respondWith(answerFile(event.request));
});

/** The page of the gateway that runs now; the kept one only if it does not answer. @param {Request} request */
async function answerPage(request) {
  const kept = async () => (await caches.open(CACHE)).match(scope.href, { ignoreVary: true });
  try {
    const answer = await fetch(request, { signal: AbortSignal.timeout(PAGE_MILLISECONDS) });
    return DOWN.includes(answer.status) ? ((await kept()) ?? answer) : answer;
  } catch {
    return (await kept()) ?? Response.error();
  }
}

/** @param {Request} request */
async function answerFile(request) {
  return (await caches.match(request.url, { ignoreVary: true })) ?? fetch(request);
}

// Notifications

worker.addEventListener("push", (/** @type {any} */ event) => event.waitUntil(showNotification(event.data)));
worker.addEventListener("notificationclick", (/** @type {any} */ event) => {
  event.notification.close();
  event.waitUntil(openPage(event.notification.data?.path));
});

/** @param {any} data */
async function showNotification(data) {
  const message = readMessage(data);
  await worker.registration.showNotification(textOf(message.title, "Something waits for your decision"), {
    body: textOf(message.body, ""),
    // The same when a message is sent again: it replaces the first one.
    tag: textOf(message.tag, "moot"),
    icon: new URL(`console/${version}/icon-192.png`, scope).href,
    badge: new URL(`console/${version}/icon-mono-96.png`, scope).href,
    data: { path: message.path },
  });
}

/** @param {any} data @returns {any} */
function readMessage(data) {
  try {
    return data.json() ?? {};
  } catch {
    // A browser that shows nothing for a message takes the permission away.
    return {};
  }
}

/** Show a page of ours: an open one, which stays signed in, or a new one. @param {any} path */
async function openPage(path) {
  const place = typeof path === "string" && path.startsWith("#/") ? path : "";
  const windows = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  const open = windows.find((/** @type {any} */ each) => each.url.split("#")[0] === scope.href);
  if (!open) return worker.clients.openWindow(scope.href + place);
  open.postMessage({ open: place });
  return open.focus();
}

/** @param {any} text @param {string} otherwise */
function textOf(text, otherwise) {
  return typeof text === "string" && text ? text.slice(0, MAX_TEXT_CHARS) : otherwise;
}

/** @param {string} text */
function escapeRegExp(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
