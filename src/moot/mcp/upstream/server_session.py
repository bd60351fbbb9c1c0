"""One run of a server as callers use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from moot.mcp.upstream.connection import RpcConnection
from moot.mcp.upstream.server_info import ServerInfo

if TYPE_CHECKING:
    from moot.mcp.upstream.headers import RequestHeaders


class ServerSession(NamedTuple):
    """One run of a server: a connection on which version and era are agreed."""

    connection: RpcConnection
    info: ServerInfo
    # Only over Streamable HTTP.
    headers: RequestHeaders | None
