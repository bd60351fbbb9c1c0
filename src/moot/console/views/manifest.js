// @ts-check
/** The views of the console. Each module registers itself; one that fails is skipped and reported. */

const MODULES = ["./approvals.js", "./timeline.js", "./chat.js", "./flow.js", "./members.js", "./rules.js", "./reasoning.js", "./streams.js", "./call.js"];

// A connection that was cut once is no reason to miss a view until somebody reloads the page.
const RETRY_SECONDS = 1;

export async function loadViews() {
  await Promise.all(
    MODULES.map((module) =>
      import(module)
        .catch(() => new Promise((resolve) => setTimeout(resolve, RETRY_SECONDS * 1000)).then(() => import(module)))
        .catch((fault) => console.error(`the view ${module} could not be loaded`, fault)),
    ),
  );
}
