/** The service worker of this page: the page opens offline, can be installed, and receives notifications. */

/** @returns {boolean} whether this browser has service workers here: only over HTTPS and on localhost */
export function canInstall() {
  return isSecureContext && "serviceWorker" in navigator;
}

const READY_MILLISECONDS = 20_000;

/**
 * The service worker of this page; null if there is none.
 * @param {URL} base @param {{make?: boolean}} [options] `make` registers it and waits until it runs
 * @returns {Promise<ServiceWorkerRegistration | null>}
 */
export async function registration(base, options = {}) {
  if (!canInstall()) return null;
  if (!options.make) return (await navigator.serviceWorker.getRegistration(base.href)) ?? null;
  await register(base);
  const late = new Promise((resolve) => setTimeout(() => resolve(null), READY_MILLISECONDS));
  return /** @type {Promise<ServiceWorkerRegistration | null>} */ (Promise.race([navigator.serviceWorker.ready, late]));
}

/** @param {URL} base */
async function register(base) {
  try {
    await navigator.serviceWorker.register(new URL("service-worker.js", base), {
      scope: base.pathname,
      updateViaCache: "none",
    });
  } catch {
    // Private windows refuse it; everything but opening offline and notifications works.
  }
}

/** Register it when the page has loaded and nothing else is to be done. @param {URL} base */
export function registerWorker(base) {
  if (!canInstall()) return;
  const whenIdle = () =>
    "requestIdleCallback" in globalThis
      ? requestIdleCallback(() => void register(base), { timeout: 10_000 })
      : setTimeout(() => void register(base), 2_000);
  if (document.readyState === "complete") whenIdle();
  else addEventListener("load", whenIdle, { once: true });
  // A notification was pressed while this page is open.
  navigator.serviceWorker.addEventListener("message", (event) => {
    const place = event.data?.open;
    if (typeof place === "string" && place.startsWith("#/")) location.hash = place;
  });
}
