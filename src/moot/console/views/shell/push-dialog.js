/** Turning notifications on this device on and off. */
import { button, html, newId, replace } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";
import { readPush, turnOff, turnOn, whyImpossible } from "../../core/connection/push.js";
import { openDialog } from "../parts/dialog.js";
import { icon } from "../parts/icons.js";

const DEFAULT_QUIET = { from: "22:00", to: "07:00" };

/** @param {import("../../core/connection/session.js").Session} session @param {Pick<import("../../app.js").Context, "notify">} context */
export function pushDialog(session, context) {
  const body = html.div({ class: "push-settings", "aria-live": "polite" });
  const actions = html.div({ class: "button-row" });
  const dialog = openDialog("Notifications on this device", [body], { actions: [actions] });
  const close = () => button("Close", () => dialog.close(), { class: "quiet" });
  const { base } = session;

  const impossible = whyImpossible();
  if (impossible) {
    replace(body, html.p({ class: "caution" }, icon("warning", 16), impossible));
    replace(actions, close());
    return;
  }

  /** @param {string} words @param {() => Promise<void>} act @param {string} [done] */
  const run = async (words, act, done) => {
    replace(actions, html.span({ class: "soft" }, words));
    try {
      await act();
      if (done) context.notify(done, "good");
      await show();
    } catch (fault) {
      await show(fault instanceof Error ? fault.message : String(fault));
    }
  };

  /** @param {string} [problem] what went wrong before */
  const show = async (problem) => {
    /** @type {Awaited<ReturnType<typeof readPush>>} */
    let found;
    try {
      found = await readPush(base, session.logins);
    } catch (fault) {
      replace(
        body,
        html.p({ class: "fault", role: "alert" }, `Not known: ${fault instanceof Error ? fault.message : fault}`),
      );
      replace(
        actions,
        close(),
        button("Retry", () => void run("Asking…", async () => {}), { class: "primary" }),
      );
      return;
    }
    if (found.refused) {
      replace(
        body,
        html.p({ class: "caution" }, icon("warning", 16), `Notifications cannot be turned on: ${found.refused}.`),
      );
      replace(actions, close());
      return;
    }
    const quiet = quietField(found.quietHours);
    replace(
      body,
      html.p(
        { class: "push-state" },
        html.strong({}, found.isOn ? "On." : "Off."),
        " ",
        found.isOn
          ? "This device tells you what waits for your decision, also while this page is closed."
          : "Be told here what waits for your decision, also while this page is closed.",
      ),
      html.p(
        { class: "soft" },
        "A notification says who proposes which tool in which space, if nobody has decided after a while. It never holds the arguments, and to decide you sign in as always. Signing out turns it off here.",
      ),
      found.endsAfterSeconds !== null &&
        html.p(
          { class: "soft" },
          `It ends if you have not opened this page for ${daysText(found.endsAfterSeconds)}, and this device says so then.`,
        ),
      quiet.node,
      problem && html.p({ class: "fault", role: "alert" }, problem),
    );
    const on = (/** @type {string} */ words) =>
      run("Turning on…", () => turnOn(base, session.logins, quiet.read()), words);
    if (found.isOn) {
      replace(
        actions,
        button(
          "Turn off",
          () => void run("Turning off…", () => turnOff(base, session.logins), "Notifications on this device are off"),
          { class: "quiet" },
        ),
        button("Save", () => void on("Quiet hours saved"), {}),
        close(),
      );
    } else
      replace(
        actions,
        close(),
        button("Turn on", () => void on("Notifications on this device are on"), { class: "primary" }),
      );
  };

  replace(body, html.p({ class: "soft" }, "Asking the gateway…"));
  replace(actions, close());
  void show();
}

/** @param {number} seconds */
function daysText(seconds) {
  const [count, unit] =
    seconds >= 172_800 ? [Math.round(seconds / 86_400), "days"] : [Math.max(1, Math.round(seconds / 3_600)), "hours"];
  return `${formatNumber(count)} ${unit}`;
}

/** @param {import("../../core/connection/push.js").QuietHours | null} chosen */
function quietField(chosen) {
  const id = newId("quiet");
  const wanted = html.input({
    id,
    type: "checkbox",
    checked: chosen !== null,
    on: { change: () => (times.hidden = !wanted.checked) },
  });
  const from = html.input({
    class: "field",
    type: "time",
    required: true,
    value: chosen?.from ?? DEFAULT_QUIET.from,
    "aria-label": "Quiet from",
  });
  const to = html.input({
    class: "field",
    type: "time",
    required: true,
    value: chosen?.to ?? DEFAULT_QUIET.to,
    "aria-label": "Quiet until",
  });
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const times = html.div(
    { class: "field-row", hidden: chosen === null },
    from,
    html.span({}, "to"),
    to,
    html.small({ class: "soft" }, zone),
  );
  return {
    node: html.div(
      {},
      html.label(
        { class: "choice", for: id },
        wanted,
        html.span(
          {},
          "Quiet hours",
          html.small({}, "Nothing is sent then; afterwards you are told once what is still open."),
        ),
      ),
      times,
    ),
    read: () => (wanted.checked ? { from: from.value, to: to.value, time_zone: zone } : null),
  };
}
