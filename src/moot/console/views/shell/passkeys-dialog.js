/** The passkeys of a person: list, add, remove; and adding one by an operator's link. */
import { addPasskey, hasPasskeys, listPasskeys, removePasskey } from "../../core/connection/passkeys.js";
import { button, html, newId, replace } from "../../core/page/dom.js";
import { oneLine } from "../../core/page/text.js";
import { openDialog } from "../parts/dialog.js";
import { icon } from "../parts/icons.js";

const MAX_NAME_CHARS = 64;

/** @param {import("../../core/connection/session.js").Session} session @param {Pick<import("../../app.js").Context, "notify">} context */
export function passkeysDialog(session, context) {
  const body = html.div({ class: "passkeys", "aria-live": "polite" });
  const actions = html.div({ class: "button-row" });
  const dialog = openDialog("Passkeys", [body], { actions: [actions] });
  const base = session.gateways.current;
  const token = session.current?.login.token ?? session.logins[0].token;
  const close = () => button("Close", () => dialog.close(), { class: "quiet" });

  /** @param {string} words @param {() => Promise<string>} act */
  const run = async (words, act) => {
    replace(actions, html.span({ class: "soft" }, words));
    let problem = "";
    try {
      context.notify(await act(), "good");
    } catch (fault) {
      problem = fault instanceof Error ? fault.message : String(fault);
    }
    await show(problem);
  };

  /** @param {string} problem what went wrong before */
  const show = async (problem = "") => {
    /** @type {Awaited<ReturnType<typeof listPasskeys>>} */
    let found;
    try {
      found = await listPasskeys(base, token);
    } catch (fault) {
      const why = fault instanceof Error ? fault.message : String(fault);
      replace(body, html.p({ class: "fault", role: "alert" }, `${problem || "Sign in again"}: ${why}`));
      replace(actions, close());
      return;
    }
    // One key may be known in several spaces.
    const keys = [...new Map(found.passkeys.map((each) => [each.id, each])).values()];
    const why = hasPasskeys() ? found.refused : "Browsers have passkeys only over HTTPS and at localhost.";
    const name = nameField();
    replace(
      body,
      html.p(
        { class: "soft" },
        "A passkey is your fingerprint, face, PIN or security key. It signs you in without a token, and confirms decisions that a space asks it for.",
      ),
      keys.length === 0
        ? html.p({}, "You have none yet.")
        : [
            html.ul({ class: "plain" }, ...keys.map(rowOf)),
            html.p(
              { class: "soft" },
              "Removing one ends what was signed in with it. Votes that it confirmed still count: if one was not yours, reject that proposal.",
            ),
          ],
      why ? html.p({ class: "caution" }, icon("warning", 16), why) : name.node,
      problem && html.p({ class: "fault", role: "alert" }, problem),
    );
    const add = () =>
      run("Follow your browser…", async () => {
        await addPasskey(base, { token, name: name.read() });
        return "Passkey added";
      });
    replace(actions, close(), !why && button("Add a passkey", () => void add(), { class: "primary" }));
  };

  /** @param {import("../../core/connection/passkeys.js").Passkey} key */
  const rowOf = (key) =>
    html.li(
      { class: "field-row" },
      icon("key", 16),
      html.span(
        { class: "grow" },
        html.bdi({}, oneLine(key.name, MAX_NAME_CHARS) || "Passkey"),
        html.small(
          { class: "soft" },
          ` added ${dayText(key.added_at)}${key.used_at ? `, used ${dayText(key.used_at)}` : ", not used yet"}${key.signs_in ? "" : ", confirms decisions only"}`,
        ),
      ),
      button(
        "Remove",
        () =>
          void run("Removing…", async () => {
            await removePasskey(base, token, key.id);
            return "Passkey removed; what was signed in with it has ended";
          }),
        { class: "quiet small" },
      ),
    );

  replace(body, html.p({ class: "soft" }, "Asking the gateway…"));
  replace(actions, close());
  void show();
}

/**
 * Somebody came by a link of their operator: they add a passkey, and are signed in with it.
 * @param {import("../../core/connection/session.js").Session} session @param {string} code @param {() => void} done
 */
export function passkeyLinkPage(session, code, done) {
  const name = nameField();
  const fault = html.p({ class: "fault", role: "alert" });
  const add = html.button({ type: "submit", class: "button primary wide" }, "Add a passkey");
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    fault.textContent = "";
    add.disabled = true;
    try {
      await addPasskey(session.gateways.current, { code, name: name.read() });
      await session.signInWithPasskey();
      done();
    } catch (problem) {
      fault.textContent = problem instanceof Error ? problem.message : String(problem);
      // Its code is used up.
      add.hidden = true;
    }
  };
  return html.main(
    { class: "sign-in" },
    html.div(
      { class: "sign-in-card" },
      html.h1({}, "Add a passkey"),
      html.p(
        { class: "lead" },
        "Your operator sent you this link. Your browser asks for your fingerprint, face, PIN or security key; from then on it signs you in here.",
      ),
      html.form({ class: "sign-in-form", on: { submit } }, name.node, fault, add),
    ),
  );
}

function nameField() {
  const id = newId("passkey");
  const field = html.input({ id, class: "field", maxlength: String(MAX_NAME_CHARS), value: deviceName() });
  return {
    node: html.div({ class: "labelled" }, html.label({ for: id }, "Name of this device"), field),
    read: () => field.value.trim(),
  };
}

/** A guess that people can change. */
function deviceName() {
  const found = /iPhone|iPad|Android|Windows|Macintosh|CrOS|Linux/.exec(navigator.userAgent)?.[0] ?? "";
  return { Macintosh: "Mac", CrOS: "Chromebook" }[found] ?? found;
}

/** @param {number} seconds */
function dayText(seconds) {
  return new Date(seconds * 1000).toLocaleDateString(undefined, { dateStyle: "medium" });
}
