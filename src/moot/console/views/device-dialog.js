// @ts-check
/** Signing in on another device: a QR code and a link that work once, for minutes. */
import { button, el, replace, svg } from "../core/dom.js";
import { openDialog } from "./dialog.js";
import { copyButton } from "./envelope-details.js";
import { icon } from "./icons.js";

/** @param {import("../core/session.js").Session} session @param {Pick<import("../app.js").Context, "notify">} context */
export function deviceDialog(session, context) {
  const login = session.current?.login;
  if (!login) return;
  if (login.grant) {
    // A provider's token stays in the tab that it was given to.
    const refusal = openDialog("Sign in on another device", [el("p", {}, "Open ", el("bdi", { class: "mono" }, session.base.href), " there and sign in at the provider, as you did here.")], { actions: [button("Close", () => refusal.close(), { class: "quiet" })] });
    return;
  }
  const body = el("div", { class: "device-link", "aria-live": "polite" }, el("p", { class: "soft" }, "Making a link…"));
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const dialog = openDialog("Sign in on another device", [body], { actions: [button("Close", () => dialog.close(), { class: "quiet" })], closed: () => clearTimeout(timer) });
  const make = async () => {
    clearTimeout(timer);
    try {
      const link = await session.makeLink(login);
      const expired = () => replace(body, el("p", {}, "This link has expired."), button("Make a new one", () => void make(), { class: "small" }));
      timer = setTimeout(expired, link.valid_seconds * 1000);
      replace(
        body,
        qrCode(link.qr),
        el("p", {}, `Scan this with the other device, or open the link there. It works once, within ${Math.round(link.valid_seconds / 60)} minutes.`),
        isLoopback(session.base) && el("p", { class: "caution" }, icon("warning", 16), "This gateway can be reached from this computer only. For a phone it has to listen on the network, best behind TLS."),
        el("div", { class: "field-row" }, readOnlyField(link.address), copyButton(link.address, "Copy the link", context)),
        el("p", { class: "soft" }, `Whoever opens it first is signed in as ${login.participant}. Show it to nobody.`),
      );
    } catch (fault) {
      replace(body, el("p", { class: "fault", role: "alert" }, `No link could be made: ${fault instanceof Error ? fault.message : "no answer"}`), button("Retry", () => void make(), { class: "small" }));
    }
  };
  void make();
}

/** @param {string} text */
function readOnlyField(text) {
  const field = el("input", { class: "field mono", value: text, "aria-label": "One-time link", on: { focus: () => field.select() } });
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
  const path = rows.flatMap((row, y) => [...row].map((each, x) => (each === "1" ? `M${x + 4} ${y + 4}h1v1h-1z` : ""))).join("");
  return svg("svg", { class: "qr", viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": "QR code of the link" }, svg("rect", { width: size, height: size, fill: "#fff" }), svg("path", { d: path, fill: "#000" }));
}
