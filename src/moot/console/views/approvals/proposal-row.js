/** A proposal on a few lines: who wants what, how large it is, what deserves a second look, since when and until when. */
import { html, replace } from "../../core/page/dom.js";
import { membersOf, textAt } from "../../core/state/json-text.js";
import { referenceIn } from "../../core/connection/large-values.js";
import { formatNumber } from "../../core/page/numbers.js";
import { routeAddress } from "../../core/page/router.js";
import { voteText } from "../../core/state/proposal-life.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { ago } from "../../core/page/time.js";
import { settledText, titleOf } from "../proposals/proposal-decisions.js";
import { originCautions } from "../proposals/proposal-origins.js";
import { limitsOf, risksFor, sentenceOf, sizeOf, toneOf, wishView } from "../proposals/proposal-sentence.js";
import { icon } from "../parts/icons.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {{node: HTMLElement, open: HTMLElement, box: HTMLInputElement, wish: HTMLElement, size: HTMLElement, state: HTMLElement, why: HTMLElement, none: HTMLElement, drawnFor: string}} Row */
/** @typedef {{me: string, space: string, isHere: boolean, alike: number, knownText: (host: string, path: string) => string | undefined}} RowFacts */

const LINE = 140;
const ENDINGS = /** @type {Record<string, string>} */ ({
  withdrawn: "Withdrawn",
  expired: "Expired",
  forgotten: "Forgotten",
});
// From then on its end is said in another colour.
const SOON_MILLISECONDS = 5 * 60_000;

/** @param {Proposal} proposal @param {RowFacts} facts @param {() => void} mark @returns {Row} */
export function buildRow(proposal, { me, space, isHere }, mark) {
  const [state, size] = [html.span({ class: "approvals-row-state" }), html.span({})];
  const why = html.span({ class: "approvals-row-why", hidden: true });
  const none = html.span({ class: "approvals-row-none faint", title: "That none was found does not make it harmless" });
  const box = html.input({
    type: "checkbox",
    "aria-label": `Select ${oneLine(titleOf(proposal), 60)} from ${oneLine(proposal.from, 40)}`,
    tabindex: "-1",
    on: { change: mark },
  });
  const open = html.a({ class: "approvals-row-open", href: routeAddress(space, "approvals", proposal.id) });
  const node = html.li(
    { class: ["approvals-row", !isHere && "elsewhere"], data: { id: proposal.id, risk: toneOf(proposal) } },
    isHere && html.label({ class: "approvals-row-mark" }, box),
    html.div(
      { class: "approvals-row-main" },
      html.p(
        { class: "approvals-row-what" },
        html.a(
          { class: "approvals-row-member", href: routeAddress(space, "members", proposal.from), tabindex: "-1" },
          nameOf(proposal.from, { you: proposal.from === me }),
        ),
        open,
      ),
      html.span(
        { class: "approvals-row-arguments" },
        !sentenceOf(proposal).isName && html.bdi({ class: "mono" }, oneLine(titleOf(proposal), 60)),
        proposal.to.length > 0 && [" on ", html.bdi({}, oneLine(proposal.to[0], 40))],
        !isHere && [" in ", html.bdi({}, oneLine(space, 40))],
        " ",
        html.bdi({}, argumentsLine(proposal)),
      ),
      why,
      html.span(
        { class: "approvals-row-who" },
        size,
        html.time({ class: "since faint", data: { at: String(proposal.at) } }, ago(proposal.at)),
        html.time({ class: "until faint", hidden: true }),
        none,
        state,
      ),
    ),
  );
  return { node, open, box, wish: open, size, state, why, none, drawnFor: "" };
}

/** What may change: its size, once the file is known, and what became of it. @param {Row} row @param {Proposal} proposal @param {RowFacts} facts */
export function drawRow(row, proposal, facts) {
  const hints = proposal.status === "pending" ? hintsOf(proposal) : [];
  const size = sizeOf(proposal, facts.knownText);
  const drawnFor = [
    size,
    sentenceOf(proposal).verb,
    facts.alike,
    proposal.status,
    proposal.expiresAt,
    proposal.rejections.length,
    proposal.comments.length,
    proposal.assigned.join(),
    proposal.approvals.length,
    proposal.undone?.id,
    voteText(proposal),
    proposal.uncertain,
    ...hints.map((each) => each.text),
  ].join(" ");
  if (drawnFor === row.drawnFor) return;
  row.drawnFor = drawnFor;
  replace(row.wish, wishView(proposal));
  row.wish.setAttribute("aria-label", oneLine(`${oneLine(proposal.from, 40)}${row.wish.textContent}`, 200));
  replace(row.size, size);
  row.state.replaceChildren(...stateTags(proposal, facts));
  const [first] = hints;
  row.why.hidden = first === undefined;
  replace(row.none, proposal.status === "pending" && !first && "no hints");
  row.why.dataset.tone = first?.tone ?? "";
  replace(
    row.why,
    first && [
      icon("warning", 14),
      html.bdi({}, oneLine(first.text, LINE)),
      hints.length > 1 && html.span({ class: "tag" }, `+${hints.length - 1}`),
    ],
  );
  row.node.dataset.status = proposal.status;
  row.node.dataset.risk = first ? first.tone : "";
  row.box.hidden = proposal.status !== "pending";
  tickRow(row.node, proposal);
}

/** "4 min left", while it is pending and its end is known. @param {HTMLElement} node @param {Proposal | undefined} proposal @param {number} [now] */
export function tickRow(node, proposal, now = Date.now()) {
  const until = node.querySelector("time.until");
  if (!(until instanceof HTMLElement)) return;
  const isKnown = proposal?.status === "pending" && proposal.expiresAt > now;
  until.hidden = !isKnown;
  if (!proposal || !isKnown) return;
  const text = `${ago(proposal.expiresAt, now).replace(/^in /, "")} left`;
  if (until.textContent !== text) until.textContent = text;
  until.classList.toggle("soon", proposal.expiresAt - now < SOON_MILLISECONDS);
}

/** Everything that deserves a second look, the most serious first. @param {Proposal} proposal @returns {{tone: string, text: string}[]} */
function hintsOf(proposal) {
  const risks = [...limitsOf(proposal), ...risksFor(proposal)];
  const origins = originCautions(proposal).map((text) => ({ tone: "warn", text }));
  const is = (/** @type {string} */ tone) => risks.filter((each) => each.tone === tone);
  return [...is("bad"), ...origins, ...is("warn")];
}

/** @param {string} tone @param {string} text @param {string} [title] */
function tag(tone, text, title) {
  return html.span({ class: "tag", data: tone ? { tone } : {}, title }, text);
}

/** @param {Proposal} proposal @param {RowFacts} facts */
function stateTags(proposal, { me, alike }) {
  const votes = voteText(proposal);
  const again = `The same call is pending ${alike} times; each one that is approved is carried out`;
  const found = {
    fulfilled: () => tag("accent", "Running"),
    done: () =>
      tag(proposal.undone ? "warn" : "good", outcomeOf(proposal, me), escapeHidden(settledText(proposal, me))),
    failed: () => tag("bad", "Failed", escapeHidden(settledText(proposal, me))),
    unknown: () => tag("warn", "Outcome unknown"),
  }[String(proposal.status)];
  return [
    proposal.status === "pending" && proposal.assigned.length > 0 && tag("accent", `for ${whomText(proposal, me)}`),
    proposal.comments.length > 0 && tag("", commentsText(proposal.comments.length)),
    alike > 1 && tag("warn", `same call, ${alike} pending`, again),
    proposal.rejections.length > 0 && tag("bad", rejectedBy(proposal, me)),
    votes && tag("accent", votes),
    proposal.uncertain && proposal.status === "pending" && tag("warn", "status unknown"),
    found?.(),
    proposal.ending && tag("", ENDINGS[proposal.ending] ?? proposal.ending),
  ].filter((each) => each instanceof HTMLElement);
}

/** @param {Proposal} proposal @param {string} me */
function whomText({ assigned }, me) {
  return assigned.includes(me) ? "you" : oneLine(assigned.join(", "), 30);
}

/** @param {number} count */
function commentsText(count) {
  return count === 1 ? "1 comment" : `${count} comments`;
}

/** "Approved by Ana"; who it was is not always told. @param {string} by @param {string} me */
export function approvedBy(by, me) {
  return by === me ? "Approved" : `Approved by ${oneLine(by, 24) || "someone"}`;
}

/** @param {Proposal} proposal @param {string} me */
function outcomeOf({ fulfilledBy, undone }, me) {
  if (!undone) return approvedBy(fulfilledBy, me);
  return `Undone by ${undone.by === me ? "you" : oneLine(undone.by, 24)}`;
}

/** "Rejected by Ana", or by how many. @param {Proposal} proposal @param {string} me */
function rejectedBy(proposal, me) {
  const names = [...new Set(proposal.rejections.map((each) => each.by))];
  return `Rejected by ${names.length > 1 ? names.length : names[0] === me ? "you" : oneLine(names[0], 24)}`;
}

/** @param {string} text */
function lineOf(text) {
  const large = text.startsWith('{"moot/content"') ? referenceIn(JSON.parse(text)) : null;
  if (large) return `(${formatNumber(large.bytes)} bytes)`;
  return (text.startsWith('"') && text !== '""' ? String(JSON.parse(text)) : text).slice(0, LINE * 2);
}

/** The arguments on a line, digits as they were received. @param {Proposal} proposal */
function argumentsLine(proposal) {
  const given =
    textAt(proposal.call.bodyText, ["params", "arguments"]) ?? textAt(proposal.call.bodyText, ["params"]) ?? "";
  if (!given.startsWith("{")) return oneLine(given, LINE);
  const text = membersOf(given)
    .slice(0, 20)
    .map((each) => `${each.key}=${lineOf(each.text)}`);
  return oneLine(text.join(" "), LINE);
}
