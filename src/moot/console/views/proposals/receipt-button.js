/** The receipt of a decided proposal: who approved what, for somebody who believes nobody here. */
import { addressIn, checkAnswer, fetchFrom } from "../../core/connection/gateway-fetch.js";
import { button, html, replace } from "../../core/page/dom.js";
import { oneLine } from "../../core/page/text.js";
import { save } from "../parts/large-value.js";

// It waits until the journal's log is signed up to the decision.
const RECEIPT_MILLISECONDS = 60_000;

/** @param {import("../../app.js").Context} context @param {string} id of the proposal */
export function receiptButton(context, id) {
  const note = html.span({ class: "soft", role: "status" });
  const press = button("Save receipt", () => void get(), { class: "small" });
  const get = async () => {
    press.disabled = true;
    replace(note, "Fetching…");
    try {
      save(await fetchReceipt(context, id), `${id.slice(0, 8).replace(/[^\w-]/gu, "_")}.receipt.json`);
      replace(note, "Saved. moot receipt verify checks it.");
    } catch (fault) {
      replace(note, `No receipt: ${oneLine(fault instanceof Error ? fault.message : String(fault), 200)}`);
    }
    press.disabled = false;
  };
  return html.p({ class: "button-pair" }, press, note);
}

/** @param {import("../../app.js").Context} context @param {string} id */
async function fetchReceipt(context, id) {
  const { base, login } = context.openSpace;
  const address = addressIn(base, login.space, "receipts", id);
  const answer = await fetchFrom(address, { token: login.token, within: RECEIPT_MILLISECONDS });
  return (await checkAnswer(answer)).arrayBuffer();
}
