/**
 * Views and their addresses: `#/SPACE/VIEW/REST`. A view is registered once and mounted when it is shown.
 */

/**
 * @typedef {object} View
 * @property {string} id used in the address
 * @property {string} title in the navigation
 * @property {string} icon name in views/icons.js
 * @property {number} order in the navigation
 * @property {string} key letter after "g" that opens it
 * @property {boolean} [more] whether it is below "More"
 * @property {(state: import("../state/state.js").State, session: import("../connection/session.js").Session) => number} [badge]
 * @property {(outlet: HTMLElement, context: import("../../app.js").Context) => Mounted} mount
 * @typedef {object} Mounted
 * @property {() => void} [unmount]
 * @property {(rest: string[]) => void} [openRoute] the rest of the address, decoded; also called on mounting
 */

/** @type {Map<string, View>} */
const views = new Map();

/** @param {View} view */
export function registerView(view) {
  views.set(view.id, view);
}

/** @returns {View[]} */
export function registeredViews() {
  return [...views.values()].sort((a, b) => a.order - b.order);
}

/** @param {string} id */
export function viewOf(id) {
  return views.get(id);
}

/** @returns {{space: string, view: string, rest: string[]}} */
export function currentRoute() {
  const steps = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeStep);
  return { space: steps[0] ?? "", view: steps[1] ?? "", rest: steps.slice(2) };
}

/** @param {string} space @param {string} view @param {...string} rest */
export function routeAddress(space, view, ...rest) {
  return `#/${[space, view, ...rest].map(encodeURIComponent).join("/")}`;
}

/** Shows the current address; set by app.js. @type {() => void} */
let showRoute = () => {};

/** @param {() => void} show */
export function onNavigation(show) {
  showRoute = show;
  addEventListener("hashchange", show);
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest('a[href^="#/"]') : null;
    if (
      !link ||
      event.defaultPrevented ||
      event.button !== 0 ||
      event.ctrlKey ||
      event.metaKey ||
      event.shiftKey ||
      event.altKey
    )
      return;
    event.preventDefault();
    navigate(/** @type {string} */ (link.getAttribute("href")));
  });
}

/**
 * Go to an address of the console. Shows it at once: the browser's hashchange event comes in a later task, after another frame of
 * the old view was drawn. @param {string} to
 */
export function navigate(to) {
  if (location.hash === to) return;
  history.pushState(null, "", to);
  showRoute();
}

/** @param {string} step */
function decodeStep(step) {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}
