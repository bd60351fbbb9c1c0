"""An MCP server to call: over stdio, Streamable HTTP or SSE, in either era, kept running."""

from moot.mcp.upstream.call_runner import CallCounts
from moot.mcp.upstream.connection import Listener
from moot.mcp.upstream.mcp_client import Upstream, UpstreamCallbacks, open_upstream
from moot.mcp.upstream.server_session import ServerInfo
from moot.mcp.upstream.server_settings import (
    ALL_CAPABILITIES,
    DEFAULT_OPTIONS,
    HttpServer,
    RequestAuth,
    Server,
    StdioServer,
    UpstreamLimits,
    UpstreamOptions,
)
from moot.mcp.upstream.supervision import StartFailed

__all__ = [
    "ALL_CAPABILITIES",
    "DEFAULT_OPTIONS",
    "CallCounts",
    "HttpServer",
    "Listener",
    "RequestAuth",
    "Server",
    "ServerInfo",
    "StartFailed",
    "StdioServer",
    "Upstream",
    "UpstreamCallbacks",
    "UpstreamLimits",
    "UpstreamOptions",
    "open_upstream",
]
