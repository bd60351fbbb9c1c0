"""A server written by hand, as some are: JSON messages line by line, and subscriptions in one era only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from moot.errors import McpError
from moot.mcp.upstream import HttpServer
from moot.net.http_listener import bind_socket, serve_http
from tests.mcp.test_upstream_both_eras import LIMITS
from tests.mcp.upstreams import RecordedEvents, call, open_ready, text_of
from tests.waiting import until

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("many", "pretty", "huge", "change")]


def line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


@dataclass
class HandMade:
    """Streams `application/json`; reports changes of resources to clients of the handshake era only."""

    listening: list[asyncio.Queue[bytes]] = field(default_factory=list)
    standalone: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    requests: list[str] = field(default_factory=list)

    async def post(self, request: Request) -> Response:
        body = await request.json()
        id, method, params = body.get("id"), body.get("method"), body.get("params") or {}
        stateless = "io.modelcontextprotocol/protocolVersion" in params.get("_meta", {})
        self.requests.append(f"{'stateless' if stateless else 'handshake'} {method}")
        if id is None:
            return Response(status_code=202)
        result: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        match method:
            case "server/discover":
                capabilities: dict[str, Any] = {"tools": {"listChanged": True}, "resources": {}}
                result |= {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            case "initialize":
                result = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "hand", "version": "1"}}
                result["capabilities"] = {"tools": {}, "resources": {"subscribe": True}}
                answer = JSONResponse({"jsonrpc": "2.0", "id": id, "result": result})
                answer.headers["mcp-session-id"] = "one"
                return answer
            case "tools/list":
                result |= {"tools": TOOLS}
            case "tools/call":
                return StreamingResponse(self.called(id, params), media_type="application/json")
            case "subscriptions/listen":
                return StreamingResponse(self.listen(id, params), media_type="application/json")
        return JSONResponse({"jsonrpc": "2.0", "id": id, "result": result})

    async def called(self, id: int, params: dict[str, Any]) -> AsyncIterator[bytes]:
        tool = params["name"]
        words = "x" * (5 << 20) if tool == "huge" else tool
        result = {"resultType": "complete", "content": [{"type": "text", "text": words}]}
        answer = {"jsonrpc": "2.0", "id": id, "result": result}
        if tool == "pretty":
            for part in json.dumps(answer, indent=2).splitlines(keepends=True):
                yield part.encode()
            return
        if tool == "change":
            for each in self.listening:
                each.put_nowait(b"notifications/tools/list_changed")
            updated = {"method": "notifications/resources/updated", "params": {"uri": "test://a"}}
            self.standalone.put_nowait(line(updated))
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            progress = {"progressToken": token, "progress": 1}
            yield line({"method": "notifications/progress", "params": progress})
        yield line(answer)

    async def listen(self, id: int, params: dict[str, Any]) -> AsyncIterator[bytes]:
        changes: asyncio.Queue[bytes] = asyncio.Queue()
        self.listening.append(changes)
        meta = {"io.modelcontextprotocol/subscriptionId": str(id)}
        wanted = {"notifications": params["notifications"], "_meta": meta}
        yield line({"method": "notifications/subscriptions/acknowledged", "params": wanted})
        while True:
            yield line({"method": (await changes.get()).decode(), "params": {"_meta": meta}})

    async def get(self, _: Request) -> Response:
        async def events() -> AsyncIterator[bytes]:
            while True:
                yield b"data: " + await self.standalone.get() + b"\n"

        return StreamingResponse(events(), media_type="text/event-stream")


@asynccontextmanager
async def served() -> AsyncIterator[tuple[HandMade, str]]:
    hand_made = HandMade()

    async def delete(_: Request) -> Response:
        return Response()

    app = Starlette(
        routes=[
            Route("/mcp", hand_made.post, methods=["POST"]),
            Route("/mcp", hand_made.get, methods=["GET"]),
            Route("/mcp", delete, methods=["DELETE"]),
        ]
    )
    socket = bind_socket("127.0.0.1", 0)
    async with serve_http(app, socket):
        yield hand_made, f"http://127.0.0.1:{socket.getsockname()[1]}/mcp"


async def test_messages_line_by_line_are_read_as_they_come() -> None:
    received, progress = RecordedEvents(), []
    async with (
        served() as (_, url),
        open_ready(HttpServer(url=url), limits=LIMITS, received=received) as server,
    ):
        result = await call(
            server, "many", meta={"progressToken": "p"}, listener=lambda _, params: progress.append(params)
        )
        assert text_of(result) == "many"
        assert progress == [{"progressToken": "p", "progress": 1}]
        # One value on many lines.
        assert text_of(await call(server, "pretty")) == "pretty"
        # The stream of changes never ends.
        await call(server, "change")
        await received.until(lambda: "tools" in received.changed)


async def test_a_line_without_end_is_an_error_of_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.stdio_child.LINE_BYTES", 1 << 20)
    async with served() as (_, url), open_ready(HttpServer(url=url), limits=LIMITS) as server:
        with pytest.raises(McpError, match="1048576 bytes"):
            await call(server, "huge")
        assert text_of(await call(server, "many")) == "many"


async def test_a_resource_is_watched_in_the_era_in_which_the_server_reports_changes() -> None:
    received = RecordedEvents()
    async with (
        served() as (hand_made, url),
        open_ready(HttpServer(url=url), limits=LIMITS, received=received) as server,
    ):
        assert await server.can_watch()
        await server.watch("test://a", "ada")
        await server.watch("test://a", "bob")
        assert hand_made.requests.count("handshake resources/subscribe") == 1
        await call(server, "change")
        await received.until(lambda: received.updated)
        assert received.updated == [({"uri": "test://a"}, ("ada", "bob"))]
        server.restart()
        await received.until(lambda: len(received.ups) == 2)
        await until(lambda: hand_made.requests.count("handshake resources/subscribe") == 2)
        await server.unwatch("test://a", "ada")
        assert "handshake resources/unsubscribe" not in hand_made.requests
        await server.unwatch("test://a", "bob")
        assert hand_made.requests.count("handshake resources/unsubscribe") == 1


async def test_a_refusal_of_input_is_not_sent_to_a_server_of_the_stateless_era() -> None:
    async with (
        served() as (hand_made, url),
        open_ready(HttpServer(url=url), limits=LIMITS) as server,
    ):
        with pytest.raises(McpError, match="cannot be told"):
            await call(server, "many", also={"inputResponses": {"sampling-1": None}})
        assert "stateless tools/call" not in hand_made.requests


LOST: dict[str, tuple[int, str, bytes]] = {
    "no JSON": (200, "application/json", b"{not json"),
    "a batch": (200, "application/json", b'[{"jsonrpc": "2.0", "id": 1, "result": {}}]'),
    "a page": (200, "text/html", b"<h1>hello</h1>"),
    "accepted": (202, "application/json", b""),
    "an event that is no JSON": (200, "text/event-stream", b"event: message\ndata: {oops\n\n"),
    "a stream that ends": (200, "text/event-stream", b": hello\n\n"),
    "a stream that breaks off": (200, "text/event-stream", b'event: message\ndata: {"jsonr'),
    "an internal error": (500, "text/plain", b"oops"),
    "an internal error in JSON": (502, "application/json", b'{"detail": "oops"}'),
}


def answering(status: int, kind: str, body: bytes) -> Starlette:
    """A small server of the handshake era, which answers every call of a tool with this."""

    async def post(request: Request) -> Response:
        asked = await request.json()
        if "id" not in asked:
            return Response(status_code=202)
        match asked["method"]:
            case "initialize":
                info = {"name": "small", "version": "1"}
                capabilities: dict[str, Any] = {"tools": {}}
                result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
            case "tools/call":
                return Response(body, status, headers={"content-type": kind})
            case "ping":
                result = {}
            case _:
                error = {"code": -32601, "message": "not known here"}
                return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    async def others(_: Request) -> Response:
        return Response(status_code=405)

    return Starlette(
        routes=[
            Route("/mcp", post, methods=["POST"]),
            Route("/mcp", others, methods=["GET", "DELETE"]),
        ]
    )


async def failed_call(status: int, kind: str, body: bytes) -> McpError:
    socket = bind_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{socket.getsockname()[1]}/mcp"
    async with serve_http(answering(status, kind, body), socket), open_ready(HttpServer(url=url)) as server:
        with pytest.raises(McpError) as caught:
            await call(server, "any")
    return caught.value


@pytest.mark.parametrize("answer", LOST.values(), ids=LOST)
async def test_an_answer_that_cannot_be_read_is_told_in_plain_words_and_is_no_failure(
    answer: tuple[int, str, bytes],
) -> None:
    """D-99: the request was sent. The texts are the SDK's own, so a new version of it may fail here."""
    fault = await failed_call(*answer)
    assert fault.data == {"moot/outcome": "unknown"}
    assert fault.message.startswith(("the answer of the MCP server ", "the MCP server "))
    assert fault.message.endswith("whether the call had any effect is not known")
    assert "\n" not in fault.message
    assert "pydantic" not in fault.message


@pytest.mark.parametrize(
    "answer",
    [
        (500, b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32603, "message": "no disk"}}'),
        (400, b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "the printer is off"}}'),
        (403, b"no"),
    ],
    ids=["an error with 500", "an error with 400", "forbidden"],
)
async def test_what_a_server_refuses_itself_has_failed(answer: tuple[int, bytes]) -> None:
    status, body = answer
    fault = await failed_call(status, "application/json", body)
    assert fault.data is None
