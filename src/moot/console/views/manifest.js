// @ts-check
/** The views of the console. Each module registers itself; one that fails is skipped and reported. */

const MODULES = ["./approvals.js", "./timeline.js", "./chat.js", "./flow.js", "./members.js", "./rules.js", "./reasoning.js", "./streams.js", "./call.js"];

export async function loadViews() {
  await Promise.all(
    MODULES.map((module) => import(module).catch((fault) => console.error(`the view ${module} could not be loaded`, fault))),
  );
}
