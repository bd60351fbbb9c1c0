/** Asking a provider for tokens, and reading them. */

const ANSWER_MILLISECONDS = 15_000;

/** @typedef {{access_token: string, id_token?: string, refresh_token?: string, expires_in?: number}} Tokens */

/** Sign-in failed; the message says what to do. */
export class SignInError extends Error {}

/** The provider answered, and said no: asking again is no use. */
export class ProviderRefused extends SignInError {}

/**
 * Throws ProviderRefused, or SignInError if there is no proper answer.
 * @param {import("./provider-sign-in.js").Provider} provider @param {Record<string, string>} form @returns {Promise<Tokens>}
 */
export async function requestTokens(provider, form) {
  const all = { ...form, client_id: provider.client_id, ...(provider.resource ? { resource: provider.resource } : {}) };
  let answer, body;
  try {
    answer = await post(provider.token_endpoint, all);
    body = await answer.json();
  } catch {
    throw new SignInError(
      "The provider gave no answer that this page may read. Is it reachable, and does it know this page’s origin (CORS)?",
    );
  }
  if (answer.status >= 500 || answer.status === 429)
    throw new SignInError(`The provider does not respond properly (HTTP ${answer.status}). Try again.`);
  if (!answer.ok)
    throw new ProviderRefused(
      `The provider refused the sign-in: ${String(body?.error_description || body?.error || `HTTP ${answer.status}`).slice(0, 200)}. Sign in again.`,
    );
  if (typeof body?.access_token !== "string" || String(body.token_type).toLowerCase() !== "bearer")
    throw new ProviderRefused("The provider gave no bearer token.");
  return body;
}

/** @param {string} address @param {Record<string, string>} form @param {boolean} [keepalive] */
export function post(address, form, keepalive = false) {
  return fetch(address, {
    method: "POST",
    body: new URLSearchParams(form),
    signal: AbortSignal.timeout(ANSWER_MILLISECONDS),
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
    referrerPolicy: "no-referrer",
    keepalive,
  });
}

/** The claims of a JWT, unverified; null if it is none. @param {string | undefined} token @returns {any} */
export function claimsOf(token) {
  try {
    const text = atob(String(token).split(".")[1].replaceAll("-", "+").replaceAll("_", "/"));
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (char) => char.charCodeAt(0))));
  } catch {
    return null;
  }
}
