// @ts-check
/** Calls that were made by hand, newest first, each followed to its end. They stay while the page is open. */
import { button, el, replace } from "../core/dom.js";
import { freshEnvelopeId } from "../core/speaking.js";
import { block, nameOf, oneLine } from "../core/text.js";
import { shortTime } from "../core/time.js";
import { answerView, progressOf, progressView } from "./call-result.js";
import { fateOf, wordsOf } from "./desk-decide.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {{id: string, number: number, to: string, what: string, method: string, paramsText: string, way: "request" | "propose", at: number, fault: string, cancelled: boolean, told: string, node: HTMLElement}} Made */

const MOST_KEPT = 30;

/** @type {WeakMap<object, CallsMade>} */
const made = new WeakMap();

/** @param {Context} context */
export function callsOf(context) {
  let found = made.get(context.state);
  if (!found) {
    found = new CallsMade(context);
    made.set(context.state, found);
  }
  found.draw();
  return found;
}

let numbers = 0;

class CallsMade {
  /** @param {Context} context */
  constructor(context) {
    this._context = context;
    /** @type {Made[]} newest first */
    this._calls = [];
    this._none = el("p", { class: "soft" }, "Nothing was called from here yet.");
    this._list = el("ol", { class: "made-list" });
    this.node = el("div", {}, this._none, this._list);
  }

  /** @param {string} to @param {{method: string, paramsText: string}} call @param {"request" | "propose"} way */
  make(to, call, way) {
    const { method, paramsText } = call;
    const id = freshEnvelopeId();
    numbers += 1;
    const name = paramsText && method === "tools/call" ? String(JSON.parse(paramsText).name ?? "") : "";
    /** @type {Made} */
    const one = { id, number: numbers, to, what: name || method, method, paramsText, way, at: Date.now(), fault: "", cancelled: false, told: "", node: el("li", { class: "made card" }) };
    this._calls.unshift(one);
    this._list.prepend(one.node);
    for (const old of this._calls.splice(MOST_KEPT)) old.node.remove();
    // A host that tells how far it is needs a token to tell it by.
    const asked = way === "request" && paramsText.startsWith("{") && method === "tools/call" ? `${paramsText.slice(0, -1)},"_meta":{"progressToken":${JSON.stringify(`console-${id}`)}}}` : paramsText;
    const body = `"method":${JSON.stringify(method)}${asked ? `,"params":${asked}` : ""}`;
    const payloadText = way === "request" ? `{"jsonrpc":"2.0","id":${numbers},${body}}` : `{${body}}`;
    this._context.say(way === "request" ? "mcp/request" : "mcp/proposal", null, { id, to: [to], payloadText }).then(
      () => this.draw(),
      (fault) => {
        one.fault = wordsOf(fault);
        this.draw();
      },
    );
    this.draw();
    one.node.scrollIntoView({ block: "nearest" });
  }

  draw() {
    this._none.hidden = this._calls.length > 0;
    for (const one of this._calls) this._drawOne(one);
  }

  /** @param {Made} one */
  _drawOne(one) {
    const { state } = this._context;
    const proposal = state.proposals.byId.get(one.id);
    const request = one.way === "request" ? one.id : (proposal?.requestId ?? "");
    const asked = request ? state.proposals.requests.get(request) : undefined;
    const progress = asked && !asked.answer ? progressOf(state, asked.id) : null;
    const now = JSON.stringify([one.fault, one.cancelled, proposal?.status, proposal?.rejections.length, asked?.answer?.id, Boolean(asked), progress]);
    if (now === one.told) return;
    const first = one.told === "";
    one.told = now;
    const [words, tone] = this._status(one, proposal, asked);
    if (!first) this._context.announce(`${oneLine(one.what, 60)}: ${words}`);
    replace(
      one.node,
      el("header", { class: "made-head" }, el("strong", { class: "mono" }, oneLine(one.what, 60)), el("span", { class: "soft" }, "on ", nameOf(one.to)), el("span", { class: "grow" }), el("span", { class: "tag", data: { tone } }, words), el("a", { class: "faint", href: this._context.link("timeline", one.id) }, shortTime(one.at))),
      el("details", {}, el("summary", { class: "soft" }, "What was sent"), block(one.paramsText || "(no parameters)", { label: "what was sent" })),
      one.fault && el("p", { class: "fault", role: "alert" }, one.fault),
      progress && progressView(progress),
      proposal && !asked && proposal.rejections.map((each) => el("p", {}, nameOf(each.by), ` said no: ${oneLine(each.reason, 120)}`)),
      asked?.answer && answerView(asked.answer),
      this._ending(one, proposal, asked),
    );
  }

  /** @param {Made} one @param {any} proposal @param {any} asked @returns {[string, string]} */
  _status(one, proposal, asked) {
    if (one.fault) return ["refused", "bad"];
    if (asked?.answer) return asked.answer.error || asked.answer.result?.isError === true ? ["failed", "bad"] : ["done", "good"];
    if (one.cancelled) return ["cancelled", ""];
    if (one.way === "request") return asked ? ["under way", "accent"] : ["sending", "accent"];
    if (!proposal) return ["sending", "accent"];
    return proposal.status === "open" ? ["waits for a decision", "warn"] : asked ? ["approved, under way", "accent"] : [oneLine(fateOf(proposal, this._context.state.me.id), 80), ""];
  }

  /** Calling it off, while that makes sense. @param {Made} one @param {any} proposal @param {any} asked */
  _ending(one, proposal, asked) {
    if (one.fault || one.cancelled || asked?.answer) return null;
    if (one.way === "propose") return proposal?.status === "open" ? el("div", { class: "action-row" }, button("Withdraw", () => this._say(one, "mcp/withdraw", { reason: "no_longer_needed" }, []), { class: "small danger" }), el("a", { href: this._context.link("desk", one.id) }, "Show at the desk")) : null;
    if (!asked) return null;
    return button("Call it off", () => this._say(one, "mcp/request", { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: one.number, reason: "called off by hand" } }, [one.to]), { class: "small danger" });
  }

  /** @param {Made} one @param {string} kind @param {any} payload @param {string[]} to */
  async _say(one, kind, payload, to) {
    try {
      await this._context.say(kind, payload, { about: one.id, to });
      one.cancelled = kind === "mcp/request";
    } catch (fault) {
      this._context.notify(wordsOf(fault), "bad");
    }
    this.draw();
  }
}
