/**
 * Inviting somebody (MEW 3.6.5, 3.6.6). The gateway sends the token once, to the inviter. It is shown in a
 * dialog and not stored: when the dialog is closed, the token is gone.
 */
import { button, html } from "../../core/page/dom.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { capabilityPicker } from "../capabilities/capability-picker.js";
import { INVITE_BASELINE } from "../capabilities/capability-text.js";
import { openDialog } from "../parts/dialog.js";
import { ledgerOf } from "../capabilities/grant-ledger.js";
import { icon } from "../parts/icons.js";
import { actionDialog, labelledField, reasonField } from "../parts/action-dialog.js";

/** @typedef {import("../../app.js").Context} Context */

// D-23.
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** @param {Context} context @param {{name?: string, profile?: string, more?: string, run?: string}} [start] `run`: the command of `moot` that it runs, if it is a program of ours */
export function inviteDialog(context, { name = "", profile = "agent", more = "", run } = {}) {
  const who = labelledField(
    "Name",
    { maxlength: 64, value: name, autocapitalize: "off", spellcheck: "false" },
    "Letters, digits, dots, hyphens and underscores. Everyone sees this name.",
  );
  const picker = capabilityPicker(context, { profile, more, baseline: INVITE_BASELINE });
  const email = labelledField(
    "Email (optional)",
    { type: "email", maxlength: 254 },
    "If the gateway can send email, it sends the token there. Nobody else sees the address.",
  );
  const reason = reasonField();
  actionDialog("Invite a member", [who.node, picker.node, html.div({ class: "two-fields" }, reason.node, email.node)], {
    verb: "Invite",
    class: "wide",
    act: async () => {
      who.input.setAttribute("aria-invalid", String(!NAME.test(who.value())));
      if (!NAME.test(who.value())) {
        who.input.focus();
        context.announce("The name is not valid");
        return undefined;
      }
      const capabilities = picker.value();
      if (capabilities === null) {
        picker.complain("The additional permissions are not valid.");
        return undefined;
      }
      const payload = {
        participant_id: who.value(),
        initial_capabilities: capabilities,
        ...(email.value() ? { email: email.value() } : {}),
        ...(reason.value() ? { reason: reason.value() } : {}),
      };
      const answer = (await context.send("space/invite", payload, {})).payload ?? {};
      if (answer.status === "created") {
        ledgerOf(context.state).setInvited(who.value(), capabilities);
        return answer;
      }
      throw Object.assign(
        new Error(
          answer.status === "already_exists"
            ? `${who.value()} is already a participant of this space. Choose another name, or remove the participant first if the token was lost.`
            : String(answer.message ?? answer.status),
        ),
        { code: answer.error },
      );
    },
    done: (answer) => tokenDialog(context, String(answer.participant_id), String(answer.token), run),
  });
}

/** @param {Context} context @param {string} name @param {string} token @param {string} [run] */
function tokenDialog(context, name, token, run) {
  const base = context.session.base;
  const gateway = base.href.replace(/\/$/, "");
  const space = /^[\w.-]+$/.test(context.state.space)
    ? context.state.space
    : `'${context.state.space.replaceAll("'", "'\\''")}'`;
  const join = `moot ${run ?? "join"} --gateway ${context.session.gateways.option} --space ${space} --token-file ${name}.token`;
  let copied = false;
  const field = /** @type {HTMLTextAreaElement} */ (
    html.textarea({
      class: "field mono token",
      rows: "2",
      readonly: true,
      value: token,
      "aria-label": "Token",
      spellcheck: "false",
      on: { focus: () => field.select() },
    })
  );
  const copy = (/** @type {() => string} */ what, /** @type {string} */ text) =>
    button(
      "Copy",
      async () => {
        try {
          await navigator.clipboard.writeText(what());
          copied = true;
          context.notify("Copied", "good");
          context.announce("Copied");
        } catch {
          copied = true;
          field.select();
          context.announce("The browser blocked copying: the text is selected");
        }
      },
      { icon: icon("copy", 14), aria: { label: text } },
    );
  const dialog = openDialog(
    `${oneLine(name, 40)} is invited`,
    [
      html.p(
        {},
        nameOf(name),
        " signs in with this token. ",
        html.strong({}, "It is shown only once"),
        " and stored nowhere: send it over a secure channel.",
      ),
      html.div(
        { class: "field-row" },
        field,
        copy(() => field.value, "Copy token"),
      ),
      html.p(
        {},
        !run && ["In a browser: open ", html.bdi({ class: "mono" }, gateway || "/"), " and sign in with it. "],
        "In a terminal: save it as ",
        html.code({}, `${name}.token`),
        ", then run:",
      ),
      html.div(
        { class: "field-row" },
        html.pre({ class: "text-block mono grow", tabindex: "0", role: "group", "aria-label": "Command" }, join),
        copy(() => join, "Copy command"),
      ),
    ],
    {
      class: "token-dialog",
      actions: [button("Done", () => dialog.close(), { class: "primary" })],
      // An accidental click must not lose the token, which cannot be shown again.
      stays: () => !copied,
      closed: () => {
        // Nothing else refers to the token.
        field.value = "";
        token = "";
      },
    },
  );
  field.focus();
  field.select();
}
