/**
 * Passkeys: the browser's authenticator signs in, and confirms decisions. What is signed comes from the gateway, which
 * checks it; this page only carries it. A challenge is the SHA-256 of a ticket, or of the very call that is approved.
 */
import { askGateway as ask } from "./gateway-fetch.js";
import { SignInError } from "./provider-tokens.js";

// Whether a passkey was used in this browser, and nothing else: it is then asked for without a press.
const STORAGE_KEY = "moot.passkey";

/** @typedef {{id: string, participant: string, space: string, name: string, address: string, added_at: number, used_at: number | null, signs_in: boolean, by_link: boolean}} Passkey */
/** @typedef {{credential_id: string, client_data_json: string, authenticator_data: string, signature: string}} Assertion */

/** Whether this browser has passkeys on this page. */
export function hasPasskeys() {
  return isSecureContext && "PublicKeyCredential" in globalThis;
}

/** Whether one was used here before. */
export function wasUsed() {
  return hasPasskeys() && localStorage.getItem(STORAGE_KEY) !== null;
}

/** The passkeys behind a token, and why this page can add none (or null). @param {URL} base @param {string} token @returns {Promise<{passkeys: Passkey[], refused: string | null}>} */
export function listPasskeys(base, token) {
  return ask(base, "GET", "passkeys", token);
}

/** @param {URL} base @param {string} token @param {string} id */
export function removePasskey(base, token, id) {
  return ask(base, "DELETE", `passkeys/${encodeURIComponent(id)}`, token);
}

/**
 * Add a passkey: with a token, or with the code of an operator's link. Throws an error with words for the person.
 * @param {URL} base @param {{token?: string, code?: string, name: string}} how @returns {Promise<{participant: string, spaces: string[]}>}
 */
export async function addPasskey(base, { token, code, name }) {
  const begun = await ask(base, "POST", "passkey-options", token, code === undefined ? {} : { code });
  const challenge = await sha256(begun.ticket);
  const known = descriptors(begun.credentials);
  // The earlier one first: an authenticator that has it would not make another.
  const proof = known.length > 0 ? await sign(begun.rp_id, challenge, begun.credentials) : undefined;
  const made = await useBrowser(() =>
    navigator.credentials.create({
      publicKey: {
        challenge,
        rp: { id: begun.rp_id, name: "Moot" },
        user: {
          id: crypto.getRandomValues(new Uint8Array(16)),
          name: `${begun.participant} (${begun.spaces.join(", ")})`.slice(0, 64),
          displayName: begun.participant,
        },
        pubKeyCredParams: [-7, -8, -257].map((alg) => ({ type: "public-key", alg })),
        authenticatorSelection: { residentKey: "required", requireResidentKey: true, userVerification: "required" },
        attestation: "none",
        excludeCredentials: known,
      },
    }),
  );
  const response = /** @type {AuthenticatorAttestationResponse} */ (made.response);
  const credential = {
    id: made.id,
    rawId: encode(made.rawId),
    type: made.type,
    response: {
      clientDataJSON: encode(response.clientDataJSON),
      attestationObject: encode(response.attestationObject),
    },
  };
  const { spaces } = await ask(base, "POST", "passkeys", undefined, { ticket: begun.ticket, credential, name, proof });
  localStorage.setItem(STORAGE_KEY, "1");
  return { participant: begun.participant, spaces };
}

/** Sign in: a token of the gateway. Throws SignInError. @param {URL} base @returns {Promise<string>} */
export async function signInWithPasskey(base) {
  try {
    const begun = await ask(base, "POST", "passkey-sign-in/options", undefined, {});
    const assertion = await sign(begun.rp_id, await sha256(begun.ticket), []);
    const { token } = await ask(base, "POST", "passkey-sign-in", undefined, { ticket: begun.ticket, assertion });
    localStorage.setItem(STORAGE_KEY, "1");
    return token;
  } catch (fault) {
    throw new SignInError(fault instanceof Error ? fault.message : String(fault));
  }
}

/**
 * What `moot/approve` says of a proposal that is approved with a passkey. Throws an error with words for the person.
 * @param {URL} base @param {import("./session.js").Login} login @param {string} id of the proposal
 */
export async function confirmApproval(base, login, id) {
  const path = `spaces/${encodeURIComponent(login.space)}/passkey-challenges`;
  const asked = await ask(base, "POST", path, login.token, { proposal_id: id });
  const assertion = await sign(asked.rp_id, decode(asked.challenge), asked.credentials);
  return { ...assertion, nonce: asked.nonce, expires: asked.expires };
}

/** @param {string} rpId @param {Uint8Array<ArrayBuffer>} challenge @param {string[]} ids any, if there is none @returns {Promise<Assertion>} */
async function sign(rpId, challenge, ids) {
  const made = await useBrowser(() =>
    navigator.credentials.get({
      publicKey: { challenge, rpId, allowCredentials: descriptors(ids), userVerification: "required" },
    }),
  );
  const response = /** @type {AuthenticatorAssertionResponse} */ (made.response);
  return {
    credential_id: made.id,
    client_data_json: encode(response.clientDataJSON),
    authenticator_data: encode(response.authenticatorData),
    signature: encode(response.signature),
  };
}

/** @param {() => Promise<Credential | null>} act @returns {Promise<PublicKeyCredential>} */
async function useBrowser(act) {
  if (!hasPasskeys())
    throw new Error("This browser has no passkeys here: open the console over HTTPS or at localhost.");
  try {
    const made = await act();
    if (made instanceof PublicKeyCredential) return made;
  } catch (fault) {
    const name = fault instanceof Error ? fault.name : "";
    if (name === "InvalidStateError") throw new Error("This device has a passkey here already.");
    if (name === "SecurityError")
      throw new Error("The browser gives this address no passkey: open the console at the address of your gateway.");
    if (name !== "NotAllowedError" && name !== "AbortError") throw fault;
  }
  throw new Error("No passkey was used: it was cancelled, took too long, or this device has none. Try again.");
}

/** @param {string[]} ids @returns {PublicKeyCredentialDescriptor[]} */
function descriptors(ids) {
  return ids.map((id) => ({ type: "public-key", id: decode(id) }));
}

/** @param {string} text */
async function sha256(text) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
}

/** @param {ArrayBuffer} buffer */
function encode(buffer) {
  const text = String.fromCharCode(...new Uint8Array(buffer));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
function decode(text) {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
}
