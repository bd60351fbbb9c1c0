/** What a stream's owner can do with it (MEW 3.10.4 to 3.10.7). The gateway answers each action and informs everybody. */
import { html } from "../../core/page/dom.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { actionDialog, labelledField, reasonField } from "../parts/action-dialog.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/state-streams.js").Stream} Stream */

/** @param {{value: () => string}} reason */
const reasonFields = (reason) => (reason.value() ? { reason: reason.value() } : {});

/** @param {string} label @param {string[]} ids */
function choice(label, ids) {
  const field = labelledField(label, { tag: "select" });
  for (const id of ids) field.input.append(html.option({ value: id }, oneLine(id, 64)));
  return field;
}

/** @param {string} text */
const nobody = (text) => html.p({ class: "soft" }, text);

/** @param {Context} context @param {Stream} stream @param {boolean} grant */
export function writerDialog(context, stream, grant) {
  const others = context.state.roster
    .present()
    .map((each) => each.id)
    .filter((each) => each !== stream.owner);
  const ids = grant
    ? others.filter((each) => !stream.writers.includes(each))
    : stream.writers.filter((each) => each !== stream.owner);
  const who = choice(grant ? "New writer" : "Writer to remove", ids);
  const reason = reasonField();
  actionDialog(
    grant ? "Add a writer?" : "Remove a writer?",
    ids.length > 0
      ? [who.node, reason.node]
      : [nobody(grant ? "All online members are already writers." : "There are no other writers.")],
    {
      verb: grant ? "Add writer" : "Remove writer",
      danger: !grant,
      safe: true,
      act: async () =>
        ids.length > 0
          ? context.send(
              grant ? "stream/grant-write" : "stream/revoke-write",
              { stream_id: stream.id, participant_id: who.value(), ...reasonFields(reason) },
              { to: ["gateway"] },
            )
          : null,
      done: (answer) =>
        answer &&
        context.notify(
          grant ? `${oneLine(who.value(), 40)} is now a writer` : `${oneLine(who.value(), 40)} is no longer a writer`,
          "good",
        ),
    },
  );
}

/** @param {Context} context @param {Stream} stream */
export function transferDialog(context, stream) {
  const ids = context.state.roster
    .present()
    .map((each) => each.id)
    .filter((each) => each !== stream.owner);
  const who = choice("New owner", ids);
  const reason = reasonField();
  actionDialog(
    "Transfer the stream?",
    ids.length > 0
      ? [html.p({}, "You lose ownership and cannot take it back."), who.node, reason.node]
      : [nobody("No other members online.")],
    {
      verb: "Transfer",
      danger: true,
      act: async () =>
        ids.length > 0
          ? context.send(
              "stream/transfer-ownership",
              { stream_id: stream.id, new_owner: who.value(), ...reasonFields(reason) },
              { to: ["gateway"] },
            )
          : null,
      done: (answer) => answer && context.notify(`${oneLine(who.value(), 40)} now owns the stream`, "good"),
    },
  );
}

/** @param {Context} context @param {Stream} stream */
export function closeDialog(context, stream) {
  const reason = reasonField();
  actionDialog(
    "Close the stream?",
    [
      html.p(
        {},
        "Nobody can write to it any more: ",
        html.bdi({}, oneLine(stream.description, 80)),
        ", written by ",
        stream.writers.map((each, index) => [index > 0 && ", ", nameOf(each)]),
        ".",
      ),
      reason.node,
    ],
    {
      verb: "Close",
      danger: true,
      act: () =>
        context.send(
          "stream/close",
          { stream_id: stream.id, reason: reason.value() || "complete" },
          { about: stream.openId ? [stream.openId] : [] },
        ),
      done: () => context.notify("Closed", "good"),
    },
  );
}
