// @ts-check
/** All shortcuts that are active now. */
import { el } from "../core/dom.js";
import { openDialog } from "./dialog.js";

/** @param {import("../core/keys.js").Keys} keys */
export function helpDialog(keys) {
  if (document.querySelector("dialog.help")) return;
  const scopes = [...keys.all()].map(([scope, shortcuts]) =>
    el(
      "section",
      { class: "help-scope" },
      el("h3", {}, scope),
      el("dl", {}, shortcuts.map((each) => el("div", {}, el("dt", {}, each.keys.split(" ").map((key) => el("kbd", {}, key))), el("dd", {}, each.label)))),
    ),
  );
  openDialog("Keyboard shortcuts", [el("div", { class: "help-scopes" }, scopes)], { class: "help" });
}
