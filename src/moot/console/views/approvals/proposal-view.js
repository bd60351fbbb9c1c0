/**
 * One proposal for the person who decides: who, what, on which tool, every argument in full, and what a grant would
 * change. It is drawn once from the received text, so that it does not change while somebody reads; what
 * happens to it later is added to its history.
 */
import { alikeOf } from "../../core/state/alike-proposals.js";
import { html, newId, replace } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { formatJson, textAt } from "../../core/state/json-text.js";
import { referenceIn, valueAt } from "../../core/connection/large-values.js";
import { textBlock, nameOf, oneLine, escapeHidden, withCode } from "../../core/page/text.js";
import { ago, formatMinute } from "../../core/page/time.js";
import { callPermissions } from "../capabilities/capability-match.js";
import { declaredHints, toolCatalogueOf } from "../tools/tool-catalogue.js";
import { validate } from "../tools/call-validation.js";
import { describeCapability } from "../capabilities/capability-text.js";
import { titleOf } from "../proposals/proposal-decisions.js";
import { grantScopes } from "../capabilities/grant-scopes.js";
import { copyButton } from "../timeline/envelope-details.js";
import { icon } from "../parts/icons.js";
import { changesView } from "./changed-call.js";
import {
  amountText,
  changeText,
  limitsOf,
  risksFor,
  sentenceOf,
  wishText,
  wishView,
} from "../proposals/proposal-sentence.js";
import { originCautionViews } from "../proposals/proposal-origins.js";
import { previewView } from "../proposals/proposal-preview.js";
import { reasonsView } from "./proposal-reasons.js";
import { TREE_CHARACTERS, readableCall } from "../proposals/proposal-content.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../../app.js").Context} Context */

/**
 * The head, the call and what a grant would change. `refresh` updates what may become known later: the tool, the roster.
 * @param {Context} context @param {Proposal} proposal
 * @returns {{node: HTMLElement, refresh: () => void, unread: () => boolean}}
 */
export function proposalView(context, proposal) {
  const tool = html.div({ class: "proposal-tool" });
  const versions = html.div({ class: "proposal-versions" });
  const cautions = html.div({ class: "proposal-cautions" });
  const reasons = html.div({ class: "proposal-why" });
  /** @type {(() => void)[]} */
  const later = [];
  const wish = html.span({});
  const preview = previewView(context, proposal);
  const expiry = html.span({});
  const grantEffect = grantEffectView(context, proposal);
  const readable = html.div(
    { class: "proposal-readable" },
    readableCall(context, proposal, later, () => {
      drawWish(wish, proposal);
      // Its row says the same.
      wish.dispatchEvent(new CustomEvent("moot:change", { bubbles: true }));
    }),
  );
  const node = html.article(
    { class: "proposal" },
    head(context, proposal, wish, expiry),
    versions,
    cautions,
    tool,
    reasons,
    preview.node,
    callTabs(context, proposal, readable),
    grantEffect,
  );
  const refresh = () => {
    replace(versions, versionsView(context, proposal));
    if (proposal.to.length === 1) toolCatalogueOf(context).retry(proposal.to[0]);
    replace(tool, toolView(context, proposal));
    replace(cautions, cautionsView(context, proposal));
    cautions.hidden = cautions.childElementCount === 0;
    replace(reasons, reasonsView(context, proposal));
    later.forEach((look) => look());
    drawWish(wish, proposal);
    preview.refresh();
    if (grantEffect) grantEffect.hidden = proposal.status !== "pending";
    replace(expiry, expiryView(proposal));
  };
  refresh();
  return {
    node,
    refresh,
    unread: () => readable.querySelector(".show-all, [data-cut], .json details:not([open]), .json button") !== null,
  };
}

/** "wants to replace notes.md, +1 −2". @param {HTMLElement} wish @param {Proposal} proposal */
function drawWish(wish, proposal) {
  const change = changeText(proposal);
  replace(wish, wishView(proposal, 120), change && html.span({ class: "proposal-change" }, `, ${change}`));
}

/** Until when it can be decided. @param {Proposal} proposal */
function expiryView({ status, expiresAt }) {
  if (status !== "pending" || expiresAt <= 0) return null;
  return ["expires ", html.time({ class: "since", data: { at: String(expiresAt) } }, ago(expiresAt))];
}

/** @param {Context} context @param {Proposal} proposal @param {HTMLElement} wish @param {HTMLElement} expiry */
function head(context, proposal, wish, expiry) {
  const host =
    proposal.to.length > 0
      ? proposal.to.map((id, index) => [index > 0 && ", ", nameOf(id)])
      : html.span({ class: "soft" }, "any host");
  return html.header(
    { class: "proposal-head" },
    html.h2(
      { tabindex: "-1" },
      html.a(
        { class: "proposal-member", href: context.link("members", proposal.from) },
        nameOf(proposal.from, { you: proposal.from === context.state.me.id }),
      ),
      wish,
    ),
    html.p(
      { class: "soft proposal-facts" },
      html.span(
        {},
        !sentenceOf(proposal).isName && [html.bdi({ class: "mono" }, oneLine(titleOf(proposal), 120)), " "],
        "on ",
        host,
      ),
      proposal.call.method !== "tools/call" &&
        html.span({}, "method ", html.bdi({ class: "mono" }, oneLine(proposal.call.method, 80))),
      html.span(
        {},
        `proposed ${formatMinute(proposal.at)}, `,
        html.time({ class: "since", data: { at: String(proposal.at) } }, ago(proposal.at)),
      ),
      expiry,
      html.a({ href: context.link("timeline", proposal.id) }, "Timeline"),
      html.a({ href: context.link("flow", proposal.id) }, "Flow"),
      proposal.call.method === "tools/call" &&
        html.a({ href: context.link("decisions", proposal.call.name) }, "Earlier decisions"),
      proposal.call.method === "tools/call" &&
        proposal.to.length === 1 &&
        html.a({ href: context.link("call", proposal.to[0], proposal.call.name, proposal.id) }, "Edit and call"),
      copyButton(
        new URL(context.link("approvals", proposal.id), location.href).href,
        "Copy link to this proposal",
        context,
        { icon: "link", text: "Copy link", isQuiet: true },
      ),
    ),
  );
}

/** The host's description of the tool. @param {Context} context @param {Proposal} proposal */
function toolView(context, proposal) {
  if (proposal.call.method !== "tools/call") return null;
  const box = toolCatalogueOf(context);
  const found = proposal.to.map((host) => box.tool(host, proposal.call.name)).find((each) => each !== undefined);
  if (!found) {
    const status = box.of(proposal.to[0] ?? "")?.status;
    if (status === "asking") return html.p({ class: "soft" }, "Loading the tool’s description…");
    if (status === "known")
      return html.p(
        { class: "caution" },
        icon("warning", 16),
        html.span({}, nameOf(proposal.to[0]), " has no tool of this name."),
      );
    return null;
  }
  return [
    html.p(
      { class: "proposal-description" },
      found.title && html.strong({}, oneLine(found.title, 120), ": "),
      found.description ? withCode(found.description.slice(0, 2000)) : html.span({ class: "soft" }, "No description."),
    ),
    declaredHints(found).length > 0 &&
      html.p(
        { class: "claims" },
        html.span({ class: "soft" }, "Declared:"),
        declaredHints(found).map(([text, tone]) => html.span({ class: "tag", data: tone ? { tone } : {} }, text)),
      ),
  ];
}

/** What it is a changed version of, with what differs; and changed versions of it that are pending. @param {Context} context @param {Proposal} proposal */
function versionsView(context, proposal) {
  const { byId, pending } = context.state.proposals;
  const link = (/** @type {string} */ id, /** @type {string} */ text) =>
    html.a({ href: context.link("approvals", id) }, text);
  const originals = proposal.counters.flatMap((id) => byId.get(id) ?? []);
  const counters = [...pending.values()].filter((each) => each.counters.includes(proposal.id));
  return [
    originals.map((each) => [
      html.p(
        {},
        "A changed version of ",
        link(each.id, wishText(each).replace("wants to ", "")),
        ", proposed by ",
        nameOf(each.from),
        ". Approving it settles that one. What differs:",
      ),
      changesView(each.call.bodyText, proposal.call.bodyText),
    ]),
    proposal.status === "pending" &&
      counters.map((each) =>
        html.p(
          {},
          nameOf(each.from, { you: each.from === context.state.me.id }),
          " proposed ",
          link(each.id, "a changed version"),
          " of it.",
        ),
      ),
  ];
}

/** Everything to read before deciding, the most serious first. @param {Context} context @param {Proposal} proposal */
export function cautionsView(context, proposal) {
  const amount = amountText(proposal);
  const found = risksFor(proposal).filter((each) => each.tone !== "info");
  const risks = found.map((risk) =>
    html.p({ class: "caution", data: { tone: risk.tone } }, icon("warning", 16), html.bdi({}, oneLine(risk.text, 300))),
  );
  if (amount)
    risks.unshift(
      html.p({ class: "caution amount", data: { tone: "info", amount: "" } }, html.bdi({}, oneLine(amount, 300))),
    );
  return [
    ...originCautionViews(proposal),
    ...budgetViews(proposal),
    ...risks,
    ...warningsOf(context, proposal).map((text) =>
      html.p({ class: "caution" }, icon("warning", 16), html.span({}, text)),
    ),
  ];
}

/** What it would take of the space’s budgets and bring about. @param {Proposal} proposal */
function budgetViews(proposal) {
  if (proposal.status !== "pending") return [];
  return limitsOf(proposal).map(({ text, tone }) =>
    html.p(
      { class: "caution budget", data: { tone } },
      icon(tone === "info" ? "help" : "warning", 16),
      html.bdi({}, oneLine(text, 300)),
    ),
  );
}

/** Warnings to read before deciding. @param {Context} context @param {Proposal} proposal @returns {any[]} */
function warningsOf(context, proposal) {
  if (proposal.status !== "pending") return [];
  const { state } = context;
  const found = [];
  if (proposal.uncertain)
    found.push("The connection was lost, so this may already be decided. The gateway runs it at most once.");
  for (const id of proposal.to) {
    const host = state.roster.get(id);
    if (!host?.present) found.push([nameOf(id), " is offline, so the call cannot run now."]);
    else if (state.roster.isPaused(host)) found.push([nameOf(id), " is paused."]);
  }
  const member = state.roster.get(proposal.from);
  if (proposal.from !== state.me.id && !member?.present) found.push([nameOf(proposal.from), " has left the space."]);
  const [other, ...others] = alikeOf(state.proposals.open(), proposal);
  if (other)
    found.push([
      "The same call is already pending, ",
      html.a(
        { href: context.link("approvals", other.id) },
        "proposed by ",
        nameOf(other.from),
        " ",
        html.time({ class: "since", data: { at: String(other.at) } }, ago(other.at)),
      ),
      others.length > 0
        ? `, and ${formatNumber(others.length)} more. Each one that is approved is carried out.`
        : ". Approving both carries it out twice.",
    ]);
  const host = proposal.to.length === 1 ? proposal.to[0] : "";
  const tool =
    proposal.call.method === "tools/call" ? toolCatalogueOf(context).tool(host, proposal.call.name) : undefined;
  if (tool) {
    const given = proposal.call.params?.arguments ?? {};
    // A large value is not here, so nothing is known about it.
    const faults = referenceIn(given)
      ? []
      : validate(tool.inputSchema, given).filter((each) => !referenceIn(valueAt(given, each.path)));
    if (faults.length > 0)
      found.push(
        `The arguments do not match the tool’s schema: ${faults
          .slice(0, 3)
          .map((each) => `${each.path.length > 0 ? `${oneLine(each.path.join("."), 60)} ` : ""}${each.message}`)
          .join("; ")}.`,
      );
  }
  return found;
}

/** The readable form and the exact text, one at a time. @param {Context} context @param {Proposal} proposal @param {HTMLElement} readable */
function callTabs(context, proposal, readable) {
  const exact = html.div({ hidden: true });
  const panels = { Readable: readable, "Exact text": exact };
  const tabs = Object.entries(panels).map(([text, panel]) => {
    panel.id = newId("call");
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-label", text);
    return html.button(
      {
        type: "button",
        role: "tab",
        class: "tab",
        "aria-controls": panel.id,
        "aria-selected": String(panel === readable),
        tabindex: panel === readable ? "0" : "-1",
        on: { click: () => choose(text) },
      },
      text,
    );
  });
  const choose = (/** @type {string} */ chosen) => {
    Object.entries(panels).forEach(([text, panel], index) => {
      panel.hidden = text !== chosen;
      tabs[index].setAttribute("aria-selected", String(text === chosen));
      tabs[index].setAttribute("tabindex", text === chosen ? "0" : "-1");
    });
    if (!exact.hidden && exact.childElementCount === 0)
      replace(
        exact,
        html.div(
          { class: "content-bar" },
          html.span({ class: "soft grow" }, "Approving sends exactly this."),
          copyButton(proposal.call.bodyText, "Copy call as JSON", context, { text: "Copy call", isQuiet: true }),
        ),
        textBlock(formatJson(proposal.call.bodyText), {
          maxCharacters: TREE_CHARACTERS,
          class: "exact-text",
          label: "exact text",
        }),
      );
  };
  const list = html.div(
    {
      class: "tabs",
      role: "tablist",
      "aria-label": "Format of the call",
      on: {
        keydown: (/** @type {KeyboardEvent} */ event) => {
          if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
          event.preventDefault();
          const other = tabs.find((each) => each.getAttribute("aria-selected") !== "true");
          other?.click();
          other?.focus();
        },
      },
    },
    tabs,
  );
  return html.section(
    { class: "proposal-call" },
    html.div(
      { class: "section-bar" },
      html.h3({}, "Call"),
      list,
      html.span({ class: "grow" }),
      proposal.call.params?.arguments !== undefined &&
        copyButton(
          formatJson(textAt(proposal.call.bodyText, ["params", "arguments"]) ?? "{}"),
          "Copy arguments",
          context,
          { text: "Copy arguments", isQuiet: true },
        ),
    ),
    readable,
    exact,
  );
}

/** What the proposer can do now, and what each scope of a grant would add. @param {Context} context @param {Proposal} proposal */
function grantEffectView(context, proposal) {
  if (proposal.from === context.state.me.id) return null;
  const body = html.div({ class: "change-body" });
  const fold = html.details({ class: "change" }, html.summary({}, "Effect of “Approve and grant”"), body);
  fold.addEventListener("toggle", () => {
    if (!fold.open) return;
    const holds = callPermissions(
      context.state.roster.get(proposal.from)?.capabilities ?? [],
      context.state,
      proposal.to,
      proposal.call,
    ).request;
    replace(
      body,
      html.p(
        {},
        nameOf(proposal.from),
        holds === "yes" ? " can already make this call without approval. " : " cannot make this call itself. ",
        "“Approve once” changes no permissions.",
      ),
      html.ul(
        { class: "change-list" },
        grantScopes(context.state, proposal).map((width) =>
          html.li(
            {},
            html.strong({}, width.title),
            ": ",
            width.text
              ? html.bdi({}, escapeHidden(describeCapability(JSON.parse(width.text))))
              : html.span({ class: "soft" }, `not available: ${escapeHidden(width.obstacle)}`),
          ),
        ),
      ),
    );
  });
  return fold;
}
