"""The shop of these tests on a real port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from moot.mcp.downstream.http_access import HttpAccessPolicy
from moot.mcp.downstream.http_server import McpHttpServer
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.mcp_server import McpServer
from moot.net.http_listener import bind_socket, serve_http
from tests.mcp.shop import Shop


@dataclass
class Open:
    """A shop with its doors open."""

    shop: Shop
    face: McpServer
    http: McpHttpServer
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


@asynccontextmanager
async def open_shop(
    limits: McpServerLimits | None = None, *, token: str | None = None, port: int = 0
) -> AsyncIterator[Open]:
    shop = Shop()
    listening = bind_socket("127.0.0.1", port)
    port = listening.getsockname()[1]
    async with McpServer(shop, limits or McpServerLimits()) as face:
        http = McpHttpServer(face, HttpAccessPolicy.of(port, token=token))
        try:
            async with serve_http(http, listening):
                yield Open(shop, face, http, port)
        finally:
            http.close()
