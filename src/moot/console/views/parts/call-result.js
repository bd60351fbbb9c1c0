/** The result of a call: its progress while it runs, then its content. */
import { html } from "../../core/page/dom.js";
import { textAt } from "../../core/state/json-text.js";
import { formatNumber } from "../../core/page/numbers.js";
import { textBlock, oneLine, escapeHidden } from "../../core/page/text.js";
import { jsonTree } from "./json-tree.js";
import { listedValuesView } from "./large-value.js";

const MAX_PARTS = 100;

/**
 * The progress that a host reports for a request.
 * @param {import("../../core/state/state.js").State} state @param {string} request the envelope's id
 * @returns {{done: number, total: number, message: string} | null}
 */
export function progressOf(state, request) {
  const wanted = state.proposals.requests.get(request);
  const row = state.envelopes
    .effectsOf(request)
    .findLast(
      (each) =>
        each.operation === "notifications/progress" &&
        (!wanted || wanted.to.length === 0 || wanted.to.includes(each.from)),
    );
  if (!row) return null;
  const params = state.envelopes.envelope(row)?.payload?.params ?? {};
  return {
    done: finite(params.progress),
    total: finite(params.total),
    message: typeof params.message === "string" ? params.message : "",
  };
}

/** @param {any} value */
function finite(value) {
  return typeof value === "number" && Number.isFinite(value) && value > 0 ? value : 0;
}

/** @param {{done: number, total: number, message: string}} progress */
export function progressView(progress) {
  const share = progress.total > 0 ? Math.min(1, progress.done / progress.total) : 0;
  const bar = html.span({ class: "progress-done" });
  bar.style.width = `${Math.round(share * 100)}%`;
  const text = progress.total > 0 ? `${progress.done} of ${progress.total}` : `${progress.done}`;
  return html.div(
    { class: "progress" },
    html.div(
      {
        class: "progress-bar",
        role: "progressbar",
        "aria-label": "Progress",
        "aria-valuemin": "0",
        "aria-valuemax": String(progress.total || 100),
        "aria-valuenow": progress.total ? String(progress.done) : null,
        "aria-valuetext": text,
      },
      bar,
    ),
    html.span({ class: "soft" }, text, progress.message && [" · ", html.bdi({}, oneLine(progress.message, 200))]),
  );
}

/**
 * An answer: a JSON-RPC error, or a result with content.
 * @param {{result?: any, error?: any}} answer @param {import("../../app.js").Context} context @param {string} [raw] its envelope as it was received, if it is still kept: digits as they are
 */
export function answerView(answer, context, raw = "") {
  const text = (/** @type {any} */ value, /** @type {string[]} */ ...path) =>
    (raw && textAt(raw, ["payload", ...path])) || (JSON.stringify(value) ?? "null");
  if (answer.error) {
    const { code, message, data } = answer.error;
    return html.div(
      { class: "answer" },
      html.p(
        { class: "fault" },
        escapeHidden(`${message ?? "The call failed."}${code === undefined ? "" : ` (${code})`}`),
      ),
      data !== undefined && jsonTree(text(data, "error", "data"), { label: "details" }),
    );
  }
  const result = answer.result;
  const content = Array.isArray(result?.content) ? result.content : null;
  if (!content)
    return html.div(
      { class: "answer" },
      result === undefined
        ? html.p({ class: "soft" }, "Empty result.")
        : jsonTree(text(result, "result"), { label: "result" }),
    );
  return html.div(
    { class: "answer" },
    content.length === 0 && !result.structuredContent && html.p({ class: "soft" }, "Empty result."),
    content
      .slice(0, MAX_PARTS)
      .map((/** @type {any} */ part, /** @type {number} */ index) =>
        partView(part, () => text(part, "result", "content", String(index))),
      ),
    content.length > MAX_PARTS && html.p({ class: "soft" }, `and ${content.length - MAX_PARTS} more`),
    listedValuesView(context, result),
    result.structuredContent !== undefined &&
      html.details(
        {},
        html.summary({}, "Structured data"),
        jsonTree(text(result.structuredContent, "result", "structuredContent"), { label: "data" }),
      ),
  );
}

/** @param {any} part @param {() => string} text */
function partView(part, text) {
  if (typeof part?.text === "string") return textBlock(part.text, { label: "result" });
  if (typeof part?.resource?.text === "string")
    return html.div(
      {},
      html.p({ class: "soft mono" }, oneLine(part.resource.uri ?? "", 200)),
      textBlock(part.resource.text, { label: "result" }),
    );
  if (typeof part?.data === "string")
    return html.p(
      { class: "soft" },
      `${oneLine(part.type ?? "data", 20)}, ${oneLine(part.mimeType ?? "unknown type", 60)}, about ${formatNumber(Math.round((part.data.length * 3) / 4))} bytes`,
    );
  return jsonTree(text(), { label: "part" });
}
