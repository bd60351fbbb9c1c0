"""The shop of these tests on a real port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from moot.mcp.downstream.doors import Doors
from moot.mcp.downstream.face import Face
from moot.mcp.downstream.http import HttpFace
from moot.mcp.downstream.limits import FaceLimits
from moot.net.port import bound, served
from tests.mcp.shop import Shop


@dataclass
class Open:
    """A shop with its doors open."""

    shop: Shop
    face: Face
    http: HttpFace
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


@asynccontextmanager
async def open_shop(
    limits: FaceLimits | None = None, *, token: str | None = None, port: int = 0
) -> AsyncIterator[Open]:
    shop = Shop()
    listening = bound("127.0.0.1", port)
    port = listening.getsockname()[1]
    async with Face(shop, limits or FaceLimits()) as face:
        http = HttpFace(face, Doors.of(port, token=token))
        try:
            async with served(http, listening):
                yield Open(shop, face, http, port)
        finally:
            http.close()
