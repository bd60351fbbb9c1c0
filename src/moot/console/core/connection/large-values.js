/**
 * Values that are too large for a message: the message has their beginning, their size and their SHA-256, and the
 * gateway keeps them for the members of the space.
 */
import { addressIn, fetchFrom } from "./gateway-fetch.js";

const KEY = "moot/content";
// 32 MiB in this time are 2 Mbit/s.
const FETCH_MILLISECONDS = 120_000;

/**
 * @typedef {object} LargeValue
 * @property {string} sha256
 * @property {number} bytes
 * @property {string} excerpt how it begins; empty where the message shows that itself
 */

/** What stands in the place of a large argument. @param {any} value @returns {LargeValue | null} */
export function referenceIn(value) {
  const told = isPlain(value) && Object.keys(value).length === 1 ? value[KEY] : null;
  if (!isPlain(told) || Object.keys(told).length !== 3 || typeof told.begins_with !== "string" || !isEntry(told))
    return null;
  return { sha256: told.sha256, bytes: told.bytes, excerpt: told.begins_with };
}

/** The large values that params or a result list, and their places. @param {any} body @returns {(LargeValue & {at: (string | number)[]})[]} */
export function listedValues(body) {
  const listed = isPlain(body) && isPlain(body._meta) ? body._meta[KEY] : null;
  if (!Array.isArray(listed)) return [];
  return listed
    .filter((each) => isPlain(each) && isEntry(each) && Array.isArray(each.at))
    .map(({ at, sha256, bytes }) => ({ at, sha256, bytes, excerpt: "" }));
}

/** Whether `_meta` tells nothing but the large values that the params show in their places. @param {any} params */
export function listsOnlyShown(params) {
  const values = listedValues(params);
  if (values.length === 0 || values.length !== params._meta[KEY].length || Object.keys(params._meta).length !== 1)
    return false;
  return values.every(({ at, sha256, bytes }) => {
    const shown = referenceIn(valueAt(params, at));
    return shown !== null && shown.sha256 === sha256 && shown.bytes === bytes;
  });
}

/** @param {any} value @param {(string | number)[]} path */
export function valueAt(value, path) {
  return path.reduce(
    (found, step) =>
      found !== null && typeof found === "object" && Object.hasOwn(found, step) ? found[step] : undefined,
    value,
  );
}

/**
 * Fetch one with the rights of whoever is signed in; throws an Error that says what is wrong.
 * @param {URL} base @param {{space: string, token: string}} login @param {LargeValue} wanted @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function fetchLargeValue(base, login, wanted) {
  const address = addressIn(base, login.space, "content", wanted.sha256);
  const answer = await fetchFrom(address, { token: login.token, within: FETCH_MILLISECONDS });
  if (answer.status === 404) throw new Error("the gateway does not keep it any more");
  if (!answer.ok) throw new Error(`the gateway replied with HTTP ${answer.status}`);
  const data = new Uint8Array(await answer.arrayBuffer());
  // Browsers have this only where the page came over TLS or from this machine.
  const hash = crypto.subtle
    ? [...new Uint8Array(await crypto.subtle.digest("SHA-256", data))]
        .map((each) => each.toString(16).padStart(2, "0"))
        .join("")
    : wanted.sha256;
  if (data.length !== wanted.bytes || hash !== wanted.sha256)
    throw new Error("the gateway sent something else than the message names");
  return data;
}

/** @param {any} value */
function isPlain(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** @param {any} entry */
function isEntry(entry) {
  return (
    typeof entry.sha256 === "string" &&
    /^[0-9a-f]{64}$/.test(entry.sha256) &&
    Number.isSafeInteger(entry.bytes) &&
    entry.bytes >= 0
  );
}
