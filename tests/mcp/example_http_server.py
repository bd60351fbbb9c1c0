"""The example backend of these tests, served over HTTP on a real port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from moot.mcp.downstream.http_access import HttpAccessPolicy
from moot.mcp.downstream.http_server import McpHttpServer
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.mcp_server import McpServer
from moot.net.http_listener import bind_socket, serve_http
from tests.mcp.example_backend import ExampleBackend


@dataclass
class ServedExample:
    """An example backend that clients can reach."""

    backend: ExampleBackend
    server: McpServer
    http: McpHttpServer
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


@asynccontextmanager
async def serve_example(
    limits: McpServerLimits | None = None, *, token: str | None = None, port: int = 0
) -> AsyncIterator[ServedExample]:
    backend = ExampleBackend()
    listening = bind_socket("127.0.0.1", port)
    port = listening.getsockname()[1]
    async with McpServer(backend, limits or McpServerLimits()) as server:
        http = McpHttpServer(server, HttpAccessPolicy.of(port, token=token))
        try:
            async with serve_http(http, listening):
                yield ServedExample(backend, server, http, port)
        finally:
            http.close()
