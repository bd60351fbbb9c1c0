/** Requests to the gateway over HTTP: no cookie is sent, nothing is cached, and each has an end. */

const ANSWER_MILLISECONDS = 20_000;
const REACH_MILLISECONDS = 4_000;

/**
 * @param {URL | string} address
 * @param {{token?: string, method?: string, body?: any, within?: number, keepalive?: boolean}} [options] `body`: sent as JSON; `keepalive`: also while the page is being left
 */
export function fetchFrom(address, { token, method, body, within = ANSWER_MILLISECONDS, keepalive } = {}) {
  return fetch(address, {
    method,
    headers: {
      ...(token ? { Authorization: `Bearer ${token}` } : {}),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(within),
    cache: "no-store",
    credentials: "omit",
    keepalive,
  });
}

/** The answer, if it is no refusal; else throws an Error with its words. @param {Response} answer */
export async function checkAnswer(answer) {
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => null);
  throw new Error(told?.message ?? `the gateway replied with HTTP ${answer.status}`);
}

/** The JSON of what the gateway answers; throws an Error with words for people. @param {URL} base @param {string} method @param {string} path @param {string} [token] @param {any} [body] @returns {Promise<any>} */
export async function askGateway(base, method, path, token, body) {
  const options = { method, token, body, keepalive: method === "DELETE" };
  const answer = await fetchFrom(new URL(path, base), options).catch(() => {
    throw new Error("The gateway does not respond. Is it running?");
  });
  return (await checkAnswer(answer)).json().catch(() => null);
}

/** An address below a space's. @param {URL | string} base @param {string} space @param {...string} path */
export function addressIn(base, space, ...path) {
  return new URL(["spaces", space, ...path].map(encodeURIComponent).join("/"), base);
}

/** Whether the gateway answers. @param {URL | string} base @param {number} [within] */
export function isReachable(base, within = REACH_MILLISECONDS) {
  return fetchFrom(new URL("livez", base), { within }).then(
    (answer) => answer.ok,
    () => false,
  );
}
