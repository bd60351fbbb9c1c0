/** Streams: who owns and writes them, and the latest data (MEW 3.10). */
import { trimMap } from "../page/bounded-map.js";

/**
 * @typedef {object} Stream
 * @property {string} id
 * @property {string} owner
 * @property {string[]} writers
 * @property {string[]} target who reads it; empty means everybody
 * @property {string} description
 * @property {string} contentType
 * @property {string} format
 * @property {string} encoding "text" or "binary"
 * @property {string} direction
 * @property {string} requestId
 * @property {string} openId
 * @property {number} openedAt
 * @property {boolean} open
 * @property {string} closeReason why it was closed
 * @property {number} frames how many were received
 * @property {number} bytes
 * @property {number} lastAt
 * @property {string} tail the end of its text; empty for binary data
 * @property {Uint8Array | null} lastBytes the beginning of the last binary frame
 * @property {number} cut characters that are no longer in `tail`
 */

const MAX_STREAMS = 500;
// A screen shows 10,000 characters; the rest is for scrolling back.
const TAIL_CHARACTERS = 256 * 1024;
// 32 lines of a hex view.
const MAX_LAST_BYTES = 512;

export class Streams {
  constructor() {
    /** Oldest first. @type {Map<string, Stream>} */
    this.byId = new Map();
    /** Stream requests, until the stream is open. @type {Map<string, any>} */
    this._requests = new Map();
    /** While the rest of a long welcome is fetched: what was listed so far. @type {Set<string> | null} */
    this._listed = null;
  }

  /** @returns {Stream[]} */
  open() {
    return [...this.byId.values()].filter((each) => each.open);
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  receive(envelope, row) {
    const payload = envelope.payload ?? {};
    const kind = envelope.kind;
    if (kind === "system/welcome") return this._welcome(payload, row);
    if (kind === "moot/roster-page" && row.from === "system:gateway") return this._page(payload, row);
    if (!kind.startsWith("stream/")) return null;
    if (kind === "stream/request") {
      this._requests.set(row.id, payload);
      trimMap(this._requests, MAX_STREAMS);
      return null;
    }
    // Only the gateway's messages count, not a member's.
    if (kind !== "stream/close" && row.from !== "gateway") return null;
    if (kind === "stream/open") {
      const request = row.about.map((id) => this._requests.get(id)).find((each) => each !== undefined);
      this._listed?.add(String(payload.stream_id ?? ""));
      this._update({ ...request, ...payload }, row);
      return "streams";
    }
    const stream =
      this.byId.get(String(payload.stream_id ?? "")) ??
      [...this.byId.values()].find((each) => row.about.includes(each.requestId) || row.about.includes(each.openId));
    if (!stream) return null;
    if (kind === "stream/close") {
      if (row.from !== "gateway" && row.from !== stream.owner) return null;
      stream.open = false;
      stream.closeReason = String(payload.reason ?? "closed");
    } else {
      if (Array.isArray(payload.authorized_writers)) stream.writers = payload.authorized_writers.map(String);
      if (kind === "stream/ownership-transferred")
        stream.owner = String(payload.new_owner ?? payload.owner ?? stream.owner);
    }
    return "streams";
  }

  /** @param {string} id @param {string | Uint8Array} data @returns {boolean} whether anything changed */
  addFrame(id, data) {
    const stream = this.byId.get(id);
    if (!stream) return false;
    stream.frames += 1;
    stream.bytes += data.length;
    stream.lastAt = Date.now();
    const text = typeof data === "string" ? data : stream.encoding === "text" ? new TextDecoder().decode(data) : "";
    // A copy: the frame it is part of may be a megabyte.
    if (typeof data !== "string" && stream.encoding !== "text") stream.lastBytes = data.slice(0, MAX_LAST_BYTES);
    if (text) {
      const all = stream.tail + text;
      // Cut only from time to time, not at every frame.
      if (all.length > TAIL_CHARACTERS * 1.25) {
        stream.cut += all.length - TAIL_CHARACTERS;
        stream.tail = all.slice(-TAIL_CHARACTERS);
      } else stream.tail = all;
    }
    return true;
  }

  /** @param {any} payload @param {import("./envelopes.js").Row} row */
  _welcome(payload, row) {
    this._listed = new Set();
    return this._page({ ...payload, next: payload.more === undefined ? undefined : "" }, row);
  }

  /** More open streams; after the last page, those that were not listed are closed. @param {any} payload @param {import("./envelopes.js").Row} row */
  _page(payload, row) {
    for (const each of Array.isArray(payload.active_streams) ? payload.active_streams : []) {
      if (typeof each?.stream_id !== "string") continue;
      this._listed?.add(each.stream_id);
      this._update(each, row);
    }
    if (typeof payload.next === "string") return "streams";
    for (const stream of this.byId.values()) {
      if (this._listed !== null && stream.open && !this._listed.has(stream.id))
        Object.assign(stream, { open: false, closeReason: stream.closeReason || "closed while you were offline" });
    }
    this._listed = null;
    return "streams";
  }

  /** @param {any} described @param {import("./envelopes.js").Row} row */
  _update(described, row) {
    const id = String(described.stream_id ?? "");
    if (!id) return;
    const before = this.byId.get(id);
    const text = (/** @type {any} */ each) => (typeof each === "string" ? each : "");
    const names = (/** @type {any} */ each) => (Array.isArray(each) ? each.map(String) : []);
    this.byId.set(id, {
      id,
      owner: text(described.owner) || (before?.owner ?? ""),
      writers: names(described.authorized_writers),
      target: names(described.target),
      description: text(described.description) || (before?.description ?? "Stream without a description"),
      contentType: text(described.content_type) || (before?.contentType ?? ""),
      format: text(described.format) || (before?.format ?? ""),
      encoding: text(described.encoding) || (before?.encoding ?? "text"),
      direction: text(described.direction) || (before?.direction ?? ""),
      requestId: row.about[0] ?? before?.requestId ?? "",
      openId: row.kind === "stream/open" ? row.id : (before?.openId ?? ""),
      openedAt: before?.openedAt ?? row.at,
      open: true,
      closeReason: "",
      frames: before?.frames ?? 0,
      bytes: before?.bytes ?? 0,
      lastAt: before?.lastAt ?? 0,
      tail: before?.tail ?? "",
      lastBytes: before?.lastBytes ?? null,
      cut: before?.cut ?? 0,
    });
    trimMap(this.byId, MAX_STREAMS, (each) => !each.open);
  }
}
