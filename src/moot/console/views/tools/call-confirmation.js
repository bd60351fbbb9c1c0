/** Asking before a tool runs that may destroy something: what it would do, with every argument. */
import { button, html } from "../../core/page/dom.js";
import { formatJson, parseJson } from "../../core/state/json-text.js";
import { nameOf, oneLine, textBlock } from "../../core/page/text.js";
import { openDialog } from "../parts/dialog.js";
import { icon } from "../parts/icons.js";

// Words of a name that say so, where a tool does not declare anything.
const DESTRUCTIVE =
  /(^|[_\-.\s])(delete|remove|destroy|drop|purge|wipe|erase|truncate|kill|terminate|revoke|reset|overwrite|rm|uninstall|format)($|[_\-.\s])/i;

/** Why a person should be asked first; empty: no reason. @param {import("./tool-catalogue.js").Tool | undefined} tool @param {{method: string, paramsText: string}} call @returns {string[]} */
export function reasonsToAsk(tool, call) {
  if (call.method !== "tools/call") return [];
  const name = tool?.name ?? String(parseJson(call.paramsText)?.name ?? "");
  const { destructiveHint, readOnlyHint } = tool?.annotations ?? {};
  const spaced = name.replace(/([a-z])([A-Z])/g, "$1_$2");
  if (destructiveHint === true && readOnlyHint !== true) return ["The tool declares that it is destructive."];
  // What a tool says of itself never takes a question away, except that it destroys nothing.
  if (DESTRUCTIVE.test(spaced) && readOnlyHint !== true && destructiveHint !== false)
    return ["Its name says that it removes or replaces something."];
  return [];
}

/** @param {string} member @param {string} name @param {string} argumentsText @param {string[]} reasons @param {() => void} run */
export function confirmCall(member, name, argumentsText, reasons, run) {
  const dialog = openDialog(
    "Run this tool?",
    [
      html.p({ class: "confirm-call" }, html.bdi({ class: "mono" }, oneLine(name, 120)), " on ", nameOf(member)),
      html.p({ class: "confirm-reason" }, icon("warning", 16), reasons.join(" ")),
      textBlock(formatJson(argumentsText || "{}"), { label: "arguments" }),
      html.p({ class: "soft" }, "It runs at once, in your name, and nobody is asked."),
    ],
    {
      actions: [
        button("Cancel", () => dialog.close(), { class: "quiet" }),
        button(
          "Run",
          () => {
            dialog.close();
            run();
          },
          { class: "danger" },
        ),
      ],
    },
  );
  // Enter does nothing that cannot be undone.
  /** @type {HTMLElement | null} */ (dialog.node.querySelector(".dialog-actions .button"))?.focus();
}
