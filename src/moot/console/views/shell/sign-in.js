/** Signing in: at a provider, or with a token that is typed or pasted here and sent only in a header. */
import { html, newId } from "../../core/page/dom.js";
import { beginSignIn, fetchProviders } from "../../core/connection/provider-sign-in.js";
import { hasPasskeys, wasUsed } from "../../core/connection/passkeys.js";
import { currentRoute } from "../../core/page/router.js";
import { SignInError } from "../../core/connection/session.js";
import { oneLine } from "../../core/page/text.js";
import { icon } from "../parts/icons.js";

// Between two questions which providers there are, if the answer was lost.
const RETRY_MILLISECONDS = 3_000;

/**
 * @param {import("../../core/connection/session.js").Session} session
 * @param {() => void} done
 * @returns {HTMLElement}
 */
export function signInPage(session, done) {
  return html.main(
    { class: "sign-in" },
    html.div(
      { class: "sign-in-card" },
      html.div({ class: "brand" }, logo(), html.h1({}, "Moot")),
      html.p({ class: "lead" }, "People, agents and tools in one space. Nothing runs without approval."),
      providerButtons(session.base),
      hasPasskeys() && passkeyButton(session, done),
      signInForm(session, done),
    ),
    html.p(
      { class: "sign-in-foot" },
      "No token? Ask a member of the space to invite you, or look in ",
      html.code({}, ".moot/tokens"),
      " next to the configuration file.",
    ),
  );
}

/**
 * Whoever used one in this browser before is asked for it at once: from a notification, that saves a press.
 * @param {import("../../core/connection/session.js").Session} session @param {() => void} done
 */
function passkeyButton(session, done) {
  const fault = html.p({ class: "fault", role: "alert" });
  const enter = html.button(
    { type: "button", class: "button wide", on: { click: () => void press() } },
    icon("key", 16),
    "Sign in with a passkey",
  );
  const press = async (isAsked = true) => {
    fault.textContent = "";
    enter.disabled = true;
    try {
      await session.signInWithPasskey();
      done();
    } catch (error) {
      if (isAsked) fault.textContent = error instanceof Error ? error.message : String(error);
    } finally {
      enter.disabled = false;
    }
  };
  if (wasUsed() && currentRoute().space) queueMicrotask(() => void press(false));
  return html.div({ class: "sign-in-providers" }, enter, fault);
}

/** A button for each provider, once it is known whether there are any. @param {URL} base */
function providerButtons(base) {
  const place = html.div({ class: "sign-in-providers", hidden: true });
  const fault = html.p({ class: "fault", role: "alert" });
  const press = (/** @type {import("../../core/connection/provider-sign-in.js").Provider} */ provider) =>
    beginSignIn(base, provider).catch((error) => {
      fault.textContent = error instanceof SignInError ? error.message : "The provider’s page cannot be opened.";
    });
  const look = () =>
    void fetchProviders(base).then(
      (providers) => {
        if (providers.length === 0) return;
        const buttons = providers.map((each) =>
          html.button(
            { type: "button", class: "button primary wide", on: { click: () => void press(each) } },
            "Sign in at ",
            html.bdi({}, oneLine(new URL(each.issuer).host, 60)),
          ),
        );
        place.append(...buttons, fault, html.p({ class: "soft" }, "or with a token:"));
        place.hidden = false;
      },
      // The form is there meanwhile; it says so when it is used.
      () => setTimeout(() => place.isConnected && look(), RETRY_MILLISECONDS),
    );
  look();
  return place;
}

/**
 * The form alone, for adding another space too.
 * @param {import("../../core/connection/session.js").Session} session
 * @param {(logins: import("../../core/connection/session.js").Login[]) => void} done
 */
export function signInForm(session, done) {
  const ids = { token: newId("token"), fault: newId("fault"), keep: newId("keep") };
  const token = html.input({
    id: ids.token,
    class: "field",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "none",
    required: true,
    "aria-describedby": ids.fault,
  });
  const keep = html.input({ id: ids.keep, type: "checkbox", checked: session.remembers });
  const fault = html.p({ id: ids.fault, class: "fault", role: "alert" });
  const enter = html.button({ type: "submit", class: "button primary wide" }, "Sign in");
  const reveal = html.button(
    {
      type: "button",
      class: "button quiet small",
      "aria-pressed": "false",
      on: { click: () => show(token.type === "password") },
    },
    "Show",
  );
  /** @param {boolean} shown */
  const show = (shown) => {
    token.type = shown ? "text" : "password";
    reveal.setAttribute("aria-pressed", String(shown));
    reveal.textContent = shown ? "Hide" : "Show";
  };
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    fault.textContent = "";
    enter.disabled = true;
    enter.textContent = "Signing in…";
    try {
      const logins = await session.signIn(token.value, keep.checked);
      token.value = "";
      done(logins);
    } catch (error) {
      fault.textContent =
        error instanceof SignInError ? error.message : "Sign-in failed; see the browser’s console for details.";
      if (!(error instanceof SignInError)) console.error(error);
      token.select();
      token.focus();
    } finally {
      enter.disabled = false;
      enter.textContent = "Sign in";
    }
  };
  return html.form(
    { class: "sign-in-form", on: { submit } },
    html.label({ for: ids.token }, "Token"),
    html.div({ class: "field-row" }, token, reveal),
    fault,
    html.label(
      { class: "choice", for: ids.keep },
      keep,
      html.span(
        {},
        "Stay signed in until this tab is closed",
        html.small({}, "Otherwise the token is forgotten when you leave or reload the page."),
      ),
    ),
    enter,
  );
}

export function logo() {
  return html.span({ class: "mark", "aria-hidden": "true" }, icon("flow", 22));
}
