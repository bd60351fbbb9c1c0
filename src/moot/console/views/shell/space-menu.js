/** The current space, the other open ones with their pending proposals, and a way to add one. */
import { html, newId, redraw, replace, button, svg } from "../../core/page/dom.js";
import { oneLine } from "../../core/page/text.js";
import { delegationDialog } from "../approvals/delegation.js";
import { openDialog } from "../parts/dialog.js";
import { icon } from "../parts/icons.js";
import { passkeysDialog } from "./passkeys-dialog.js";
import { pushDialog } from "./push-dialog.js";
import { signInForm } from "./sign-in.js";
import { copyButton } from "../timeline/envelope-details.js";

export class SpaceMenu {
  /** @param {import("../../core/connection/session.js").Session} session @param {(space: string) => void} choose @param {(text: string, tone?: "info" | "good" | "bad") => void} notify */
  constructor(session, choose, notify) {
    this._notify = notify;
    this._session = session;
    this._choose = choose;
    this._shown = "";
    const id = newId("spaces");
    this._list = html.div({
      class: "menu",
      id,
      hidden: true,
      role: "menu",
      "aria-label": "Spaces",
      on: { keydown: (/** @type {KeyboardEvent} */ event) => this._key(event) },
    });
    this._name = html.span({ class: "space-name" });
    this._button = html.button(
      {
        type: "button",
        class: "button quiet space-button",
        "aria-haspopup": "menu",
        "aria-expanded": "false",
        "aria-controls": id,
        on: { click: () => (this._list.hidden ? this.open() : this._close()) },
      },
      html.span({ class: "sr" }, "Space: "),
      this._name,
      icon("unfold", 14),
    );
    this.node = html.div({ class: "menu-holder" }, this._button, this._list);
    this.node.addEventListener("focusout", (/** @type {FocusEvent} */ event) => {
      if (!this._isFilling && !this.node.contains(/** @type {Node} */ (event.relatedTarget))) this._close();
    });
  }

  refresh() {
    const openSpace = this._session.current;
    const text = openSpace ? oneLine(openSpace.name, 40) : "";
    const me = openSpace?.state.me.id || openSpace?.login.participant || "";
    if (this._shown !== `${text}\n${me}`)
      replace(
        this._name,
        html.bdi({ class: "space-title" }, text),
        html.span({ class: "space-me" }, html.span({ class: "sr" }, "you are "), html.bdi({}, oneLine(me, 40))),
      );
    this._shown = `${text}\n${me}`;
    if (!this._list.hidden) this._fill();
  }

  open() {
    this._fill();
    this._list.hidden = false;
    this._button.setAttribute("aria-expanded", "true");
    this._list.querySelector("button")?.focus();
  }

  _close() {
    this._list.hidden = true;
    this._button.setAttribute("aria-expanded", "false");
  }

  /** Redrawn only if something changed, and the focus stays: somebody may be choosing by keyboard meanwhile. */
  _fill() {
    const spaces = this._session.logins.map((login) => {
      const openSpace = this._session.openSpaces.get(login.space);
      const { count, isKnown } = this._session.pendingIn(login.space);
      const waiting = isKnown || count > 0 ? String(count) : "?";
      return { login, waiting, current: this._session.current === openSpace && openSpace !== undefined };
    });
    this._isFilling = true;
    redraw(
      this._list,
      spaces.map((each) => [each.login.space, each.login.participant, each.waiting, each.current]),
      () => this._items(spaces),
    );
    this._isFilling = false;
  }

  _isFilling = false;

  /** @param {{login: import("../../core/connection/session.js").Login, waiting: string, current: boolean}[]} spaces */
  _items(spaces) {
    const items = spaces.map(({ login, waiting, current }) => {
      return html.button(
        {
          type: "button",
          role: "menuitemradio",
          "aria-checked": String(current),
          class: "menu-item",
          data: { focus: login.space },
          on: {
            click: () => {
              this._close();
              this._button.focus();
              this._choose(login.space);
            },
          },
        },
        html.bdi({ class: "grow" }, oneLine(login.space, 40)),
        html.small({}, "as ", html.bdi({}, oneLine(login.participant, 40))),
        waiting !== "0" &&
          html.span(
            { class: "badge", role: "img", "aria-label": `${waiting === "?" ? "not known what is" : waiting} pending` },
            waiting,
          ),
        current && icon("check", 16),
      );
    });
    const item = (/** @type {string} */ name, /** @type {string} */ text, /** @type {() => void} */ act) =>
      html.button(
        {
          type: "button",
          role: "menuitem",
          class: "menu-item",
          data: { focus: ` ${name}` },
          on: {
            click: () => {
              this._close();
              // A dialog gives the focus back to where it was.
              this._button.focus();
              act();
            },
          },
        },
        icon(name, 16),
        html.span({}, text),
      );
    return [
      ...items,
      item("plus", "Add a space…", () => this._add()),
      item("bell", "Notifications on this device…", () => pushDialog(this._session, { notify: this._notify })),
      item("key", "Passkeys…", () => passkeysDialog(this._session, { notify: this._notify })),
      item("pause", "While you are away…", () => {
        const { current } = this._session;
        if (current) delegationDialog(current, { notify: this._notify });
      }),
      item("device", "Sign in on another device…", () => deviceDialog(this._session, { notify: this._notify })),
      item("chat", "Decide in a chat…", () => chatDialog(this._session, { notify: this._notify })),
    ];
  }

  _add() {
    const dialog = openDialog("Add a space", [
      signInForm(this._session, (logins) => {
        dialog.close();
        this._choose(logins[0].space);
      }),
    ]);
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    const items = /** @type {HTMLElement[]} */ ([...this._list.querySelectorAll("button")]);
    const at = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (next !== undefined) items[(next + items.length) % items.length]?.focus();
    else if (event.key === "Escape") {
      this._close();
      this._button.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** A QR code and a link that work once, for minutes. @param {import("../../core/connection/session.js").Session} session @param {Pick<import("../../app.js").Context, "notify">} context */
function deviceDialog(session, context) {
  const login = session.current?.login;
  if (!login) return;
  if (login.grant) {
    // A provider's token stays in the tab that it was given to.
    const refusal = openDialog(
      "Sign in on another device",
      [
        html.p(
          {},
          "Open ",
          html.bdi({ class: "mono" }, session.base.href),
          " there and sign in at the provider, as you did here.",
        ),
      ],
      { actions: [button("Close", () => refusal.close(), { class: "quiet" })] },
    );
    return;
  }
  const body = html.div({ class: "device-link", "aria-live": "polite" }, html.p({ class: "soft" }, "Making a link…"));
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const dialog = openDialog("Sign in on another device", [body], {
    actions: [button("Close", () => dialog.close(), { class: "quiet" })],
    closed: () => clearTimeout(timer),
  });
  const make = async () => {
    clearTimeout(timer);
    try {
      const link = await session.makeLink(login);
      const expired = () =>
        replace(
          body,
          html.p({}, "This link has expired."),
          button("Make a new one", () => void make(), { class: "small" }),
        );
      timer = setTimeout(expired, link.valid_seconds * 1000);
      replace(
        body,
        qrCode(link.qr),
        html.p(
          {},
          `Scan this with the other device, or open the link there. It works once, within ${Math.round(link.valid_seconds / 60)} minutes.`,
        ),
        isLoopback(session.base) &&
          html.p(
            { class: "caution" },
            icon("warning", 16),
            "This gateway can be reached from this computer only. For a phone it has to listen on the network, best behind TLS.",
          ),
        html.div(
          { class: "field-row" },
          readOnlyField(link.address),
          copyButton(link.address, "Copy the link", context),
        ),
        html.p({ class: "soft" }, `Whoever opens it first is signed in as ${login.participant}. Show it to nobody.`),
      );
    } catch (fault) {
      replace(body, notMade("link", fault, make));
    }
  };
  void make();
}

/** A code that binds a chat account, once. @param {import("../../core/connection/session.js").Session} session @param {Pick<import("../../app.js").Context, "notify">} context */
function chatDialog(session, context) {
  const login = session.current?.login;
  if (!login) return;
  const body = html.div({ class: "device-link", "aria-live": "polite" }, html.p({ class: "soft" }, "Making a code…"));
  const dialog = openDialog("Decide in a chat", [body], {
    actions: [button("Close", () => dialog.close(), { class: "quiet" })],
  });
  const make = async () => {
    try {
      const made = await session.makeChatCode(login);
      const line = `bind ${made.code}`;
      replace(
        body,
        html.p(
          {},
          `Send this line to the bot of your chat, in a room of the two of you. It works once, within ${Math.round(made.valid_seconds / 60)} minutes. Show it to nobody else: whoever sends it first decides as you.`,
        ),
        html.div(
          { class: "field-row" },
          readOnlyField(line, "Line for the bot"),
          copyButton(line, "Copy the line", context),
        ),
        html.p(
          { class: "soft" },
          `From then on that account decides as ${login.participant}. Whoever runs this space has to run moot chat.`,
        ),
      );
    } catch (fault) {
      replace(body, notMade("code", fault, make));
    }
  };
  void make();
}

/** @param {string} what @param {unknown} fault @param {() => void} again */
function notMade(what, fault, again) {
  const why = fault instanceof Error ? fault.message : "no answer";
  return [
    html.p({ class: "fault", role: "alert" }, `No ${what} could be made: ${why}`),
    button("Retry", again, { class: "small" }),
  ];
}

/** @param {string} text @param {string} [label] */
function readOnlyField(text, label = "One-time link") {
  const field = html.input({
    class: "field mono",
    value: text,
    "aria-label": label,
    on: { focus: () => field.select() },
  });
  field.readOnly = true;
  return field;
}

/** @param {URL} base */
function isLoopback(base) {
  return ["localhost", "127.0.0.1", "[::1]"].includes(base.hostname);
}

/** Dark on white in every theme, with the quiet border that readers need. @param {string[]} rows */
function qrCode(rows) {
  const size = rows.length + 8;
  const path = rows
    .flatMap((row, y) => [...row].map((each, x) => (each === "1" ? `M${x + 4} ${y + 4}h1v1h-1z` : "")))
    .join("");
  return svg.svg(
    { class: "qr", viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": "QR code of the link" },
    svg.rect({ width: size, height: size, fill: "#fff" }),
    svg.path({ d: path, fill: "#000" }),
  );
}
