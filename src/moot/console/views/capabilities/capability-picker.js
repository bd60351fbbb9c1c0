/** Choosing permissions: by profile, manually, or both; shown as text and as the JSON that is sent. */
import { el, newId, replace } from "../../core/page/dom.js";
import { oneLine, escapeHidden } from "../../core/page/text.js";
import { PROFILES, describeCapability, readCapabilities } from "./capability-text.js";
import { coveredBy } from "./capability-covers.js";
import { icon } from "../parts/icons.js";

/**
 * @param {import("../../app.js").Context} context
 * @param {{profile: string, baseline: any[]}} start `baseline` is what anybody may hand on here
 */
export function capabilityPicker(context, start) {
  const group = newId("profile");
  const id = newId("hand");
  const fault = el("p", { class: "fault", role: "alert" });
  const shown = el("div", { class: "picked", "aria-live": "polite" });
  const radios = PROFILES.map((profile) =>
    el(
      "label",
      { class: "choice profile" },
      el("input", {
        type: "radio",
        name: group,
        value: profile.id,
        checked: profile.id === start.profile,
        on: { change: () => show() },
      }),
      el("span", {}, profile.title, el("small", {}, profile.description)),
    ),
  );
  const typed = el("textarea", {
    id,
    class: "field mono",
    rows: "3",
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
    placeholder: 'chat\n{"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "read_*"}}}',
    "aria-describedby": `${id}-hint`,
    on: { input: () => show() },
  });

  const chosen = () =>
    PROFILES.find(
      (each) =>
        each.id ===
        /** @type {HTMLInputElement | null} */ (node.querySelector(`input[name="${group}"]:checked`))?.value,
    )?.capabilities ?? [];
  /** @returns {any[] | null} */
  const value = () => {
    const read = readCapabilities(typed.value);
    if (read.fault) return null;
    const seen = new Set();
    return [...chosen(), ...read.capabilities].filter(
      (each) => !seen.has(JSON.stringify(each)) && seen.add(JSON.stringify(each)),
    );
  };
  const showError = (/** @type {string} */ text) => {
    fault.textContent = escapeHidden(text);
    typed.setAttribute("aria-invalid", "true");
    typed.focus();
  };
  const show = () => {
    const read = readCapabilities(typed.value);
    fault.textContent = escapeHidden(read.fault);
    typed.setAttribute("aria-invalid", String(Boolean(read.fault)));
    const capabilities = value() ?? [];
    const held = [...context.state.me.capabilities, ...start.baseline];
    replace(
      shown,
      el("h3", {}, "Resulting permissions"),
      capabilities.length === 0
        ? el("p", { class: "soft" }, "None: can only read.")
        : el(
            "ul",
            { class: "permissions" },
            capabilities.map((each) =>
              el(
                "li",
                {},
                el("bdi", { class: "right-text" }, oneLine(describeCapability(each), 200)),
                !coveredBy(each, held) &&
                  el(
                    "span",
                    { class: "tag", data: { tone: "warn" } },
                    icon("warning", 12),
                    "you do not have this: likely refused",
                  ),
              ),
            ),
          ),
      el(
        "details",
        {},
        el("summary", {}, "JSON"),
        el(
          "pre",
          { class: "text-block mono", tabindex: "0", role: "group", "aria-label": "capabilities as JSON" },
          escapeHidden(JSON.stringify(capabilities, null, 1)),
        ),
      ),
    );
  };
  const node = el(
    "div",
    { class: "picker" },
    el("fieldset", { class: "profiles" }, el("legend", {}, "Permissions"), radios),
    el(
      "div",
      { class: "labelled" },
      el("label", { for: id }, "Additional permissions (optional)"),
      typed,
      el("small", { id: `${id}-hint` }, "One per line: a kind such as chat, or a capability as JSON."),
    ),
    fault,
    shown,
  );
  show();
  return { node, value, complain: showError };
}
