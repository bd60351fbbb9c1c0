"""A backend for tests: real answers, nothing remote. `python -m tests.mcp.example_backend` serves it.

echo        answers with its arguments and a field that no SDK knows
shout       reports progress and logs, then answers
ask_name    needs input first (MRTR)
decide      needs somebody's decision; the test makes it: `backend.decisions[-1].approve()`
fail        a JSON-RPC error with code, message and data
broken      raises what nobody expects
hang        never answers, and counts who gave up
number      answers with a number as structured content
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Any

from moot.errors import McpError
from moot.mcp.downstream.backend import (
    BackendCall,
    Change,
    ListChanged,
    PendingCall,
    ResourceUpdated,
    ServerDescription,
    text_result,
)
from moot.mcp.eras import JsonObject, OfferKind
from moot.protocol.rpc_codes import INVALID_PARAMS
from tests.waiting import bounded

OBJECT: JsonObject = {"type": "object"}
TOOLS: list[JsonObject] = [
    {"name": "echo", "description": "Say it back", "inputSchema": OBJECT, "x-vendor": {"kept": True}},
    {"name": "shout", "inputSchema": OBJECT},
    {"name": "ask_name", "inputSchema": OBJECT},
    {"name": "decide", "inputSchema": OBJECT},
    {"name": "fail", "inputSchema": OBJECT},
    {"name": "broken", "inputSchema": OBJECT},
    {"name": "hang", "inputSchema": OBJECT},
    {"name": "number", "inputSchema": OBJECT, "outputSchema": {"type": "number"}},
    {
        "name": "routed",
        "inputSchema": {
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        },
    },
]
QUESTION: JsonObject = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "What is your name?",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    },
}


class Decision:
    """One call that waits for the test to decide."""

    def __init__(self, backend: ExampleBackend, call: BackendCall) -> None:
        self.withdrawn: str | None = None
        self.pending = PendingCall(
            f"p-{len(backend.decisions) + 1}",
            headline="Somebody has to agree to decide.",
            call=call,
            withdraw=self._withdraw,
            pending_result=lambda pending: text_result(f"pending under {pending.handle}"),
            kept_seconds=60,
        )
        backend.decisions.append(self)
        backend.news.set()

    def approve(self, result: JsonObject | None = None) -> None:
        self.pending.mark_approved("approved by alice")
        self.pending.settle(result or text_result("done as agreed"), "done")

    def reject(self) -> None:
        self.pending.settle(text_result("rejected by bob: unsafe", is_error=True), "rejected by bob")

    async def _withdraw(self, reason: str) -> None:
        self.withdrawn = reason
        self.pending.settle(text_result("withdrawn", is_error=True), "withdrawn", withdrawn=True)


class ExampleBackend:
    """What the MCP server serves in these tests."""

    def __init__(self) -> None:
        self.about = ServerDescription({"name": "shop", "version": "1.2.3"}, "Ask for anything.")
        self.tools = list(TOOLS)
        self.calls: list[BackendCall] = []
        self.decisions: list[Decision] = []
        self.news = asyncio.Event()
        self.given_up = 0
        self.subscribed: list[str] = []
        self._listeners: list[Callable[[Change], None]] = []

    # Backend

    async def offers(self, kind: OfferKind) -> list[JsonObject]:
        match kind:
            case "tools":
                return self.tools
            case "resources":
                return [{"uri": "note://one", "name": "one", "size": 3, "x-vendor": 1}]
            case "resourceTemplates":
                return [{"uriTemplate": "note://{name}", "name": "note"}]
            case "prompts":
                return [{"name": "greet", "arguments": [{"name": "who"}]}]

    def tool(self, name: str) -> JsonObject | None:
        return next((tool for tool in self.tools if tool["name"] == name), None)

    async def perform(self, call: BackendCall) -> JsonObject | PendingCall:
        self.calls.append(call)
        match call.method:
            case "tools/call":
                return await self._tool(call)
            case "resources/read":
                return self._resource(call.params["uri"])
            case "prompts/get":
                text = f"Hello {call.params.get('arguments', {}).get('who', 'you')}"
                return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
            case "tasks/get" if call.params["taskId"] == "theirs":
                task = {"taskId": "theirs", "status": "working", "createdAt": "2026-01-01T00:00:00Z"}
                return task | {"lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": None}
            case "completion/complete":
                return {"completion": {"values": [call.params["argument"]["value"] + "!"], "hasMore": False}}
        raise McpError(INVALID_PARAMS, "no such task")

    async def subscribe(self, uri: str) -> None:
        if not uri.startswith("note://"):
            raise McpError(INVALID_PARAMS, f"nothing to subscribe to: {uri}")
        self.subscribed.append(uri)
        self.news.set()

    async def unsubscribe(self, uri: str) -> None:
        self.subscribed.remove(uri)
        self.news.set()

    def watch(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        self.news.set()
        return lambda: self._listeners.remove(listener)

    async def pending(self, handle: str) -> PendingCall | None:
        return next((each.pending for each in self.decisions if each.pending.handle == handle), None)

    # For tests

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def tell(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait for something that happens here."""
        async with bounded():
            while not holds():
                self.news.clear()
                await self.news.wait()

    def _resource(self, uri: str) -> JsonObject:
        if not uri.startswith("note://"):
            raise McpError(-32002, "Resource not found", {"uri": uri})
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "abc", "x-vendor": 2}]}

    async def _tool(self, call: BackendCall) -> JsonObject | PendingCall:
        arguments = call.params.get("arguments", {})
        match call.params["name"]:
            case "echo":
                return text_result(
                    str(arguments.get("text", "")), structuredContent=arguments, vendor=[1, None]
                )
            case "routed":
                return text_result(str(arguments.get("region", "")))
            case "number":
                return {"content": [{"type": "text", "text": "7"}], "structuredContent": 7}
            case "shout":
                if call.progress is not None:
                    token = call.params["_meta"]["progressToken"]
                    for done in (1, 2):
                        call.progress(
                            {"progressToken": token, "progress": done, "total": 2, "x-vendor": done}
                        )
                if call.log is not None:
                    call.log({"level": "debug", "data": "quiet"})
                    call.log({"level": "warning", "data": "loud", "logger": "shop"})
                return text_result("SHOUTED")
            case "ask_name":
                given = call.params.get("inputResponses", {}).get("who")
                if given is None:
                    return {
                        "resultType": "input_required",
                        "inputRequests": {"who": QUESTION},
                        "requestState": "s1",
                    }
                if call.params.get("requestState") != "s1":
                    raise McpError(INVALID_PARAMS, "the request state is not mine")
                return text_result(f"Hello {given.get('content', {}).get('name')}, {given['action']}")
            case "decide":
                return Decision(self, call).pending
            case "work_long":
                made = {"resultType": "task", "taskId": "theirs", "status": "working", "ttlMs": None}
                return made | {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
            case "ask_for_ever":
                return {
                    "resultType": "input_required",
                    "inputRequests": {"who": QUESTION},
                    "requestState": "again",
                }
            case "ask_model" | "ask_model_strictly" | "ask_model_anew":
                given = call.params.get("inputResponses")
                if given is None or call.params["name"] == "ask_model_anew":
                    sampling = {
                        "method": "sampling/createMessage",
                        "params": {"messages": [], "maxTokens": 5},
                    }
                    return {"resultType": "input_required", "inputRequests": {"m": sampling}}
                if call.params["name"] == "ask_model_strictly":
                    raise McpError(INVALID_PARAMS, "inputResponses.m must be an object")
                return text_result(f"went on with {given}")
            case "fail":
                raise McpError(-32050, "the shop is closed", {"opens": "09:00"})
            case "hang":
                try:
                    self.news.set()
                    await asyncio.Event().wait()
                finally:
                    self.given_up += 1
                    self.news.set()
            case "print":
                print("nor this", flush=True)
                return text_result("printed")
            case "change":
                self.tell(ListChanged("tools"))
                self.tell(ResourceUpdated("note://one"))
                return text_result("changed")
        raise RuntimeError("a tool that nobody wrote")


async def main() -> None:
    from moot.mcp.downstream import stdio_server
    from moot.mcp.downstream.mcp_server import McpServer

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with McpServer(ExampleBackend()) as server:
        if "--chatty" in sys.argv:
            asyncio.get_running_loop().call_soon(print, "this must not reach the client")
        await stdio_server.serve(server, stop=stop)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
