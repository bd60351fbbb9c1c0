/**
 * Who is signed in where. A token is kept in memory; only if the person asks for it does it survive a reload, in
 * this tab's session storage. It is never put into a URL, a cookie or local storage. Tokens of a provider are never
 * stored at all.
 */
import { checkAnswer, fetchFrom } from "./gateway-fetch.js";
import { ChangeFeed } from "../page/change-feed.js";
import { DistantSpaces } from "./distant-spaces.js";
import { namedGateways } from "./gateways.js";
import { signInWithPasskey } from "./passkeys.js";
import { stopOnSignOut } from "./push.js";
import { SignInError } from "./provider-tokens.js";
import { OpenSpace } from "./open-space.js";

// Where this tab keeps tokens; behind a proxy, two gateways may share one origin and differ in their path.
const STORAGE_KEY = "moot.tokens";
const SIGN_IN_MILLISECONDS = 15_000;
// A gateway allows 64 connections for each address; further spaces are connected when they are shown.
const MAX_CONNECTED_SPACES = 16;

const MAX_REDEEM_ATTEMPTS = 3;

// The gateway may have to look for a new key of the provider first.
const MAX_KEY_ATTEMPTS = 5;
const KEY_MILLISECONDS = 1_000;

/** @typedef {import("./provider-grant.js").ProviderGrant} ProviderGrant */
/** `grant`: of a provider, which renews the token. `administrator`: of this space, by the same token. @typedef {{space: string, participant: string, token: string, administrator: boolean, shard?: number, grant?: ProviderGrant}} Login */

export { SignInError };

/** Nobody knows whether the token is right: the gateway did not answer. */
class GatewayUnreachable extends SignInError {}

/** The gateway is still looking for the key that a token of a provider is signed with. */
class KeyNotKnown extends SignInError {}

export class Session {
  /** @param {URL} base where the page came from */
  constructor(base) {
    this.base = base;
    this.gateways = namedGateways(base);
    this._storageKey = base.pathname === "/" ? STORAGE_KEY : `${STORAGE_KEY} ${base.pathname}`;
    this.changes = new ChangeFeed();
    /** @type {Login[]} */
    this.logins = [];
    /** @type {Map<string, OpenSpace>} */
    this.openSpaces = new Map();
    /** @type {OpenSpace | null} */
    this.current = null;
    this.remembers = false;
    this._distant = new DistantSpaces(
      this.gateways,
      () => this.logins.filter((login) => !this.openSpaces.has(login.space)),
      () => this.changes.publish("spaces"),
    );
    /** Whether the gateway did not answer when tokens were to be restored. */
    this.isUnreachable = false;
  }

  /** @param {string | string[]} topics @param {() => void} subscriber */
  on(topics, subscriber) {
    return this.changes.on(topics, subscriber);
  }

  /**
   * Find out which spaces a token gives access to, and keep it. Throws SignInError.
   * @param {string} token @param {boolean} remember in this tab's session storage
   * @returns {Promise<Login[]>}
   */
  async signIn(token, remember) {
    const found = await this._addLogins(token);
    this.remembers = remember;
    if (remember) this._storeTokens();
    else sessionStorage.removeItem(this._storageKey);
    this.changes.publish("logins");
    return found;
  }

  /**
   * Sign in with what a provider gave; it stays in memory and is renewed. Throws SignInError.
   * @param {ProviderGrant} grant
   */
  async signInAtProvider(grant) {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this._addLogins(grant.token, grant);
        break;
      } catch (fault) {
        if (!(fault instanceof KeyNotKnown) || attempt === MAX_KEY_ATTEMPTS) {
          void grant.end();
          throw fault;
        }
        await new Promise((go) => setTimeout(go, KEY_MILLISECONDS));
      }
    }
    grant.onRenewed = (wasLate) => {
      for (const login of this.logins.filter((each) => each.grant === grant)) {
        login.token = grant.token;
        this.openSpaces.get(login.space)?.connection.renewToken(grant.token, wasLate);
      }
    };
    grant.start();
    this.changes.publish("logins");
  }

  /** @param {string} token @param {ProviderGrant} [grant] @returns {Promise<Login[]>} */
  async _addLogins(token, grant) {
    const given = token.trim();
    if (!given) throw new SignInError("Enter the token that you were given.");
    // A header cannot contain line breaks or special characters; fetch would fail without a reason.
    if (!/^[\x21-\x7e]+$/.test(given))
      throw new SignInError("Not a valid token: a token has no spaces or line breaks.");
    const answer = await this._fetchSpaces(given, grant !== undefined);
    if (grant && answer.status === 503)
      throw new KeyNotKnown(
        `The gateway cannot check the provider’s token yet: ${(await readJson(answer))?.message ?? "try again in a moment"}`,
      );
    if (answer.status >= 502)
      throw new GatewayUnreachable(`The gateway does not respond (HTTP ${answer.status}). Is it running?`);
    if (grant && !answer.ok)
      throw new SignInError(
        `The provider signed you in, but the gateway does not let you in: ${(await readJson(answer))?.message ?? `HTTP ${answer.status}`}`,
      );
    if (answer.status === 401)
      throw new SignInError(
        "Unknown token. A token is shown once, when someone is invited; it may also be in .moot/tokens/NAME.token.",
      );
    if (!answer.ok)
      throw new SignInError(
        `The gateway replied with HTTP ${answer.status}: ${(await readJson(answer))?.message ?? "no reason given"}`,
      );
    const body = await readJson(answer);
    /** @type {Login[]} */
    const found = (Array.isArray(body?.spaces) ? body.spaces : [])
      .filter((/** @type {any} */ each) => typeof each?.name === "string" && (each.dialects ?? ["mew"]).includes("mew"))
      .map((/** @type {any} */ each) => ({
        space: each.name,
        participant: String(each.participant ?? ""),
        token: given,
        administrator: each.administrator === true,
        ...(Number.isInteger(each.shard) ? { shard: each.shard } : {}),
        ...(grant ? { grant } : {}),
      }));
    if (found.length === 0)
      throw new SignInError("This token gives access to no space that supports MEW, which the console requires.");
    this.logins = [...this.logins.filter((login) => !found.some((each) => each.space === login.space)), ...found];
    for (const login of found)
      if (this.openSpaces.get(login.space)?.login.token !== given) this._closeSpace(login.space);
    return found;
  }

  /** Ask the gateways one after another, until one answers. @param {string} token @param {boolean} isProviders 503: of a key that is looked for */
  async _fetchSpaces(token, isProviders) {
    /** @type {Response | undefined} */
    let answer;
    const ask = async (/** @type {string} */ href) => {
      answer = undefined;
      answer = await fetchFrom(new URL("spaces", href), { token, within: SIGN_IN_MILLISECONDS });
      if (answer.status >= 502 && !(isProviders && answer.status === 503)) throw new Error("the next one, perhaps");
      return answer;
    };
    return this.gateways.reach(ask).catch(() => {
      if (answer) return answer;
      throw new GatewayUnreachable("The gateway does not respond. Is it running?");
    });
  }

  /** Sign in with a passkey; a reload of this tab keeps it. Throws SignInError. */
  async signInWithPasskey() {
    return this.signIn(await signInWithPasskey(this.gateways.current), true);
  }

  /**
   * Sign in with a one-time link from another device. Throws SignInError.
   * @param {string} code
   */
  async redeem(code) {
    let answer;
    for (let tries = 1; !answer; tries += 1) {
      try {
        answer = await this._post("sign-in-links/redeem", () => ({ code }));
      } catch {
        // A question that was lost can be asked again; the gateway takes a code once.
        if (tries === MAX_REDEEM_ATTEMPTS)
          throw new SignInError("The gateway does not respond. Is it running? Open the link again.");
      }
    }
    const body = await readJson(answer);
    if (!answer.ok || typeof body?.token !== "string")
      throw new SignInError(`This link does not work: ${body?.message ?? `HTTP ${answer.status}`}.`);
    return this.signIn(body.token, true);
  }

  /**
   * A link that signs this person in on another device, once.
   * @param {Login} login
   * @returns {Promise<{address: string, qr: string[], valid_seconds: number}>}
   */
  makeLink(login) {
    return this._ask("sign-in-links", (page) => ({ page }), login.token);
  }

  /**
   * A code that binds a chat account to this person, once.
   * @param {Login} login
   * @returns {Promise<{code: string, valid_seconds: number}>}
   */
  makeChatCode(login) {
    return this._ask("sign-in-links", () => ({ for: "chat" }), login.token);
  }

  /** @param {string} path @param {(href: string) => any} bodyFor @param {string} token */
  async _ask(path, bodyFor, token) {
    return (await checkAnswer(await this._post(path, bodyFor, token))).json();
  }

  /** @param {string} path @param {(href: string) => any} bodyFor a gateway, by its address @param {string} [token] */
  _post(path, bodyFor, token) {
    return this.gateways.reach((href) =>
      fetchFrom(new URL(path, href), { method: "POST", token, body: bodyFor(href), within: SIGN_IN_MILLISECONDS }),
    );
  }

  /**
   * Sign in again with the tokens kept in this tab; returns whether that worked for any. If the gateway does not
   * answer, they are kept and `isUnreachable` says so.
   */
  async restore() {
    const kept = readTokens(this._storageKey);
    this.isUnreachable = false;
    for (const token of kept) {
      await this.signIn(token, true).catch((fault) => {
        this.isUnreachable ||= fault instanceof GatewayUnreachable;
      });
    }
    if (this.isUnreachable && this.logins.length === 0) return false;
    this.isUnreachable = false;
    if (kept.length > 0 && this.logins.length === 0) sessionStorage.removeItem(this._storageKey);
    return this.logins.length > 0;
  }

  /** Show a space; its connection stays open when another space is shown. @param {string} space @returns {OpenSpace | null} */
  openSpace(space) {
    const open = this._connect(space);
    if (!open) return null;
    if (this.current !== open) {
      this.current = open;
      this.changes.publish("current");
    }
    return open;
  }

  /** Connect to every space that the tokens give access to: what is pending in any of them is one queue. */
  connectAll() {
    for (const login of this.logins.slice(0, MAX_CONNECTED_SPACES)) this._connect(login.space);
    if (this.logins.some((login) => !this.openSpaces.has(login.space))) this._distant.watch();
  }

  /** What waits for this person in a space; while it is being asked for, that it is not known is not worth a word. @param {string} space @returns {{count: number, isKnown: boolean}} */
  pendingIn(space) {
    const open = this.openSpaces.get(space);
    if (open)
      return {
        count: open.state.proposals.toDecide(open.state.me.id).length,
        isKnown: open.sync.knowledge !== "not-known",
      };
    const count = this._distant.counts.get(space);
    return { count: count ?? 0, isKnown: count !== null };
  }

  /** The same in all spaces, as far as it is known. */
  get pendingCount() {
    return this.logins.reduce((sum, login) => sum + this.pendingIn(login.space).count, 0);
  }

  /** @param {string} space @returns {OpenSpace | null} */
  _connect(space) {
    const login = this.logins.find((each) => each.space === space);
    if (!login) return null;
    let open = this.openSpaces.get(space);
    if (!open) {
      open = new OpenSpace(login, this.gateways.forShard(login.shard), this.changes);
      this.openSpaces.set(space, open);
      open.connection.open();
    }
    return open;
  }

  /** Leave every space and forget every token. */
  signOut() {
    const stopped = stopOnSignOut(this.base, this.logins);
    for (const grant of new Set(this.logins.map((login) => login.grant)))
      if (grant) void this._endGrant(grant, stopped);
    sessionStorage.removeItem(this._storageKey);
    for (const name of [...this.openSpaces.keys()]) this._closeSpace(name);
    this._distant.close();
    this.logins = [];
    this.current = null;
    this.changes.publish("logins");
  }

  /** Tell the gateway and the provider that a person has signed out. @param {ProviderGrant} grant @param {Promise<void>} stopped what needs the token still */
  async _endGrant(grant, stopped) {
    const { token } = grant;
    const revoked = grant.end();
    await stopped;
    // Without an answer the token is valid for its last minutes, but nobody has it.
    await Promise.allSettled([
      revoked,
      fetchFrom(new URL("oidc/sign-out", this.gateways.current), { method: "POST", token, keepalive: true }),
    ]);
  }

  /** @param {string} space */
  _closeSpace(space) {
    const openSpace = this.openSpaces.get(space);
    this.openSpaces.delete(space);
    if (this.current === openSpace) this.current = null;
    openSpace?.close();
  }

  _storeTokens() {
    const tokens = [...new Set(this.logins.filter((login) => !login.grant).map((login) => login.token))];
    sessionStorage.setItem(this._storageKey, JSON.stringify(tokens));
  }
}

/** @param {Response} answer @returns {Promise<any>} */
async function readJson(answer) {
  try {
    return await answer.json();
  } catch {
    return null;
  }
}

/** @param {string} key @returns {string[]} */
function readTokens(key) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(key) ?? "[]");
    return Array.isArray(kept) ? kept.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}
