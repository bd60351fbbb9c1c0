/** What is shown when the page was opened without a connection: nothing is known, so nothing else is shown. */
import { isReachable } from "../../core/connection/gateway-fetch.js";
import { button, html } from "../../core/page/dom.js";
import { logo } from "./sign-in.js";

const RETRY_MILLISECONDS = 3_000;

/**
 * The page that says so. It looks for the gateway by itself and loads everything anew when it answers: the page may be of an older version.
 * @param {URL} base
 */
export function offlinePage(base) {
  const state = html.p({ class: "soft", role: "status" }, "Trying again every few seconds.");
  let isAsking = false;
  const retry = async () => {
    if (isAsking) return;
    isAsking = true;
    const answers = await isReachable(base);
    isAsking = false;
    if (!answers)
      state.textContent = `No answer at ${new Date().toLocaleTimeString()}. Trying again every few seconds.`;
    else if (page.isConnected) {
      clearInterval(timer);
      location.reload();
    }
  };
  const timer = setInterval(() => void retry(), RETRY_MILLISECONDS);
  addEventListener("online", () => void retry());
  const page = html.main(
    { class: "sign-in" },
    html.div(
      { class: "sign-in-card" },
      html.div({ class: "brand" }, logo(), html.h1({}, "Not connected")),
      html.p(
        { class: "lead" },
        "The gateway does not respond, so what is pending is not known here. Proposals wait until you are back.",
      ),
      state,
      button("Retry now", () => void retry(), { class: "primary wide" }),
    ),
  );
  return page;
}
