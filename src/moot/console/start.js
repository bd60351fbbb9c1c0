/**
 * Watches how the page loads. A script, a style or the answer to either may be lost on the way, and a browser asks for
 * nothing twice: without this the page would say "loading" for good. It needs nothing else, and the page names it twice.
 *
 *     loading ──the app runs──▶ running
 *        └──lost, or silence──▶ asked for again, one file after the other, until all are here ──▶ the page loads anew
 */
(() => {
  const page = /** @type {any} */ (globalThis);
  if (page.moot?.fetchRest) return;
  // Before anything is drawn: who has chosen dark is shown no white page first.
  try {
    const theme = localStorage.getItem("moot.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be blocked.
  }
  // Nothing at all came for so long. A slow line is not silent.
  const SILENCE_MILLISECONDS = 10_000;
  const RETRY_MILLISECONDS = 2_000;
  // All files are here and it does not run: then another time does not help either.
  const MAX_RELOADS = 3;
  const RELOADS_KEY = "moot.reloads";
  const folder = new URL(".", /** @type {HTMLScriptElement} */ (document.currentScript).src);
  const wait = () => new Promise((go) => setTimeout(go, RETRY_MILLISECONDS));
  const isStyle = (/** @type {any} */ node) => node instanceof HTMLLinkElement && node.rel === "stylesheet";

  /** Fetch a file whole, so that the browser has it. @param {string} address @param {RequestCache} cache */
  const fetchWhole = async (address, cache) => {
    const stop = new AbortController();
    /** @type {any} */
    let timer;
    const listen = () => {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENCE_MILLISECONDS);
    };
    listen();
    try {
      const answer = await fetch(address, { signal: stop.signal, cache });
      const reader = answer.ok ? answer.body?.getReader() : undefined;
      while (reader && !(await reader.read()).done) listen();
      return answer.status;
    } finally {
      clearTimeout(timer);
    }
  };

  /** The same, until it is here or the gateway says that there is no such file. @param {string} address @param {() => void} say @param {RequestCache} [cache] */
  const fetchUntilHere = async (address, say, cache = "default") => {
    for (let next = cache; ; next = "reload") {
      const status = await fetchWhole(address, next).catch(() => 0);
      if (status >= 200 && status < 500) return;
      say();
      await wait();
    }
  };

  const say = (text = "Parts of the page could not be loaded; trying again.") => {
    const place = document.querySelector("#app > .loading");
    if (place) place.textContent = text;
  };

  let isMending = false;
  const mend = async () => {
    if (page.moot.isRunning || isMending) return;
    isMending = true;
    say();
    // What is waited for in vain holds its connection, and a browser has few.
    stop();
    const named = [...document.querySelectorAll('link[rel="stylesheet"], script[type="module"]')].map(
      (each) => each.getAttribute("href") ?? each.getAttribute("src") ?? "",
    );
    for (const address of named) await fetchUntilHere(new URL(address, document.baseURI).href, () => say(), "reload");
    const reloads = Number(sessionStorage.getItem(RELOADS_KEY) ?? 0);
    sessionStorage.setItem(RELOADS_KEY, String(reloads + 1));
    if (reloads < MAX_RELOADS) location.reload();
    else say("The page has been loaded but does not run in this browser. Is the browser up to date?");
  };

  const again = (/** @type {Element} */ style) =>
    void wait().then(() => style.isConnected && style.replaceWith(style.cloneNode()));

  page.moot = {
    isRunning: page.moot?.isRunning ?? false,
    /** All that is behind the sign-in form. @param {() => void} say what is said when it has to be asked for again */
    fetchRest: (/** @type {() => void} */ say) => fetchUntilHere(new URL("views.js", folder).href, say),
  };
  addEventListener(
    "error",
    ({ target }) => {
      if (isStyle(target)) again(/** @type {Element} */ (target));
      else if (target instanceof HTMLScriptElement && target.type === "module") void mend();
    },
    true,
  );
  // What was lost before this script ran.
  addEventListener("load", () => {
    if (page.moot.isRunning) sessionStorage.removeItem(RELOADS_KEY);
    for (const each of document.querySelectorAll("link")) if (isStyle(each) && !each.sheet) again(each);
    setTimeout(() => void mend(), RETRY_MILLISECONDS);
  });
  setTimeout(() => void mend(), SILENCE_MILLISECONDS);
})();
