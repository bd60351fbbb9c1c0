/**
 * Where the values of a proposal came from, beside each argument: in the words of who found it out, with how long ago.
 * A press shows the message where it was said. A value that nobody here stands behind can be endorsed, and an
 * endorsement revoked. Without a report nothing is shown, for nothing is known.
 */
import { opinionText } from "../../core/state/opinion.js";
import { exactValue } from "../../core/state/origin-report.js";
import { button, html, newId, redraw } from "../../core/page/dom.js";
import { escapeHidden, nameOf, oneLine } from "../../core/page/text.js";
import { ago, formatMinute } from "../../core/page/time.js";
import { isAllowed } from "../capabilities/capability-match.js";
import { actionDialog, runAndNotify } from "../parts/action-dialog.js";
import { icon } from "../parts/icons.js";
import { approverStateOf } from "../rules/approver-state.js";
import { ignoreDialog } from "../rules/rule-commands.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../../core/state/origin-report.js").ArgumentReport} ArgumentReport */
/** @typedef {import("../../app.js").Context} Context */

// An endorsement counts no longer, whatever it says.
const ENDORSE_MILLISECONDS = 12 * 3_600_000;
const UNCONFIRMED = ["untrusted", "nobody", "unknown"];

/** Whether it deserves a look: it steers the call, and nobody here stands behind it. @param {ArgumentReport} report */
function asksFor(report) {
  return report.steers && UNCONFIRMED.includes(report.origin);
}

/** The sentence that names the one value that matters, what would leave the space, and what models think of it. @param {Proposal} proposal @returns {string[]} */
export function originCautions(proposal) {
  const { origins, opinions } = proposal;
  const texts = origins?.asks ? [origins.why, ...origins.private.map((each) => each.text)] : [];
  return [...new Set(texts), ...[...opinions].map(([by, each]) => opinionText(each, by))].filter(Boolean);
}

/** @param {Proposal} proposal */
export function originCautionViews(proposal) {
  return originCautions(proposal).map((text) =>
    html.p({ class: "caution origin-why" }, icon("warning", 16), html.bdi({}, escapeHidden(text))),
  );
}

/** @param {string} path @param {string} name */
function isWithin(path, name) {
  return path === name || [".", "[", " ("].some((next) => path.startsWith(name + next));
}

/** What was found of one argument and of all that is in it. @param {Context} context @param {Proposal} proposal @param {string} name @param {(() => void)[]} later */
export function originsOf(context, proposal, name, later) {
  const list = originList(context, proposal, (each) => isWithin(each.path, name), name, later);
  return [list, ignoreButton(context, proposal, name, later)];
}

/** For a text of several words: rules need not compare it. @param {Context} context @param {Proposal} proposal @param {string} name @param {(() => void)[]} later */
function ignoreButton(context, proposal, name, later) {
  const node = html.div({ class: "origins" });
  const value = proposal.call.params?.arguments?.[name];
  const tool = `${context.state.roster.get(proposal.to[0])?.name ?? proposal.to[0]}/${proposal.call.name}`;
  const draw = () => {
    const may =
      typeof value === "string" &&
      value.length <= 400 &&
      /^\S.*\s/u.test(value) &&
      proposal.status === "pending" &&
      !!proposal.origins?.again &&
      isAllowed(context.state, "trust/accept", { ignore: {} });
    node.hidden = !may;
    redraw(node, [may], () =>
      may
        ? [
            html.div(
              { class: "origin" },
              button("Does not matter…", () => ignoreDialog(context, approverStateOf(context), tool, name), {
                class: "small quiet",
                aria: { label: `${oneLine(name, 60)} does not matter…` },
                data: { focus: `ignore ${name}` },
              }),
            ),
          ]
        : [],
    );
  };
  later.push(draw);
  draw();
  return node;
}

/** What was found of nothing that is shown as an argument. @param {Context} context @param {Proposal} proposal @param {string[]} names @param {(() => void)[]} later */
export function otherOrigins(context, proposal, names, later) {
  return originList(context, proposal, (each) => !names.some((name) => isWithin(each.path, name)), "", later);
}

/** @param {Context} context @param {Proposal} proposal @param {(report: ArgumentReport) => boolean} isMeant @param {string} name @param {(() => void)[]} later */
function originList(context, proposal, isMeant, name, later) {
  const node = html.div({ class: "origins" });
  const draw = () => {
    const found = proposal.origins?.arguments.filter(isMeant) ?? [];
    node.hidden = found.length === 0;
    const may = proposal.from !== context.state.me.id && isAllowed(context.state, "moot/endorse", { value: "" });
    redraw(node, [found, may, proposal.status], () =>
      found.map((each) => originView(context, proposal, each, each.path === name, may)),
    );
  };
  later.push(draw);
  draw();
  return node;
}

/** @param {Context} context @param {Proposal} proposal @param {ArgumentReport} report @param {boolean} isWhole @param {boolean} mayEndorse */
function originView(context, proposal, report, isWhole, mayEndorse) {
  const me = context.state.me;
  const names = [me.id, context.state.roster.get(me.id)?.name ?? me.id];
  const own = names.find((each) => Object.hasOwn(report.textTo, each));
  const said = html.span(
    { class: "origin-text" },
    asksFor(report) && icon("warning", 14),
    html.span(
      {},
      !isWhole && html.bdi({ class: "mono" }, `${oneLine(report.path, 80)}: `),
      html.bdi({}, escapeHidden(own === undefined ? report.text : report.textTo[own])),
      report.at > 0 && [" · ", html.time({ class: "since", data: { at: String(report.at) } }, ago(report.at))],
    ),
  );
  const isPending = proposal.status === "pending";
  return html.div(
    { class: "origin", data: asksFor(report) ? { tone: "warn" } : {} },
    report.envelope
      ? html.details(
          { data: { fold: `${report.path} ${report.value}` } },
          html.summary({}, said),
          placeView(context, report),
        )
      : said,
    isPending &&
      mayEndorse &&
      asksFor(report) &&
      button("Endorse…", () => endorseDialog(context, proposal, report), {
        class: "small",
        aria: { label: `Endorse ${oneLine(report.path, 60)}…` },
        data: { focus: `endorse ${report.path}` },
      }),
    mayEndorse &&
      report.endorsement &&
      button("Revoke endorsement", () => void revoke(context, report), {
        class: "small",
        data: { focus: `revoke ${report.path}` },
      }),
  );
}

/** The words around it, and the way to the message. @param {Context} context @param {ArgumentReport} report */
function placeView(context, report) {
  const from = context.state.envelopes.byId(report.envelope)?.from;
  return html.div(
    { class: "origin-place" },
    html.blockquote({}, html.bdi({}, escapeHidden(report.excerpt || report.place))),
    html.p(
      { class: "faint" },
      from && [nameOf(from), " · "],
      html.a({ href: context.link("timeline", report.envelope) }, "Show in timeline"),
    ),
  );
}

/** One press. @param {Context} context @param {ArgumentReport} report */
async function revoke(context, report) {
  await runAndNotify(context, context.send("moot/endorse", { revoke: report.endorsement }), "Endorsement revoked");
}

/** A value or a source, for this task and member and until tonight. @param {Context} context @param {Proposal} proposal @param {ArgumentReport} report */
function endorseDialog(context, proposal, report) {
  const value = exactValue(report, proposal.call.params?.arguments);
  const group = newId("endorse");
  const choices = [
    ...(value ? [{ what: { value }, title: "Endorse this value", shown: value }] : []),
    ...(report.envelope
      ? [{ what: { source: report.envelope }, title: "Endorse what this message says", shown: report.excerpt }]
      : []),
  ];
  const radios = choices.map((_, index) => html.input({ type: "radio", name: group, checked: index === 0 }));
  const tonight = new Date();
  tonight.setHours(23, 59, 59, 0);
  const until = Math.min(tonight.getTime(), Date.now() + ENDORSE_MILLISECONDS);
  const task = proposal.origins?.task ?? "";
  const member = context.state.roster.get(proposal.from)?.name ?? proposal.from;
  actionDialog(
    `Endorse the value of “${oneLine(report.path, 60)}”?`,
    [
      html.div(
        { class: "endorse-choices", role: "radiogroup", "aria-label": "What to endorse" },
        choices.map(({ title, shown }, index) =>
          html.label(
            { class: "endorse-choice" },
            radios[index],
            html.span(
              {},
              html.strong({}, title),
              html.bdi({ class: "argument-text" }, escapeHidden(shown.slice(0, 1_000))),
            ),
          ),
        ),
      ),
      choices.length === 0 && html.p({}, "It is too long to be endorsed: approve the call instead."),
      html.p(
        {},
        "For ",
        nameOf(proposal.from),
        `${task ? ", in this task" : ""}, until ${until === tonight.getTime() ? `tonight (${formatMinute(until)})` : formatMinute(until)}. Calls with it may then run without a question. Everyone sees it, and it can be revoked.`,
      ),
    ],
    {
      verb: "Endorse",
      act: async () => {
        const chosen = choices[radios.findIndex((each) => each.checked)];
        if (!chosen) return undefined;
        return context.send("moot/endorse", {
          ...chosen.what,
          ...(task ? { task } : {}),
          member,
          until: new Date(until).toISOString(),
        });
      },
      done: () => context.notify("Endorsed", "good"),
    },
  );
}
