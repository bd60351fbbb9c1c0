// @ts-check
/** What a person says to rules: accept, dismiss, grant, stop, lift, resume; and what the approver answers. */
import { el, replace } from "../core/dom.js";
import { nameOf, oneLine, visible } from "../core/text.js";
import { inWords } from "./capability-words.js";
import { coveredBy } from "./grants-covers.js";
import { icon } from "./icons.js";
import { askDialog, attempt, labelled, reasonField } from "./people-acts.js";

/** @typedef {import("../app.js").Context} Context @typedef {import("./trust-state.js").Trust} Trust @typedef {import("./trust-state.js").Suggestion} Suggestion */

// It answers at once, unless it is computing suggestions or is gone.
const ANSWER_MILLISECONDS = 8_000;
const KINDS = { active: "decides from now on", lifted: "decides again", suspended: "is suspended", stopped: "All rules are stopped", resumed: "Rules decide again" };

/** The approver said no, in its own words. */
export class NotDone extends Error {}

/**
 * Say something to the approver and wait for what it answers; fails with Refused, or with NotDone.
 * @param {Context} context @param {Trust} trust @param {string} kind @param {any} payload @param {string} [about]
 * @returns {Promise<any>} its answer, null if it gave none
 */
export async function tell(context, trust, kind, payload, about) {
  const saying = context.say(kind, payload, about ? { about } : {});
  await saying;
  const answer = await answerTo(context, trust, saying.id);
  if (answer?.kind === "chat") throw new NotDone(String(answer.payload?.text ?? ""));
  return answer;
}

/** @param {Context} context @param {Trust} trust @param {string} id @returns {Promise<any>} */
function answerTo(context, trust, id) {
  return new Promise((resolve) => {
    const end = (/** @type {any} */ answer) => {
      stop();
      clearTimeout(timer);
      resolve(answer);
    };
    const look = () => {
      const row = context.state.envelopes.effectsOf(id).find((each) => each.from === trust.approver?.id);
      if (row) end(context.state.envelopes.envelope(row));
    };
    const timer = setTimeout(() => end(null), trust.here ? ANSWER_MILLISECONDS : 0);
    const stop = context.state.on(["envelopes"], look);
    look();
  });
}

/** In a sentence what the approver answered. @param {any} answer @param {string} otherwise */
function answerWords(answer, otherwise) {
  const state = String(answer?.payload?.state ?? "");
  const rule = answer?.payload?.rule;
  const name = oneLine(typeof rule === "string" ? rule : (rule?.name ?? ""), 60);
  const words = Object.hasOwn(KINDS, state) ? KINDS[/** @type {keyof typeof KINDS} */ (state)] : "";
  if (!words) return otherwise;
  return name && state !== "stopped" && state !== "resumed" ? `${name} ${words}` : words;
}

/**
 * Do it and tell on the page how it went.
 * @param {Context} context @param {Trust} trust @param {string} kind @param {any} payload @param {{about?: string, done?: string}} [how]
 */
export async function act(context, trust, kind, payload, how = {}) {
  try {
    const answer = await tell(context, trust, kind, payload, how.about);
    if (answer === null && !how.done) context.notify(`Said to all; ${trust.here ? "the approver has not answered" : "no approver is here to act on it, it will when it comes"}`, "info");
    else context.notify(answerWords(answer, how.done ?? "Done"), "good");
    return true;
  } catch (fault) {
    if (fault instanceof NotDone) context.notify(`The approver says: ${oneLine(fault.message, 300)}`, "bad");
    else await attempt(context, Promise.reject(fault));
    return false;
  }
}

/** A box for what the approver said no to. @param {Error} fault */
export function noBox(fault) {
  return el("div", { class: "refusal-box", role: "alert" }, icon("warning", 16), el("div", {}, el("p", {}, el("strong", {}, "The approver says: "), el("bdi", {}, visible(fault.message)))));
}

/** @param {Context} context @param {Trust} trust @param {Suggestion} suggestion */
export function dismissDialog(context, trust, suggestion) {
  const reason = reasonField();
  askDialog("Dismiss this suggestion?", [el("p", {}, "Nothing like it is suggested again. What it is about stays with people."), reason.node], {
    verb: "Dismiss", safe: true,
    act: () => context.say("trust/dismiss", { suggestion: suggestion.suggestion, ...(reason.value() ? { reason: reason.value() } : {}) }),
    then: () => context.notify("Dismissed", "good"),
  });
}

/**
 * Give the agent the right itself (MEW 9.2). The grant is ours; the approver only hears of it.
 * @param {Context} context @param {Trust} trust @param {Suggestion} suggestion
 */
export function grantDialog(context, trust, suggestion) {
  const grant = suggestion.grant;
  if (!grant) return;
  const held = coveredBy(grant.capability, context.state.me.capabilities);
  const fault = el("div", {});
  askDialog(`Let ${oneLine(grant.participant, 40)} do it without asking?`, [
    el("p", {}, el("bdi", {}, visible(grant.words)), ". It is not asked about any more, by rule or by people."),
    el("div", { class: "cascade" }, el("p", {}, el("strong", {}, "What a right cannot keep, but the rule would:")), el("ul", { class: "losses" }, grant.loses.map((each) => el("li", {}, visible(each))), el("li", {}, "no part of it is left to people as a check, and no trip-wire suspends it"))),
    el("p", {}, "The right: ", el("bdi", {}, oneLine(inWords(grant.capability), 300))),
    !held && el("p", { class: "warn-words" }, "You do not hold it yourself, as far as can be seen: the gateway will likely refuse."),
    el("p", { class: "soft" }, "One key takes it back: ", el("kbd", {}, "u"), " here, or Revoke beside its name."),
    fault,
  ], {
    verb: "Grant it", danger: true,
    act: async () => {
      const given = await context.say("capability/grant", { recipient: grant.participant, capabilities: [grant.capability], reason: `suggestion ${suggestion.suggestion}` }, { to: [context.state.roster.get(grant.participant)?.id ?? grant.participant] });
      try {
        await tell(context, trust, "trust/accept", { suggestion: suggestion.suggestion, granted: true, grant: given.id });
      } catch (why) {
        if (!(why instanceof NotDone)) throw why;
        replace(fault, noBox(why));
        return undefined;
      }
      return given;
    },
    then: () => context.notify(`${oneLine(grant.participant, 40)} may do it itself now`, "good"),
  });
}

/** @param {Context} context @param {Trust} trust @param {string} rule */
export function stopDialog(context, trust, rule) {
  const reason = reasonField();
  askDialog(`Suspend ${oneLine(rule, 60)}?`, [el("p", {}, "It decides nothing until somebody lifts the suspension. What it would have decided is asked."), reason.node], {
    verb: "Suspend", danger: true, safe: true,
    act: () => act(context, trust, "trust/stop", { rule, ...(reason.value() ? { reason: reason.value() } : {}) }),
  });
}

/** Object to something that a rule did: that rule is suspended. @param {Context} context @param {Trust} trust @param {import("./trust-state.js").Act} done */
export function objectDialog(context, trust, done) {
  const reason = labelled("What was wrong with it", { maxlength: 500 }, "Everybody in the space can read it.");
  askDialog("Object to this decision?", [el("p", {}, "The rule ", el("bdi", { class: "mono" }, oneLine(done.rule, 80)), " decided on what ", nameOf(context.state.proposals.byId.get(done.proposal)?.from ?? "somebody"), " proposed. It is suspended at once; what was done stays done."), reason.node], {
    verb: "Object", danger: true, safe: true,
    act: () => act(context, trust, "trust/stop", reason.value() ? { reason: reason.value() } : {}, { about: done.proposal }),
  });
}
