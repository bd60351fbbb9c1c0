/**
 * Calling a tool manually: choose it from a list of all tools, fill in a form made from the tool's schema, and send it as a
 * request, or as a proposal if the permissions allow no more. The results are shown below.
 */
import { button, html, newId, replace } from "../../core/page/dom.js";
import { formatJson, parseJson, textAt } from "../../core/state/json-text.js";
import { registerView } from "../../core/page/router.js";
import { textBlock, oneLine, escapeHidden, withCode } from "../../core/page/text.js";
import { schemaForm } from "./call-form.js";
import { callLogOf } from "./call-log.js";
import { callPermissions } from "../capabilities/capability-match.js";
import { declaredHints, toolCatalogueOf } from "./tool-catalogue.js";
import { ToolList } from "./tool-list.js";
import { confirmCall, reasonsToAsk } from "./call-confirmation.js";
import { icon } from "../parts/icons.js";
import { nameOf } from "../../core/page/text.js";
import { validate } from "./call-validation.js";

/** @typedef {import("../../app.js").Context} Context */

// The option for any other method, with parameters as JSON.
const OTHER = "\u0000method";
const METHODS = [
  "ping",
  "resources/list",
  "resources/read",
  "resources/templates/list",
  "prompts/list",
  "prompts/get",
  "completion/complete",
  "tools/list",
];

class CallView {
  /** @param {HTMLElement} outlet @param {Context} context */
  constructor(outlet, context) {
    this._context = context;
    this._catalogue = toolCatalogueOf(context);
    this._calls = callLogOf(context);
    this._member = "";
    this._tool = "";
    /** @type {import("./call-form.js").FormField | null} */
    this._form = null;
    this._isRaw = false;
    /** @type {"request" | "propose"} */
    this._way = "request";
    /** Parameters of a proposal that is being edited. */
    this._given = "";
    this._drawnFor = "";
    this._formDrawnFor = "";
    this._typedFor = "";
    this._begun = "";
    this._list = new ToolList(this._context, this._catalogue, OTHER);
    this._tabs = ["Form", "JSON"].map((text, index) =>
      html.button(
        { type: "button", role: "tab", class: "tab", on: { click: () => this._showJson(index === 1) } },
        text,
      ),
    );
    const [json, method] = ["json", "method"].map(newId);
    this._title = html.h2({ class: "call-title" });
    this._back = html.a(
      { class: "button quiet small call-back", href: this._context.link("call") },
      icon("right", 16),
      "All tools",
    );
    this._refresh = button("Refresh", () => void this._catalogue.load(this._member, { again: true }), {
      class: "small quiet",
    });
    this._about = html.div({ class: "call-about" });
    this._formHolder = html.div({ class: "call-form" });
    this._json = html.textarea({
      class: "field mono",
      id: json,
      rows: "10",
      spellcheck: "false",
      autocapitalize: "off",
      on: { input: () => this._changed() },
    });
    this._jsonFault = html.p({ class: "fault" });
    this._method = html.input({
      class: "field mono",
      id: method,
      list: `${method}-list`,
      autocomplete: "off",
      spellcheck: "false",
      on: { input: () => this._changed() },
    });
    this._methodHolder = html.div(
      { class: "form-field" },
      html.label({ for: method }, "Method"),
      this._method,
      html.datalist(
        { id: `${method}-list` },
        METHODS.map((each) => html.option({ value: each })),
      ),
    );
    this._jsonHolder = html.div(
      { class: "form-field", hidden: true },
      html.label({ for: json }, "Arguments as JSON"),
      this._json,
      this._jsonFault,
    );
    this._tabsHolder = html.div({ class: "tabs", role: "tablist", "aria-label": "Input mode" }, this._tabs);
    this._wayHolder = html.div({ class: "call-way" });
    this._sendButton = button("Send", () => this._send(), { class: "primary", shortcut: "Ctrl+Enter" });
    this._body = html.div(
      { class: "call-body" },
      html.div({ class: "call-head" }, this._back, this._title, html.span({ class: "grow" }), this._refresh),
      this._about,
      this._tabsHolder,
      this._methodHolder,
      this._formHolder,
      this._jsonHolder,
      this._wayHolder,
    );
    this._empty = html.div(
      { class: "empty" },
      icon("tools", 28),
      html.strong({}, "Choose a tool"),
      html.span(
        {},
        "You call it in your name: at once, if your permissions allow that, or as a proposal that somebody approves.",
      ),
    );
    this._made = html.section(
      { class: "call-made", "aria-label": "Calls made here" },
      html.h2({}, "Results"),
      this._calls.node,
    );
    this._layout = html.div(
      { class: "call" },
      this._list.node,
      html.div({ class: "call-main" }, this._empty, this._body, this._made),
    );
    outlet.append(
      html.div({ class: "view-head" }, html.h1({}, "Tools"), html.span({ class: "soft" }, "of everyone in this space")),
      this._layout,
    );
    this._stops = [
      context.state.on("roster", () => {
        this._catalogue.retry(this._member);
        this._list.load();
        this._list.draw();
        this._drawSendAs();
      }),
      context.state.on("tools", () => this._drawTools()),
      context.state.on(["requests", "proposals", "refusals"], () => this._calls.draw()),
      context.keys.add("Tools", { "/": ["Search all tools", () => this._list.field.focus()] }),
      context.keys.add("Tools", { "Ctrl+Enter": ["Send", () => this._send()] }, { whileTyping: true }),
    ];
    this._list.load();
    this._drawTools();
  }

  _drawTools() {
    const known = this._catalogue.of(this._member);
    this._list.choose(this._member, this._tool);
    replace(
      this._title,
      this._tool === OTHER ? "Any method" : html.bdi({ class: "mono" }, oneLine(this._tool, 80)),
      html.span({ class: "soft" }, " on "),
      nameOf(this._member),
    );
    this._layout.dataset.chosen = String(this._tool !== "");
    this._empty.hidden = this._tool !== "";
    this._made.hidden = !this._tool && this._calls.isEmpty;
    this._refresh.hidden = !this._member || known?.status === "asking";
    this._drawForm();
  }

  /** The form; redrawn when another tool is chosen or its schema has arrived. */
  _drawForm() {
    const tool = this._catalogue.tool(this._member, this._tool);
    const isOther = this._tool === OTHER;
    const known = this._catalogue.of(this._member);
    this._body.hidden = !this._tool;
    const key = JSON.stringify([
      this._member,
      this._tool,
      tool?.inputSchema,
      tool?.description,
      known?.status,
      this._given,
    ]);
    if (key === this._drawnFor) return;
    this._drawnFor = key;
    replace(
      this._about,
      tool &&
        html.p(
          { class: "proposal-description" },
          tool.title && html.strong({}, oneLine(tool.title, 120), ": "),
          tool.description ? withCode(tool.description.slice(0, 4000)) : "No description.",
        ),
      tool &&
        declaredHints(tool).length > 0 &&
        html.p(
          { class: "claims" },
          html.span({ class: "soft" }, "Declared:"),
          declaredHints(tool).map(([text, tone]) => html.span({ class: "tag", data: tone ? { tone } : {} }, text)),
        ),
      tool &&
        html.details(
          {},
          html.summary({ class: "soft" }, "Schema"),
          textBlock(formatJson(JSON.stringify(tool.inputSchema)), { label: "schema" }),
        ),
      !tool &&
        !isOther &&
        this._tool &&
        html.p(
          { class: "soft" },
          known?.status === "asking"
            ? "Loading the tool’s schema…"
            : `The arguments of this tool are unknown${known?.error ? `: ${escapeHidden(known.error)}` : ""}. Enter them as JSON.`,
        ),
    );
    // A list that is asked for again brings the same form again: what was typed into it stays.
    const formKey = JSON.stringify([this._member, this._tool, tool?.inputSchema, this._given]);
    if (formKey === this._formDrawnFor) return;
    this._formDrawnFor = formKey;
    // The schema arrived or changed: what was typed for the same call stays too.
    const callKey = JSON.stringify([this._member, this._tool, this._given]);
    const typed = callKey === this._typedFor && this._typed() !== this._begun ? this._typed() : "";
    this._typedFor = callKey;
    const wasJson = !this._jsonHolder.hidden;
    this._form = tool ? schemaForm(tool.inputSchema, () => this._changed()) : null;
    replace(this._formHolder, this._form?.node);
    this._methodHolder.hidden = !isOther;
    this._tabsHolder.hidden = !this._form;
    const start = typed || this._given;
    if (start && !(typed && wasJson)) this._form?.fill(start);
    this._json.value = typed && wasJson ? typed : start ? formatJson(start) : isOther ? "" : "{}";
    this._showJson(this._isRaw || !this._form || (typed !== "" && wasJson), true);
    if (!typed) this._begun = this._typed();
    replace(
      /** @type {Element} */ (this._jsonHolder.querySelector("label")),
      isOther ? "Parameters as JSON" : "Arguments as JSON",
    );
  }

  /** @param {boolean} isRaw @param {boolean} [added] there is nothing to carry over */
  _showJson(isRaw, added = false) {
    const from = this._jsonHolder.hidden ? "form" : "json";
    if (!added && this._form && isRaw && from === "form") this._json.value = formatJson(this._form.text() ?? "{}");
    else if (!added && this._form && !isRaw && from === "json") {
      if (parseJson(this._json.value) === undefined) {
        replace(this._jsonFault, "Invalid JSON. Correct it before you switch back to the form.");
        return;
      }
      this._form.fill(this._json.value.trim());
    }
    this._isRaw = isRaw && this._form !== null;
    this._formHolder.hidden = isRaw;
    this._jsonHolder.hidden = !isRaw;
    this._tabs.forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(isRaw === (index === 1)));
      tab.tabIndex = isRaw === (index === 1) ? 0 : -1;
    });
    this._changed();
  }

  _changed() {
    replace(this._jsonFault);
    this._drawSendAs();
  }

  /** What is in the form, or in the editor, as it is. */
  _typed() {
    return this._form && this._jsonHolder.hidden ? (this._form.text() ?? "") : this._json.value;
  }

  /** The call as JSON text; null when it cannot be parsed. @returns {{method: string, paramsText: string} | null} */
  _call() {
    const isForm = this._form !== null && this._jsonHolder.hidden;
    const text = isForm ? (this._form?.text() ?? "{}") : this._json.value.trim();
    if (text !== "" && parseJson(text) === undefined) return null;
    if (this._tool === OTHER)
      return this._method.value.trim() ? { method: this._method.value.trim(), paramsText: text } : null;
    return { method: "tools/call", paramsText: `{"name":${JSON.stringify(this._tool)},"arguments":${text || "{}"}}` };
  }

  /** Request or proposal: what the permissions allow, and if both, what the person prefers. */
  _drawSendAs() {
    const { state } = this._context;
    const call = this._call();
    const may =
      call && this._member
        ? callPermissions(state.me.capabilities, state, [this._member], {
            method: call.method,
            params: call.paramsText ? JSON.parse(call.paramsText) : undefined,
          })
        : { request: "no", propose: "no" };
    const able = { request: may.request !== "no", propose: may.propose !== "no" };
    const way = able.request && able.propose ? this._way : able.request ? "request" : "propose";
    const key = JSON.stringify([call !== null, able, way]);
    this._chosen = call === null || (!able.request && !able.propose) ? null : way;
    if (this._wayHolder.dataset.key === key) return;
    this._wayHolder.dataset.key = key;
    const text = { request: "Runs at once, in your name.", propose: "Runs when someone approves it." };
    const group = newId("way");
    const choose = (/** @type {"request" | "propose"} */ each, /** @type {string} */ title) =>
      html.label(
        { class: "choice" },
        html.input({
          type: "radio",
          name: group,
          checked: way === each,
          on: {
            change: () => {
              this._way = each;
              this._drawSendAs();
            },
          },
        }),
        html.span({}, title, html.small({}, text[each])),
      );
    const hadFocus = this._wayHolder.contains(document.activeElement);
    replace(
      /** @type {Element} */ (this._sendButton.querySelector("span")),
      way === "request" ? "Send request" : "Propose",
    );
    this._sendButton.disabled = this._chosen === null;
    replace(
      this._wayHolder,
      able.request && able.propose
        ? html.fieldset(
            { class: "ways" },
            html.legend({}, "Send as"),
            choose("request", "Request"),
            choose("propose", "Propose"),
          )
        : html.p(
            { class: "soft", role: "status" },
            call === null
              ? "The arguments are not valid yet."
              : able.request
                ? `Sent as a request. ${text.request}`
                : able.propose
                  ? `Sent as a proposal: your permissions do not allow the call itself. ${text.propose}`
                  : "Your permissions allow neither calling nor proposing this. Ask someone for a grant.",
          ),
      html.div({ class: "action-row" }, this._sendButton),
    );
    if (hadFocus) /** @type {HTMLElement | null} */ (this._wayHolder.querySelector("input:checked"))?.focus();
  }

  /** @param {{anyway?: boolean}} [options] */
  _send(options = {}) {
    if (!this._tool || !this._member) return;
    const tool = this._catalogue.tool(this._member, this._tool);
    this._form?.clear();
    const isForm = this._form !== null && this._jsonHolder.hidden;
    if (isForm && !this._form?.check()) {
      this._focusFirstError();
      return;
    }
    const call = this._call();
    if (!call) {
      replace(
        this._jsonFault,
        this._tool === OTHER && !this._method.value.trim() ? "Enter a method." : "Invalid JSON.",
      );
      return;
    }
    if (tool) {
      const faults = validate(tool.inputSchema, JSON.parse(textAt(call.paramsText, ["arguments"]) ?? "{}"));
      if (isForm && faults.length > 0) {
        for (const fault of [...faults].reverse()) this._form?.fault(fault.path, fault.message);
        this._focusFirstError();
        return;
      }
      // In the JSON editor anything may be sent, because the tool has the last word, but not by mistake.
      const problems = faults
        .slice(0, 3)
        .map((each) => escapeHidden(`${each.path.join(".")} ${each.message}`))
        .join("; ");
      if (faults.length > 0 && !options.anyway) {
        replace(
          this._jsonFault,
          `Not sent, because it does not match the schema: ${problems}. `,
          button("Send anyway", () => this._send({ anyway: true }), { class: "small" }),
        );
        this._context.announce("Not sent: it does not match the schema.");
        return;
      }
    }
    if (!this._chosen) {
      this._context.notify("Your permissions allow neither calling nor proposing this.", "bad");
      return;
    }
    const [member, way] = [this._member, this._chosen];
    const reasons = way === "request" ? reasonsToAsk(tool, call) : [];
    if (reasons.length > 0)
      confirmCall(
        member,
        this._tool === OTHER ? call.method : this._tool,
        textAt(call.paramsText, ["arguments"]) ?? call.paramsText,
        reasons,
        () => this._calls.sendCall(member, call, way),
      );
    else this._calls.sendCall(member, call, way);
  }

  /** Focus the first field with an error. */
  _focusFirstError() {
    const first = /** @type {HTMLElement | null} */ (this._formHolder.querySelector("[aria-invalid=true]"));
    first?.focus();
    this._context.announce("Not sent: a field is not valid.");
  }

  /** @param {string[]} rest member, tool, and the proposal whose arguments to begin with */
  openRoute(rest) {
    const [member = "", tool = "", proposal = ""] = rest;
    this._member = member;
    this._tool = tool;
    const of = proposal ? this._context.state.proposals.byId.get(proposal) : undefined;
    this._given = of ? (textAt(of.call.bodyText, ["params", "arguments"]) ?? "") : "";
    if (member) void this._catalogue.load(member);
    this._drawTools();
    this._drawSendAs();
  }

  close() {
    this._stops.forEach((stop) => stop());
    this._list.close();
  }
}

registerView({
  id: "call",
  title: "Tools",
  icon: "tools",
  order: 35,
  key: "f",
  mount(outlet, context) {
    const view = new CallView(outlet, context);
    return { unmount: () => view.close(), openRoute: (rest) => view.openRoute(rest) };
  },
});
