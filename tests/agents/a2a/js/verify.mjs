// Checks the signature of a card with @a2a-js/sdk, by the key that it names: node verify.mjs CARD_URL VERSION.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.A2A_PACKAGES + "/package.json");
const sdk = await import(pathToFileURL(require.resolve("@a2a-js/sdk")).href);
const [url, version] = process.argv.slice(2);
const card = await (await fetch(url, { headers: version ? { "A2A-Version": version } : {} })).json();
const verify = sdk.verifyAgentCardSignature(async (kid, jku) => {
  const { keys } = await (await fetch(jku)).json();
  return keys.find((each) => each.kid === kid);
});
await verify(card);
let refused = false;
try {
  await verify({ ...card, description: "Something else." });
} catch {
  refused = true;
}
console.log(JSON.stringify({ refused }));
