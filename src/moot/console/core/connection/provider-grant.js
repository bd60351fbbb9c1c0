/** What a provider gave to the person in this tab: tokens, in memory alone, renewed before they end. */
import { ProviderRefused, claimsOf, post, requestTokens } from "./provider-tokens.js";

// Renewed when this share of its life is over.
const RENEW_SHARE = 0.75;
const LEAST_MILLISECONDS = 1_000;
// A provider that does not answer is asked again after this, doubled up to a minute.
const FIRST_RETRY_MILLISECONDS = 2_000;
const MAX_RETRY_MILLISECONDS = 60_000;
// Of a token that does not say it.
const DEFAULT_LIFE_SECONDS = 60;
// The longest life that a gateway takes.
const MAX_LIFE_SECONDS = 86_400;

export class ProviderGrant {
  /**
   * @param {import("./provider-sign-in.js").Provider} provider
   * @param {import("./provider-tokens.js").Tokens} tokens
   * @param {string} subject whose they are
   */
  constructor(provider, tokens, subject) {
    this._provider = provider;
    this._subject = subject;
    /** The token for the gateway. */
    this.token = "";
    /** @type {string | undefined} */
    this._refreshToken = undefined;
    this._endsAt = 0;
    this._isEnded = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._timer = undefined;
    this._retryMilliseconds = FIRST_RETRY_MILLISECONDS;
    this._lifeMilliseconds = 0;
    this._take(tokens);
  }

  /** Called with every newer token; `wasLate`: the one before had ended already. @type {(wasLate: boolean) => void} */
  onRenewed = () => {};

  /** Renew from now on. */
  start() {
    this._schedule(Math.max(LEAST_MILLISECONDS, this._lifeMilliseconds * RENEW_SHARE));
  }

  /** @param {import("./provider-tokens.js").Tokens} tokens */
  _take(tokens) {
    this.token = this._provider.id_tokens ? tokens.id_token || this.token : tokens.access_token;
    this._refreshToken = tokens.refresh_token ?? this._refreshToken;
    const claims = this._provider.id_tokens ? claimsOf(this.token) : null;
    const seconds = Number(claims ? claims.exp - claims.iat : tokens.expires_in) || DEFAULT_LIFE_SECONDS;
    this._lifeMilliseconds = 1000 * Math.min(seconds, MAX_LIFE_SECONDS);
    this._endsAt = Date.now() + this._lifeMilliseconds;
  }

  /** @param {number} milliseconds */
  _schedule(milliseconds) {
    clearTimeout(this._timer);
    if (this._refreshToken && !this._isEnded) this._timer = setTimeout(() => void this._renew(), milliseconds);
  }

  async _renew() {
    try {
      const tokens = await requestTokens(this._provider, {
        grant_type: "refresh_token",
        refresh_token: this._refreshToken ?? "",
      });
      const claims = tokens.id_token ? claimsOf(tokens.id_token) : null;
      if (tokens.id_token && (claims?.iss !== this._provider.issuer || claims.sub !== this._subject))
        throw new ProviderRefused("The provider renewed the sign-in of somebody else.");
      if (this._isEnded) {
        // Signed out meanwhile: what has just come is not for keeping.
        this._refreshToken = tokens.refresh_token;
        await this._revoke();
        return;
      }
      const wasLate = Date.now() > this._endsAt;
      this._take(tokens);
      this._retryMilliseconds = FIRST_RETRY_MILLISECONDS;
      this.start();
      this.onRenewed(wasLate);
    } catch (fault) {
      // Refused for good: connections last until the token ends, and say so then.
      if (fault instanceof ProviderRefused) this._refreshToken = undefined;
      this._schedule(this._retryMilliseconds);
      this._retryMilliseconds = Math.min(2 * this._retryMilliseconds, MAX_RETRY_MILLISECONDS);
    }
  }

  /** Forget the tokens, and take the refresh token back at the provider if it can do that (RFC 7009). */
  async end() {
    this._isEnded = true;
    clearTimeout(this._timer);
    this.token = "";
    await this._revoke();
  }

  async _revoke() {
    const token = this._refreshToken;
    this._refreshToken = undefined;
    if (!token || !this._provider.revocation_endpoint) return;
    const form = { token, token_type_hint: "refresh_token", client_id: this._provider.client_id };
    // It is forgotten here in any case.
    await post(this._provider.revocation_endpoint, form, true).catch(() => undefined);
  }
}
