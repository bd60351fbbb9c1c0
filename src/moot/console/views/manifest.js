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

// A connection that was cut is no reason to miss a view until somebody reloads the page.
const RETRY_MILLISECONDS = 1_000;
const MAX_TRIES = 4;

export async function loadViews() {
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
