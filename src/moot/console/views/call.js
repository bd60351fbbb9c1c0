// @ts-check
/**
 * Calling a tool by hand: choose who and what, fill in a form made from the tool's own schema, and send it as a
 * request, or as a proposal where that is all one's rights allow. What comes of it is shown below as it comes.
 */
import { button, el, freshId, replace } from "../core/dom.js";
import { pretty, textAt } from "../core/exact.js";
import { registerView } from "../core/router.js";
import { block, oneLine, visible } from "../core/text.js";
import { isJson, schemaForm } from "./call-form.js";
import { callsOf } from "./call-made.js";
import { mayCall } from "./call-rights.js";
import { claimsOf, toolboxOf } from "./call-tools.js";
import { faultsOf } from "./call-validate.js";

/** @typedef {import("../app.js").Context} Context */

// The choice that is no tool: any method, with parameters as JSON.
const OTHER = "\u0000method";
const METHODS = ["ping", "resources/list", "resources/read", "resources/templates/list", "prompts/list", "prompts/get", "completion/complete", "tools/list"];

class CallView {
  /** @param {HTMLElement} outlet @param {Context} context */
  constructor(outlet, context) {
    this._context = context;
    this._box = toolboxOf(context);
    this._calls = callsOf(context);
    this._member = "";
    this._tool = "";
    /** @type {import("./call-form.js").Part | null} */
    this._form = null;
    this._isRaw = false;
    /** @type {"request" | "propose"} */
    this._way = "request";
    /** Parameters of a proposal that somebody wants to send in another version. */
    this._given = "";
    this._drawnFor = "";
    this._build(outlet);
    this._stops = [
      context.state.on("roster", () => {
        this._box.retry(this._member);
        this._drawMembers();
      }),
      context.state.on("tools", () => this._drawTools()),
      context.state.on(["requests", "proposals", "refusals"], () => this._calls.draw()),
      context.keys.add("Call", { m: ["Choose a member", () => this._who.focus()], t: ["Choose a tool", () => this._what.focus()] }),
      context.keys.add("Call", { "Ctrl+Enter": ["Send it", () => this._send()] }, { whileTyping: true }),
    ];
    this._drawMembers();
    this._drawTools();
  }

  /** @param {HTMLElement} outlet */
  _build(outlet) {
    const [who, what, json, method] = ["member", "tool", "json", "method"].map(freshId);
    this._who = el("select", { class: "field", id: who, on: { change: () => this._context.go("call", this._who.value) } });
    this._what = el("select", { class: "field", id: what, on: { change: () => this._context.go("call", this._member, this._what.value) } });
    this._again = button("Ask again", () => void this._box.learn(this._member, { again: true }), { class: "small quiet" });
    this._about = el("div", { class: "call-about" });
    this._formHolder = el("div", { class: "call-form" });
    this._json = el("textarea", { class: "field mono", id: json, rows: "10", spellcheck: "false", autocapitalize: "off", on: { input: () => this._changed() } });
    this._jsonFault = el("p", { class: "fault" });
    this._method = el("input", { class: "field mono", id: method, list: `${method}-list`, autocomplete: "off", spellcheck: "false", on: { input: () => this._changed() } });
    this._methodHolder = el("div", { class: "form-field" }, el("label", { for: method }, "Method"), this._method, el("datalist", { id: `${method}-list` }, METHODS.map((each) => el("option", { value: each }))));
    this._jsonHolder = el("div", { class: "form-field", hidden: true }, el("label", { for: json }, "Arguments as JSON"), this._json, this._jsonFault);
    this._tabs = ["Form", "JSON"].map((words, index) => el("button", { type: "button", role: "tab", class: "tab", on: { click: () => this._raw(index === 1) } }, words));
    this._tabsHolder = el("div", { class: "tabs", role: "tablist", "aria-label": "How to fill it in" }, this._tabs);
    this._wayHolder = el("div", { class: "call-way" });
    this._sendButton = button("Send", () => this._send(), { class: "primary", shortcut: "Ctrl+Enter" });
    this._body = el("div", { class: "call-body" }, this._about, this._tabsHolder, this._methodHolder, this._formHolder, this._jsonHolder, this._wayHolder);
    outlet.append(
      el("div", { class: "view-head" }, el("h1", {}, "Call a tool"), el("span", { class: "soft" }, "by hand, as yourself")),
      el(
        "div",
        { class: "view-body call" },
        el("div", { class: "call-main" }, el("div", { class: "call-choices" }, el("div", {}, el("label", { for: who }, "Member"), this._who), el("div", {}, el("label", { for: what }, "Tool"), this._what), this._again), this._body),
        el("section", { class: "call-made", "aria-label": "Calls made here" }, el("h2", {}, "What came of it"), this._calls.node),
      ),
    );
  }

  _drawMembers() {
    const { state } = this._context;
    const present = state.roster.present().filter((each) => each.id !== state.me.id);
    const names = present.map((each) => each.id);
    const key = names.join("\n");
    if (this._who.dataset.names !== key) {
      this._who.dataset.names = key;
      replace(this._who, el("option", { value: "" }, present.length > 0 ? "Choose a member…" : "Nobody else is here"), present.map((each) => el("option", { value: each.id }, oneLine(each.id, 60))));
    }
    if (this._member && !names.includes(this._member)) this._who.append(el("option", { value: this._member }, `${oneLine(this._member, 60)} (not here)`));
    this._who.value = this._member;
    this._drawWay();
  }

  _drawTools() {
    const known = this._box.of(this._member);
    const tools = known?.tools ?? [];
    const first = !this._member ? "Choose a member first" : known?.status === "asking" ? "Asking for its tools…" : known?.status === "refused" || known?.status === "failed" ? "Its tools are not known" : tools.length === 0 && known ? "It has no tools" : "Choose a tool…";
    replace(this._what, el("option", { value: "" }, first), tools.map((each) => el("option", { value: each.name }, oneLine(each.name, 80))), this._member && el("option", { value: OTHER }, "Another method…"));
    if (this._tool && this._tool !== OTHER && !tools.some((each) => each.name === this._tool)) this._what.append(el("option", { value: this._tool }, oneLine(this._tool, 80)));
    this._what.value = this._tool;
    this._what.disabled = !this._member;
    this._again.hidden = !this._member || known?.status === "asking";
    this._drawForm();
  }

  /** The form; drawn anew when another tool is chosen, or its schema has come. */
  _drawForm() {
    const tool = this._box.tool(this._member, this._tool);
    const isOther = this._tool === OTHER;
    const known = this._box.of(this._member);
    this._body.hidden = !this._tool;
    const key = JSON.stringify([this._member, this._tool, tool?.inputSchema, tool?.description, known?.status, this._given]);
    if (key === this._drawnFor) return;
    this._drawnFor = key;
    replace(
      this._about,
      tool && el("p", { class: "proposal-description" }, tool.title && el("strong", {}, oneLine(tool.title, 120), ": "), tool.description ? visible(tool.description.slice(0, 4000)) : "It has no description."),
      tool && claimsOf(tool).length > 0 && el("p", { class: "claims" }, el("span", { class: "soft" }, "It says of itself:"), claimsOf(tool).map(([words, tone]) => el("span", { class: "tag", data: tone ? { tone } : {} }, words))),
      tool && el("details", {}, el("summary", { class: "soft" }, "Its schema"), block(pretty(JSON.stringify(tool.inputSchema)), { label: "schema" })),
      !tool && !isOther && this._tool && el("p", { class: "soft" }, known?.status === "asking" ? "Asking what this tool takes…" : `What it takes is not known${known?.words ? `: ${visible(known.words)}` : ""}. Write the arguments as JSON.`),
    );
    this._form = tool ? schemaForm(tool.inputSchema, () => this._changed()) : null;
    replace(this._formHolder, this._form?.node);
    this._methodHolder.hidden = !isOther;
    this._tabsHolder.hidden = !this._form;
    this._json.value = isOther ? "" : "{}";
    if (this._given) {
      this._form?.fill(this._given);
      this._json.value = shownJson(this._given);
    }
    this._raw(this._isRaw || !this._form, true);
    replace(this._jsonHolder.querySelector("label"), isOther ? "Parameters as JSON" : "Arguments as JSON");
  }

  /** @param {boolean} isRaw @param {boolean} [fresh] there is nothing to carry over */
  _raw(isRaw, fresh = false) {
    const from = this._jsonHolder.hidden ? "form" : "json";
    if (!fresh && this._form && isRaw && from === "form") this._json.value = shownJson(this._form.text() ?? "{}");
    else if (!fresh && this._form && !isRaw && from === "json") {
      if (!isJson(this._json.value)) {
        replace(this._jsonFault, "This is no JSON: put it right before you go back to the form.");
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
    this._drawWay();
  }

  /** The call as JSON text; null when it cannot be read. @returns {{method: string, paramsText: string} | null} */
  _call() {
    const isForm = this._form !== null && this._jsonHolder.hidden;
    const text = isForm ? (this._form?.text() ?? "{}") : this._json.value.trim();
    if (text !== "" && !isJson(text)) return null;
    if (this._tool === OTHER) return this._method.value.trim() ? { method: this._method.value.trim(), paramsText: text } : null;
    return { method: "tools/call", paramsText: `{"name":${JSON.stringify(this._tool)},"arguments":${text || "{}"}}` };
  }

  /** Which way it goes: what the rights allow, and if both, what the person prefers. */
  _drawWay() {
    const { state } = this._context;
    const call = this._call();
    const may = call && this._member ? mayCall(state.me.capabilities, state, [this._member], { method: call.method, params: call.paramsText ? JSON.parse(call.paramsText) : undefined }) : { request: "no", propose: "no" };
    const able = { request: may.request !== "no", propose: may.propose !== "no" };
    const way = able.request && able.propose ? this._way : able.request ? "request" : "propose";
    const key = JSON.stringify([call !== null, able, way]);
    this._chosen = call === null || (!able.request && !able.propose) ? null : way;
    if (this._wayHolder.dataset.key === key) return;
    this._wayHolder.dataset.key = key;
    const words = { request: "Sent as a request: it is done at once, in your name.", propose: "Sent as a proposal: somebody who may decides whether it is done." };
    const group = freshId("way");
    const choose = (/** @type {"request" | "propose"} */ each, /** @type {string} */ title) => el("label", { class: "choice" }, el("input", { type: "radio", name: group, checked: way === each, on: { change: () => {
      this._way = each;
      this._drawWay();
    } } }), el("span", {}, title, el("small", {}, words[each])));
    const hadFocus = this._wayHolder.contains(document.activeElement);
    replace(this._sendButton.querySelector("span"), way === "request" ? "Send request" : "Propose");
    this._sendButton.disabled = this._chosen === null;
    replace(
      this._wayHolder,
      able.request && able.propose
        ? el("fieldset", { class: "ways" }, el("legend", {}, "How"), choose("request", "Request"), choose("propose", "Propose"))
        : el("p", { class: "soft", role: "status" }, call === null ? "It cannot be read yet." : able.request ? words.request : able.propose ? `${words.propose} Your rights do not allow the request itself.` : "Your rights allow neither to request this nor to propose it. Ask somebody for a grant."),
      el("div", { class: "action-row" }, this._sendButton),
    );
    if (hadFocus) /** @type {HTMLElement | null} */ (this._wayHolder.querySelector("input:checked"))?.focus();
  }

  _send() {
    if (!this._tool || !this._member) return;
    const tool = this._box.tool(this._member, this._tool);
    this._form?.clear();
    const isForm = this._form !== null && this._jsonHolder.hidden;
    if (isForm && !this._form?.check()) {
      this._point();
      return;
    }
    const call = this._call();
    if (!call) {
      replace(this._jsonFault, this._tool === OTHER && !this._method.value.trim() ? "It needs a method." : "This is no JSON.");
      return;
    }
    if (tool) {
      const faults = faultsOf(tool.inputSchema, JSON.parse(textAt(call.paramsText, ["arguments"]) ?? "{}"));
      if (isForm && faults.length > 0) {
        for (const fault of [...faults].reverse()) this._form?.fault(fault.path, fault.words);
        this._point();
        return;
      }
      // By hand, anything may be sent: the tool answers for itself. It is said, though.
      if (faults.length > 0) replace(this._jsonFault, `Sent although the schema says otherwise: ${faults.slice(0, 3).map((each) => visible(`${each.path.join(".")} ${each.words}`)).join("; ")}`);
    }
    if (!this._chosen) {
      this._context.notify("Your rights allow neither to request this nor to propose it.", "bad");
      return;
    }
    this._calls.make(this._member, call, this._chosen);
  }

  /** To the first fault. */
  _point() {
    const first = /** @type {HTMLElement | null} */ (this._formHolder.querySelector("[aria-invalid=true]"));
    first?.focus();
    this._context.announce("It was not sent: a field is not right yet.");
  }

  /** @param {string[]} rest member, tool, and the proposal whose arguments to begin with */
  arrive(rest) {
    const [member = "", tool = "", proposal = ""] = rest;
    this._member = member;
    this._tool = tool;
    const of = proposal ? this._context.state.proposals.byId.get(proposal) : undefined;
    this._given = of ? (textAt(of.call.bodyText, ["params", "arguments"]) ?? "") : "";
    if (member) void this._box.learn(member);
    this._drawMembers();
    this._drawTools();
  }

  close() {
    this._stops.forEach((stop) => stop());
  }
}

/** @param {string} text */
function shownJson(text) {
  try {
    return pretty(text);
  } catch {
    return text;
  }
}

registerView({
  id: "call",
  title: "Call",
  icon: "call",
  order: 70,
  key: "f",
  css: "css/call.css",
  mount(outlet, context) {
    const view = new CallView(outlet, context);
    return { unmount: () => view.close(), arrive: (rest) => view.arrive(rest) };
  },
});
