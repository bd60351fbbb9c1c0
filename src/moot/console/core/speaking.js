// @ts-check
/**
 * Saying something, and hearing what became of it. An envelope counts as said when its echo comes back (D-02)
 * or the gateway answers it; a refusal is an error with the gateway's own code and words.
 */
import { trim } from "./bounded.js";
import { correlations } from "./labels.js";

// The gateway answers within milliseconds; after so long the connection is suspect.
const SAID_MILLISECONDS = 15_000;
const MOST_SENT = 200;
// What the SDK gives a tool.
const ANSWER_MILLISECONDS = 60_000;

/** The gateway, or the connection, said no. `code` is the word of docs/reference/errors.md, or "lost". */
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
export class Failed extends Error {
  /** @param {any} error of JSON-RPC */
  constructor(error) {
    super(String(error?.message ?? "failed"));
    this.name = "Failed";
    this.error = error;
  }
}

/**
 * @typedef {object} Saying
 * @property {string[]} [to]
 * @property {string | string[]} [about] what it correlates to
 * @property {string} [context]
 * @property {string} [payloadText] JSON text that is sent as the payload, to the byte, instead of `payload`
 * @property {string} [id]
 */

/** An id that nobody else has; crypto.randomUUID is there only on https and localhost. */
export function freshEnvelopeId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (each) => each.toString(16).padStart(2, "0")).join("");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

export class Voice {
  /** @param {{send: (text: string) => boolean}} connection */
  constructor(connection) {
    this._connection = connection;
    /** @type {Map<string, {resolve: (envelope: any) => void, reject: (why: Error) => void, timer: any}>} */
    this._said = new Map();
    /** What was sent lately, for explaining a refusal: the gateway relays nothing that it refuses. @type {Map<string, string>} */
    this._sent = new Map();
    /** @type {Map<string, {to: string[], resolve: (result: any) => void, reject: (why: Error) => void, timer: any}>} */
    this._asked = new Map();
  }

  /**
   * Say something; the promise gives the echo, or the gateway's answer where it does not relay the kind.
   * @param {string} kind @param {any} [payload] @param {Saying} [how]
   * @returns {Promise<any> & {id: string}}
   */
  say(kind, payload = {}, how = {}) {
    const id = how.id ?? freshEnvelopeId();
    const about = how.about === undefined ? [] : Array.isArray(how.about) ? how.about : [how.about];
    const fields = {
      protocol: "mew/v0.4", id, ts: new Date().toISOString(), kind,
      ...(how.to?.length ? { to: how.to } : {}), ...(about.length ? { correlation_id: about } : {}), ...(how.context ? { context: how.context } : {}),
    };
    const text = `${JSON.stringify(fields).slice(0, -1)},"payload":${how.payloadText ?? JSON.stringify(payload)}}`;
    const promise = new Promise((resolve, reject) => {
      if (!this._connection.send(text)) {
        reject(new Refused("lost", "not connected: nothing was sent"));
        return;
      }
      this._sent.set(id, text);
      trim(this._sent, MOST_SENT);
      const timer = setTimeout(() => this._end(id, new Refused("lost", "no answer: it is not known whether it was heard")), SAID_MILLISECONDS);
      this._said.set(id, { resolve, reject, timer });
    });
    return Object.assign(promise, { id });
  }

  /**
   * Call a method of another member; the promise gives the result, or fails with Refused or Failed.
   * @param {string} to @param {string} method @param {any} [params] @param {{about?: string | string[], paramsText?: string, payloadText?: string, within?: number}} [how]
   * @returns {Promise<any> & {id: string}}
   */
  call(to, method, params, how = {}) {
    const id = freshEnvelopeId();
    const number = this._number++;
    const body = how.paramsText ?? (params === undefined ? undefined : JSON.stringify(params));
    const payloadText = how.payloadText ?? `{"jsonrpc":"2.0","id":${number},"method":${JSON.stringify(method)}${body === undefined ? "" : `,"params":${body}`}}`;
    const answer = new Promise((resolve, reject) => {
      const timer = setTimeout(() => this._answer(id, new Refused("timeout", `${to} did not answer in time`)), how.within ?? ANSWER_MILLISECONDS);
      this._asked.set(id, { to: to ? [to] : [], resolve, reject, timer });
    });
    this.say("mcp/request", undefined, { id, to: to ? [to] : [], about: how.about, payloadText }).catch((why) => this._answer(id, why));
    return Object.assign(answer, { id });
  }

  _number = 1;

  /** The text of an envelope that was sent from here, if it is remembered. @param {string} id */
  sentText(id) {
    return this._sent.get(id);
  }

  /** Data for a stream that we may write to. @param {string} stream @param {string} text */
  write(stream, text) {
    return this._connection.send(`#${stream}#${text}`);
  }

  /** @param {any} envelope @param {string} me */
  hear(envelope, me) {
    if (this._said.size > 0) {
      if (envelope.from === me && this._said.has(envelope.id)) this._end(envelope.id, null, envelope);
      else if (envelope.from === "system:gateway" || envelope.from === "gateway") {
        for (const id of correlations(envelope)) {
          // Carried out, but something was left (D-18, D-56): the echo tells that it was done.
          if (envelope.kind === "system/error" && (envelope.payload?.error === "revoke_incomplete" || envelope.payload?.error === "unsupported_by_recipient")) continue;
          if (envelope.kind === "system/error") this._end(id, new Refused(String(envelope.payload?.error ?? ""), String(envelope.payload?.message ?? ""), envelope.payload));
          else this._end(id, null, envelope);
        }
      }
    }
    if (this._asked.size > 0 && envelope.kind.startsWith("mcp/response")) {
      for (const id of correlations(envelope)) {
        const asked = this._asked.get(id);
        // D-80: only who was asked answers.
        if (!asked || (asked.to.length > 0 && !asked.to.includes(envelope.from))) continue;
        const payload = envelope.payload ?? {};
        this._answer(id, payload.error ? new Failed(payload.error) : null, payload.result);
      }
    }
  }

  /** The connection is gone: nobody will answer. */
  lost() {
    for (const id of [...this._said.keys()]) this._end(id, new Refused("lost", "the connection was lost: it is not known whether it was heard"));
    for (const id of [...this._asked.keys()]) this._answer(id, new Refused("lost", "the connection was lost before an answer came"));
  }

  /** @param {string} id @param {Error | null} why @param {any} [envelope] */
  _end(id, why, envelope) {
    const said = this._said.get(id);
    if (!said) return;
    this._said.delete(id);
    clearTimeout(said.timer);
    if (why) said.reject(why);
    else said.resolve(envelope);
  }

  /** @param {string} id @param {Error | null} why @param {any} [result] */
  _answer(id, why, result) {
    const asked = this._asked.get(id);
    if (!asked) return;
    this._asked.delete(id);
    clearTimeout(asked.timer);
    if (why) asked.reject(why);
    else asked.resolve(result);
  }
}
