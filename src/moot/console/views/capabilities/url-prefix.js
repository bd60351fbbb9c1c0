/**
 * Addresses below a prefix, as one regular expression: the whole site, or a folder of it. The same as the gateway's
 * moot/protocol/patterns/url_prefix.py, which says why a glob is not enough; a test compares the two.
 */

// Not `..`, since a dot is followed by something else; not %25, %2e, %2f, %5c, controls or overlong UTF-8.
const PATH = String.raw`(?:\.?(?:[A-Za-z0-9_~!$&'()*+,;=:@/-]|%(?:2[0-46-9A-Da-d]|[346][0-9A-Fa-f]|5[0-9ABDEFabdef]|7[0-9A-Ea-e]|[89ABDEFabdef][0-9A-Fa-f]|[Cc][2-9A-Fa-f])))*\.?`;
const QUERY = String.raw`(?:[?#][!-\[\]-~]*)?`;
const FOLDER_END = `${PATH}${QUERY}$/`;
const SITE_END = `(?:/${PATH})?${QUERY}$/`;
const SITE = String.raw`[a-z][a-z0-9+.-]*://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?`;
const ADDRESS = new RegExp(`^(${SITE})(/${PATH})?${QUERY}$`);
const PREFIX = new RegExp(`^(${SITE})(/${PATH})$`);

/** Whether it has a scheme and an authority, however it is written. @param {unknown} value */
export function isAddress(value) {
  return typeof value === "string" && /^\s*[A-Za-z][A-Za-z0-9+.-]*:[/\\]{2}/.test(value);
}

/** The prefixes that an address offers, the narrowest first: its folder and its site. None if it is not plain. @param {string} address @returns {string[]} */
export function urlPrefixes(address) {
  const found = ADDRESS.exec(address);
  if (!found) return [];
  const path = found[2] ?? "/";
  const site = `${found[1]}/`;
  const folder = found[1] + path.slice(0, path.lastIndexOf("/") + 1);
  return folder === site ? [site] : [folder, site];
}

/** The pattern for everything below a prefix; null if it is none. @param {string} prefix */
export function urlPrefixPattern(prefix) {
  const found = PREFIX.exec(prefix);
  if (!found || !prefix.endsWith("/")) return null;
  return found[2] === "/" ? `/^${escapeRegex(found[1])}${SITE_END}` : `/^${escapeRegex(prefix)}${FOLDER_END}`;
}

/** The prefix that a pattern was made from; null for any other pattern. @param {string} pattern */
export function urlPrefixOf(pattern) {
  for (const [end, slash] of [
    [SITE_END, "/"],
    [FOLDER_END, ""],
  ]) {
    if (!pattern.startsWith("/^") || !pattern.endsWith(end)) continue;
    const prefix = pattern.slice(2, -end.length).replace(/\\(.)/g, "$1") + slash;
    if (urlPrefixPattern(prefix) === pattern) return prefix;
  }
  return null;
}

/** @param {string} text */
function escapeRegex(text) {
  return text.replace(/[.$()*+[\]]/g, "\\$&");
}
