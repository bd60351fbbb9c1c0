"""Web pages of named origins use an MCP server, and others learn nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from moot.mcp.downstream.cross_origin import with_cross_origin
from moot.mcp.downstream.http_access import HttpAccessPolicy
from moot.mcp.downstream.http_server import McpHttpServer
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.mcp_server import McpServer
from moot.net.http_listener import bind_socket, serve_http
from tests.mcp.example_backend import ExampleBackend

PAGE = "https://inspector.example"
BODY = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "page", "version": "1"},
    },
}
SENT = {"Accept": "application/json, text/event-stream", "Authorization": "Bearer hush"}


@asynccontextmanager
async def served() -> AsyncIterator[httpx.AsyncClient]:
    listening = bind_socket("127.0.0.1", 0)
    port = listening.getsockname()[1]
    async with McpServer(ExampleBackend(), McpServerLimits()) as server:
        access = HttpAccessPolicy.of(port, origins=[PAGE], token="hush")
        http = McpHttpServer(server, access)
        try:
            async with (
                serve_http(with_cross_origin(http, access.origins), listening),
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
            ):
                yield client
        finally:
            http.close()


async def test_a_page_of_a_named_origin_asks_calls_and_reads() -> None:
    async with served() as client:
        asks = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
        asks["Access-Control-Request-Headers"] = "authorization, mcp-session-id, mcp-param-x, x-other"
        allowed = await client.options("/mcp", headers=asks)
        assert allowed.status_code == 204
        assert allowed.headers["access-control-allow-origin"] == PAGE
        assert allowed.headers["access-control-allow-headers"] == "authorization, mcp-session-id, mcp-param-x"
        assert allowed.headers["access-control-allow-methods"] == "GET, POST, DELETE"
        assert "access-control-allow-credentials" not in allowed.headers
        answer = await client.post("/mcp", json=BODY, headers={**SENT, "Origin": PAGE})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["vary"] == "Origin"
        assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]


async def test_a_page_reads_why_it_was_refused() -> None:
    async with served() as client:
        answer = await client.post("/mcp", json=BODY, headers={**SENT, "Authorization": "", "Origin": PAGE})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "WWW-Authenticate" in answer.headers["access-control-expose-headers"]


async def test_pages_of_other_origins_learn_nothing() -> None:
    async with served() as client:
        for origin in ("https://evil.example", "null", f"{PAGE}.evil.example"):
            asks = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            asked = await client.options("/mcp", headers=asks)
            answer = await client.post("/mcp", json=BODY, headers={**SENT, "Origin": origin})
            assert (asked.status_code, answer.status_code) == (403, 403)
            for each in (asked, answer):
                assert not any(name.startswith("access-control") for name in each.headers)


async def test_programs_notice_nothing() -> None:
    async with served() as client:
        answer = await client.post("/mcp", json=BODY, headers=SENT)
        assert answer.status_code == 200
        assert not any(name.startswith("access-control") for name in answer.headers)
