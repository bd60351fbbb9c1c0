// @ts-check
/** What a stream's owner can do with it (MEW 3.10.4 to 3.10.7). The gateway answers each, and tells everybody. */
import { el } from "../core/dom.js";
import { nameOf, oneLine } from "../core/text.js";
import { askDialog, labelled, reasonField } from "./people-acts.js";

/** @typedef {import("../app.js").Context} Context @typedef {import("../core/state-streams.js").Stream} Stream */

/** @param {{value: () => string}} reason */
const because = (reason) => (reason.value() ? { reason: reason.value() } : {});

/** @param {string} label @param {string[]} ids */
function choice(label, ids) {
  const field = labelled(label, { tag: "select" });
  for (const id of ids) field.input.append(el("option", { value: id }, oneLine(id, 64)));
  return field;
}

/** @param {string} words */
const nobody = (words) => el("p", { class: "soft" }, words);

/** @param {Context} context @param {Stream} stream @param {boolean} grant */
export function writerDialog(context, stream, grant) {
  const others = context.state.roster.present().map((each) => each.id).filter((each) => each !== stream.owner);
  const ids = grant ? others.filter((each) => !stream.writers.includes(each)) : stream.writers.filter((each) => each !== stream.owner);
  const who = choice(grant ? "Who may write" : "Who writes no more", ids);
  const reason = reasonField();
  askDialog(grant ? "Let somebody write?" : "Stop somebody writing?", ids.length > 0 ? [who.node, reason.node] : [nobody(grant ? "Everybody who is here may write already." : "Nobody else may write.")], {
    verb: grant ? "Let them write" : "Stop them", danger: !grant, safe: true,
    act: async () => (ids.length > 0 ? context.say(grant ? "stream/grant-write" : "stream/revoke-write", { stream_id: stream.id, participant_id: who.value(), ...because(reason) }, { to: ["gateway"] }) : null),
    then: (answer) => answer && context.notify(grant ? `${oneLine(who.value(), 40)} may write` : `${oneLine(who.value(), 40)} writes no more`, "good"),
  });
}

/** @param {Context} context @param {Stream} stream */
export function transferDialog(context, stream) {
  const ids = context.state.roster.present().map((each) => each.id).filter((each) => each !== stream.owner);
  const who = choice("New owner", ids);
  const reason = reasonField();
  askDialog("Hand the stream over?", ids.length > 0 ? [el("p", {}, "You write no more, unless you were let by yourself, and cannot take it back."), who.node, reason.node] : [nobody("Nobody else is here.")], {
    verb: "Hand it over", danger: true,
    act: async () => (ids.length > 0 ? context.say("stream/transfer-ownership", { stream_id: stream.id, new_owner: who.value(), ...because(reason) }, { to: ["gateway"] }) : null),
    then: (answer) => answer && context.notify(`The stream is ${oneLine(who.value(), 40)}’s now`, "good"),
  });
}

/** @param {Context} context @param {Stream} stream */
export function closeDialog(context, stream) {
  const reason = reasonField();
  askDialog("Close the stream?", [el("p", {}, "Nobody can write to it any more: ", el("bdi", {}, oneLine(stream.description || stream.id, 80)), ", written by ", stream.writers.map((each, index) => [index > 0 && ", ", nameOf(each)]), "."), reason.node], {
    verb: "Close", danger: true,
    act: () => context.say("stream/close", { stream_id: stream.id, reason: reason.value() || "complete" }, { about: stream.openId ? [stream.openId] : [] }),
    then: () => context.notify("Closed", "good"),
  });
}
