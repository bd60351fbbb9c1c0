"""Lets web pages of named origins use an MCP server (CORS): the Inspector, or any client in a browser.

Which origins may call is decided elsewhere (`HttpAccessPolicy`); this tells the browser, so that the page may
read the answers, refusals included: where to sign in is in a header of a refusal. Cookies are never sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from moot.mcp.downstream.response_streams import Receive, Scope, Send, respond

_METHODS: Final = b"GET, POST, DELETE"
_READABLE: Final = b"WWW-Authenticate, Mcp-Session-Id, MCP-Protocol-Version, Retry-After"
_HEADERS: Final = frozenset({"accept", "authorization", "cache-control", "content-type", "last-event-id"})
# What the browser may remember of a question.
_MAX_AGE_SECONDS: Final = 600

App = Callable[[Scope, Receive, Send], Awaitable[None]]


def with_cross_origin(app: App, origins: frozenset[str]) -> App:
    """The same application, for pages of these origins as well."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        origin: bytes = headers.get(b"origin", b"")
        if origin.decode("latin-1").lower() not in origins:
            await app(scope, receive, send)
            return
        allowed = ((b"access-control-allow-origin", origin), (b"vary", b"Origin"))
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            await _allow(send, headers.get(b"access-control-request-headers", b""), allowed)
            return

        async def send_readable(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [each for each in message.get("headers", ()) if each[0] != allowed[0][0]]
                readable = (b"access-control-expose-headers", _READABLE)
                message = {**message, "headers": [*own, *allowed, readable]}
            await send(message)

        await app(scope, receive, send_readable)

    return answer


async def _allow(send: Send, asked: bytes, allowed: tuple[tuple[bytes, bytes], ...]) -> None:
    """Answer a browser that asks before it sends: which methods and headers it may use."""
    names = [name.strip().lower() for name in asked.decode("latin-1").split(",")]
    # MCP repeats arguments in headers of any name that begins so.
    fine = [name for name in names if name in _HEADERS or name.startswith("mcp-")]
    more = (
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", ", ".join(fine).encode("latin-1")),
        (b"access-control-max-age", str(_MAX_AGE_SECONDS).encode()),
    )
    await respond(send, 204, b"", (*allowed, *more))
