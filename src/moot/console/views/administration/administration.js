/** For administrators of the gateway or of this space: sessions and tokens, the rules that let people in, and who signed in. */
import { button, html, newId, redraw, replace } from "../../core/page/dom.js";
import { Administration, AdministrationRefused } from "../../core/connection/administration.js";
import { registerView } from "../../core/page/router.js";
import { escapeHidden, nameOf, oneLine } from "../../core/page/text.js";
import { labelledField } from "../parts/action-dialog.js";
import { SignInAudit } from "./administration-audit.js";
import { memberCards, counted, rightsList } from "./administration-tokens.js";
import { icon } from "../parts/icons.js";
import { roleOf } from "../capabilities/capability-text.js";

/** @typedef {import("../../app.js").Context} Context */

const PARTS = { tokens: "Sessions", rules: "Groups and rights", audit: "Sign-ins" };
// Connections come and go in bursts: what they changed is asked for once, and a long list less often.
const SETTLE_MILLISECONDS = 1_000;
const SETTLE_MILLISECONDS_PER_TOKEN = 10;

class AdministrationView {
  /** @param {HTMLElement} outlet @param {Context} context */
  constructor(outlet, context) {
    this.context = context;
    this.client = new Administration(context.openSpace);
    this._part = "";
    this._filter = "";
    /** @type {{tokens: import("../../core/connection/administration.js").AdminToken[], absent: string[]}} */
    this._known = { tokens: [], absent: [] };
    this._panel = html.div({
      class: "view-body administration",
      id: newId("administration"),
      role: "tabpanel",
      tabindex: "-1",
    });
    this._tabs = Object.entries(PARTS).map(([part, title]) =>
      html.button(
        {
          type: "button",
          role: "tab",
          class: "tab",
          "aria-controls": this._panel.id,
          data: { part },
          on: { click: () => context.go("administration", part) },
        },
        title,
      ),
    );
    this._tools = html.div(
      { class: "administration-tools" },
      html.div(
        {
          class: "tabs",
          role: "tablist",
          "aria-label": "Administration",
          on: { keydown: (/** @type {KeyboardEvent} */ event) => this._arrow(event) },
        },
        this._tabs,
      ),
      button("Refresh", () => void this.load(), { class: "quiet small", shortcut: "r" }),
    );
    outlet.append(
      html.div({ class: "view-head" }, html.h1({}, "Administration"), html.span({ class: "grow" }), this._tools),
      this._panel,
    );
    this._stops = [
      context.state.on("roster", () => this._followRoster()),
      context.keys.add("Administration", { r: ["Refresh", () => void this.load()] }),
    ];
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._timer = undefined;
  }

  close() {
    clearTimeout(this._timer);
    this._stops.forEach((stop) => stop());
  }

  /** @param {string[]} rest */
  openRoute(rest) {
    const part = Object.hasOwn(PARTS, rest[0] ?? "") ? /** @type {string} */ (rest[0]) : "tokens";
    if (part === this._part) return;
    this._part = part;
    for (const tab of this._tabs) {
      tab.setAttribute("aria-selected", String(tab.dataset.part === part));
      tab.setAttribute("tabindex", tab.dataset.part === part ? "0" : "-1");
    }
    replace(this._panel);
    void this.load();
  }

  /** @param {KeyboardEvent} event */
  _arrow(event) {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const at = this._tabs.findIndex((tab) => tab.dataset.part === this._part);
    const next = this._tabs[(at + step + this._tabs.length) % this._tabs.length];
    next?.click();
    next?.focus();
  }

  _followRoster() {
    if (this._timer !== undefined || this._part === "audit" || !this.client.hasToken) return;
    this._timer = setTimeout(
      () => {
        this._timer = undefined;
        // What somebody reads page by page by now is not begun anew.
        if (this._part !== "audit") void this.load();
      },
      SETTLE_MILLISECONDS + SETTLE_MILLISECONDS_PER_TOKEN * this._known.tokens.length,
    );
  }

  /** Ask the gateway for what is shown. */
  async load() {
    const part = this._part;
    this._tools.hidden = !this.client.hasToken;
    if (!this.client.hasToken) return this._showGate("");
    try {
      if (part === "audit") await this._showAudit();
      else {
        const [known, providers] = await Promise.all([
          this.client.tokens(),
          part === "rules" ? this.client.rules() : [],
        ]);
        if (part !== this._part) return;
        this._known = known;
        if (part === "tokens") this._showTokens();
        else
          redraw(this._panelOf(part), [known, providers], () =>
            ruleCards(this.context.openSpace.name, providers, known.tokens),
          );
      }
    } catch (fault) {
      if (part === this._part) this._showFault(fault);
    }
  }

  /** The place of a part, made when it is first shown. @param {string} part @returns {HTMLElement} */
  _panelOf(part) {
    const there = /** @type {HTMLElement | null} */ (this._panel.firstElementChild);
    if (there?.dataset.part === part) return there;
    const made = html.div({ class: "administration-part", data: { part } });
    replace(this._panel, made);
    return made;
  }

  _showTokens() {
    const panel = this._panelOf("tokens");
    if (panel.childElementCount === 0) {
      const field = labelledField("Filter", { type: "search", placeholder: "member or program", value: this._filter });
      field.input.addEventListener("input", () => {
        this._filter = field.value();
        this._showTokens();
      });
      panel.append(field.node, html.div({ class: "administration-members" }));
    }
    const list = /** @type {HTMLElement} */ (panel.lastElementChild);
    redraw(list, [this._known, this._filter], () =>
      memberCards(this.context, this.client, this._known, this._filter, () => void this.load()),
    );
  }

  async _showAudit() {
    const panel = this._panelOf("audit");
    replace(panel);
    const audit = new SignInAudit(this.client, (fault) => this._showFault(fault));
    panel.append(audit.node);
    await audit.more();
  }

  /** @param {unknown} fault */
  _showFault(fault) {
    const message = escapeHidden(fault instanceof Error ? fault.message : fault);
    if (fault instanceof AdministrationRefused && fault.isForbidden) {
      this.client.dropToken();
      this._tools.hidden = true;
      this._showGate(message);
    } else
      replace(
        this._panel,
        html.div(
          { class: "empty" },
          icon("warning", 24),
          html.strong({}, "Not loaded"),
          html.p({}, message),
          button("Try again", () => void this.load()),
        ),
      );
  }

  /** For whoever is no administrator: why there is nothing here, and what an administrator does. @param {string} refusal */
  _showGate(refusal) {
    const { name, login } = this.context.openSpace;
    const field = labelledField("Administrator’s token", {
      type: "password",
      spellcheck: "false",
      required: true,
      "aria-invalid": refusal ? "true" : null,
    });
    const fault = html.p({ class: "fault", role: "alert" }, refusal && `Refused: ${refusal}.`);
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      if (!/^[\x21-\x7e]+$/.test(field.value()))
        return replace(fault, "Not a valid token: a token has no spaces or line breaks.");
      this.client.useToken(field.value());
      // The form goes: whoever typed goes on in what comes.
      this._panel.focus();
      void this.load();
    };
    replace(
      this._panel,
      html.div(
        { class: "administration-gate" },
        html.div(
          { class: "empty" },
          icon("rules", 24),
          html.strong({}, "For administrators only"),
          html.p(
            {},
            nameOf(login.participant),
            ` is not an administrator of ${escapeHidden(name)}. Administrators are those whom a rule for sign-ins names (administrator: true), and whoever has a token of gateway.admin_tokens.`,
          ),
        ),
        html.form(
          { class: "card administration-form", on: { submit } },
          field.node,
          fault,
          html.small({ class: "soft" }, "It is kept in this page’s memory only, until you sign out or reload."),
          button("Continue", () => undefined, { class: "primary" }),
        ),
      ),
    );
    const press = this._panel.querySelector(".administration-form .button");
    press?.setAttribute("type", "submit");
    if (refusal) field.input.focus();
  }
}

/** @typedef {import("../../core/connection/administration.js").ProviderRules} ProviderRules @typedef {import("../../core/connection/administration.js").SignInRule} SignInRule @typedef {import("../../core/connection/administration.js").AdminToken} AdminToken */

// Claims that have a name among people; the others are said as they are.
const IN_WORDS = {
  groups: "in the group",
  roles: "with the role",
  "realm_access.roles": "with the role",
  "cognito:groups": "in the group",
  client_id: "that use the program",
  azp: "that use the program",
  appid: "that use the program",
  cid: "that use the program",
  email: "with the address",
  hd: "of the domain",
  sub: "with the id",
};
const MAX_NAMES = 20;

/** Groups → rights: what the rules of the configuration say, in words, and whom they have let in. @param {string} space @param {ProviderRules[]} providers @param {AdminToken[]} tokens */
function ruleCards(space, providers, tokens) {
  if (providers.length === 0)
    return html.div(
      { class: "empty" },
      icon("rules", 24),
      html.strong({}, "No identity provider"),
      html.p(
        {},
        "Members come in with tokens of the gateway. With gateway.oidc, rules give rights to groups and programs of your provider.",
      ),
    );
  return providers.map((provider) => {
    const others = provider.all_rules - provider.rules.length;
    return html.section(
      { class: "rules-part", "aria-label": oneLine(provider.issuer, 120) },
      html.h2({}, html.bdi({}, oneLine(provider.issuer, 120))),
      html.p(
        { class: "soft" },
        "The first rule that matches an account decides; whoever matches none is refused.",
        others > 0 && ` ${counted(others, "rule")} for other spaces ${others === 1 ? "is" : "are"} not shown.`,
      ),
      provider.rules.length === 0 && html.p({}, `No rule of this provider lets anybody into ${oneLine(space, 60)}.`),
      provider.rules.map((rule) =>
        ruleCard(
          rule,
          tokens.filter((each) => each.rule === rule.number && each.issuer === provider.issuer),
        ),
      ),
    );
  });
}

/** Whom a rule means. @param {SignInRule} rule */
function whom(rule) {
  const claims = Object.entries(rule.match).filter(([claim, values]) => claim !== "sub" || !values.includes("*"));
  if (claims.length === 0) return ["Every account of the provider"];
  return [
    "Accounts ",
    claims.map(([claim, values], index) => [
      index > 0 && " and ",
      Object.hasOwn(IN_WORDS, claim)
        ? IN_WORDS[/** @type {keyof typeof IN_WORDS} */ (claim)]
        : ["with ", html.bdi({ class: "mono" }, oneLine(claim, 80)), " ="],
      values.map((value, place) => [place > 0 ? " or " : " ", html.bdi({ class: "mono" }, oneLine(value, 80))]),
    ]),
  ];
}

/** How they are called here: claims of their token, or a name. @param {string} template */
function calledAs(template) {
  const parts = template.split(/(\{[^}]*\})/).filter(Boolean);
  const named = parts.map((part) =>
    part.startsWith("{") ? html.em({}, oneLine(part.slice(1, -1), 60)) : html.bdi({}, oneLine(part, 60)),
  );
  return [parts.length === 1 && template.startsWith("{") ? "come in under their " : "come in as ", named];
}

/** @param {SignInRule} rule @param {AdminToken[]} tokens of those who came in by it */
function ruleCard(rule, tokens) {
  const names = [...new Set(tokens.map((each) => each.participant))].sort((a, b) => a.localeCompare(b));
  const rights = rule.capabilities;
  return html.article(
    { class: "card rule administration-rule", data: { rule: rule.number }, "aria-label": `Rule ${rule.number}` },
    html.div(
      { class: "rule-head" },
      html.span({ class: "rule-number" }, String(rule.number)),
      html.div(
        { class: "grow" },
        html.h3(
          { class: "rule-whom" },
          whom(rule),
          rule.administrator && [" ", html.span({ class: "tag", data: { tone: "accent" } }, "administers this space")],
        ),
        rule.enters && html.p({}, calledAs(rule.participant)),
        !rule.enters && html.p({ class: "soft" }, "do not enter this space as members."),
        rule.enters &&
          rights !== undefined &&
          html.details(
            { data: { fold: `rule-${rule.number}` } },
            html.summary(
              {},
              "Rights: ",
              roleOf(rights),
              rule.profile !== undefined && ` (profile ${oneLine(rule.profile, 60)})`,
            ),
            rightsList(rights),
          ),
        rule.enters &&
          rights === undefined &&
          html.p({}, "Rights: as the configuration gives them to that participant."),
        rule.enters &&
          html.p(
            { class: "soft" },
            names.length === 0
              ? "Nobody is signed in by it now."
              : [
                  "Signed in now: ",
                  names.slice(0, MAX_NAMES).map((name, index) => [index > 0 && ", ", nameOf(name)]),
                  names.length > MAX_NAMES && ` and ${names.length - MAX_NAMES} more`,
                ],
          ),
      ),
    ),
  );
}

registerView({
  id: "administration",
  title: "Administration",
  icon: "key",
  order: 90,
  key: "d",
  more: true,
  mount(outlet, context) {
    const view = new AdministrationView(outlet, context);
    return { unmount: () => view.close(), openRoute: (rest) => view.openRoute(rest) };
  },
});
