/**
 * The WebSocket to one space. Its states:
 *
 *     connecting ──welcome──▶ catching-up ──history fetched──▶ live ──lost──▶ waiting ──▶ connecting …
 *          └──refused, removed, shut down, taken over──▶ ended (with a reason; no automatic retry)
 *
 * The token goes into the first frame and into an Authorization header, never into a URL (D-20).
 * The gateway replays nothing. After each welcome it is asked first what is pending, and then the recent history is
 * fetched over HTTP (D-40) and put before what arrived since: on a slow line that may take long, and what waits for a
 * decision must not. So one can send while catching up, and `onEarly` is told of what is held back. If it does not reach back to a message received before the loss, the journal is read
 * until it does; only if that is not possible, or takes too long, a gap is reported.
 */
import { fetchFrom } from "./gateway-fetch.js";
import { membersOf, parseJson, textAt } from "../state/json-text.js";
import { MessageQueue } from "./message-queue.js";
import { parseTime } from "../page/time.js";

// Half a second, doubled up to 15 seconds: a gateway that restarts is back within seconds.
const FIRST_RETRY_MILLISECONDS = 500;
const MAX_RETRY_MILLISECONDS = 15_000;
// Twice the time that the gateway allows for joining.
const WELCOME_MILLISECONDS = 20_000;
// Where another gateway serves the same space, one that does not answer is not waited for as long.
const NEXT_WELCOME_MILLISECONDS = 5_000;
// Not all pages of a gateway that has failed come to the next one in the same moment.
const NEXT_GATEWAY_MILLISECONDS = 200;
const HISTORY_MILLISECONDS = 8_000;
// The history does not wait any longer for what comes before it.
const FIRST_MILLISECONDS = 3_000;
// Latency of a message; it is higher on a phone.
const MARGIN_SECONDS = 5;
// Of a frame of 16 ms: a long history is processed in slices, and the page stays responsive in between.
const SLICE_MILLISECONDS = 8;
/** Close codes after which there is no automatic reconnect (docs/reference/close-codes.md). @type {Record<number, string>} */
const FINAL_CLOSE_CODES = {
  1000: "you signed out",
  1008: "the gateway refused the connection",
  4001: "replaced by another connection of yours",
  4002: "you were shut down; reconnect when someone asks you to",
  4003: "you were removed from the space; this token is no longer valid",
};
/** @type {import("./missed-messages.js").Missed} */
const NOT_READ = {
  raws: [],
  isWhole: false,
  canLoad: true,
  reason: "the messages sent in the meantime could not be loaded",
};
// A connection ends so with its token, and is refused so when it comes with one that has ended.
const ENDED_WITH_TOKEN = [1008, 4003];
// The reason for a close of somebody who was signed out.
const SIGNED_OUT = "signed out";

/**
 * @typedef {object} Handlers
 * @property {(raw: string, past: boolean) => void} onEnvelope
 * @property {(raw: string) => void} onEarly of a message that is processed in its place later
 * @property {(welcome: any) => Promise<unknown>} beforeHistory what comes before the history
 * @property {() => void} onHistory it is about to be processed
 * @property {(id: string, data: string | Uint8Array) => void} onFrame
 * @property {(reason: string, since: number, canLoad: boolean) => void} gap
 * @property {(isKnown: (id: string) => boolean) => Promise<import("./missed-messages.js").Missed>} readMissed from the journal
 * @property {() => void} onStateChange
 */

export class Connection {
  /**
   * @param {{gateways: import("./gateways.js").Gateways, space: string, token: string, participant: string, grant?: import("./provider-grant.js").ProviderGrant}} target
   * @param {Handlers} handlers
   */
  constructor(target, handlers) {
    this._target = target;
    this._handlers = handlers;
    /** @type {"connecting" | "catching-up" | "live" | "waiting" | "ended"} */
    this.state = "connecting";
    /** Why it is not live. */
    this.reason = "";
    /** When the next attempt is made. */
    this.retryAt = 0;
    this.everLive = false;
    /** Whether the gateway was heard of lately; see heartbeat.js. */
    this.responds = true;
    /** How often it reconnected. */
    this.returns = 0;
    /** @type {WebSocket | null} */
    this._socket = null;
    this._retryMilliseconds = FIRST_RETRY_MILLISECONDS;
    /** Where the last socket went, and how many attempts have failed since there was a connection. */
    this._gateway = "";
    this._failures = 0;
    /** How the last socket was closed. */
    this._closeCode = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._timer = undefined;
    /** @type {string[] | null} */
    this._buffered = null;
    /** Envelopes as text; stream frames as functions that process them. @type {MessageQueue<string | (() => void)>} */
    this._queue = new MessageQueue((each) => (typeof each === "string" ? this._dispatch(each, false) : each()));
    this._lostAt = 0;
    /** When the last envelope arrived, and how far the gateway's clock is ahead of ours. */
    this._receivedAt = 0;
    this._clockOffset = 0;
    /** The same for the previous connection, by the gateway's clock. */
    this._lastReceivedAt = 0;
    this._online = () => this.retryNow();
    addEventListener("online", this._online);
  }

  open() {
    clearTimeout(this._timer);
    this._setState("connecting", this.everLive ? "reconnecting" : "connecting");
    const { gateways } = this._target;
    this._gateway = gateways.current.href;
    const address = new URL("ws", gateways.current);
    address.protocol = address.protocol.replace("http", "ws");
    // A load balancer leads the members of a space to one gateway.
    address.searchParams.set("space", this._target.space);
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    this._socket = socket;
    this._buffered = [];
    let refusal = "";
    const welcomeTimer = setTimeout(
      () => (gateways.count > 1 ? this._giveUp(socket) : socket.close()),
      gateways.count > 1 ? NEXT_WELCOME_MILLISECONDS : WELCOME_MILLISECONDS,
    );
    // A page offers no tools: what its member is asked is for another connection, which does not wait for it.
    socket.onopen = () =>
      socket.send(
        JSON.stringify({
          type: "join",
          space: this._target.space,
          token: this._target.token,
          dialect: "mew",
          answers: false,
        }),
      );
    socket.onmessage = (message) => {
      if (this._socket !== socket) return;
      if (typeof message.data !== "string") this._receiveBinary(message.data);
      else if (this._buffered === null || this.state !== "connecting") this._receive(message.data);
      else {
        const first = parseJson(message.data);
        if (first?.kind === "system/error") refusal = String(first.payload?.message ?? "");
        if (first?.kind !== "system/welcome") return;
        clearTimeout(welcomeTimer);
        this._lastReceivedAt = this._receivedAt + this._clockOffset;
        this._clockOffset = parseTime(first.ts, Date.now()) - Date.now();
        this._setState("catching-up", "catching up");
        this._receive(message.data);
        void this._catchUp(socket, first.payload ?? {});
      }
    };
    socket.onclose = (event) => {
      clearTimeout(welcomeTimer);
      if (this._socket === socket) this._onClose(event.code, refusal || event.reason);
    };
  }

  /** @param {string} raw */
  _receive(raw) {
    this._receivedAt = Date.now();
    if (this._buffered !== null) {
      this._buffered.push(raw);
      if (this.state === "catching-up") this._handlers.onEarly(raw);
    } else this._queue.add(raw);
  }

  /** @param {string} raw @param {boolean} past */
  _dispatch(raw, past) {
    if (raw.startsWith("#")) {
      const end = raw.indexOf("#", 1);
      if (end > 0) this._handlers.onFrame(raw.slice(1, end), raw.slice(end + 1));
    } else this._handlers.onEnvelope(raw, past);
  }

  /** @param {ArrayBuffer} data */
  _receiveBinary(data) {
    const bytes = new Uint8Array(data);
    if (bytes[0] !== 0x23) {
      this._receive(new TextDecoder().decode(bytes));
      return;
    }
    const end = bytes.indexOf(0x23, 1);
    if (end > 0)
      this._queue.add(() =>
        this._handlers.onFrame(new TextDecoder().decode(bytes.subarray(1, end)), bytes.subarray(end + 1)),
      );
  }

  /** Fetch the history, then process the messages that arrived meanwhile. @param {WebSocket} socket @param {any} welcome */
  async _catchUp(socket, welcome) {
    await Promise.race([
      this._handlers.beforeHistory(welcome),
      new Promise((go) => setTimeout(go, FIRST_MILLISECONDS)),
    ]);
    if (this._socket !== socket) return;
    // From the last received message on: the answer then contains it, which proves that nothing is missing.
    const since = this.everLive ? Math.max(0, this._lastReceivedAt / 1000 - MARGIN_SECONDS) : 0;
    const history = await this._fetchHistory(
      String(welcome.you?.name ?? welcome.you?.id ?? this._target.participant),
      since,
    );
    if (this._socket !== socket || this._buffered === null) return;
    const buffered = this._buffered;
    // Messages that also arrived over the socket are processed in their own place, after the welcome.
    const live = new Set(buffered.map((raw) => idOf(raw)));
    /** @type {string[]} */
    let missed = [];
    let overlaps = false;
    for (const raw of history.messages) {
      const id = idOf(raw);
      if (live.has(id)) continue;
      if (this.isKnown(id)) overlaps = true;
      else missed.push(raw);
    }
    if (this.everLive && !overlaps) {
      const recent = new Set(missed.map(idOf));
      const found = await this._handlers
        .readMissed((id) => this.isKnown(id) && !recent.has(id) && !live.has(id))
        .catch(() => NOT_READ);
      if (this._socket !== socket || this._buffered === null) return;
      // What came over the socket since then is in its own place, too.
      for (const raw of buffered) live.add(idOf(raw));
      missed = found.raws.filter((raw) => !recent.has(idOf(raw)) && !live.has(idOf(raw))).concat(missed);
      if (!found.isWhole) this._handlers.gap(found.reason || history.problem, this._lostAt, found.canLoad);
    }
    this._handlers.onHistory();
    let at = 0;
    const replay = (/** @type {number} */ until) => {
      while (at < missed.length && performance.now() < until) this._dispatch(missed[at++], true);
      if (at < missed.length) return false;
      if (this.state === "catching-up") this._goLive();
      // More may arrive meanwhile; each is processed once, in order.
      while (at < missed.length + buffered.length && performance.now() < until)
        this._dispatch(buffered[at++ - missed.length], false);
      return at === missed.length + buffered.length;
    };
    this._replay = replay;
    while (!replay(performance.now() + SLICE_MILLISECONDS)) {
      await new Promise((go) => setTimeout(go, 0));
      if (this._replay !== replay) return;
    }
    this._replay = null;
    this._buffered = null;
  }

  /** Processes history and held messages until a time; returns whether all is done. @type {((until: number) => boolean) | null} */
  _replay = null;

  /** The history is processed. This comes before the held messages, because those may trigger sending. */
  _goLive() {
    if (this.everLive) this.returns += 1;
    this.everLive = true;
    this._failures = 0;
    this._retryMilliseconds = FIRST_RETRY_MILLISECONDS;
    this._setState("live", "");
  }

  /** Whether an envelope with this id was received before; set by the session. @type {(id: string) => boolean} */
  isKnown = () => false;

  /** @param {string} me @param {number} since @returns {Promise<{messages: string[], problem: string}>} */
  async _fetchHistory(me, since) {
    const address = new URL(`participants/${encodeURIComponent(me)}/messages`, this._target.gateways.current);
    address.searchParams.set("space", this._target.space);
    address.searchParams.set("since", String(since));
    address.searchParams.set("dialect", "mew");
    try {
      const options = { token: this._target.token, within: HISTORY_MILLISECONDS };
      let answer = await fetchFrom(address, options);
      if (answer.status === 410) {
        // The space has moved, and this gateway has what came later: the journal tells the rest.
        address.searchParams.set("since", (await answer.json()).next);
        answer = await fetchFrom(address, options);
      }
      if (answer.status === 404) return { messages: [], problem: "this gateway keeps no history to catch up from" };
      if (!answer.ok) return { messages: [], problem: `the history could not be fetched (HTTP ${answer.status})` };
      return {
        messages: membersOf(textAt(await answer.text(), ["messages"]) ?? "[]").map((part) => part.text),
        problem: "",
      };
    } catch (fault) {
      return {
        messages: [],
        problem: `the history could not be fetched (${fault instanceof Error ? fault.message : "no answer"})`,
      };
    }
  }

  /** @param {number} code @param {string} reason */
  _onClose(code, reason) {
    // Process what was fetched and held before reporting the loss; otherwise a later gap would not be detected.
    this._replay?.(Infinity);
    this._replay = null;
    this._queue.drain();
    const wasLive = this.state === "live";
    this._socket = null;
    this._buffered = null;
    if (wasLive) this._lostAt = Date.now();
    this._closeCode = code;
    if (code in FINAL_CLOSE_CODES) {
      // Who signed in at a provider was not removed: the token has ended, or they signed out elsewhere.
      const isExplained = code === 1008 || (code === 4003 && this._target.grant !== undefined);
      // At the provider or elsewhere: nobody who finds this page goes on in it with a refresh token.
      if (code === 4003 && reason === SIGNED_OUT) void this._target.grant?.end();
      this._setState("ended", reason && isExplained ? reason : FINAL_CLOSE_CODES[code]);
      return;
    }
    const wait = this._nextWait();
    this.responds = true;
    this.retryAt = performance.now() + wait;
    this._timer = setTimeout(() => this.open(), wait);
    this._setState("waiting", reason);
  }

  /** Where to try next, and in how many milliseconds: at once while there is a gateway that was not tried. */
  _nextWait() {
    const { gateways } = this._target;
    gateways.leave(this._gateway);
    this._failures += 1;
    if (this._failures < gateways.count) return Math.random() * NEXT_GATEWAY_MILLISECONDS;
    const wait = this._retryMilliseconds * (0.75 + Math.random() / 2);
    this._retryMilliseconds = Math.min(this._retryMilliseconds * 2, MAX_RETRY_MILLISECONDS);
    return wait;
  }

  /** When the last message arrived. */
  get receivedAt() {
    return this._receivedAt;
  }

  /** Whether the gateway responds, as the heartbeat finds. @param {boolean} responds */
  setResponds(responds) {
    if (this.responds === responds) return;
    this.responds = responds;
    this._handlers.onStateChange();
  }

  /** Nothing comes through this socket any more, although it was not closed: open another. */
  reconnect() {
    if (this._socket !== null) this._giveUp(this._socket);
  }

  /** Not to wait until a browser has given up closing it. @param {WebSocket} socket */
  _giveUp(socket) {
    socket.onclose = null;
    socket.onmessage = null;
    socket.close();
    if (this._socket === socket) this._onClose(1006, "no reply");
  }

  /** Whether the token is void for good, so that nobody comes back with it; a provider gives another one. */
  get isVoid() {
    return this.state === "ended" && this._closeCode === 4003 && this._target.grant === undefined;
  }

  /** Whether another gateway serves the same space. */
  get hasOthers() {
    return this._target.gateways.count > 1;
  }

  /**
   * Go on with a newer token of the same person, on the same socket.
   * @param {string} token @param {boolean} wasLate the one before had ended, and with it the connection
   */
  renewToken(token, wasLate) {
    this._target.token = token;
    if (this._socket?.readyState === WebSocket.OPEN)
      this._socket.send(JSON.stringify({ type: "join", space: this._target.space, token, dialect: "mew" }));
    else if (wasLate && ENDED_WITH_TOKEN.includes(this._closeCode)) this.retryNow();
  }

  /** Reconnect now instead of waiting. */
  retryNow() {
    if (this.state === "waiting" || this.state === "ended") this.open();
  }

  /** @param {string} text @returns {boolean} whether it went out */
  send(text) {
    if ((this.state !== "live" && this.state !== "catching-up") || this._socket?.readyState !== WebSocket.OPEN)
      return false;
    this._socket.send(text);
    return true;
  }

  close() {
    clearTimeout(this._timer);
    removeEventListener("online", this._online);
    const socket = this._socket;
    this._socket = null;
    this._replay = null;
    this._queue.clear();
    socket?.close(1000, "signed out");
    this._setState("ended", "you signed out");
  }

  /** @param {Connection["state"]} state @param {string} reason */
  _setState(state, reason) {
    this.state = state;
    this.reason = reason;
    this._handlers.onStateChange();
  }
}

/** @param {string} raw */
function idOf(raw) {
  const found = parseJson(raw)?.id;
  return typeof found === "string" ? found : "";
}
