/** The views of the console. Each module registers itself; one that fails is skipped and reported. */

const MODULES = [
  "./approvals/approvals.js",
  "./timeline/timeline.js",
  "./chat/chat.js",
  "./flow/flow.js",
  "./members/members.js",
  "./rules/rules.js",
  "./reasoning/reasoning.js",
  "./reasoning/streams.js",
  "./tools/call.js",
  "./administration/administration.js",
  "./decisions/decisions.js",
];

// Beside those that the page names for the sign-in form. All at once: a dialog of one view is opened in others, too.
const STYLES = ["members", "call", "approvals", "rules", "administration"];

// A connection that was cut is no reason to miss a view until somebody reloads the page.
const RETRY_MILLISECONDS = 1_000;
const MAX_TRIES = 4;

export async function loadViews() {
  const folder = new URL("../css/", import.meta.url);
  for (const name of STYLES) {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = new URL(`${name}.css`, folder).href;
    document.head.append(link);
  }
  await Promise.all(
    MODULES.map((module) =>
      load(module).catch((fault) => console.error(`the view ${module} could not be loaded`, fault)),
    ),
  );
}

/** @param {string} module @returns {Promise<void>} */
async function load(module) {
  for (let tries = 1; ; tries += 1) {
    try {
      await import(module);
      return;
    } catch (fault) {
      if (tries === MAX_TRIES) throw fault;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MILLISECONDS));
    }
  }
}
