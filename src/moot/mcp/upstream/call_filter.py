"""What stands between callers and a server: it gets what they do not write, and they do not read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, cast

from moot.errors import McpError
from moot.mcp.eras import JsonObject
from moot.mcp.upstream.connection import Listener
from moot.protocol.operation import Json

# Method, params, owner, listener, timeout.
SendRequest = Callable[[str, JsonObject | None, str, Listener | None, float | None], Awaitable[JsonObject]]


class CallFilter(Protocol):
    """Changes what a server is sent and what it answers, where nobody else sees it: no log and no trace."""

    async def fill_call(self, params: JsonObject) -> JsonObject:
        """The params of a call as the server gets them; raises McpError."""

    def mask(self, value: Json) -> Json:
        """What came from the server as others may read it."""


async def send_filtered(
    call_filter: CallFilter,
    send: SendRequest,
    method: str,
    params: JsonObject | None,
    owner: str,
    listener: Listener | None,
    timeout: float | None,
) -> JsonObject:
    """Send a request as the server gets it; its answer as others may read it. Raises McpError."""
    mask = call_filter.mask

    def masked(name: str, about: JsonObject) -> None:
        if listener is not None:
            listener(name, cast("JsonObject", mask(about)))

    if method == "tools/call" and params is not None:
        params = await call_filter.fill_call(params)
    try:
        result = await send(method, params, owner, None if listener is None else masked, timeout)
    except McpError as fault:
        raise McpError(fault.code, str(mask(fault.message)), mask(fault.data)) from None
    return cast("JsonObject", mask(result))
