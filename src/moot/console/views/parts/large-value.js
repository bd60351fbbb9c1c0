/** A large value: its size, its hash, its beginning, and buttons that show and download it. */
import { button, html, replace } from "../../core/page/dom.js";
import { listedValues } from "../../core/connection/large-values.js";
import { formatNumber } from "../../core/page/numbers.js";
import { oneLine, textBlock } from "../../core/page/text.js";

/** @typedef {import("../../core/connection/large-values.js").LargeValue} LargeValue */
/** @typedef {import("../../app.js").Context} Context */

// More is nothing to read on a page: it is downloaded.
const SHOWN_BYTES = 4 << 20;
const SHOWN_CHARACTERS = 6_000;

/**
 * Until it was shown or downloaded it counts as not read.
 * @param {Context} context @param {LargeValue} value @param {string} [name] where it stands in the message
 */
export function largeValueView(context, value, name = "") {
  const text = html.div(
    {},
    value.excerpt && textBlock(value.excerpt, { maxCharacters: SHOWN_CHARACTERS, label: "beginning of the text" }),
  );
  const note = html.p({ class: "soft", role: "status" }, value.excerpt && "The beginning. The gateway keeps the rest.");
  const get = async (/** @type {(data: Uint8Array<ArrayBuffer>) => void} */ use) => {
    show.disabled = download.disabled = true;
    replace(note, "Fetching…");
    try {
      use(await context.openSpace.fetchLargeValue(value));
      delete view.dataset.cut;
    } catch (fault) {
      replace(note, `It could not be fetched: ${fault instanceof Error ? fault.message : "no answer"}.`);
    }
    show.disabled = download.disabled = false;
  };
  const show = button(
    "Show all",
    () =>
      void get((data) => {
        const whole = readText(data);
        if (whole === null) return replace(note, "This is not text: download it.");
        replace(text, textBlock(whole, { maxCharacters: SHOWN_CHARACTERS, label: "whole text" }));
        /** @type {HTMLElement | null} */ (text.querySelector(".show-all"))?.click();
        replace(note, `All ${formatNumber(value.bytes)} bytes.`);
        show.remove();
      }),
    { class: "small" },
  );
  const download = button(
    "Download",
    () =>
      void get((data) => {
        save(data, `value-${value.sha256.slice(0, 12)}${readText(data.subarray(0, 4096)) === null ? "" : ".txt"}`);
        replace(note, `Downloaded ${formatNumber(value.bytes)} bytes.`);
      }),
    { class: "small" },
  );
  show.hidden = value.bytes > SHOWN_BYTES;
  const view = html.div(
    { class: "large-value", data: { cut: "" } },
    html.div(
      { class: "content-bar" },
      name && html.bdi({ class: "mono" }, oneLine(name, 80)),
      html.span({}, `${formatNumber(value.bytes)} bytes`),
      html.span({ class: "soft" }, "SHA-256 ", html.bdi({ class: "mono" }, value.sha256)),
      html.span({ class: "button-pair" }, show, download),
    ),
    text,
    note,
  );
  return view;
}

/** Those that params or a result list. @param {Context} context @param {any} body */
export function listedValuesView(context, body) {
  return listedValues(body).map((each) => largeValueView(context, each, each.at.join(".")));
}

/** @param {Uint8Array} data */
function readText(data) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data, { stream: true });
  } catch {
    return null;
  }
}

/** As a file of this device. @param {BlobPart} data @param {string} name */
export function save(data, name) {
  const address = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
  const link = html.a({ download: name });
  // Not as an attribute: what others wrote never becomes such an address, and this is ours.
  link.href = address;
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
