/** Choosing permissions: by profile, manually, or both; shown as text and as the JSON that is sent. */
import { html, newId, replace } from "../../core/page/dom.js";
import { oneLine, escapeHidden } from "../../core/page/text.js";
import { PROFILES, describeCapability, readCapabilities } from "./capability-text.js";
import { coveredBy } from "./capability-covers.js";
import { icon } from "../parts/icons.js";

/**
 * @param {import("../../app.js").Context} context
 * @param {{profile: string, more?: string, baseline: any[]}} start `baseline` is what anybody may hand on here
 */
export function capabilityPicker(context, start) {
  const group = newId("profile");
  const id = newId("hand");
  const fault = html.p({ class: "fault", role: "alert" });
  const shown = html.div({ class: "picked", "aria-live": "polite" });
  const radios = PROFILES.map((profile) =>
    html.label(
      { class: "choice profile" },
      html.input({
        type: "radio",
        name: group,
        value: profile.id,
        checked: profile.id === start.profile,
        on: { change: () => show() },
      }),
      html.span({}, profile.title, html.small({}, profile.description)),
    ),
  );
  const typed = html.textarea({
    id,
    class: "field mono",
    rows: "3",
    value: start.more ?? "",
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
      html.h3({}, "Resulting permissions"),
      capabilities.length === 0
        ? html.p({ class: "soft" }, "None: can only read.")
        : html.ul(
            { class: "permissions" },
            capabilities.map((each) =>
              html.li(
                {},
                html.bdi({ class: "right-text" }, oneLine(describeCapability(each), 200)),
                !coveredBy(each, held) &&
                  html.span(
                    { class: "tag", data: { tone: "warn" } },
                    icon("warning", 12),
                    "you do not have this: likely refused",
                  ),
              ),
            ),
          ),
      html.details(
        {},
        html.summary({}, "JSON"),
        html.pre(
          { class: "text-block mono", tabindex: "0", role: "group", "aria-label": "capabilities as JSON" },
          escapeHidden(JSON.stringify(capabilities, null, 1)),
        ),
      ),
    );
  };
  const node = html.div(
    { class: "picker" },
    html.fieldset({ class: "profiles" }, html.legend({}, "Permissions"), radios),
    html.div(
      { class: "labelled" },
      html.label({ for: id }, "Additional permissions (optional)"),
      typed,
      html.small({ id: `${id}-hint` }, "One per line: a kind such as chat, or a capability as JSON."),
    ),
    fault,
    shown,
  );
  show();
  return { node, value, complain: showError };
}
