/** Light, dark, or as the system; the choice is kept in local storage. */

const KEPT = "moot.theme";
/** @type {("system" | "light" | "dark")[]} */
const THEMES = ["system", "light", "dark"];

/** @returns {"system" | "light" | "dark"} */
export function theme() {
  try {
    const kept = localStorage.getItem(KEPT);
    return THEMES.find((each) => each === kept) ?? "system";
  } catch {
    return "system";
  }
}

export function applyTheme(chosen = theme()) {
  if (chosen === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = chosen;
  // The bars that the system draws around the page.
  for (const each of document.querySelectorAll("meta[data-scheme]")) {
    const own = each.getAttribute("data-scheme");
    const when = chosen === "system" ? `(prefers-color-scheme: ${own})` : chosen === own ? "all" : "not all";
    each.setAttribute("media", when);
  }
}

/** The next of the three; returns its name. */
export function nextTheme() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  try {
    localStorage.setItem(KEPT, next);
  } catch {
    // Storage may be blocked; the theme then lasts until the page is closed.
  }
  applyTheme(next);
  return next;
}
