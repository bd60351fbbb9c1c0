/** The frame around every view: navigation, the current space and the state of the connection. */
import { html, replace } from "../../core/page/dom.js";
import { Keys } from "../../core/page/keys.js";
import { routeAddress, currentRoute, navigate, registeredViews, viewOf } from "../../core/page/router.js";
import { hasStopped } from "../../core/connection/push.js";
import { oneLine } from "../../core/page/text.js";
import { describeError } from "../parts/error-text.js";
import { Notices } from "./notices.js";
import { ConnectionStatus } from "./connection-status.js";
import { icon } from "../parts/icons.js";
import { Navigation } from "./navigation.js";
import { logo } from "./sign-in.js";
import { SpaceMenu } from "./space-menu.js";
import { nextTheme, theme } from "./theme.js";
import { openDialog } from "../parts/dialog.js";

const REFRESH_MILLISECONDS = 250;

export class Shell {
  /** @param {HTMLElement} root @param {import("../../core/connection/session.js").Session} session */
  constructor(root, session) {
    this.session = session;
    this.onSignedOut = () => {};
    this.keys = new Keys();
    this.notices = new Notices();
    /** @type {{view: string, space: string, mounted: import("../../core/page/router.js").Mounted} | null} */
    this._shown = null;
    this._connection = new ConnectionStatus(session);
    this._spaces = new SpaceMenu(
      session,
      (space) => navigate(routeAddress(space, currentRoute().view || this._home())),
      (text, tone) => this.notices.show(text, tone),
    );
    this._navigation = new Navigation();
    this._outlet = html.main({ class: "outlet", id: "view", tabindex: "-1" });
    this._themeButton = html.button(
      { type: "button", class: "button quiet icon-only", on: { click: () => this._theme() } },
      icon("theme"),
      html.span({ class: "sr" }),
    );
    this._themeWords();
    this._build(root);
    this._stops = [
      session.on(["spaces", "current", "logins"], () => this._refreshSoon()),
      () => clearTimeout(this._later),
    ];
    this._shortcuts();
    void this._checkPush();
  }

  /** Somebody who counts on being told has to know when that has stopped: a lost key, another token. */
  async _checkPush() {
    if (await hasStopped(this.session.base, this.session.logins))
      this.notices.show("Notifications on this device have stopped. Turn them on again in the menu of spaces.", "bad");
  }

  /** @param {HTMLElement} root */
  _build(root) {
    const skip = html.a(
      {
        class: "skip",
        href: "#view",
        on: {
          click: (/** @type {Event} */ event) => {
            event.preventDefault();
            this._outlet.focus();
          },
        },
      },
      "Skip to content",
    );
    replace(
      root,
      html.div(
        { class: "shell" },
        skip,
        html.header(
          { class: "top" },
          html.div({ class: "brand small" }, logo(), html.span({ class: "brand-name" }, "Moot")),
          this._spaces.node,
          html.span({ class: "grow" }),
          this.notices.said,
          this._connection.pill,
          this._themeButton,
          html.button(
            {
              type: "button",
              class: "button quiet icon-only",
              title: "Keyboard shortcuts (?)",
              "aria-keyshortcuts": "?",
              on: { click: () => helpDialog(this.keys) },
            },
            icon("help"),
            html.span({ class: "sr" }, "Keyboard shortcuts"),
          ),
          html.button(
            {
              type: "button",
              class: "button quiet icon-only",
              title: "Sign out",
              on: { click: () => this._signOut() },
            },
            icon("leave"),
            html.span({ class: "sr" }, "Sign out"),
          ),
        ),
        this._connection.banner,
        this.notices.node,
        this._navigation.node,
        this._outlet,
      ),
    );
  }

  _home() {
    return registeredViews()[0]?.id ?? "";
  }

  /** Show the view of the address. */
  show() {
    const openSpace = this.session.current;
    if (!openSpace) return;
    const route = currentRoute();
    const view = viewOf(route.view) ?? viewOf(this._home());
    if (!view) return;
    if (route.space !== openSpace.name || route.view !== view.id) {
      history.replaceState(null, "", routeAddress(openSpace.name, view.id));
      route.rest = [];
    }
    if (this._shown?.view !== view.id || this._shown.space !== openSpace.name) this._mount(view, openSpace);
    this._shown?.mounted.openRoute?.(route.rest);
    this._refresh();
  }

  /** @param {import("../../core/page/router.js").View} view @param {import("../../core/connection/open-space.js").OpenSpace} openSpace */
  _mount(view, openSpace) {
    const moved = this._shown !== null;
    this._unmount();
    const { means, todo } = describeError("not_on_disk");
    this._stopUnsaved?.();
    this._stopUnsaved = openSpace.state.on("unsaved", () => this.notices.show(`${means} ${todo}`, "bad"));
    const outlet = html.div({ class: ["view", `view-${view.id}`] });
    replace(this._outlet, outlet);
    this._outlet.setAttribute("aria-label", view.title);
    const mounted = view.mount(outlet, this._context(openSpace)) ?? {};
    this._shown = { view: view.id, space: openSpace.name, mounted };
    // Move the focus to the chosen view, for the keyboard and screen readers.
    if (moved && !outlet.contains(document.activeElement)) this._outlet.focus({ preventScroll: true });
  }

  /** @param {import("../../core/connection/open-space.js").OpenSpace} openSpace @returns {import("../../app.js").Context} */
  _context(openSpace) {
    return {
      session: this.session,
      openSpace: openSpace,
      state: openSpace.state,
      sender: openSpace.sender,
      send: openSpace.sender.send.bind(openSpace.sender),
      call: openSpace.sender.call.bind(openSpace.sender),
      keys: this.keys,
      go: (view, ...rest) => navigate(routeAddress(openSpace.name, view, ...rest)),
      link: (view, ...rest) => routeAddress(openSpace.name, view, ...rest),
      notify: (text, tone) => this.notices.show(text, tone),
      announce: (text) => this.notices.speak(text),
    };
  }

  /** Badges and the title: four times a second is enough, since each new title is expensive for the browser. */
  _refreshSoon() {
    const rest = this._refreshedAt + REFRESH_MILLISECONDS - performance.now();
    if (rest <= 0) this._refresh();
    else this._later ??= setTimeout(() => this._refresh(), rest);
  }

  /** @type {(() => void) | undefined} */
  _stopUnsaved = undefined;
  _refreshedAt = -Infinity;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  _later = undefined;

  _refresh() {
    clearTimeout(this._later);
    this._later = undefined;
    this._refreshedAt = performance.now();
    const openSpace = this.session.current;
    if (!openSpace) return;
    this._navigation.refresh(openSpace.name, this._shown?.view ?? "", openSpace.state, this.session);
    this._spaces.refresh();
    this._connection.refresh();
    const view = viewOf(this._shown?.view ?? "")?.title ?? "";
    const waiting = this.session.pendingCount;
    showFaviconBadge(waiting > 0);
    const title = `${waiting > 0 ? `(${waiting}) ` : ""}${view} · ${oneLine(openSpace.name, 40)} · Moot`;
    if (document.title !== title) document.title = title;
  }

  _shortcuts() {
    /** @type {Record<string, [string, () => void]>} */
    const views = {};
    for (const view of registeredViews())
      views[`g ${view.key}`] = [
        `Go to ${view.title}`,
        () => this.session.current && navigate(routeAddress(this.session.current.name, view.id)),
      ];
    this.keys.add("Global", {
      "?": ["Show keyboard shortcuts", () => helpDialog(this.keys)],
      ...views,
      "g o": ["Switch space", () => this._spaces.open()],
      "\\": ["Switch theme: system, light, dark", () => this._theme()],
    });
  }

  _theme() {
    this.notices.show(`Theme: ${nextTheme()}`);
    this._themeWords();
  }

  _themeWords() {
    const text = `Theme: ${theme()} (\\)`;
    this._themeButton.title = text;
    replace(/** @type {Element} */ (this._themeButton.querySelector(".sr")), text);
  }

  _signOut() {
    this.session.signOut();
    history.replaceState(null, "", location.pathname);
    this.onSignedOut();
  }

  _unmount() {
    this._shown?.mounted.unmount?.();
    this._shown = null;
  }

  close() {
    this._unmount();
    this._stopUnsaved?.();
    this.keys.close();
    this._connection.close();
    this._navigation.close();
    this._stops.forEach((stop) => stop());
  }
}

/** In a busy space something waits every moment, and each change of the icon is a request. */
const BADGE_STAYS_MILLISECONDS = 2000;
let hasBadge = false;
let badgeTimer = 0;

/** A dot on the tab's icon while something waits, and a little longer. @param {boolean} wanted */
function showFaviconBadge(wanted) {
  if (wanted) {
    clearTimeout(badgeTimer);
    badgeTimer = 0;
    if (!hasBadge) setFavicon(true);
  } else if (hasBadge && !badgeTimer) {
    badgeTimer = setTimeout(() => {
      badgeTimer = 0;
      setFavicon(false);
    }, BADGE_STAYS_MILLISECONDS);
  }
}

/** @param {boolean} badge */
function setFavicon(badge) {
  hasBadge = badge;
  const link = document.querySelector('link[rel="icon"]');
  link?.setAttribute("href", new URL(badge ? "../../icon-badge.svg" : "../../icon.svg", import.meta.url).href);
}

/** All shortcuts that are active now. @param {import("../../core/page/keys.js").Keys} keys */
function helpDialog(keys) {
  if (document.querySelector("dialog.help")) return;
  const scopes = [...keys.all()].map(([scope, shortcuts]) =>
    html.section(
      { class: "help-scope" },
      html.h3({}, scope),
      html.dl(
        {},
        shortcuts.map((each) =>
          html.div(
            {},
            html.dt(
              {},
              each.keys.split(" ").map((key) => html.kbd({}, key)),
            ),
            html.dd({}, each.label),
          ),
        ),
      ),
    ),
  );
  openDialog("Keyboard shortcuts", [html.div({ class: "help-scopes" }, scopes)], { class: "help" });
}
