/**
 * Making a call good: propose the call that the space's operator named for it, filled in from what ran. Templates are as
 * in moot/protocol/argument_template.py, and so is what `moot compensate` does.
 */
import { button, html } from "../../core/page/dom.js";
import { referenceIn } from "../../core/connection/large-values.js";
import { hasFragileNumbers, isObject, parseJson } from "../../core/state/json-text.js";
import { escapeHidden, oneLine } from "../../core/page/text.js";
import { isAllowed, matches } from "../capabilities/capability-match.js";
import { runAndNotify } from "../parts/action-dialog.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */

const PLACE = /(?<!\{)\{([^{}\s.]+(?:\.[^{}\s.]+)*)\}(?!\})/g;

/** A button that proposes it; nothing where no such call is named. @param {import("../../app.js").Context} context @param {Proposal} proposal */
export function compensationView(context, proposal) {
  const { state } = context;
  const made = compensatingCall(state, proposal);
  if (!made) return null;
  if ("problem" in made)
    return html.p({ class: "soft" }, `Cannot be made good from here: ${escapeHidden(made.problem)}.`);
  const { to, params } = made;
  if (!isAllowed(state, "mcp/proposal", { method: "tools/call", params }, [to])) return null;
  const payloadText = JSON.stringify({ method: "tools/call", params });
  const propose = async () => {
    const sending = context.send("mcp/proposal", null, { to: [to], about: proposal.id, payloadText });
    const sent = await runAndNotify(context, sending, "Proposed: others decide on it");
    if (sent) context.go("approvals", sent.id);
  };
  return html.p(
    { class: "action-row compensation" },
    button("Compensate…", propose, { class: "small", title: "Propose the call that makes this one good" }),
    html.bdi({ class: "mono" }, oneLine(`${params.name} on ${to}: ${JSON.stringify(params.arguments)}`, 300)),
  );
}

/** @param {import("../../core/state/state.js").State} state @param {Proposal} proposal @returns {{to: string, params: {name: string, arguments: any}} | {problem: string} | null} */
function compensatingCall({ proposals, roster }, proposal) {
  if (!["done", "unknown"].includes(proposal.status) || proposal.undone) return null;
  const { call } = proposals.byId.get(proposal.changedBy) ?? proposal;
  const payload = { method: call.method, params: call.params };
  const names = proposal.to.map((id) => roster.get(id)?.name ?? id);
  const rule = proposals.effectRules.find(
    (each) => isObject(each?.compensate) && matches(each.calls, "mcp/request", payload, names) !== "no",
  );
  if (!rule) return null;
  const { tool, to, arguments: template } = rule.compensate;
  const answer = proposals.requests.get(proposal.requestId)?.answer;
  const source = { ...call.params?.arguments, result: dataOf(answer?.result) };
  try {
    if (hasFragileNumbers(call.bodyText) || hasFragileNumbers(JSON.stringify(source.result ?? null)))
      throw new NotThere("it has a number that a browser would round; use moot compensate");
    const host = to || answer?.from || proposal.asked[0] || proposal.to[0];
    return { to: host, params: { name: String(tool), arguments: fill(template ?? {}, source) } };
  } catch (fault) {
    if (fault instanceof NotThere) return { problem: fault.message };
    throw fault;
  }
}

/** A template names what is not there. */
export class NotThere extends Error {}

/** @param {any} template @param {any} source @returns {any} */
export function fill(template, source) {
  if (Array.isArray(template)) return template.map((each) => fill(each, source));
  if (isObject(template))
    return Object.fromEntries(Object.entries(template).map(([name, each]) => [name, fill(each, source)]));
  if (typeof template !== "string") return template;
  const [whole] = template.matchAll(PLACE);
  if (whole?.[0] === template) return valueAt(source, whole[1]);
  return template.replace(PLACE, (_, place) => {
    const value = valueAt(source, place);
    // Python writes them with other spaces.
    if (typeof value === "object") throw new NotThere(`${place} is not one value; use moot compensate`);
    return String(value);
  });
}

/** @param {any} source @param {string} place @returns {any} */
function valueAt(source, place) {
  const found = valuesAt(source, place.split("."), place);
  const value = place.split(".").includes("*") ? found : found[0];
  if (value === null) throw new NotThere(`${place} is null`);
  return value;
}

/** @param {any} value @param {string[]} path @param {string} place @returns {any[]} */
function valuesAt(value, path, place) {
  if (referenceIn(value)) throw new NotThere(`${place} is too large to be in the message`);
  const [step, ...rest] = path;
  if (step === undefined) return [value];
  if (step === "*" && Array.isArray(value) && value.length > 0)
    return value.flatMap((each) => valuesAt(each, rest, place));
  const isThere = Array.isArray(value) ? /^\d+$/.test(step) && Number(step) < value.length : isObject(value);
  if (!isThere || !Object.hasOwn(value, step)) throw new NotThere(`${place} is missing`);
  return valuesAt(value[step], rest, place);
}

/** What a tool answered, as data: structured, or the JSON that its text is. @param {any} result */
function dataOf(result) {
  if (!isObject(result) || result.isError === true) return undefined;
  return result.structuredContent ?? parseJson(String(result.content?.[0]?.text ?? ""));
}
