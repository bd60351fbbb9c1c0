/** One envelope in full: who, what, why it was refused, its causes and effects, and its payload. */
import { button, html } from "../../core/page/dom.js";
import { formatJson, textAt } from "../../core/state/json-text.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { duration, isoTime, formatTime } from "../../core/page/time.js";
import { describeError, describeRejection } from "../parts/error-text.js";
import { icon } from "../parts/icons.js";
import { jsonTree } from "../parts/json-tree.js";
import { listedValuesView } from "../parts/large-value.js";
import { kindTag, operationText } from "./timeline-rows.js";

/** @typedef {import("../../core/state/envelopes.js").Row} Row */

/**
 * @param {Row} row
 * @param {import("../../app.js").Context} context
 * @param {{jump: (id: string) => void, close: () => void, filter: (text: string) => void, loadGap?: (id: string) => void}} actions
 */
export function envelopeDetails(row, context, actions) {
  const store = context.state.envelopes;
  if (row.type === "gap")
    return html.div(
      { class: "details" },
      head("Gap", actions),
      html.p({}, escapeHidden(row.summary)),
      html.p({ class: "soft" }, `Messages between ${isoTime(row.at)} and the next entry may be missing here.`),
      row.canLoad && button("Load missing messages", () => actions.loadGap?.(row.id), { class: "primary" }),
    );
  const payload = textAt(row.raw, ["payload"]);
  const cause = store.causesOf(row);
  const effects = store.effectsOf(row.id);
  return html.div(
    { class: "details" },
    head([kindTag(row), html.bdi({ class: "details-title" }, oneLine(operationText(row.operation), 120))], actions),
    facts(row, context, actions),
    refusal(row, context),
    links(
      "Caused by",
      cause.map((each) => ({ id: each.id, row: each.row })),
      row,
      context,
      actions,
    ),
    links(
      "Resulted in",
      effects.map((each) => ({ id: each.id, row: each })),
      row,
      context,
      actions,
    ),
    html.div(
      { class: "details-actions" },
      row.about.length + effects.length > 0 &&
        button("View flow", () => context.go("flow", row.id), { class: "small", icon: icon("flow", 16) }),
      decidedByRules(row, context) &&
        button("Explain", () => context.go("rules", "explain", row.id), {
          class: "small",
          icon: icon("rules", 16),
          title: "Why rules did or did not decide this",
        }),
      row.kind === "mcp/proposal" &&
        button("Open in inbox", () => context.go("approvals", row.id), { class: "small", icon: icon("inbox", 16) }),
      copyButton(new URL(context.link("timeline", row.id), location.href).href, "Copy link to this message", context, {
        text: "Copy link",
        icon: "link",
      }),
      button("Show only this conversation", () => actions.filter(`is-root:${row.root}`), { class: "small" }),
    ),
    ["params", "result"].map((each) => listedValuesView(context, store.envelope(row)?.payload?.[each])),
    payload === null
      ? html.p({ class: "soft" }, "No payload.")
      : html.section(
          {},
          html.div(
            { class: "details-bar" },
            html.h3({}, "Payload"),
            copyButton(formatJson(payload), "Copy payload", context),
          ),
          jsonTree(payload),
        ),
    html.details(
      { class: "raw" },
      html.summary({}, "Raw envelope"),
      copyButton(row.raw, "Copy envelope", context),
      rawBlock(row.raw),
    ),
  );
}

/** Whether a rule decided it or could have: a rule is named, or the space has an approver. @param {Row} row @param {import("../../app.js").Context} context */
function decidedByRules(row, context) {
  return row.context.startsWith("trust/rule/") || (row.kind === "mcp/proposal" && context.state.hasRules);
}

/** Its content is built when it is opened. @param {string} raw */
function rawBlock(raw) {
  const holder = html.div({});
  const shown = new IntersectionObserver((entries) => {
    if (!entries.some((each) => each.isIntersecting)) return;
    shown.disconnect();
    holder.append(jsonTree(raw, { label: "envelope" }));
  });
  shown.observe(holder);
  return holder;
}

/** @param {any} title @param {{close: () => void}} actions */
function head(title, actions) {
  return html.header(
    { class: "details-head" },
    html.h2({}, title),
    html.button(
      { type: "button", class: "button quiet icon-only", "aria-label": "Close details", on: { click: actions.close } },
      icon("close"),
    ),
  );
}

/** @param {Row} row @param {import("../../app.js").Context} context @param {{filter: (text: string) => void}} actions */
function facts(row, context, actions) {
  /** @param {string} id @param {string} field */
  const who = (id, field) => [
    html.a({ class: "link-button", href: context.link("members", id), title: "Open this member" }, nameOf(id)),
    " ",
    html.button(
      {
        type: "button",
        class: "button quiet icon-only small",
        title: `Show only messages ${field} this member`,
        on: { click: () => actions.filter(`${field}:${quoted(id)}`) },
      },
      icon("search", 14),
      html.span({ class: "sr" }, `Show only messages ${field} `, oneLine(id, 60)),
    ),
  ];
  return html.dl(
    { class: "facts" },
    fact("From", who(row.from, "from")),
    fact(
      "To",
      row.to.length > 0
        ? row.to.map((id, index) => [index > 0 && ", ", who(id, "to")])
        : html.span({ class: "soft" }, "everyone"),
    ),
    fact(
      "Kind",
      html.button(
        {
          type: "button",
          class: "link-button mono",
          title: "Show only this",
          on: { click: () => actions.filter(`kind:${row.kind}`) },
        },
        oneLine(row.kind, 120),
      ),
    ),
    fact("Time", html.time({ datetime: isoTime(row.at) }, isoTime(row.at))),
    row.context &&
      fact(
        "Context",
        html.button(
          {
            type: "button",
            class: "link-button",
            on: { click: () => actions.filter(`context:${quoted(row.context)}`) },
          },
          path(row.context),
        ),
      ),
    fact("Id", [html.bdi({ class: "mono" }, oneLine(row.id, 80)), " ", copyButton(row.id, "Copy id", context)]),
  );
}

/** MEW 3: a context is a path. @param {string} context */
function path(context) {
  return html.span(
    { class: "path" },
    context
      .split("/")
      .slice(0, 12)
      .map((step) => html.bdi({ class: "mono" }, oneLine(step, 40))),
  );
}

/** @param {string} name @param {any} value */
function fact(name, value) {
  return html.div({}, html.dt({}, name), html.dd({}, value));
}

/** @param {string} text */
function quoted(text) {
  return /\s/.test(text) ? `"${text}"` : text;
}

/** @param {Row} row @param {import("../../app.js").Context} context */
function refusal(row, context) {
  const payload = context.state.envelopes.envelope(row)?.payload ?? {};
  if (row.kind === "system/error") {
    const { means, todo } = describeError(String(payload.error ?? ""));
    const sent = row.about[0] ? context.sender.sentText(row.about[0]) : undefined;
    return html.section(
      { class: "explanation" },
      html.h3({}, icon("warning", 16), "Why was this refused?"),
      html.p({}, means),
      html.p({ class: "explanation-message" }, escapeHidden(payload.message ?? "")),
      html.p({ class: "soft" }, todo),
      payload.attempted_kind && html.p({}, "Attempted: ", html.code({}, oneLine(payload.attempted_kind, 120))),
      Array.isArray(payload.your_capabilities) &&
        html.details(
          {},
          html.summary({}, `Capabilities of the sender (${payload.your_capabilities.length})`),
          jsonTree(JSON.stringify(payload.your_capabilities), { label: "capabilities" }),
        ),
      sent && html.details({}, html.summary({}, "Sent envelope"), jsonTree(sent, { label: "sent envelope" })),
    );
  }
  if (row.kind === "mcp/reject")
    return html.section(
      { class: "explanation" },
      html.h3({}, icon("warning", 16), "Why was this rejected?"),
      html.p(
        {},
        nameOf(row.from),
        ": ",
        escapeHidden(describeRejection(String(payload.reason ?? "")) || String(payload.reason ?? "no reason given")),
        ".",
      ),
      html.p({ class: "soft" }, "The proposal stays open: others can still approve it."),
    );
  if (row.isUnknown)
    return html.section(
      { class: "explanation" },
      html.h3({}, icon("warning", 16), "What came of it?"),
      html.p({}, "Its host does not know: it may have been carried out or not."),
      html.p({ class: "explanation-message" }, escapeHidden(payload.error?.message ?? "")),
      html.p({ class: "soft" }, "Look before you do it again."),
    );
  if (row.failed && row.kind.startsWith("mcp/response"))
    return html.section(
      { class: "explanation" },
      html.h3({}, icon("warning", 16), "Why did this fail?"),
      html.p(
        {},
        payload.error
          ? escapeHidden(payload.error.message ?? "")
          : "The tool reported an error; see the payload below.",
      ),
    );
  return null;
}

/** @param {string} title @param {{id: string, row: Row | undefined}[]} rows @param {Row} from @param {import("../../app.js").Context} context @param {{jump: (id: string) => void}} actions */
function links(title, rows, from, context, actions) {
  if (rows.length === 0) return null;
  return html.section(
    {},
    html.h3({}, title),
    html.ul(
      { class: "cause-list" },
      rows
        .slice(0, 50)
        .map(({ id, row }) =>
          html.li(
            {},
            row
              ? html.button(
                  { type: "button", class: "cause", on: { click: () => actions.jump(id) } },
                  kindTag(row),
                  html.span(
                    { class: "grow" },
                    nameOf(row.from),
                    " ",
                    html.bdi({ class: "soft" }, oneLine(operationText(row.operation) || row.summary, 80)),
                  ),
                  html.span(
                    { class: "faint" },
                    row.at >= from.at ? `+${duration(row.at - from.at)}` : formatTime(row.at),
                  ),
                )
              : html.a(
                  { class: "cause soft", href: context.link("timeline", id) },
                  "older: ",
                  html.bdi({ class: "mono" }, oneLine(id, 60)),
                ),
          ),
        ),
      rows.length > 50 && html.li({ class: "soft" }, `and ${rows.length - 50} more`),
    ),
  );
}

/** @param {string} text @param {string} message @param {Pick<import("../../app.js").Context, "notify">} context @param {{text?: string, icon?: string, isQuiet?: boolean}} [looks] */
export function copyButton(text, message, context, looks = {}) {
  return button(
    looks.text ?? "Copy",
    async () => {
      try {
        await navigator.clipboard.writeText(text);
        context.notify("Copied", "good");
      } catch {
        context.notify("The browser blocked copying: select the text instead", "bad");
      }
    },
    {
      class: looks.text && !looks.isQuiet ? "small" : "quiet small",
      icon: icon(looks.icon ?? "copy", 14),
      aria: { label: message },
    },
  );
}
