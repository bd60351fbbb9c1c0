/** Beside a proposal: why it was made (the message it answers, the reasoning it belongs to), and how like ones were decided before. */
import { button, html } from "../../core/page/dom.js";
import { escapeHidden, nameOf, oneLine, withCode } from "../../core/page/text.js";
import { ago } from "../../core/page/time.js";
import { approverStateOf, openSuggestions } from "../rules/approver-state.js";
import { MAX_AT_ONCE, likeOnes } from "./inbox-order.js";
import { mayRejectAll, pendingOf } from "./reject-all.js";
import { mayAllow } from "../capabilities/capability-covers.js";
import { SUGGESTION_ACTIONS } from "../rules/rule-suggestion.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../../app.js").Context} Context */

const QUOTE_CHARACTERS = 400;
const LATEST_THOUGHTS = 2;
// After so many approvals by one person, of this tool or of this exact call, a rule or a permission saves them the question.
const OFTEN = 5;
const OFTEN_EQUAL = 3;
// So many of one member are worth an answer to all of them.
const MANY = 5;

/** @param {Context} context @param {Proposal} proposal @returns {HTMLElement | null} */
export function reasonsView(context, proposal) {
  const quotes = [...chatQuotes(context, proposal), ...thoughtQuotes(context, proposal)];
  const before = pastText(context, proposal);
  const offer = offerView(context, proposal);
  const more = moreView(context, proposal);
  if (quotes.length === 0 && !before && !offer && !more) return null;
  return html.section(
    { class: "proposal-reasons", "aria-label": "Background" },
    quotes.length > 0 && [html.h3({}, "Why"), quotes],
    before && html.p({ class: "soft proposal-past" }, before),
    more,
    offer,
  );
}

/** The chat that it answers, or that its reasoning answers. @param {Context} context @param {Proposal} proposal */
function chatQuotes(context, proposal) {
  const { envelopes, reasoning } = context.state;
  const about = [...proposal.about, ...(reasoning.within(proposal.context)?.about ?? [])];
  return [...new Set(about)].flatMap((id) => {
    const row = envelopes.byId(id);
    const text = row?.kind === "chat" ? envelopes.envelope(row)?.payload?.text : null;
    return row && typeof text === "string" ? [quote(context, row.from, "asked", text, row.id)] : [];
  });
}

/** @param {Context} context @param {Proposal} proposal */
function thoughtQuotes(context, proposal) {
  const sequence = proposal.context ? context.state.reasoning.within(proposal.context) : undefined;
  // Nobody speaks for the proposer.
  if (!sequence || sequence.from !== proposal.from) return [];
  const thoughts = sequence.thoughts.filter((each) => each.at <= proposal.at).slice(-LATEST_THOUGHTS);
  const texts = thoughts.length > 0 ? thoughts : [{ id: sequence.id, text: sequence.message }];
  return texts.filter((each) => each.text).map((each) => quote(context, sequence.from, "thought", each.text, each.id));
}

/** @param {Context} context @param {string} from @param {string} verb @param {string} text @param {string} id */
function quote(context, from, verb, text, id) {
  const cut = text.length > QUOTE_CHARACTERS ? `${text.slice(0, QUOTE_CHARACTERS)}…` : text;
  return html.blockquote(
    {},
    html.p({}, nameOf(from), ` ${verb}: `, html.bdi({}, withCode(cut))),
    html.a({ class: "faint", href: context.link("timeline", id) }, "Show in timeline"),
  );
}

/** How calls of this tool by this proposer were decided before. @param {Context} context @param {Proposal} proposal */
function pastText(context, proposal) {
  // What is pending is no decision; how many there are is said below.
  const before = alike(context, proposal).filter((each) => each.status !== "pending" || each.rejections.length > 0);
  if (before.length === 0) return null;
  const count = (/** @type {(each: Proposal) => boolean} */ holds) => before.filter(holds).length;
  const counts = /** @type {[number, string][]} */ ([
    [count((each) => each.status === "done" || each.status === "fulfilled"), "approved"],
    [count((each) => each.status === "failed"), "failed"],
    [count((each) => each.status === "unknown"), "of unknown outcome"],
    [count((each) => each.rejections.length > 0), "rejected"],
    [count((each) => each.ending !== ""), "withdrawn or expired"],
  ]).filter(([number]) => number > 0);
  const latest = before.reduce((a, b) => (a.at > b.at ? a : b));
  return [
    `${oneLine(proposal.call.name || proposal.call.method, 60)} by `,
    nameOf(proposal.from),
    ` ${proposal.status === "pending" ? "before" : "besides"}: ${counts.map(([number, text]) => `${number} ${text}`).join(", ")}; the latest `,
    html.a({ href: context.link("approvals", latest.id) }, ago(latest.at)),
    ".",
  ];
}

/** "17 more write_file calls by agent are pending", and what can be done about all of them. @param {Context} context @param {Proposal} proposal */
function moreView(context, proposal) {
  const { state } = context;
  if (proposal.status !== "pending" || proposal.from === state.me.id) return null;
  const like = likeOnes(state.proposals.toDecide(state.me.id), proposal).length;
  const all = pendingOf(context, proposal.from).length;
  if (like < 2 && all < MANY) return null;
  const send = (/** @type {string} */ name) => (/** @type {Event} */ event) =>
    event.currentTarget?.dispatchEvent(new CustomEvent(name, { bubbles: true }));
  const act = (/** @type {string} */ text, /** @type {string} */ name, /** @type {string} */ key, tone = "") =>
    html.button(
      { type: "button", class: `button small ${tone}`, "aria-keyshortcuts": key, on: { click: send(name) } },
      text,
      html.kbd({ "aria-hidden": "true" }, key),
    );
  const name = oneLine(proposal.call.name || proposal.call.method, 60);
  const text =
    like > 1
      ? [
          `${like - 1} more ${name} ${like === 2 ? "call" : "calls"} by `,
          nameOf(proposal.from),
          ` ${like === 2 ? "is" : "are"} pending.`,
        ]
      : [`${all} proposals of `, nameOf(proposal.from), " are pending."];
  return html.div(
    { class: "proposal-more" },
    html.p({}, text),
    html.div(
      { class: "action-row" },
      like > 1 && act(like > MAX_AT_ONCE ? `Decide on ${MAX_AT_ONCE}…` : `Decide on all ${like}…`, "moot:alike", "l"),
      all >= MANY &&
        mayRejectAll(context, proposal.from) &&
        act(`Reject all ${all} and pause…`, "moot:reject-all", "X", "quiet danger"),
    ),
  );
}

/** @param {Context} context @param {Proposal} proposal */
function alike(context, proposal) {
  return [...context.state.proposals.byId.values()].filter(
    (each) =>
      each.id !== proposal.id &&
      each.from === proposal.from &&
      each.call.method === proposal.call.method &&
      each.call.name === proposal.call.name &&
      each.to.join() === proposal.to.join(),
  );
}

/**
 * After many equal answers: an end to the question, from here. Shown only while this person has rejected none of them.
 * @param {Context} context @param {Proposal} proposal
 */
function offerView(context, proposal) {
  const me = context.state.me.id;
  const before = alike(context, proposal);
  if (
    proposal.status !== "pending" ||
    proposal.from === me ||
    before.some((each) => each.rejections.some((rejection) => rejection.by === me))
  )
    return null;
  const mine = before.filter((each) => each.fulfilledBy === me);
  const equal = mine.filter((each) => each.call.bodyText === proposal.call.bodyText).length;
  if (equal < OFTEN_EQUAL && mine.length < OFTEN) return null;
  const what =
    equal >= OFTEN_EQUAL
      ? `this exact call ${equal} times`
      : `${oneLine(proposal.call.name || proposal.call.method, 60)} from ${oneLine(proposal.from, 40)} ${mine.length} times`;
  // The approver is asked, visibly for everyone, only if it suggested something.
  const approver = openSuggestions(context.state) > 0 ? approverStateOf(context) : null;
  const suggestion = [...(approver?.record?.suggestions.values() ?? [])].find(
    (each) =>
      each.rule?.proposer === proposal.from &&
      each.rule?.tool === proposal.call.name &&
      each.rule?.decision !== "reject",
  );
  const accept = SUGGESTION_ACTIONS[0];
  return html.div(
    { class: "proposal-offer", role: "note" },
    html.p(
      {},
      html.strong({}, `You approved ${what} and rejected none. `),
      suggestion ? ["A rule is suggested: ", html.bdi({}, escapeHidden(suggestion.words)), "."] : "Stop being asked?",
    ),
    html.div(
      { class: "action-row" },
      approver &&
        suggestion &&
        mayAllow(context.state.me.capabilities, "trust/accept") &&
        button("Make it a rule…", () => accept.run(context, approver, suggestion), { class: "small" }),
      suggestion && html.a({ href: context.link("rules") }, "Compare in Rules"),
      html.button(
        {
          type: "button",
          class: "button small",
          on: {
            click: (/** @type {Event} */ event) =>
              event.currentTarget?.dispatchEvent(new CustomEvent("moot:grant", { bubbles: true })),
          },
        },
        "Approve and grant…",
      ),
      !suggestion && html.a({ href: context.link("rules") }, "Rules"),
    ),
  );
}
