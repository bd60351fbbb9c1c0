/** An inbox with nothing in it: how something comes into it, and what that looks like. */
import { button, html, replace } from "../../core/page/dom.js";
import { Proposals } from "../../core/state/state-proposals.js";
import { elsewhereText } from "./approvals-list.js";
import { proposalView } from "./proposal-view.js";
import { icon } from "../parts/icons.js";

/** @typedef {import("../../app.js").Context} Context */

/** @param {Context} context */
export function emptyInbox(context) {
  const { knowledge } = context.openSpace.sync;
  const elsewhere = elsewhereText(context);
  const plain = (/** @type {string} */ title, /** @type {string} */ text) =>
    html.div({ class: "empty" }, icon("approvals", 32), html.strong({}, title), html.p({}, text));
  if (knowledge === "asking") return plain("Loading", "The gateway is asked what is pending.");
  if (knowledge !== "known")
    return plain("What is pending is not known", "It is loaded as soon as the gateway responds.");
  if (elsewhere) return plain("No pending proposals in this space", `${elsewhere}: see the list.`);
  const example = html.div({ class: "inbox-example", hidden: true });
  const show = button("Show an example", () => {
    const { node } = proposalView(context, exampleProposal(context));
    // What leads to others, and what is said of them: there is nobody.
    for (const each of node.querySelectorAll(
      ".proposal-facts > :not(:first-child), .caution:not([data-tone]), .change",
    ))
      each.remove();
    replace(
      example,
      html.p(
        { class: "caution", role: "status" },
        icon("help", 16),
        "An example: nobody proposed it, nothing is sent.",
      ),
      node,
    );
    example.hidden = false;
    show.hidden = true;
  });
  return [
    html.div(
      { class: "empty" },
      icon("approvals", 32),
      html.strong({}, "No pending proposals"),
      html.p({}, "New proposals appear here with everything needed to decide."),
      html.ol(
        { class: "inbox-steps" },
        html.li({}, html.a({ href: context.link("members") }, "Invite an agent"), ", or start one with the space."),
        html.li({}, "What it may not do by itself, it proposes: who, what, why and what deserves a second look."),
        html.li(
          {},
          "You decide: ",
          html.kbd({}, "a"),
          " approves, ",
          html.kbd({}, "n"),
          " rejects, ",
          html.kbd({}, "?"),
          " shows all keys. Decisions that repeat become ",
          html.a({ href: context.link("rules") }, "rules"),
          ".",
        ),
      ),
      show,
    ),
    example,
  ];
}

/** As an agent would propose it; no part of the space. @param {Context} context */
function exampleProposal({ state }) {
  const payload = {
    method: "tools/call",
    params: { name: "run_command", arguments: { command: "cd build && rm -rf ./cache && make" } },
  };
  const envelope = { id: "example", kind: "mcp/proposal", from: "coder", to: [state.me.id], payload };
  const raw = JSON.stringify(envelope);
  const proposals = new Proposals();
  const row = { id: "example", from: "coder", to: envelope.to, about: [], at: Date.now(), raw, kind: envelope.kind };
  proposals.receive(envelope, /** @type {any} */ (row));
  const [proposal] = proposals.open();
  // Nothing is known about who else would be there.
  proposal.to = [];
  return proposal;
}
