// @ts-check
/** The service worker of this page: the page opens offline, can be installed, and receives notifications. */

/** @returns {boolean} whether this browser has service workers here: only over HTTPS and on localhost */
export function canInstall() {
  return isSecureContext && "serviceWorker" in navigator;
}

/** Register it when the page has loaded and nothing else is to be done. @param {URL} base */
export function registerWorker(base) {
  if (!canInstall()) return;
  const register = () => void navigator.serviceWorker.register(new URL("service-worker.js", base), { scope: base.pathname, updateViaCache: "none" }).catch(() => {
    // Private windows refuse it; everything but opening offline and notifications works.
  });
  const whenIdle = () => ("requestIdleCallback" in globalThis ? requestIdleCallback(register, { timeout: 10_000 }) : setTimeout(register, 2_000));
  if (document.readyState === "complete") whenIdle();
  else addEventListener("load", whenIdle, { once: true });
  // A notification was pressed while this page is open.
  navigator.serviceWorker.addEventListener("message", (event) => {
    const place = event.data?.open;
    if (typeof place === "string" && place.startsWith("#/")) location.hash = place;
  });
}
