// The official TypeScript SDKs, which sign in and step up as their own OAuth clients do. What a call wants opened is printed as
// a line; whoever signs in there answers with a line of JSON. Argument: JSON with the address, the SDK, the client and the
// tool. A line "again" calls the tool once more, in the same session.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { modules, sdk, url, redirect, clientId, name, toolArguments } = JSON.parse(process.argv[2]);
const require = createRequire(`${modules}/x.js`);
const load = async (path) => import(pathToFileURL(require.resolve(path)).href);
let Client, Transport;
if (sdk === "1") {
  ({ Client } = await load("@modelcontextprotocol/sdk/client/index.js"));
  ({ StreamableHTTPClientTransport: Transport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js"));
} else {
  ({ Client, StreamableHTTPClientTransport: Transport } = await import(`${modules}/@modelcontextprotocol/client/dist/index.mjs`));
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const opened = [];
// Known to the provider already: what registers itself is registered for the first scope alone, by both SDKs.
const kept = { client: { client_id: clientId } };
const provider = {
  get redirectUrl() { return redirect; },
  get clientMetadata() {
    return { client_name: "test", redirect_uris: [redirect], token_endpoint_auth_method: "none", application_type: "native",
      grant_types: ["authorization_code", "refresh_token"], response_types: ["code"], scope: "moot:read moot:call" };
  },
  clientInformation: () => kept.client,
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  invalidateCredentials: (what) => { if (what === "tokens" || what === "all") delete kept.tokens; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (state) => { kept.discovery = state; },
  discoveryState: () => kept.discovery,
  redirectToAuthorization: (address) => { opened.push(String(address)); },
};

// Both SDKs stop when somebody has to sign in, and are tried again afterwards. A stream in the background may ask for that, too,
// when a session has ended; there nobody waits, so nobody signs in.
async function signedIn(transport, act) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await act();
    } catch (error) {
      if (attempt > 2 || !/unauthorized/i.test(`${error.name} ${error.message} ${error.constructor.name}`)) throw error;
      console.log(opened.at(-1));
      const answer = JSON.parse((await lines.next()).value);
      if (sdk === "1") await transport().finishAuth(answer.code, answer.iss);
      else await transport().finishAuth(new URLSearchParams(answer));
    }
  }
}

const options = sdk === "1" ? {} : { versionNegotiation: { mode: "auto" } };
let client, transport;
await signedIn(() => transport, async () => {
  client = new Client({ name: "test", version: "1" }, options);
  transport = new Transport(new URL(url), { authProvider: provider });
  await client.connect(transport);
});
const { tools } = await client.listTools();
async function call() {
  const result = await signedIn(() => transport, () => client.callTool({ name, arguments: toolArguments }));
  console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), text: result.content.map((part) => part.text).join("\n"),
    token: kept.tokens.access_token, refreshes: Boolean(kept.tokens.refresh_token),
    scopes: opened.map((address) => new URL(address).searchParams.get("scope")),
    resources: opened.map((address) => new URL(address).searchParams.get("resource")) }));
}
await call();
for await (const line of lines) {
  if (line !== "again") break;
  try { await call(); } catch (error) { console.log(JSON.stringify({ error: `${error.code} ${error.message}` })); }
}
await client.close();
process.exit(0);
