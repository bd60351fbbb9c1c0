/** One sequence of reasoning on the page; it grows with its thoughts, and nested sequences are placed where they began. */
import { button, html, replace } from "../../core/page/dom.js";
import { textBlock, nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { ago, duration, isoTime, formatTime } from "../../core/page/time.js";
import { icon } from "../parts/icons.js";
import { lacksCapability } from "../members/member-controls.js";
import { streamTail } from "./stream-tail.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/state-reasoning.js").Sequence} Sequence */

// A thought is a sentence or two; a longer one is cut, with a button for the rest.
const THOUGHT_CHARACTERS = 1_500;

/**
 * @param {Context} context @param {Sequence} sequence @param {() => void} stop
 * @returns {{node: HTMLElement, update: (inside: {at: number, id: string, node: HTMLElement}[]) => void, tick: () => void}}
 */
export function sequenceNode(context, sequence, stop) {
  const state = html.span({ class: "state-mark" });
  const time = html.span({ class: "faint" });
  const stopping = button(
    "Stop",
    () => {
      stopping.disabled = true;
      stop();
    },
    {
      class: "danger small",
      shortcut: "s",
      icon: icon("close", 14),
      disabled: lacksCapability(context, "reasoning/cancel"),
    },
  );
  stopping.append(
    html.span({ class: "sr" }, ` the reasoning of ${oneLine(sequence.from, 40)}: ${oneLine(sequence.message, 80)}`),
  );
  const dropped = html.p({ class: "faint", hidden: true });
  const list = html.ol({ class: "thoughts", "aria-label": "Thoughts" });
  const streams = html.div({ class: "sequence-streams" });
  const ending = html.div({ class: "ending", hidden: true });
  const node = html.article(
    {
      class: "sequence card",
      data: { sequence: sequence.id },
      "aria-label": `Reasoning of ${oneLine(sequence.from, 40)}`,
    },
    html.header(
      { class: "sequence-head" },
      html.div(
        { class: "grow" },
        nameOf(sequence.from),
        html.div(
          { class: "sequence-title" },
          textBlock(sequence.message || (sequence.startUnknown ? "Started before you joined" : "Untitled"), {
            tag: "div",
            maxCharacters: THOUGHT_CHARACTERS,
            class: "thought-text",
          }),
        ),
      ),
      html.div({ class: "sequence-side" }, time, state, stopping),
    ),
    dropped,
    list,
    streams,
    ending,
  );
  let shown = 0;
  let status = "";
  /** @type {Set<string>} */
  const inside = new Set();
  /** @type {Map<string, ReturnType<typeof streamTail>>} */
  const tails = new Map();

  /** Thoughts and nested sequences in order of arrival. @param {{at: number, id: string, node: HTMLElement}[]} below */
  const grow = (below) => {
    const all = sequence.dropped + sequence.thoughts.length;
    const rowNumber = (/** @type {string} */ id, /** @type {number} */ at) => context.state.envelopes.byId(id)?.n ?? at;
    /** @type {{n: number, node: HTMLElement}[]} */
    const added = [];
    for (let n = Math.max(shown, sequence.dropped); n < all; n += 1) {
      const thought = sequence.thoughts[n - sequence.dropped];
      added.push({
        n: rowNumber(thought.id, thought.at),
        node: html.li(
          { class: "thought" },
          html.time({ class: "faint thought-time", datetime: isoTime(thought.at) }, formatTime(thought.at)),
          textBlock(thought.text, { tag: "div", maxCharacters: THOUGHT_CHARACTERS, class: "thought-text" }),
        ),
      });
    }
    shown = all;
    for (const each of below) {
      if (inside.has(each.id)) continue;
      inside.add(each.id);
      added.push({ n: rowNumber(each.id, each.at), node: html.li({ class: "within" }, each.node) });
    }
    added.sort((a, b) => a.n - b.n);
    list.append(...added.map((each) => each.node));
    // Remove what the state has dropped.
    const kept = list.querySelectorAll(":scope > .thought");
    for (let extra = 0; extra < kept.length - sequence.thoughts.length; extra += 1) kept[extra].remove();
    dropped.hidden = sequence.dropped === 0;
    dropped.textContent = `${sequence.dropped} earlier ${sequence.dropped === 1 ? "thought is" : "thoughts are"} only in the timeline.`;
  };

  const showStatus = () => {
    const gone = sequence.status === "active" && context.state.roster.members.get(sequence.from)?.present === false;
    const now = gone ? "gone" : sequence.status;
    // It was asked to stop and still continues: allow another press.
    stopping.disabled = lacksCapability(context, "reasoning/cancel");
    stopping.hidden = sequence.status !== "active";
    if (now === status) return;
    status = now;
    const text = { active: "active", concluded: "concluded", cancelled: "stopped", gone: "member left" }[now];
    state.dataset.tone = now === "active" ? "warn" : now === "concluded" ? "good" : "";
    replace(state, html.span({ class: "dot", "aria-hidden": "true" }), text);
    node.dataset.status = now;
    ending.hidden = sequence.status === "active";
    if (sequence.status === "concluded")
      replace(
        ending,
        html.strong({}, "Conclusion"),
        textBlock(sequence.ending || "none", { tag: "div", maxCharacters: THOUGHT_CHARACTERS, class: "thought-text" }),
      );
    if (sequence.status === "cancelled")
      replace(
        ending,
        html.strong({}, "Stopped"),
        html.p(
          {},
          "by ",
          nameOf(sequence.endedBy),
          sequence.ending && `: ${escapeHidden(oneLine(sequence.ending, 200))}`,
        ),
      );
  };

  const showStreams = () => {
    for (const id of sequence.streams) {
      const stream = context.state.streams.byId.get(id);
      if (!stream) continue;
      let tail = tails.get(id);
      if (!tail) {
        tails.set(id, (tail = streamTail(context, stream)));
        streams.append(
          html.section(
            { class: "sequence-stream" },
            html.h3(
              {},
              icon("streams", 14),
              " Stream ",
              html.a({ href: context.link("streams", id) }, html.bdi({ class: "mono" }, oneLine(id, 40))),
            ),
            tail.node,
          ),
        );
      }
      tail.update();
    }
  };

  const tick = () => {
    const text =
      sequence.status === "active"
        ? ago(sequence.at).replace(" ago", "")
        : duration(Math.max(0, sequence.changedAt - sequence.at));
    if (time.textContent !== text) time.textContent = text;
  };

  return {
    node,
    tick,
    update(below) {
      grow(below);
      showStreams();
      showStatus();
      tick();
    },
  };
}
