/** Calls made in the form, newest first, each followed to its result. They stay while the page is open. */
import { button, html, replace } from "../../core/page/dom.js";
import { newEnvelopeId, Refused } from "../../core/connection/envelope-sender.js";
import { textBlock, nameOf, oneLine } from "../../core/page/text.js";
import { formatTime } from "../../core/page/time.js";
import { saysUnknown } from "../../core/state/envelope-fields.js";
import { answerView, progressOf, progressView } from "../parts/call-result.js";
import { settledText, errorText } from "../proposals/proposal-decisions.js";

/** @typedef {import("../../app.js").Context} Context */
/** @typedef {{id: string, number: number, to: string, what: string, method: string, paramsText: string, way: "request" | "propose", at: number, fault: string, cancelled: boolean, drawnFor: string, node: HTMLElement}} LoggedCall */

const MAX_KEPT = 30;

/** @type {WeakMap<object, CallLog>} */
const logs = new WeakMap();

/** @param {Context} context */
export function callLogOf(context) {
  let found = logs.get(context.state);
  if (!found) {
    found = new CallLog(context);
    logs.set(context.state, found);
  }
  found.draw();
  return found;
}

let numbers = 0;

class CallLog {
  /** @param {Context} context */
  constructor(context) {
    this._context = context;
    /** @type {LoggedCall[]} newest first */
    this._calls = [];
    this._none = html.p({ class: "soft" }, "No calls yet.");
    this._list = html.ol({ class: "made-list" });
    this.node = html.div({}, this._none, this._list);
  }

  get isEmpty() {
    return this._calls.length === 0;
  }

  /** @param {string} to @param {{method: string, paramsText: string}} call @param {"request" | "propose"} way */
  sendCall(to, call, way) {
    const { method, paramsText } = call;
    const id = newEnvelopeId();
    numbers += 1;
    const name = paramsText && method === "tools/call" ? String(JSON.parse(paramsText).name ?? "") : "";
    /** @type {LoggedCall} */
    const one = {
      id,
      number: numbers,
      to,
      what: name || method,
      method,
      paramsText,
      way,
      at: Date.now(),
      fault: "",
      cancelled: false,
      drawnFor: "",
      node: html.li({ class: "made card" }),
    };
    this._calls.unshift(one);
    this._list.prepend(one.node);
    for (const old of this._calls.splice(MAX_KEPT)) old.node.remove();
    // A host needs this token to report progress.
    const request =
      way === "request" && paramsText.startsWith("{") && method === "tools/call"
        ? `${paramsText.slice(0, -1)},"_meta":{"progressToken":${JSON.stringify(`console-${id}`)}}}`
        : paramsText;
    const body = `"method":${JSON.stringify(method)}${request ? `,"params":${request}` : ""}`;
    const payloadText = way === "request" ? `{"jsonrpc":"2.0","id":${numbers},${body}}` : `{${body}}`;
    this._context.send(way === "request" ? "mcp/request" : "mcp/proposal", null, { id, to: [to], payloadText }).then(
      () => this.draw(),
      (fault) => {
        // A right does not lift a quorum (D-103).
        if (way === "request" && fault instanceof Refused && fault.code === "approval_required")
          return this._proposeInstead(one, call);
        one.fault = errorText(fault);
        this.draw();
      },
    );
    this.draw();
    one.node.scrollIntoView({ block: "nearest" });
  }

  /** @param {LoggedCall} one @param {{method: string, paramsText: string}} call */
  _proposeInstead(one, call) {
    this._calls = this._calls.filter((each) => each !== one);
    one.node.remove();
    this._context.notify("Proposed: here this call needs approvals of others.", "good");
    this.sendCall(one.to, call, "propose");
  }

  draw() {
    this._none.hidden = !this.isEmpty;
    for (const one of this._calls) this._drawOne(one);
  }

  /** @param {LoggedCall} one */
  _drawOne(one) {
    const { state } = this._context;
    const proposal = state.proposals.byId.get(one.id);
    const request = one.way === "request" ? one.id : (proposal?.requestId ?? "");
    const wanted = request ? state.proposals.requests.get(request) : undefined;
    const progress = wanted && !wanted.answer ? progressOf(state, wanted.id) : null;
    const now = JSON.stringify([
      one.fault,
      one.cancelled,
      proposal?.status,
      proposal?.rejections.length,
      wanted?.answer?.id,
      Boolean(wanted),
      progress,
    ]);
    if (now === one.drawnFor) return;
    const first = one.drawnFor === "";
    one.drawnFor = now;
    const [text, tone] = this._status(one, proposal, wanted);
    if (!first) this._context.announce(`${oneLine(one.what, 60)}: ${text}`);
    replace(
      one.node,
      html.header(
        { class: "made-head" },
        html.strong({ class: "mono" }, oneLine(one.what, 60)),
        html.span({ class: "soft" }, "on ", nameOf(one.to)),
        html.span({ class: "grow" }),
        html.span({ class: "tag", data: { tone } }, text),
        html.a({ class: "faint", href: this._context.link("timeline", one.id) }, formatTime(one.at)),
      ),
      html.details(
        {},
        html.summary({ class: "soft" }, "Sent parameters"),
        textBlock(one.paramsText || "(no parameters)", { label: "sent parameters" }),
      ),
      one.fault && html.p({ class: "fault", role: "alert" }, one.fault),
      progress && progressView(progress),
      proposal &&
        !wanted &&
        proposal.rejections.map((each) => html.p({}, nameOf(each.by), ` rejected it: ${oneLine(each.reason, 120)}`)),
      wanted?.answer &&
        answerView(wanted.answer, this._context, this._context.state.envelopes.byId(wanted.answer.id)?.raw),
      this._cancelButton(one, proposal, wanted),
    );
  }

  /** @param {LoggedCall} one @param {any} proposal @param {any} request @returns {[string, string]} */
  _status(one, proposal, request) {
    if (one.fault) return ["refused", "bad"];
    if (saysUnknown(request?.answer?.error))
      return proposal?.assessedBy
        ? [`${proposal.status === "done" ? "done" : "not done"}, says ${oneLine(proposal.assessedBy, 40)}`, ""]
        : ["outcome unknown", "warn"];
    if (request?.answer)
      return request.answer.error || request.answer.result?.isError === true ? ["failed", "bad"] : ["done", "good"];
    if (one.cancelled) return ["cancelled", ""];
    if (one.way === "request") return request ? ["running", "accent"] : ["sending", "accent"];
    if (!proposal) return ["sending", "accent"];
    return proposal.status === "pending"
      ? ["pending", "warn"]
      : request
        ? ["approved, running", "accent"]
        : [oneLine(settledText(proposal, this._context.state.me.id), 80), ""];
  }

  /** The cancel button, while the call is running. @param {LoggedCall} one @param {any} proposal @param {any} request */
  _cancelButton(one, proposal, request) {
    if (one.fault || one.cancelled || request?.answer) return null;
    if (one.way === "propose")
      return proposal?.status === "pending"
        ? html.div(
            { class: "action-row" },
            button("Withdraw", () => this._send(one, "mcp/withdraw", { reason: "no_longer_needed" }, []), {
              class: "small danger",
            }),
            html.a({ href: this._context.link("approvals", one.id) }, "Show in Approvals"),
          )
        : null;
    if (!request) return null;
    return button(
      "Cancel call",
      () =>
        this._send(
          one,
          "mcp/request",
          {
            jsonrpc: "2.0",
            method: "notifications/cancelled",
            params: { requestId: one.number, reason: "cancelled by the caller" },
          },
          [one.to],
        ),
      { class: "small danger" },
    );
  }

  /** @param {LoggedCall} one @param {string} kind @param {any} payload @param {string[]} to */
  async _send(one, kind, payload, to) {
    try {
      await this._context.send(kind, payload, { about: one.id, to });
      one.cancelled = kind === "mcp/request";
    } catch (fault) {
      this._context.notify(`${oneLine(one.what, 60)}: ${errorText(fault)}`, "bad");
    }
    this.draw();
  }
}
