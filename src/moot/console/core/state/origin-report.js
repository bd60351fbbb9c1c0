/**
 * What `moot/origins` says of a proposal, checked and bounded as in moot/protocol/origin_report.py. The sentences are
 * those of who found it out: the console has none of its own.
 *
 * @typedef {object} ArgumentReport
 * @property {string} path
 * @property {string} value
 * @property {"person" | "operator" | "trusted" | "untrusted" | "nobody" | "unknown"} origin
 * @property {boolean} steers
 * @property {string} text
 * @property {Record<string, string>} textTo by member: the sentence for who said or endorsed it
 * @property {number} at milliseconds; 0 if it is not known
 * @property {string} envelope where it was said
 * @property {string} place
 * @property {string} excerpt
 * @property {string} endorsedBy
 * @property {string} endorsement the message by which they did
 *
 * @typedef {object} OriginReport
 * @property {boolean} asks
 * @property {string} why the one value that matters
 * @property {ArgumentReport[]} arguments
 * @property {{text: string, characters: number, envelope: string}[]} private what would leave the space
 * @property {string} task
 * @property {boolean} outside
 * @property {number} more arguments that are not listed
 * @property {{until: string, text: string, count: number | null} | null} again what it means to have the same call approved again
 */

const ORIGINS = ["person", "operator", "trusted", "untrusted", "nobody", "unknown"];
const MAX_ARGUMENTS = 64;
const CUT = "…";

/** @param {any} payload @returns {OriginReport | null} null: it says nothing that can be shown */
export function readReport(payload) {
  const listed = payload?.arguments ?? [];
  const leaving = payload?.private ?? [];
  if (typeof payload?.asks !== "boolean" || !isText(payload.why ?? "") || !isText(payload.task ?? "", 256)) return null;
  if (!isList(listed, isArgument) || !isList(leaving, isPrivate)) return null;
  if (!isOffer(payload.again ?? null)) return null;
  if (typeof (payload.outside ?? false) !== "boolean" || !isCount(payload.more ?? 0)) return null;
  return {
    asks: payload.asks,
    why: payload.why ?? "",
    arguments: listed.map((/** @type {any} */ each) => ({
      path: each.path,
      value: each.value ?? "",
      origin: each.origin,
      steers: each.steers ?? false,
      text: each.text,
      textTo: each.text_to ?? {},
      at: (each.at ?? 0) * 1000,
      envelope: each.envelope ?? "",
      place: each.place ?? "",
      excerpt: each.excerpt ?? "",
      endorsedBy: each.endorsed_by ?? "",
      endorsement: each.endorsement ?? "",
    })),
    private: leaving.map((/** @type {any} */ each) => ({
      text: each.text,
      characters: each.characters ?? 0,
      envelope: each.envelope ?? "",
    })),
    task: payload.task ?? "",
    outside: payload.outside ?? false,
    more: payload.more ?? 0,
    again: payload.again
      ? { until: payload.again.until, text: payload.again.text ?? "", count: payload.again.count ?? null }
      : null,
  };
}

/** The value to the last character, out of the call where the report cut it; empty if it is not known. @param {{path: string, value: string}} report @param {any} given */
export function exactValue(report, given) {
  let leaf = given;
  for (const [, key, index] of report.path.matchAll(/\.?([^.[\]]+)|\[(\d+)\]/g)) {
    const step = key ?? Number(index);
    leaf = leaf !== null && typeof leaf === "object" && Object.hasOwn(leaf, step) ? leaf[step] : undefined;
  }
  const line = typeof leaf === "string" ? leaf.split(/\s+/u).filter(Boolean).join(" ") : "";
  if (typeof leaf === "string" && line === report.value) return leaf;
  if (!report.value.endsWith(CUT)) return report.value;
  return typeof leaf === "string" && line.startsWith(report.value.slice(0, -CUT.length)) ? leaf : "";
}

/** @param {any} each */
function isArgument(each) {
  const { path, origin, text, value = "", text_to: to = {}, at = null, place = "", excerpt = "" } = each ?? {};
  const names = [each?.envelope, each?.endorsed_by, each?.endorsement];
  if (![path, text, value, place, excerpt].every((one) => isText(one)) || !ORIGINS.includes(origin)) return false;
  if (!names.every((name) => isText(name ?? "", 256)) || typeof (each.steers ?? false) !== "boolean") return false;
  if (to === null || typeof to !== "object" || !isList(Object.entries(to), ([, one]) => isText(one))) return false;
  return at === null || (typeof at === "number" && at >= 0 && at <= 1e11);
}

/** @param {any} each */
function isPrivate(each) {
  return isText(each?.text) && isCount(each.characters ?? 0) && isText(each.envelope ?? "", 256);
}

/** @param {any} offer */
function isOffer(offer) {
  if (offer === null) return true;
  const { until, text = "", count = null } = offer;
  return isText(until, 256) && isText(text) && (count === null || (isCount(count) && count > 0));
}

/** @param {unknown} value @param {(each: any) => boolean} test */
function isList(value, test) {
  return Array.isArray(value) && value.length <= MAX_ARGUMENTS && value.every(test);
}

/** @param {unknown} value @param {number} [most] */
function isText(value, most = 1_000) {
  return typeof value === "string" && [...value].length <= most;
}

/** @param {unknown} value */
function isCount(value) {
  return Number.isInteger(value) && /** @type {number} */ (value) >= 0;
}
