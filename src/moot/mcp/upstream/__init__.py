"""An MCP server as something to ask: over stdio, Streamable HTTP or SSE, in either era, kept running."""

from moot.mcp.upstream.call_runner import CallCounts
from moot.mcp.upstream.connection import Listener
from moot.mcp.upstream.mcp_client import Events, Upstream, open_upstream
from moot.mcp.upstream.negotiation import ServerInfo
from moot.mcp.upstream.server_settings import (
    ALL_CAPABILITIES,
    HttpServer,
    Server,
    StdioServer,
    UpstreamLimits,
)
from moot.mcp.upstream.supervision import StartFailed

__all__ = [
    "ALL_CAPABILITIES",
    "CallCounts",
    "Events",
    "HttpServer",
    "Listener",
    "Server",
    "ServerInfo",
    "StartFailed",
    "StdioServer",
    "Upstream",
    "UpstreamLimits",
    "open_upstream",
]
