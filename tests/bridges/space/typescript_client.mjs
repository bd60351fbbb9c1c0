// One tool call by the official TypeScript SDK over stdio: the call as JSON in argv, its outcome as JSON on stdout.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { modules, command, args, env, name, toolArguments, timeout } = JSON.parse(process.argv[2]);
const require = createRequire(`${modules}/x.js`);
const load = async (path) => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/${path}`)).href);
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");

const client = new Client({ name: "test", version: "1" }, { capabilities: {} });
await client.connect(new StdioClientTransport({ command, args, env }));
let outcome;
try {
  const result = await client.callTool({ name, arguments: toolArguments }, undefined, { timeout });
  outcome = { text: result.content.map((part) => part.text).join("\n") };
} catch (error) {
  outcome = { error: String(error) };
}
console.log(JSON.stringify(outcome));
await client.close();
