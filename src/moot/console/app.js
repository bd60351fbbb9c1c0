/** Where the console starts: sign in, then the shell around one view at a time. */
import { replace } from "./core/page/dom.js";
import { registerWorker } from "./core/page/installation.js";
import { finishSignIn, hasAnswer, takeAnswer } from "./core/connection/provider-sign-in.js";
import { currentRoute, onNavigation } from "./core/page/router.js";
import { Session } from "./core/connection/session.js";
import { oneLine } from "./core/page/text.js";
import { isReachable } from "./core/connection/gateway-fetch.js";
import { offlinePage } from "./views/shell/offline.js";
import { signInPage } from "./views/shell/sign-in.js";
import { applyTheme } from "./views/shell/theme.js";

/**
 * What every view is given.
 * @typedef {object} Context
 * @property {import("./core/connection/session.js").Session} session
 * @property {import("./core/connection/open-space.js").OpenSpace} openSpace
 * @property {import("./core/state/state.js").State} state
 * @property {import("./core/connection/envelope-sender.js").EnvelopeSender["send"]} send
 * @property {import("./core/connection/envelope-sender.js").EnvelopeSender["call"]} call
 * @property {import("./core/connection/envelope-sender.js").EnvelopeSender} sender
 * @property {import("./core/page/keys.js").Keys} keys
 * @property {(view: string, ...rest: string[]) => void} go show a view of this space
 * @property {(view: string, ...rest: string[]) => string} link the address of a view of this space
 * @property {(text: string, tone?: "info" | "good" | "bad") => void} notify a short message on the page, spoken too
 * @property {(text: string) => void} announce spoken by screen readers, not shown
 */

/** Watches how the page loads; see start.js. @type {{isRunning: boolean, fetchRest: (say: () => void) => Promise<void>} | undefined} */
const started = /** @type {any} */ (globalThis).moot;
/** @type {any} */ (globalThis).moot = { ...started, isRunning: true };
const root = /** @type {HTMLElement} */ (document.getElementById("app"));
// The page is served at the gateway's root, also behind a proxy with a path prefix.
const session = new Session(new URL(".", location.href.split("#")[0]));
/** @typedef {import("./views/shell/shell.js").Shell} Shell */
/** @type {Shell | null} */
let shell = null;
/** @type {typeof import("./views/shell/shell.js").Shell | null} */
let shellClass = null;
/** Said once to somebody who came by a link: where they are, and as whom. */
let greeting = "";
// Between two tries to load what a connection that was cut has kept from us.
const RETRY_MILLISECONDS = 2_000;
// Everything behind the sign-in form, loaded while somebody fills it in.
const loading = loadShell();

async function loadShell() {
  const say = () => session.logins.length > 0 && showProblem("Parts of the page could not be loaded; trying again.");
  await started?.fetchRest(say);
  while (!shellClass) {
    try {
      const [module] = await Promise.all([
        import("./views/shell/shell.js"),
        import("./views/manifest.js").then((module) => module.loadViews()),
      ]);
      shellClass = module.Shell;
    } catch {
      say();
      await new Promise((resolve) => setTimeout(resolve, RETRY_MILLISECONDS));
    }
  }
}

function show() {
  if (session.logins.length === 0) {
    shell?.close();
    shell = null;
    replace(root, signInPage(session, show));
    root.querySelector("input")?.focus();
    return;
  }
  if (!shellClass) {
    void loading.then(show);
    return;
  }
  const wanted = currentRoute().space;
  const space = session.logins.some((login) => login.space === wanted) ? wanted : session.logins[0].space;
  session.openSpace(space);
  session.connectAll();
  if (!shell) {
    shell = new shellClass(root, session);
    shell.onSignedOut = show;
  }
  shell.show();
  if (greeting) shell.notices.show(greeting, "good");
  greeting = "";
}

applyTheme();
let showing = false;
// A provider's answer in a tab that is already here belongs to no sign-in of this tab: no view and no history gets its code.
addEventListener("hashchange", () => {
  if (!hasAnswer()) return;
  takeAnswer(session.base);
  showProblem("This answer of a provider belongs to no sign-in of this tab. Sign in again.");
});
onNavigation(() => {
  if (session.logins.length === 0) return;
  // If a view navigates while it is being mounted, the mounting is finished first.
  if (showing) {
    queueMicrotask(show);
    return;
  }
  showing = true;
  try {
    show();
  } finally {
    showing = false;
  }
});
/** A one-time link: its code leaves the address bar and the history before anything else. */
async function redeemLink() {
  const code = /^#sign-in=([\w-]+)$/.exec(location.hash)?.[1];
  if (!code) return "";
  history.replaceState(null, "", location.pathname + location.search);
  try {
    const logins = await session.redeem(code);
    const names = logins.map((login) => oneLine(login.space, 40));
    greeting = `Signed in as ${oneLine(logins[0].participant, 40)} to ${names.length === 1 ? `the space ${names[0]}` : `${names.length} spaces (${names.slice(0, 5).join(", ")}${names.length > 5 ? ", …" : ""})`} at ${session.base.host}`;
    return "";
  } catch (fault) {
    return fault instanceof Error ? fault.message : "This link does not work.";
  }
}

/** Somebody comes back from a provider. @param {import("./core/connection/provider-sign-in.js").Answer | null} answer */
async function finishAtProvider(answer) {
  if (!answer || session.isUnreachable) return "";
  try {
    await session.signInAtProvider(await finishSignIn(session.base, answer));
    return "";
  } catch (fault) {
    return fault instanceof Error ? fault.message : "Sign-in failed.";
  }
}

// Before anything else: the code leaves the address bar and the history.
const answer = takeAnswer(session.base);
/** @param {string} problem what went wrong, for somebody who is not signed in */
function showProblem(problem) {
  const shown = root.querySelector(".sign-in-form .fault");
  if (shown) shown.textContent = problem;
}

/** A link by which an operator lets somebody add a passkey. */
function takePasskeyCode() {
  const code = /^#passkey=([\w-]+)$/.exec(location.hash)?.[1];
  if (code) history.replaceState(null, "", location.pathname + location.search);
  return code;
}

registerWorker(session.base);
const passkeyCode = takePasskeyCode();
const linkProblem = await redeemLink();
await session.restore();
const problem = (await finishAtProvider(answer)) || linkProblem;
const isSignedIn = session.logins.length > 0;
const showOffline = () => replace(root, offlinePage(session.base));
if (session.isUnreachable) showOffline();
else if (passkeyCode) {
  const { passkeyLinkPage } = await import("./views/shell/passkeys-dialog.js");
  replace(root, passkeyLinkPage(session, passkeyCode, show));
} else show();
// A page that a service worker had kept: it came without the gateway, perhaps.
if (
  !isSignedIn &&
  !problem &&
  !session.isUnreachable &&
  navigator.serviceWorker?.controller &&
  !(await isReachable(session.base)) &&
  session.logins.length === 0
)
  showOffline();
if (problem) showProblem(problem);
// A link that is opened in a tab that is already here.
addEventListener("hashchange", () => {
  if (/^#(sign-in|passkey)=/.test(location.hash)) location.reload();
});
