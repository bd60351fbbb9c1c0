/**
 * Building elements. Everything that a peer wrote is inserted as text: there is no way here to set HTML, a
 * handler or a style from a string, so no message can become part of the page.
 */

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */

// Attributes that cannot run anything. `href` is checked again below.
const ALLOWED = new Set([
  "abbr",
  "autocapitalize",
  "autocomplete",
  "cols",
  "colspan",
  "content",
  "datetime",
  "dir",
  "disabled",
  "download",
  "enterkeyhint",
  "for",
  "form",
  "headers",
  "height",
  "hidden",
  "href",
  "id",
  "inputmode",
  "label",
  "lang",
  "list",
  "max",
  "maxlength",
  "min",
  "minlength",
  "multiple",
  "name",
  "open",
  "pattern",
  "placeholder",
  "readonly",
  "rel",
  "required",
  "role",
  "rowspan",
  "rows",
  "scope",
  "selected",
  "size",
  "spellcheck",
  "start",
  "step",
  "tabindex",
  "target",
  "title",
  "type",
  "width",
  "wrap",
]);
const SVG_ALLOWED = new Set([
  "cx",
  "cy",
  "d",
  "dx",
  "dy",
  "fill",
  "height",
  "id",
  "marker-end",
  "markerHeight",
  "markerUnits",
  "markerWidth",
  "orient",
  "points",
  "preserveAspectRatio",
  "r",
  "refX",
  "refY",
  "role",
  "rx",
  "ry",
  "stroke",
  "stroke-width",
  "tabindex",
  "text-anchor",
  "transform",
  "viewBox",
  "width",
  "x",
  "x1",
  "x2",
  "y",
  "y1",
  "y2",
]);
const SVG = "http://www.w3.org/2000/svg";
// javascript:, data: and the like are not made links.
const SAFE_LINK = /^(https?:\/\/|mailto:|#)/i;
// Nothing that runs, loads or frames.
const TAGS =
  "a article aside bdi blockquote br button code datalist dd del details dialog div dl dt em fieldset figcaption figure footer " +
  "form h1 h2 h3 h4 h5 h6 header hr input ins kbd label legend li main meter nav ol option p pre q s section select small span " +
  "strong summary table tbody td textarea th thead time tr ul";
const SVG_TAGS = "circle defs g marker path rect svg text title";

/** @typedef {Record<string, any>} Attributes */

/**
 * An element of each tag: `html.p({ class: "soft" }, "text")`. Attributes may be `class` (string or list), `on`
 * ({click: handler}), `data` and `aria` (objects), `value`, `checked`; the rest is set as an attribute: true as an empty
 * one, false and null not at all.
 * @type {{[T in keyof HTMLElementTagNameMap]: (attributes?: Attributes, ...children: Child[]) => HTMLElementTagNameMap[T]}}
 */
export const html = makers(TAGS, ALLOWED, (tag) => document.createElement(tag));

/** @type {{[T in keyof SVGElementTagNameMap]: (attributes?: Attributes, ...children: Child[]) => SVGElementTagNameMap[T]}} */
export const svg = makers(SVG_TAGS, SVG_ALLOWED, (tag) => document.createElementNS(SVG, tag));

/** @param {string} tags @param {Set<string>} allowed @param {(tag: string) => Element} make @returns {any} */
function makers(tags, allowed, make) {
  const maker =
    (/** @type {string} */ tag) =>
    (/** @type {Attributes} */ attributes = {}, /** @type {Child[]} */ ...children) =>
      fill(make(tag), attributes, children, allowed);
  return Object.fromEntries(tags.split(" ").map((tag) => [tag, maker(tag)]));
}

/** @param {any} element @param {Attributes} attributes @param {Child[]} children @param {Set<string>} allowed */
function fill(element, attributes, children, allowed) {
  let value;
  for (const [name, given] of Object.entries(attributes)) {
    if (given === null || given === undefined || given === false) continue;
    if (name === "class")
      element.setAttribute("class", Array.isArray(given) ? given.filter(Boolean).join(" ") : String(given));
    else if (name === "on")
      for (const [event, handler] of Object.entries(given)) element.addEventListener(event, handler);
    else if (name === "data") for (const [key, each] of Object.entries(given)) element.dataset[key] = String(each);
    else if (name === "aria") for (const [key, each] of Object.entries(given)) aria(element, key, each);
    else if (name === "value") value = given;
    else if (name === "checked") element.checked = Boolean(given);
    else if (name.startsWith("aria-")) aria(element, name.slice(5), given);
    else if (!allowed.has(name)) throw new Error(`attribute ${name} is not set here`);
    else if (name === "href") link(element, String(given));
    else element.setAttribute(name, given === true ? "" : String(given));
  }
  append(element, children);
  // After the children, because a <select> needs its options first.
  if (value !== undefined) element.value = value;
  return element;
}

/** @param {Element} element @param {string} name @param {any} value */
function aria(element, name, value) {
  if (value === null || value === undefined) element.removeAttribute(`aria-${name}`);
  else element.setAttribute(`aria-${name}`, String(value));
}

/** @param {Element} element @param {string} address */
function link(element, address) {
  if (!SAFE_LINK.test(address)) return;
  element.setAttribute("href", address);
  if (!address.startsWith("#")) {
    element.setAttribute("rel", "noopener noreferrer nofollow");
    element.setAttribute("target", "_blank");
  }
}

/**
 * Append children to an element; lists are flattened, null and false are skipped.
 * @param {Element | DocumentFragment} element
 * @param {Child[]} children
 */
export function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child === null || child === undefined || child === false) continue;
    else element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * Replace the children of an element.
 * @param {Element} element
 * @param {...Child} children
 */
export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/**
 * The same when most nodes are already there: those are not touched, so that only new ones are laid out, and
 * the focus stays where it is.
 * @param {Element} element @param {Node[]} nodes
 */
export function arrange(element, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...element.childNodes]) if (!wanted.has(child)) child.remove();
  /** @type {Node | null} */
  let at = element.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else element.insertBefore(node, at);
  }
}

let minted = 0;
/** An id for label/for and aria-describedby, used nowhere else on the page. @param {string} [start] */
export function newId(start = "m") {
  minted += 1;
  return `${start}-${minted}`;
}

/**
 * A button with a label; `shortcut` is shown beside it and announced.
 * @param {string} text
 * @param {() => void} press
 * @param {{class?: string, shortcut?: string, title?: string, disabled?: boolean, icon?: Node, aria?: object, data?: object}} [options]
 */
export function button(text, press, options = {}) {
  return html.button(
    {
      type: "button",
      class: ["button", options.class],
      title: options.title,
      disabled: options.disabled,
      aria: { keyshortcuts: options.shortcut, ...options.aria },
      data: options.data ?? {},
      on: { click: press },
    },
    options.icon,
    html.span({}, text),
    options.shortcut && html.kbd({ "aria-hidden": "true" }, options.shortcut),
  );
}

/** @type {WeakMap<Element, string>} */
const drawn = new WeakMap();

/**
 * Redraw an element only if its inputs have changed; focus and open details are kept.
 * @param {Element} node @param {any} facts whatever it depends on @param {() => any} build
 */
export function redraw(node, facts, build) {
  const now = JSON.stringify(facts) ?? "";
  if (drawn.get(node) === now) return;
  drawn.set(node, now);
  const active = document.activeElement;
  const focusKey = active instanceof HTMLElement && node.contains(active) ? active.dataset.focus : undefined;
  const open = new Set(
    [...node.querySelectorAll("details[open][data-fold]")].map(
      (each) => /** @type {HTMLElement} */ (each).dataset.fold,
    ),
  );
  replace(node, build());
  for (const fold of node.querySelectorAll("details[data-fold]"))
    if (open.has(/** @type {HTMLElement} */ (fold).dataset.fold)) fold.setAttribute("open", "");
  if (focusKey !== undefined) {
    const again = [...node.querySelectorAll("[data-focus]")].find(
      (each) => /** @type {HTMLElement} */ (each).dataset.focus === focusKey,
    );
    /** @type {HTMLElement | undefined} */ (again)?.focus({ preventScroll: true });
  }
}

/** Open the row before or after the current one of a list of links. @param {HTMLElement} list @param {number} by */
export function stepRow(list, by) {
  const rows = /** @type {HTMLAnchorElement[]} */ ([...list.querySelectorAll(".member-row")]);
  const at = rows.findIndex((each) => each.hasAttribute("aria-current"));
  const next = at < 0 && by < 0 ? rows.length - 1 : at + by;
  rows[Math.min(rows.length - 1, Math.max(0, next))]?.click();
}
