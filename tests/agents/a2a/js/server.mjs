// An agent made with @a2a-js/sdk: node server.mjs stream|send. Prints its URL, and repeats what it is told.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.A2A_PACKAGES + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { DefaultRequestHandler, InMemoryTaskStore, AgentEvent } = await load("@a2a-js/sdk/server");
const { agentCardHandler, jsonRpcHandler, UserBuilder } = await load("@a2a-js/sdk/server/express");
const express = require("express");

const executor = {
  async execute(context, bus) {
    const { taskId, contextId } = context;
    const status = (state) => ({ state, message: undefined, timestamp: new Date().toISOString() });
    const said = context.userMessage.parts.map((part) => part.content?.value).join("\n");
    bus.publish(AgentEvent.task({ id: taskId, contextId, status: status(1), artifacts: [], history: [], metadata: undefined }));
    bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(2), metadata: undefined }));
    const part = { content: { $case: "text", value: `You said: ${said}` }, metadata: undefined, filename: "", mediaType: "" };
    const artifact = { artifactId: "a", name: "answer", description: "", parts: [part], metadata: undefined, extensions: [] };
    bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, artifact, append: false, lastChunk: true, metadata: undefined }));
    bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(3), metadata: undefined }));
    bus.finished();
  },
  async cancelTask() {},
};

const app = express();
const server = app.listen(0, "127.0.0.1", () => {
  const url = `http://127.0.0.1:${server.address().port}`;
  const card = {
    name: "Echo", description: "Repeats.", version: "1", provider: undefined, documentationUrl: "",
    supportedInterfaces: [{ url: `${url}/rpc`, protocolBinding: "JSONRPC", protocolVersion: "1.0", tenant: "" }],
    capabilities: { streaming: process.argv[2] === "stream", pushNotifications: false, extendedAgentCard: false, extensions: [] },
    securitySchemes: {}, securityRequirements: [], defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain"],
    skills: [], signatures: [], iconUrl: "",
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor);
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
  app.use("/rpc", jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  console.log(url);
});
