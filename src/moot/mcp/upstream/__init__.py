"""An MCP server as something to ask: over stdio, Streamable HTTP or SSE, in either era, kept running."""

from moot.mcp.upstream.calls import Counts
from moot.mcp.upstream.connection import Listener
from moot.mcp.upstream.negotiation import Greeting
from moot.mcp.upstream.settings import ALL_CAPABILITIES, HttpServer, Server, StdioServer, UpstreamLimits
from moot.mcp.upstream.supervision import StartFailed
from moot.mcp.upstream.upstream import Events, Upstream, open_upstream

__all__ = [
    "ALL_CAPABILITIES",
    "Counts",
    "Events",
    "Greeting",
    "HttpServer",
    "Listener",
    "Server",
    "StartFailed",
    "StdioServer",
    "Upstream",
    "UpstreamLimits",
    "open_upstream",
]
