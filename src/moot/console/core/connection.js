// @ts-check
/**
 * The WebSocket to one space. Its states:
 *
 *     connecting ──welcome──▶ catching-up ──past fetched──▶ live ──lost──▶ waiting ──▶ connecting …
 *          └──refused, removed, shut down, taken over──▶ ended (with words; nothing is tried by itself)
 *
 * The token goes into the first frame and into an Authorization header, never into an address (D-20).
 * Nothing is replayed by the gateway. After each welcome the recent past is fetched over HTTP (D-40) and put
 * before what came since; where it does not reach back to something heard before the loss, a gap is told.
 */
import { parts, textAt } from "./exact.js";
import { Intake } from "./intake.js";
import { moment } from "./time.js";

// Half a second, doubled up to a quarter of a minute: a gateway that restarts is back within seconds.
const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
// Twice what the gateway gives us to join in.
const WELCOME_MILLISECONDS = 20_000;
const PAST_MILLISECONDS = 8_000;
// A message is on its way for a moment, and longer on a phone.
const MARGIN_SECONDS = 5;
// Of a frame of 16 ms: a long past is taken in slices, and the page answers in between.
const SLICE_MILLISECONDS = 8;
/** Close codes after which nobody should come back by itself (docs/reference/close-codes.md). @type {Record<number, string>} */
const FINAL = {
  1000: "you have left",
  1008: "the gateway did not let you in",
  4001: "another connection of yours took over",
  4002: "you were shut down: connect again when you are asked to",
  4003: "you were removed from the space; this token is void",
};

/**
 * @typedef {object} Handlers
 * @property {(raw: string, past: boolean) => void} envelope
 * @property {(id: string, data: string | Uint8Array) => void} frame
 * @property {(words: string, since: number) => void} gap
 * @property {() => void} changed
 */

export class Connection {
  /**
   * @param {{base: URL, space: string, token: string, participant: string}} door
   * @param {Handlers} handlers
   */
  constructor(door, handlers) {
    this._door = door;
    this._handlers = handlers;
    /** @type {"connecting" | "catching-up" | "live" | "waiting" | "ended"} */
    this.state = "connecting";
    /** Why it is not live. */
    this.words = "";
    /** When the next attempt is made. */
    this.retryAt = 0;
    this.everLive = false;
    /** How often it came back. */
    this.returns = 0;
    /** @type {WebSocket | null} */
    this._socket = null;
    this._wait = FIRST_WAIT;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._timer = undefined;
    /** @type {string[] | null} */
    this._held = null;
    /** Frames of streams come as what to do. @type {Intake<string | (() => void)>} */
    this._intake = new Intake((each) => (typeof each === "string" ? this._take(each, false) : each()));
    this._lostAt = 0;
    /** When the last envelope came, and how far the gateway's clock is ahead of ours. */
    this._heardAt = 0;
    this._ahead = 0;
    /** The same for the connection before, by the gateway's clock. */
    this._lastHeardAt = 0;
    this._online = () => this.retryNow();
    addEventListener("online", this._online);
  }

  open() {
    clearTimeout(this._timer);
    this._become("connecting", this.everLive ? "reconnecting" : "connecting");
    const address = new URL("ws", this._door.base);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    this._socket = socket;
    this._held = [];
    let refusal = "";
    const late = setTimeout(() => socket.close(), WELCOME_MILLISECONDS);
    socket.onopen = () => socket.send(JSON.stringify({ type: "join", space: this._door.space, token: this._door.token, dialect: "mew" }));
    socket.onmessage = (message) => {
      if (this._socket !== socket) return;
      if (typeof message.data !== "string") this._binary(message.data);
      else if (this._held === null || this.state !== "connecting") this._heard(message.data);
      else {
        const first = safely(message.data);
        if (first?.kind === "system/error") refusal = String(first.payload?.message ?? "");
        if (first?.kind !== "system/welcome") return;
        clearTimeout(late);
        this._lastHeardAt = this._heardAt + this._ahead;
        this._ahead = moment(first.ts, Date.now()) - Date.now();
        this._heard(message.data);
        this._become("catching-up", "catching up");
        void this._catchUp(socket, String(first.payload?.you?.name ?? first.payload?.you?.id ?? this._door.participant));
      }
    };
    socket.onclose = (event) => {
      clearTimeout(late);
      if (this._socket === socket) this._lost(event.code, refusal || event.reason);
    };
  }

  /** @param {string} raw */
  _heard(raw) {
    this._heardAt = Date.now();
    if (this._held !== null) this._held.push(raw);
    else this._intake.add(raw);
  }

  /** @param {string} raw @param {boolean} past */
  _take(raw, past) {
    if (raw.startsWith("#")) {
      const end = raw.indexOf("#", 1);
      if (end > 0) this._handlers.frame(raw.slice(1, end), raw.slice(end + 1));
    } else this._handlers.envelope(raw, past);
  }

  /** @param {ArrayBuffer} data */
  _binary(data) {
    const bytes = new Uint8Array(data);
    if (bytes[0] !== 0x23) {
      this._heard(new TextDecoder().decode(bytes));
      return;
    }
    const end = bytes.indexOf(0x23, 1);
    if (end > 0) this._intake.add(() => this._handlers.frame(new TextDecoder().decode(bytes.subarray(1, end)), bytes.subarray(end + 1)));
  }

  /** Fetch the past, then let go of what was held meanwhile. @param {WebSocket} socket @param {string} me */
  async _catchUp(socket, me) {
    // From the last thing that was heard on: the answer then holds it, which proves that nothing is missing.
    const since = this.everLive ? Math.max(0, this._lastHeardAt / 1000 - MARGIN_SECONDS) : 0;
    const past = await this._past(me, since);
    if (this._socket !== socket || this._held === null) return;
    const held = this._held;
    // What came over the socket too is told in its own place, after the welcome.
    const live = new Set(held.map((raw) => idOf(raw)));
    /** @type {string[]} */
    const missed = [];
    let reaches = false;
    for (const raw of past.messages) {
      const id = idOf(raw);
      if (live.has(id)) continue;
      if (this.knows(id)) reaches = true;
      else missed.push(raw);
    }
    if (this.everLive && !reaches) this._handlers.gap(past.words || "the gateway no longer remembers all that was said meanwhile", this._lostAt);
    let at = 0;
    const rest = (/** @type {number} */ until) => {
      while (at < missed.length && performance.now() < until) this._take(missed[at++], true);
      if (at < missed.length) return false;
      if (this.state === "catching-up") this._arrive();
      // More may be held while it goes on; each once, in order.
      while (at < missed.length + held.length && performance.now() < until) this._take(held[at++ - missed.length], false);
      return at === missed.length + held.length;
    };
    this._rest = rest;
    while (!rest(performance.now() + SLICE_MILLISECONDS)) {
      await new Promise((go) => setTimeout(go, 0));
      if (this._rest !== rest) return;
    }
    this._rest = null;
    this._held = null;
  }

  /** What is still to be taken in after a loss, until a time; returns whether all was. @type {((until: number) => boolean) | null} */
  _rest = null;

  /** The past is told. Before what was held: that may lead to something being said. */
  _arrive() {
    if (this.everLive) this.returns += 1;
    this.everLive = true;
    this._wait = FIRST_WAIT;
    this._become("live", "");
  }

  /** Whether this id was heard before; set by the session. @type {(id: string) => boolean} */
  knows = () => false;

  /** @param {string} me @param {number} since @returns {Promise<{messages: string[], words: string}>} */
  async _past(me, since) {
    const address = new URL(`participants/${encodeURIComponent(me)}/messages`, this._door.base);
    address.searchParams.set("space", this._door.space);
    address.searchParams.set("since", String(since));
    address.searchParams.set("dialect", "mew");
    try {
      const answer = await fetch(address, {
        headers: { Authorization: `Bearer ${this._door.token}` },
        signal: AbortSignal.timeout(PAST_MILLISECONDS),
        cache: "no-store",
        credentials: "omit",
      });
      if (answer.status === 404) return { messages: [], words: "this gateway keeps no past to catch up from" };
      if (!answer.ok) return { messages: [], words: `the past could not be fetched (HTTP ${answer.status})` };
      return { messages: parts(textAt(await answer.text(), ["messages"]) ?? "[]").map((part) => part.text), words: "" };
    } catch (fault) {
      return { messages: [], words: `the past could not be fetched (${fault instanceof Error ? fault.message : "no answer"})` };
    }
  }

  /** @param {number} code @param {string} reason */
  _lost(code, reason) {
    // What was fetched and held was heard: it is told before the loss, or a later gap would not be found.
    this._rest?.(Infinity);
    this._rest = null;
    this._intake.drain();
    const wasLive = this.state === "live";
    this._socket = null;
    this._held = null;
    if (wasLive) this._lostAt = Date.now();
    if (code in FINAL) {
      this._become("ended", reason && code === 1008 ? reason : FINAL[code]);
      return;
    }
    const wait = this._wait * (0.75 + Math.random() / 2);
    this._wait = Math.min(this._wait * 2, LONGEST_WAIT);
    this.retryAt = Date.now() + wait;
    this._timer = setTimeout(() => this.open(), wait);
    this._become("waiting", reason || "the connection was lost");
  }

  /** Do not wait any longer. */
  retryNow() {
    if (this.state === "waiting" || this.state === "ended") this.open();
  }

  /** @param {string} text @returns {boolean} whether it went out */
  send(text) {
    if (this.state !== "live" || this._socket?.readyState !== WebSocket.OPEN) return false;
    this._socket.send(text);
    return true;
  }

  close() {
    clearTimeout(this._timer);
    removeEventListener("online", this._online);
    const socket = this._socket;
    this._socket = null;
    this._rest = null;
    this._intake.clear();
    socket?.close(1000, "signed out");
    this._become("ended", "you have left");
  }

  /** @param {Connection["state"]} state @param {string} words */
  _become(state, words) {
    this.state = state;
    this.words = words;
    this._handlers.changed();
  }
}

/** @param {string} raw */
function safely(raw) {
  try {
    return JSON.parse(raw);
  } catch {
    return null;
  }
}

/** @param {string} raw */
function idOf(raw) {
  const found = safely(raw)?.id;
  return typeof found === "string" ? found : "";
}
