/** Talking about a proposal: comments with mentions, and whom it is for. Comments are chats that everybody sees. */
import { button, html, newId, redraw } from "../../core/page/dom.js";
import { nameOf, oneLine, withCode } from "../../core/page/text.js";
import { ago } from "../../core/page/time.js";
import { isAllowed } from "../capabilities/capability-match.js";
import { runAndNotify } from "../parts/action-dialog.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../../app.js").Context} Context */

const MAX_CHARACTERS = 4_000;

/** The others who are here and whom a text mentions, as in `@ana`. @param {Context} context @param {string} text */
function mentionedIn({ state }, text) {
  const words = new Set([...text.matchAll(/(?<![\w.@-])@([^\s@,;:!?]+)/g)].map((each) => each[1].replace(/\.+$/, "")));
  return state.roster
    .present()
    .map((each) => each.id)
    .filter((id) => id !== state.me.id && words.has(id));
}

/** @param {Context} context @param {Proposal} proposal @returns {{node: HTMLElement, draw: () => void, focus: () => void}} */
export function proposalComments(context, proposal) {
  const { state } = context;
  const list = html.ol({ class: "comments" });
  const whom = html.div({ class: "comment-whom" });
  const field = html.input({
    id: newId("comment"),
    class: "field",
    maxlength: String(MAX_CHARACTERS),
    placeholder: "Ask or tell, @name mentions",
    "aria-label": "Comment",
    autocomplete: "off",
  });
  const send = async () => {
    const text = field.value.trim();
    if (!text) return;
    const mentioned = mentionedIn(context, text);
    const to = mentioned.length > 0 || proposal.from === state.me.id ? mentioned : [proposal.from];
    const sent = context.send("chat", { text, format: "plain" }, { to, about: proposal.id });
    if (await runAndNotify(context, sent)) field.value = "";
  };
  const form = html.form(
    {
      class: "comment-form",
      on: {
        submit: (/** @type {Event} */ event) => {
          event.preventDefault();
          void send();
        },
      },
    },
    field,
    button("Comment", () => void send(), { class: "small", shortcut: "c" }),
  );
  const node = html.section(
    { class: "proposal-comments", "aria-label": "Comments" },
    html.div({ class: "section-bar" }, html.h3({}, "Comments"), html.span({ class: "grow" }), whom),
    list,
    form,
  );
  const draw = () => {
    form.hidden = !isAllowed(state, "chat");
    redraw(list, [proposal.comments.map((each) => each.id)], () =>
      proposal.comments.map((each) =>
        html.li(
          {},
          nameOf(each.by, { you: each.by === state.me.id }),
          html.time({ class: "since faint", data: { at: String(each.at) } }, ago(each.at)),
          html.p({}, html.bdi({}, withCode(each.text.slice(0, MAX_CHARACTERS)))),
        ),
      ),
    );
    const members = state.roster.present().map((each) => each.id);
    redraw(whom, [proposal.assigned, proposal.status, members], () => whomView(context, proposal, members));
    node.hidden = form.hidden && proposal.comments.length === 0;
  };
  draw();
  return { node, draw, focus: () => field.focus() };
}

/** "For ana", and a choice of somebody else. @param {Context} context @param {Proposal} proposal @param {string[]} members */
function whomView(context, proposal, members) {
  const may = proposal.status === "pending" && isAllowed(context.state, "moot/assign", { to: [] });
  const names = proposal.assigned.map((each, index) => [index > 0 && ", ", nameOf(each)]);
  if (!may) return proposal.assigned.length > 0 && html.span({}, "For ", names);
  const choice = html.select(
    {
      class: "field small",
      "aria-label": "For",
      value: proposal.assigned.length === 1 ? proposal.assigned[0] : "",
      on: {
        change: () =>
          void runAndNotify(
            context,
            context.send("moot/assign", { to: choice.value ? [choice.value] : [] }, { about: proposal.id }),
            choice.value ? `For ${oneLine(choice.value, 40)}` : "For everybody",
          ),
      },
    },
    html.option({ value: "" }, "For everybody"),
    [...new Set([...proposal.assigned, ...members])]
      .filter((each) => each !== proposal.from)
      .map((each) => html.option({ value: each }, `For ${oneLine(each, 40)}`)),
  );
  return choice;
}
