/**
 * Signing in at a provider of OpenID Connect: an authorization code with PKCE (RFC 7636), for this tab alone.
 *
 * The page goes to the provider and comes back to its own address. What it has to know then is in session storage
 * meanwhile, and is removed before anything else happens; so is the code in the address. A code is sent to a
 * provider only if the answer has our state and comes from the issuer that we went to (RFC 9207).
 */
import { fetchFrom } from "./gateway-fetch.js";
import { ProviderGrant } from "./provider-grant.js";
import { claimsOf, requestTokens, SignInError } from "./provider-tokens.js";

const STORAGE_KEY = "moot.provider-sign-in";
// Passwords, second factors and a phone that has to be found.
const MAX_AWAY_MILLISECONDS = 1_800_000;
const ANSWER_MILLISECONDS = 15_000;
const SECRET_BYTES = 32;

/**
 * What the gateway says about a provider at which people sign in.
 * @typedef {object} Provider
 * @property {string} issuer
 * @property {string} client_id
 * @property {string[]} scopes
 * @property {string} [prompt]
 * @property {string} [resource]
 * @property {string} authorization_endpoint
 * @property {string} token_endpoint
 * @property {string} [revocation_endpoint]
 * @property {boolean} [names_issuer] whether its answers say whose they are
 * @property {string[]} [response_modes]
 * @property {boolean} [id_tokens] whether the gateway takes ID tokens of it
 */

/** @typedef {{issuer: string, state: string, nonce: string, verifier: string, at: number, place: string}} Begun */
/** @typedef {{parameters: URLSearchParams, begun: Begun | null}} Answer */

/**
 * The providers at which this page can sign in. With several, only those whose answers name the issuer: others'
 * answers could be mixed up. Throws SignInError.
 * @param {URL} base @returns {Promise<Provider[]>}
 */
export async function fetchProviders(base) {
  let body;
  try {
    const answer = await fetchFrom(new URL("oidc", base), { within: ANSWER_MILLISECONDS });
    body = answer.ok ? await answer.json() : {};
  } catch {
    throw new SignInError("The gateway does not respond. Is it running?");
  }
  /** @type {Provider[]} */
  const all = Array.isArray(body?.providers) ? body.providers : [];
  return all.filter(
    (each) =>
      isSecure(each?.authorization_endpoint) &&
      isSecure(each?.token_endpoint) &&
      (all.length === 1 || each.names_issuer === true),
  );
}

/** Leave for the provider. Throws SignInError. @param {URL} base @param {Provider} provider */
export async function beginSignIn(base, provider) {
  if (!crypto.subtle)
    throw new SignInError("Signing in at a provider works over https only, or with a gateway on this computer.");
  const [verifier, state, nonce] = [randomText(), randomText(), randomText()];
  const challenge = base64url(
    new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))),
  );
  /** @type {Begun} */
  const begun = {
    issuer: provider.issuer,
    state,
    nonce,
    verifier,
    at: Date.now(),
    place: location.hash.startsWith("#/") ? location.hash : "",
  };
  const scopes = [...new Set(["openid", ...provider.scopes])];
  const address = new URL(provider.authorization_endpoint);
  const asked = {
    response_type: "code",
    client_id: provider.client_id,
    redirect_uri: pageAddress(base),
    scope: scopes.join(" "),
    state,
    nonce,
    code_challenge: challenge,
    code_challenge_method: "S256",
    // In the fragment the code reaches no server and no log on its way back.
    ...(provider.response_modes?.includes("fragment") ? { response_mode: "fragment" } : {}),
    ...(provider.prompt ? { prompt: provider.prompt } : {}),
    ...(provider.resource ? { resource: provider.resource } : {}),
  };
  for (const [name, value] of Object.entries(asked)) address.searchParams.set(name, value);
  sessionStorage.setItem(storageKey(base), JSON.stringify(begun));
  location.assign(address);
}

/** Whether the address holds an answer of a provider. */
export function hasAnswer() {
  return readParameters() !== null;
}

/**
 * Take the answer of a provider out of the address, the history and the storage; null if there is none.
 * @param {URL} base @returns {Answer | null}
 */
export function takeAnswer(base) {
  const begun = readBegun(storageKey(base));
  sessionStorage.removeItem(storageKey(base));
  const parameters = readParameters();
  if (!parameters) return null;
  history.replaceState(null, "", base.pathname + (begun?.place ?? ""));
  return { parameters, begun };
}

/**
 * Check the answer, and fetch the tokens for its code. Throws SignInError.
 * @param {URL} base @param {Answer} answer @returns {Promise<ProviderGrant>}
 */
export async function finishSignIn(base, { parameters, begun }) {
  if (!begun)
    throw new SignInError(
      "This answer of a provider belongs to no sign-in that was begun in this tab, or was used already. Sign in again.",
    );
  if (only(parameters, "state") !== begun.state)
    throw new SignInError("The answer of the provider belongs to another sign-in. Sign in again.");
  if (Date.now() - begun.at > MAX_AWAY_MILLISECONDS) throw new SignInError("Signing in took too long. Sign in again.");
  const provider = (await fetchProviders(base)).find((each) => each.issuer === begun.issuer);
  if (!provider) throw new SignInError("The gateway no longer names this provider. Sign in again.");
  if (parameters.has("iss") || provider.names_issuer) {
    if (only(parameters, "iss") !== provider.issuer)
      throw new SignInError(
        "The answer comes from another provider than the one that you went to; its code was not used. Sign in again, and tell whoever runs this gateway if it happens again.",
      );
  }
  if (parameters.has("error"))
    throw new SignInError(
      `The provider did not sign you in: ${(parameters.get("error_description") || parameters.get("error") || "").slice(0, 200)}`,
    );
  const code = only(parameters, "code");
  if (!code) throw new SignInError("The provider answered without a code. Sign in again.");
  const tokens = await requestTokens(provider, {
    grant_type: "authorization_code",
    code,
    redirect_uri: pageAddress(base),
    code_verifier: begun.verifier,
  });
  // From the provider itself, over TLS: its signature need not be checked here (OpenID Connect Core 3.1.3.7).
  const claims = claimsOf(tokens.id_token);
  const audience = [claims?.aud].flat();
  const isOurs =
    claims?.iss === provider.issuer &&
    audience.includes(provider.client_id) &&
    (claims.azp ?? provider.client_id) === provider.client_id;
  if (!isOurs || claims.nonce !== begun.nonce || typeof claims.sub !== "string")
    throw new SignInError("The provider’s ID token is missing or belongs to another sign-in. Sign in again.");
  return new ProviderGrant(provider, tokens, claims.sub);
}

/** The console's page, as the provider knows it. @param {URL} base */
function pageAddress(base) {
  return base.origin + base.pathname;
}

/** @param {URL} base behind a proxy, two gateways may share one origin and differ in their path */
function storageKey(base) {
  return base.pathname === "/" ? STORAGE_KEY : `${STORAGE_KEY} ${base.pathname}`;
}

function readParameters() {
  const places = [new URLSearchParams(location.hash.slice(1)), new URLSearchParams(location.search)];
  return places.find((each) => each.has("code") || (each.has("state") && each.has("error"))) ?? null;
}

/** The value of a parameter that is there once. @param {URLSearchParams} parameters @param {string} name */
function only(parameters, name) {
  const values = parameters.getAll(name);
  return values.length === 1 ? values[0] : null;
}

/** @param {string} key @returns {Begun | null} */
function readBegun(key) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(key) ?? "null");
    return ["issuer", "state", "nonce", "verifier", "place"].every((name) => typeof kept?.[name] === "string") &&
      typeof kept.at === "number"
      ? kept
      : null;
  } catch {
    return null;
  }
}

/** @param {any} address */
function isSecure(address) {
  if (typeof address !== "string" || !URL.canParse(address)) return false;
  const { protocol, hostname } = new URL(address);
  return protocol === "https:" || (protocol === "http:" && ["127.0.0.1", "localhost", "[::1]"].includes(hostname));
}

function randomText() {
  return base64url(crypto.getRandomValues(new Uint8Array(SECRET_BYTES)));
}

/** @param {Uint8Array} bytes */
function base64url(bytes) {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}
