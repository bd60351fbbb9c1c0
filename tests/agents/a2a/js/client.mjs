// Calls an agent with @a2a-js/sdk: node client.mjs URL TOKEN BINDING send|stream TEXT. Prints one JSON line.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { randomUUID } from "node:crypto";

const require = createRequire(process.env.A2A_PACKAGES + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const [url, token, binding, how, text] = process.argv.slice(2);
const sdk = await load("@a2a-js/sdk/client");

const withToken = (input, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set("Authorization", `Bearer ${token}`);
  return fetch(input, { ...init, headers });
};
const factory = new sdk.ClientFactory({
  transports: [
    binding === "JSONRPC"
      ? new sdk.JsonRpcTransportFactory({ fetchImpl: withToken })
      : new sdk.RestTransportFactory({ fetchImpl: withToken }),
  ],
});
const client = await factory.createFromUrl(url);
const part = { content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "" };
const request = {
  tenant: "",
  configuration: undefined,
  metadata: undefined,
  message: {
    messageId: randomUUID(), contextId: "", taskId: "", role: 1, parts: [part],
    metadata: undefined, extensions: [], referenceTaskIds: [],
  },
};
let id = "";
let events = 0;
if (how === "send") {
  id = (await client.sendMessage(request)).id;
} else {
  for await (const event of client.sendMessageStream(request)) {
    events += 1;
    id ||= event.payload?.value?.id ?? "";
  }
}
const task = await client.getTask({ tenant: "", id });
const texts = task.artifacts.flatMap((each) => each.parts.map((part) => part.content?.value));
console.log(JSON.stringify({ state: task.status.state, texts, events }));
