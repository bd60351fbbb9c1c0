/**
 * What administrators ask of the gateway: the HTTP routes that `moot member` uses, too. The token is that of the person's own
 * sign-in if a rule makes them an administrator, or one that they typed, which stays in memory and goes with the space.
 */
import { fetchFrom } from "./gateway-fetch.js";

const ANSWER_MILLISECONDS = 15_000;

/** @typedef {{id: string, participant: string, source: string, connections: number, client?: string, since?: string, expires?: string, issuer?: string, rule?: number, capabilities?: any[]}} AdminToken */
/** @typedef {{number: number, match: Record<string, (string | boolean)[]>, participant: string, enters: boolean, administrator: boolean, capabilities?: any[], profile?: string}} SignInRule */
/** @typedef {{issuer: string, all_rules: number, rules: SignInRule[]}} ProviderRules */
/** @typedef {{event: string, at: string, participant?: string, by?: string, why?: string, count?: number, issuer?: string, subject?: string, account?: string, client?: string, rule?: number, profile?: string}} SignInEvent */

/** The gateway refused; `isForbidden`: this token administers nothing here. */
export class AdministrationRefused extends Error {
  /** @param {string} message @param {number} status */
  constructor(message, status) {
    super(message);
    this.isForbidden = status === 401 || status === 403;
  }
}

/** @type {WeakMap<object, string>} */
const typedTokens = new WeakMap();

export class Administration {
  /** @param {import("./open-space.js").OpenSpace} openSpace */
  constructor(openSpace) {
    this._openSpace = openSpace;
  }

  /** Whether there is a token to ask with: others are told so without a request, which would count as a wrong token. */
  get hasToken() {
    return typedTokens.has(this._openSpace) || this._openSpace.login.administrator === true;
  }

  /** @param {string} token of an administrator */
  useToken(token) {
    typedTokens.set(this._openSpace, token);
  }

  /** The gateway refused the token: it is not sent again. */
  dropToken() {
    typedTokens.delete(this._openSpace);
    this._openSpace.login.administrator = false;
  }

  /** `absent`: who has signed in and has no token now. @returns {Promise<{tokens: AdminToken[], absent: string[]}>} */
  tokens() {
    return this._ask("GET", "tokens");
  }

  /** @returns {Promise<ProviderRules[]>} */
  async rules() {
    return (await this._ask("GET", "sign-in-rules")).providers;
  }

  /** @param {Record<string, string>} query @returns {Promise<{sign_ins: SignInEvent[], before: number | null, is_kept: boolean}>} */
  signIns(query) {
    return this._ask("GET", "sign-ins", query);
  }

  /** @param {string} id */
  revoke(id) {
    return this._ask("DELETE", `tokens/${encodeURIComponent(id)}`);
  }

  /** @param {string} name */
  signOut(name) {
    return this._ask("POST", `participants/${encodeURIComponent(name)}/sign-out`);
  }

  /** @param {string} method @param {string} path @param {Record<string, string>} [query] @returns {Promise<any>} */
  async _ask(method, path, query = {}) {
    const address = new URL(`admin/${path}`, this._openSpace.base);
    for (const [name, value] of Object.entries({ space: this._openSpace.name, ...query }))
      address.searchParams.set(name, value);
    const token = typedTokens.get(this._openSpace) ?? this._openSpace.login.token;
    let answer;
    try {
      answer = await fetchFrom(address, { method, token, within: ANSWER_MILLISECONDS });
    } catch {
      throw new AdministrationRefused("The gateway does not respond.", 0);
    }
    const body = await answer.json().catch(() => null);
    if (!answer.ok || body === null)
      throw new AdministrationRefused(String(body?.message ?? `HTTP ${answer.status}`), answer.status);
    return body;
  }
}
