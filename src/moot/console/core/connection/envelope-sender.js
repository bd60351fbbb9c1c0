/**
 * Sends envelopes and reports the outcome. An envelope counts as sent when its echo comes back (D-02)
 * or the gateway answers it; a refusal is an error with the gateway's own code and message.
 */
import { trimMap } from "../page/bounded-map.js";
import { correlations } from "../state/envelope-fields.js";

// The gateway answers within milliseconds; after this time the connection is suspect.
const ECHO_MILLISECONDS = 15_000;
const MAX_SENT_TEXTS = 200;
// Ids of questions that are not shown in the timeline of this page.
const MAX_BACKGROUND = 5_000;
// The SDK's default time limit for a tool call.
const ANSWER_MILLISECONDS = 60_000;

// D-18, D-56, 0021: it was done, and there is something to know about it.
const WARNINGS = new Set(["revoke_incomplete", "unsupported_by_recipient", "not_on_disk"]);

/** The gateway refused it, or the connection was lost. `code` is from docs/reference/errors.md, or "lost". */
export class Refused extends Error {
  /** @param {string} code @param {string} message @param {any} [payload] */
  constructor(code, message, payload = {}) {
    super(message || code);
    this.name = "Refused";
    this.code = code;
    this.payload = payload;
  }
}

/** A tool, or another member, answered with an error. */
export class CallFailed extends Error {
  /** @param {any} error of JSON-RPC */
  constructor(error) {
    super(String(error?.message ?? "failed"));
    this.name = "Failed";
    this.error = error;
  }
}

/**
 * @typedef {object} SendOptions
 * @property {string[]} [to]
 * @property {string | string[]} [about] what it correlates to
 * @property {string} [context]
 * @property {string} [payloadText] JSON text that is sent as the payload, to the byte, instead of `payload`
 * @property {string} [id]
 */

/** A unique id; crypto.randomUUID exists only on https and localhost. */
export function newEnvelopeId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (each) => each.toString(16).padStart(2, "0")).join("");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

export class EnvelopeSender {
  /** @param {{send: (text: string) => boolean}} connection */
  constructor(connection) {
    this._connection = connection;
    /** @type {Map<string, {resolve: (envelope: any) => void, reject: (why: Error) => void, timer: any}>} */
    this._pendingEchoes = new Map();
    /** Recently sent envelopes, to explain a refusal: the gateway does not relay what it refuses. @type {Map<string, string>} */
    this._sentTexts = new Map();
    /** Questions that the page asked by itself. @type {Map<string, true>} */
    this._background = new Map();
    /** @type {Map<string, {to: string[], resolve: (result: any) => void, reject: (why: Error) => void, timer: any}>} */
    this._pendingCalls = new Map();
  }

  /**
   * Send an envelope; resolves to the echo, or to the gateway's answer for kinds that it does not relay.
   * @param {string} kind @param {any} [payload] @param {SendOptions} [options]
   * @returns {Promise<any> & {id: string}}
   */
  send(kind, payload = {}, options = {}) {
    const id = options.id ?? newEnvelopeId();
    const about = options.about === undefined ? [] : Array.isArray(options.about) ? options.about : [options.about];
    const fields = {
      protocol: "mew/v0.4",
      id,
      ts: new Date().toISOString(),
      kind,
      ...(options.to?.length ? { to: options.to } : {}),
      ...(about.length ? { correlation_id: about } : {}),
      ...(options.context ? { context: options.context } : {}),
    };
    const text = `${JSON.stringify(fields).slice(0, -1)},"payload":${options.payloadText ?? JSON.stringify(payload)}}`;
    const promise = new Promise((resolve, reject) => {
      if (!this._connection.send(text)) {
        reject(new Refused("lost", "Not connected; nothing was sent"));
        return;
      }
      this._sentTexts.set(id, text);
      trimMap(this._sentTexts, MAX_SENT_TEXTS);
      const timer = setTimeout(
        () => this._settleSend(id, new Refused("lost", "No reply; it is unknown whether the message was delivered")),
        ECHO_MILLISECONDS,
      );
      this._pendingEchoes.set(id, { resolve, reject, timer });
    });
    return Object.assign(promise, { id });
  }

  /**
   * Call a method of another member; resolves to the result, or rejects with Refused or Failed.
   * @param {string} to @param {string} method @param {any} [params] @param {{about?: string | string[], paramsText?: string, payloadText?: string, within?: number, background?: boolean}} [options] `background`: the page asks by itself, nobody pressed anything
   * @returns {Promise<any> & {id: string}}
   */
  call(to, method, params, options = {}) {
    const id = newEnvelopeId();
    const number = this._number++;
    if (options.background) {
      this._background.set(id, true);
      trimMap(this._background, MAX_BACKGROUND);
    }
    const body = options.paramsText ?? (params === undefined ? undefined : JSON.stringify(params));
    const payloadText =
      options.payloadText ??
      `{"jsonrpc":"2.0","id":${number},"method":${JSON.stringify(method)}${body === undefined ? "" : `,"params":${body}`}}`;
    const answer = new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => this._settleCall(id, new Refused("timeout", `${to} did not reply in time`)),
        options.within ?? ANSWER_MILLISECONDS,
      );
      this._pendingCalls.set(id, { to: to ? [to] : [], resolve, reject, timer });
    });
    this.send("mcp/request", undefined, { id, to: to ? [to] : [], about: options.about, payloadText }).catch((error) =>
      this._settleCall(id, error),
    );
    return Object.assign(answer, { id });
  }

  _number = 1;

  /** Whether the page asked this by itself. @param {string} id */
  isBackground(id) {
    return this._background.has(id);
  }

  /** The text of an envelope that was sent from here, if it is remembered. @param {string} id */
  sentText(id) {
    return this._sentTexts.get(id);
  }

  /** Data for a stream that we may write to. @param {string} stream @param {string} text */
  write(stream, text) {
    return this._connection.send(`#${stream}#${text}`);
  }

  /** @param {any} envelope @param {string} me */
  receive(envelope, me) {
    if (this._pendingEchoes.size > 0) {
      if (envelope.from === me && this._pendingEchoes.has(envelope.id)) this._settleSend(envelope.id, null, envelope);
      else if (envelope.from === "system:gateway" || envelope.from === "gateway") {
        for (const id of correlations(envelope)) {
          // The echo confirms that it was done.
          if (envelope.kind === "system/error" && WARNINGS.has(envelope.payload?.error)) continue;
          if (envelope.kind === "system/error")
            this._settleSend(
              id,
              new Refused(
                String(envelope.payload?.error ?? ""),
                String(envelope.payload?.message ?? ""),
                envelope.payload,
              ),
            );
          else this._settleSend(id, null, envelope);
        }
      }
    }
    if (this._pendingCalls.size > 0 && envelope.kind.startsWith("mcp/response")) {
      for (const id of correlations(envelope)) {
        const pending = this._pendingCalls.get(id);
        // D-80: only the addressee of the request can answer it.
        if (!pending || (pending.to.length > 0 && !pending.to.includes(envelope.from))) continue;
        const payload = envelope.payload ?? {};
        this._settleCall(id, payload.error ? new CallFailed(payload.error) : null, payload.result);
      }
    }
  }

  /** The connection was lost: no answer will arrive. */
  failAll() {
    for (const id of [...this._pendingEchoes.keys()])
      this._settleSend(id, new Refused("lost", "Connection lost; it is unknown whether the message was delivered"));
    for (const id of [...this._pendingCalls.keys()])
      this._settleCall(id, new Refused("lost", "Connection lost before the reply arrived"));
  }

  /** @param {string} id @param {Error | null} error @param {any} [envelope] */
  _settleSend(id, error, envelope) {
    const pending = this._pendingEchoes.get(id);
    if (!pending) return;
    this._pendingEchoes.delete(id);
    clearTimeout(pending.timer);
    if (error) pending.reject(error);
    else pending.resolve(envelope);
  }

  /** @param {string} id @param {Error | null} error @param {any} [result] */
  _settleCall(id, error, result) {
    const request = this._pendingCalls.get(id);
    if (!request) return;
    this._pendingCalls.delete(id);
    clearTimeout(request.timer);
    if (error) request.reject(error);
    else request.resolve(result);
  }
}
