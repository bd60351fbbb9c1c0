// @ts-check
/**
 * Who is signed in where. A token lives in memory; only if the person asks for it does it outlive a reload, in
 * this tab's session storage. It is never put into an address, a cookie or local storage.
 */
import { Connection } from "./connection.js";
import { News } from "./news.js";
import { Voice } from "./speaking.js";
import { State } from "./state.js";

// Where this tab keeps tokens; behind a proxy, two gateways may share one origin and differ in their path.
const KEPT = "moot.tokens";
const LOOKING_MILLISECONDS = 15_000;

/** @typedef {{space: string, participant: string, token: string}} Door */

/** Not let in; the words say what to do. */
export class SignInFault extends Error {}

/** One space that is open: its state, its connection, and how to speak in it. */
export class Place {
  /** @param {Door} door @param {URL} base @param {News} session */
  constructor(door, base, session) {
    this.door = door;
    this.name = door.space;
    this.state = new State(door.space);
    // Until the welcome says it: the past is heard before.
    this.state.roster.me = { id: door.participant, name: door.participant, capabilities: [] };
    this.connection = new Connection(
      { base, ...door },
      {
        envelope: (raw, past) => {
          const envelope = this.state.hear(raw, { past });
          if (envelope && !past) this.voice.hear(envelope, this.state.me.id);
        },
        frame: (id, data) => this.state.frame(id, data),
        gap: (words, at) => this.state.gap(words, at),
        changed: () => {
          if (this.connection.state === "waiting" || this.connection.state === "ended") this.voice.lost();
          this.state.news.changed("connection");
          session.changed("places");
        },
      },
    );
    this.connection.knows = (id) => this.state.envelopes.has(id);
    this.voice = new Voice(this.connection);
    this.state.on(["proposals", "chats", "trust"], () => session.changed("places"));
  }
}

export class Session {
  /** @param {URL} base where the gateway is */
  constructor(base) {
    this.base = base;
    this._kept = base.pathname === "/" ? KEPT : `${KEPT} ${base.pathname}`;
    this.news = new News();
    /** @type {Door[]} */
    this.doors = [];
    /** @type {Map<string, Place>} */
    this.places = new Map();
    /** @type {Place | null} */
    this.current = null;
    this.remembers = false;
  }

  /** @param {string | string[]} topics @param {() => void} watcher */
  on(topics, watcher) {
    return this.news.on(topics, watcher);
  }

  /**
   * Find out which spaces a token opens, and keep it. Raises SignInFault.
   * @param {string} token @param {boolean} remember in this tab's session storage
   * @returns {Promise<Door[]>}
   */
  async signIn(token, remember) {
    const given = token.trim();
    if (!given) throw new SignInFault("Enter the token that you were given.");
    // A header holds no line breaks or exotic characters; fetch would fail without saying why.
    if (!/^[\x21-\x7e]+$/.test(given)) throw new SignInFault("That is no token: it holds spaces or characters that no token has.");
    let answer;
    try {
      answer = await fetch(new URL("spaces", this.base), {
        headers: { Authorization: `Bearer ${given}` },
        signal: AbortSignal.timeout(LOOKING_MILLISECONDS),
        cache: "no-store",
        credentials: "omit",
      });
    } catch {
      throw new SignInFault("The gateway does not answer. Is it running?");
    }
    if (answer.status === 401) throw new SignInFault("No space knows this token. Tokens are shown once, when somebody is invited, or stand in .moot/tokens/NAME.token.");
    if (!answer.ok) throw new SignInFault(`The gateway answered ${answer.status}: ${(await safely(answer))?.message ?? "no reason given"}`);
    const body = await safely(answer);
    /** @type {Door[]} */
    const found = (Array.isArray(body?.spaces) ? body.spaces : [])
      .filter((/** @type {any} */ each) => typeof each?.name === "string" && (each.dialects ?? ["mew"]).includes("mew"))
      .map((/** @type {any} */ each) => ({ space: each.name, participant: String(each.participant ?? ""), token: given }));
    if (found.length === 0) throw new SignInFault("This token opens no space that speaks MEW, which this console needs.");
    this.doors = [...this.doors.filter((door) => !found.some((each) => each.space === door.space)), ...found];
    for (const door of found) if (this.places.get(door.space)?.door.token !== given) this._drop(door.space);
    this.remembers = remember;
    if (remember) this._keep();
    else sessionStorage.removeItem(this._kept);
    this.news.changed("doors");
    return found;
  }

  /** Sign in again with what this tab kept; returns whether anything opened. */
  async restore() {
    const kept = read(this._kept);
    for (const token of kept) await this.signIn(token, true).catch(() => []);
    if (kept.length > 0 && this.doors.length === 0) sessionStorage.removeItem(this._kept);
    return this.doors.length > 0;
  }

  /** Enter a space; the connection stays open when another is entered. @param {string} space @returns {Place | null} */
  enter(space) {
    const door = this.doors.find((each) => each.space === space);
    if (!door) return null;
    let place = this.places.get(space);
    if (!place) {
      place = new Place(door, this.base, this.news);
      this.places.set(space, place);
      place.connection.open();
    }
    if (this.current !== place) {
      this.current = place;
      this.news.changed("current");
    }
    return place;
  }

  /** Leave every space and forget every token. */
  signOut() {
    sessionStorage.removeItem(this._kept);
    for (const name of [...this.places.keys()]) this._drop(name);
    this.doors = [];
    this.current = null;
    this.news.changed("doors");
  }

  /** @param {string} space */
  _drop(space) {
    const place = this.places.get(space);
    this.places.delete(space);
    if (this.current === place) this.current = null;
    place?.connection.close();
  }

  _keep() {
    const tokens = [...new Set(this.doors.map((door) => door.token))];
    sessionStorage.setItem(this._kept, JSON.stringify(tokens));
  }
}

/** @param {Response} answer @returns {Promise<any>} */
async function safely(answer) {
  try {
    return await answer.json();
  } catch {
    return null;
  }
}

/** @param {string} key @returns {string[]} */
function read(key) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(key) ?? "[]");
    return Array.isArray(kept) ? kept.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}
