// @ts-check
/**
 * Inviting somebody (MEW 3.6.5, 3.6.6). The gateway tells the token once, to whoever invited. It is shown in a
 * dialog and nowhere kept: when that is closed, it is gone from the page.
 */
import { button, el } from "../core/dom.js";
import { nameOf, oneLine } from "../core/text.js";
import { capabilityPicker } from "./people-rights.js";
import { INVITE_BASELINE } from "./capability-words.js";
import { openDialog } from "./dialog.js";
import { ledgerOf } from "./grants-ledger.js";
import { icon } from "./icons.js";
import { askDialog, labelled, reasonField } from "./people-acts.js";

/** @typedef {import("../app.js").Context} Context */

// D-23.
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** @param {Context} context @param {string} [name] */
export function inviteDialog(context, name = "") {
  const who = labelled("Name", { maxlength: 64, value: name, autocapitalize: "off", spellcheck: "false" }, "Letters, digits, dot, hyphen and underscore. It is how everybody will know them.");
  const picker = capabilityPicker(context, { profile: "agent", baseline: INVITE_BASELINE });
  const email = labelled("E-mail", { type: "email", maxlength: 254 }, "May be left empty. If the gateway is set up for mail it sends them the token; nobody else sees the address.");
  const reason = reasonField();
  askDialog("Invite somebody", [who.node, picker.node, el("div", { class: "two-fields" }, reason.node, email.node)], {
    verb: "Invite", class: "wide",
    act: async () => {
      who.input.setAttribute("aria-invalid", String(!NAME.test(who.value())));
      if (!NAME.test(who.value())) {
        who.input.focus();
        context.announce("The name is not in order");
        return undefined;
      }
      const capabilities = picker.value();
      if (capabilities === null) {
        picker.complain("The rights by hand are not in order.");
        return undefined;
      }
      const payload = { participant_id: who.value(), initial_capabilities: capabilities, ...(email.value() ? { email: email.value() } : {}), ...(reason.value() ? { reason: reason.value() } : {}) };
      const answer = (await context.say("space/invite", payload, {})).payload ?? {};
      if (answer.status === "created") {
        ledgerOf(context.state).expect(who.value(), capabilities);
        return answer;
      }
      throw Object.assign(new Error(answer.status === "already_exists" ? `${who.value()} is a participant of this space already. Choose another name; or remove them first if they lost their token.` : String(answer.message ?? answer.status)), { code: answer.status === "already_exists" ? "invalid_operation" : answer.error });
    },
    then: (answer) => tokenDialog(context, String(answer.participant_id), String(answer.token)),
  });
}

/** @param {Context} context @param {string} name @param {string} token */
function tokenDialog(context, name, token) {
  const base = context.session.base;
  const gateway = base.href.replace(/\/$/, "");
  const space = /^[\w.-]+$/.test(context.state.space) ? context.state.space : `'${context.state.space.replaceAll("'", "'\\''")}'`;
  const join = `moot join --gateway ${gateway} --space ${space} --token-file ${name}.token`;
  let copied = false;
  const field = /** @type {HTMLTextAreaElement} */ (el("textarea", { class: "field mono token", rows: "2", readonly: true, value: token, "aria-label": "Token", spellcheck: "false", on: { focus: () => field.select() } }));
  const copy = (/** @type {() => string} */ what, /** @type {string} */ words) => button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(what());
      copied = true;
      context.notify("Copied", "good");
      context.announce("Copied");
    } catch {
      copied = true;
      field.select();
      context.announce("The browser did not let it be copied: the text is selected");
    }
  }, { icon: icon("copy", 14), aria: { label: words } });
  const dialog = openDialog(`${oneLine(name, 40)} is invited`, [
    el("p", {}, "This token is ", nameOf(name), "’s way in. ", el("strong", {}, "It is shown this once"), " and kept nowhere: give it to them over a channel that you trust."),
    el("div", { class: "field-row" }, field, copy(() => field.value, "Copy the token")),
    el("p", {}, "In a browser: open ", el("bdi", { class: "mono" }, gateway || "/"), " and enter it. In a terminal: save it as ", el("code", {}, `${name}.token`), ", then type"),
    el("div", { class: "field-row" }, el("pre", { class: "text-block mono grow", tabindex: "0", role: "group", "aria-label": "What to type" }, join), copy(() => join, "Copy the line to type")),
  ], {
    class: "token-dialog",
    actions: [button("I have it: close", () => dialog.close(), { class: "primary" })],
    // A slip must not lose what cannot be shown again.
    stays: () => !copied,
    closed: () => {
      // Gone with the dialog: nothing else holds it.
      field.value = "";
      token = "";
    },
  });
  field.focus();
  field.select();
}
