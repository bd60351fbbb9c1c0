/** Graphs of the space: which members exchange messages, and the steps of one operation from proposal to result. */
import { html, replace } from "../../core/page/dom.js";
import { registerView } from "../../core/page/router.js";
import { oneLine } from "../../core/page/text.js";
import { icon } from "../parts/icons.js";
import { operationGraph } from "./operation-graph.js";
import { memberGraph } from "./member-graph.js";
import { kindTag, operationText } from "../timeline/timeline-rows.js";

const REDRAW_MILLISECONDS = 1000;
const LATEST = 30;

class FlowView {
  /** @param {HTMLElement} outlet @param {import("../../app.js").Context} context */
  constructor(outlet, context) {
    this.context = context;
    this._id = "";
    this._drawnAt = 0;
    /** @type {any} */
    this._later = undefined;
    this._memberGraph = html.div({ class: "flow-talk" });
    this._operationGraph = html.div({ class: "flow-path" });
    this._recent = html.h3({ hidden: true }, "Recent operations");
    this._operations = html.ul({ class: "flow-operations" });
    outlet.append(
      html.div({ class: "view-head" }, html.h1({}, "Message flow")),
      html.div(
        { class: "view-body flow" },
        html.section(
          { class: "card flow-card", "aria-labelledby": "flow-who" },
          html.h2({ id: "flow-who" }, "Who talks to whom"),
          this._memberGraph,
        ),
        html.section(
          { class: "card flow-card", "aria-labelledby": "flow-how" },
          html.h2({ id: "flow-how" }, "Operation"),
          this._operationGraph,
          this._recent,
          this._operations,
        ),
      ),
    );
    this._stop = context.state.on(["envelopes", "roster"], () => this._changed());
    this._draw();
  }

  close() {
    clearTimeout(this._later);
    this._stop();
  }

  /** @param {string[]} rest */
  openRoute(rest) {
    this._id = rest[0] ?? "";
    this._draw();
  }

  _changed() {
    const wait = this._drawnAt + REDRAW_MILLISECONDS - performance.now();
    clearTimeout(this._later);
    if (wait <= 0) this._draw();
    else this._later = setTimeout(() => this._draw(), wait);
  }

  _draw() {
    this._drawnAt = performance.now();
    const operations = this._latest();
    const id = this._id || (operations.find((row) => row.kind.startsWith("mcp/proposal")) ?? operations[0])?.id || "";
    const focused = this._operationGraph.contains(document.activeElement)
      ? /** @type {HTMLElement} */ (document.activeElement)?.dataset.id
      : "";
    const open = this._memberGraph.querySelector("details")?.open ?? false;
    replace(this._memberGraph, memberGraph(this.context));
    const table = this._memberGraph.querySelector("details");
    if (table) table.open = open;
    replace(
      this._operationGraph,
      operationGraph(id, this.context) ??
        html.div(
          { class: "empty" },
          icon("flow", 28),
          html.strong({}, "No operations yet"),
          html.span({}, "The steps from a proposal to its result are drawn here."),
        ),
    );
    const again = focused && this._operationGraph.querySelector(`[data-id="${CSS.escape(focused)}"]`);
    if (again instanceof SVGElement) again.focus();
    const key = `${id} ${operations.map((row) => row.id).join()}`;
    if (key === this._shown) return;
    this._shown = key;
    this._recent.hidden = operations.length === 0;
    replace(
      this._operations,
      operations.map((row) =>
        html.li(
          {},
          html.a(
            { class: "cause", href: this.context.link("flow", row.id), "aria-current": row.id === id ? "true" : null },
            kindTag(row),
            html.bdi({ class: "grow mono" }, oneLine(operationText(row.operation) || row.kind, 60)),
            html.bdi({ class: "soft" }, oneLine(row.from, 30)),
          ),
        ),
      ),
    );
  }

  _shown = "";

  /** Proposals, and requests that fulfil none, newest first. @returns {import("../../core/state/envelopes.js").Row[]} */
  _latest() {
    const store = this.context.state.activity;
    const found = [];
    // Looking further back would cost more than it shows.
    for (let n = store.next - 1; n >= Math.max(store.first, store.next - 5000) && found.length < LATEST; n -= 1) {
      const row = store.at(n);
      if (!row || row.type === "gap") continue;
      const isProposal = row.kind.startsWith("mcp/proposal");
      if (isProposal || (row.kind.startsWith("mcp/request") && row.about.length === 0)) found.push(row);
    }
    return found;
  }
}

registerView({
  id: "flow",
  title: "Flow",
  icon: "flow",
  order: 80,
  more: true,
  key: "m",
  mount(outlet, context) {
    const view = new FlowView(outlet, context);
    return { unmount: () => view.close(), openRoute: (rest) => view.openRoute(rest) };
  },
});
