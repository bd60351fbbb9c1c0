/** Approving with changes (decision 0208): the arguments are edited, and exactly the changed call runs in place of the proposed one. */
import { button, html, newId, replace } from "../../core/page/dom.js";
import { formatJson, membersOf, parseJson, textAt } from "../../core/state/json-text.js";
import { referenceIn } from "../../core/connection/large-values.js";
import { escapeHidden, nameOf, oneLine } from "../../core/page/text.js";
import { callPermissions, isAllowed } from "../capabilities/capability-match.js";
import { schemaForm } from "../tools/call-form.js";
import { validate } from "../tools/call-validation.js";
import { toolCatalogueOf } from "../tools/tool-catalogue.js";
import { openDialog } from "../parts/dialog.js";
import { holdButton } from "../parts/hold-button.js";
import { icon } from "../parts/icons.js";
import { diffView } from "../parts/text-diff.js";
import { afterDelay, onCtrlEnter, summaryOf, watchProposals } from "./approvals-dialogs.js";
import { risksOf } from "../proposals/call-risks.js";
import { row, valueView } from "../proposals/proposal-content.js";
import { approveWithChanges, obstacleText } from "../proposals/proposal-decisions.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../../app.js").Context} Context */

/** Whether this person may approve it with changes; what they change it to is judged when it is sent. @param {Context} context @param {Proposal} proposal */
export function mayChange({ state }, proposal) {
  const { call, to } = proposal;
  if (call.method !== "tools/call" || to.length === 0 || proposal.from === state.me.id) return false;
  const may = callPermissions(state.me.capabilities, state, to, call);
  return (
    may.propose !== "no" && (may.request !== "no" || (proposal.votesNeeded > 0 && isAllowed(state, "moot/approve")))
  );
}

/** What differs between the arguments of two calls, each value whole. @param {string} before the body of a call @param {string} after */
export function changesView(before, after) {
  const [was, now] = [argumentsOf(before), argumentsOf(after)];
  const names = [...new Set([...was.keys(), ...now.keys()])].filter(
    (name) => formatJson(was.get(name) ?? "") !== formatJson(now.get(name) ?? ""),
  );
  return (
    names.length > 0 &&
    html.dl(
      { class: "arguments changes" },
      names.map((name) => row(name, changeView(was.get(name), now.get(name)))),
    )
  );
}

/** @param {string | undefined} was @param {string | undefined} now */
function changeView(was, now) {
  const texts = [was, now].map((each) => (each?.startsWith('"') ? String(JSON.parse(each)) : ""));
  if (was?.startsWith('"') && now?.startsWith('"') && texts.some((each) => each.includes("\n")))
    return diffView(texts[0], texts[1]);
  return [
    was !== undefined && html.del({}, html.span({ class: "sr" }, "was "), valueView(was)),
    now !== undefined && html.ins({}, html.span({ class: "sr" }, "now "), valueView(now)),
  ];
}

/** @param {string} bodyText @returns {Map<string, string>} */
function argumentsOf(bodyText) {
  const text = textAt(bodyText, ["params", "arguments"]) ?? "";
  return new Map(text.startsWith("{") ? membersOf(text).map((each) => [each.key, each.text]) : []);
}

/** Its text is what is sent: no digit of what was left alone changes. @param {Proposal} proposal @param {string} argumentsText */
function changedBody(proposal, argumentsText) {
  const params = membersOf(textAt(proposal.call.bodyText, ["params"]) ?? "{}").filter(
    // What the proposer's client noted for itself is not part of another call.
    ({ key }) => key !== "arguments" && key !== "_meta",
  );
  const others = params.map(({ key, text }) => `${JSON.stringify(key)}:${text}`);
  return `{"method":"tools/call","params":{${[...others, `"arguments":${argumentsText}`].join(",")}}}`;
}

/**
 * @param {Context} context @param {Proposal} proposal @param {import("../proposals/proposal-decisions.js").ReviewedProposal} shown
 * @param {(act: (shown: import("../proposals/proposal-decisions.js").ReviewedProposal) => Promise<import("../proposals/proposal-decisions.js").Outcome>) => void} decide
 */
export function changeDialog(context, proposal, shown, decide) {
  const { state } = context;
  const given = textAt(proposal.call.bodyText, ["params", "arguments"]) ?? "{}";
  const tool = toolCatalogueOf(context).tool(proposal.to[0], proposal.call.name);
  const editor = argumentsEditor(given, tool, () => draw());
  const changes = html.div({ class: "changes-made", role: "status" });
  const problem = html.p({ class: "fault", role: "alert" });
  const actions = html.div({ class: "button-row" });
  let isRed = false;
  /** What would be sent; empty if it cannot be. */
  let body = "";
  const act = afterDelay(() => {
    if (body === "") return;
    const faults = tool ? validate(tool.inputSchema, JSON.parse(textAt(body, ["params", "arguments"]) ?? "{}")) : [];
    if (faults.length > 0) {
      const [{ path, message }] = faults;
      replace(
        problem,
        escapeHidden(`Not sent, because it does not match the tool’s schema: ${path.join(".")} ${message}`),
      );
      return;
    }
    const sent = body;
    dialog.close();
    decide((reviewed) => approveWithChanges(context, reviewed, sent));
  });
  const draw = () => {
    const text = editor.text();
    replace(problem);
    const next = text === null ? "" : changedBody(proposal, text);
    const view = next && changesView(proposal.call.bodyText, next);
    const late = obstacleText(context, shown);
    const call = next && {
      method: "tools/call",
      name: proposal.call.name,
      params: JSON.parse(textAt(next, ["params"]) ?? "{}"),
    };
    const may = call ? callPermissions(state.me.capabilities, state, proposal.to, call) : null;
    const isAble = may && may.propose !== "no" && (may.request !== "no" || proposal.votesNeeded > 0);
    const risks =
      call && view
        ? risksOf(/** @type {any} */ ({ ...call, bodyText: next })).filter((each) => each.tone !== "info")
        : [];
    isRed = risks.some((each) => each.tone === "bad");
    body = view && isAble && !late ? next : "";
    replace(
      changes,
      html.h3({}, "What changes"),
      view || html.p({ class: "soft" }, text === null ? "The arguments are not valid yet." : "Nothing yet."),
      risks.map((risk) =>
        html.p(
          { class: "caution", data: { tone: risk.tone } },
          icon("warning", 16),
          html.bdi({}, oneLine(risk.text, 300)),
        ),
      ),
      view && !isAble && html.p({ class: "fault" }, "Your permissions do not allow the changed call."),
      late && html.p({ class: "fault" }, escapeHidden(late)),
    );
    drawActions();
  };
  let drawnFor = "";
  const drawActions = () => {
    const verb = proposal.votesNeeded > 0 ? "Vote for it with changes" : "Approve with changes";
    const now = [verb, isRed, body === ""].join();
    if (now === drawnFor) return;
    drawnFor = now;
    const yes = (isRed ? holdButton : button)(isRed ? `Hold to ${verb.toLowerCase()}` : verb, act, {
      class: "good",
      shortcut: "Ctrl+Enter",
    });
    yes.disabled = body === "";
    replace(
      actions,
      button("Cancel", () => dialog.close(), { class: "quiet" }),
      yes,
    );
  };
  const dialog = openDialog(
    "Approve with changes",
    [
      summaryOf(proposal),
      editor.node,
      changes,
      html.p(
        { class: "soft" },
        nameOf(proposal.from),
        proposal.votesNeeded > 0
          ? ` is told what differs when it runs. The changed call needs ${proposal.votesNeeded} votes, as this one does; then what was proposed cannot run any more.`
          : " is told that it was approved with changes, and what differs. The changed call runs once, and what was proposed cannot run any more.",
      ),
      problem,
    ],
    { class: "decide wide", actions: [actions], closed: () => stop() },
  );
  onCtrlEnter(dialog.node, () => {
    if (isRed) /** @type {any} */ (actions.querySelector(".hold"))?.holdUntilKeyUp();
    else act();
  });
  const stop = watchProposals(context, [shown], draw);
  draw();
  /** @type {HTMLElement | null} */ (dialog.node.querySelector(".dialog-body :is(input, textarea, select)"))?.focus();
}

/** The tool's own form where it is known, and JSON. @param {string} given @param {{inputSchema: any} | undefined} tool @param {() => void} changed @returns {{node: HTMLElement, text: () => string | null}} `text`: null if it is not valid */
function argumentsEditor(given, tool, changed) {
  // A large value is not here: a form would show its place as text.
  const parsed = parseJson(given);
  const hasLarge = Object.values(parsed ?? {}).some((each) => referenceIn(each));
  const form = tool && !hasLarge ? schemaForm(tool.inputSchema, changed) : null;
  if (form) {
    form.fill(given);
    return { node: form.node, text: () => (form.check() ? (form.text() ?? "{}") : null) };
  }
  const id = newId("arguments");
  const field = html.textarea({
    id,
    class: "field mono",
    rows: "10",
    spellcheck: "false",
    value: formatJson(given),
    on: { input: changed },
  });
  const text = () => (parseJson(field.value)?.constructor === Object ? field.value.trim() : null);
  return { node: html.div({ class: "labelled" }, html.label({ for: id }, "Arguments as JSON"), field), text };
}
