"""The MCP server of the call benchmark, and `--proxy`: what an MCP proxy costs that is written with the SDK.

python -m bench.tool_server            a server with one tool, over stdio
python -m bench.tool_server --proxy    the same server behind one kept client and one server of the SDK
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mcp.server import MCPServer, Server
from mcp.server.stdio import stdio_server

from mcp import Client, StdioServerParameters


def direct() -> None:
    server = MCPServer("bench")

    @server.tool()
    def reverse(text: str) -> str:
        """The text, the other way round."""
        return text[::-1]

    server.run("stdio")


async def proxy() -> None:
    """As plain as it can be: list and call are handed on, and nothing else."""
    child = StdioServerParameters(command=sys.executable, args=["-m", "bench.tool_server"])
    async with Client(child) as upstream:

        async def list_tools(_context: Any, _params: Any) -> Any:
            return await upstream.list_tools()

        async def call_tool(_context: Any, params: Any) -> Any:
            return await upstream.call_tool(params.name, params.arguments or {})

        server: Server[Any] = Server("proxy", on_list_tools=list_tools, on_call_tool=call_tool)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    if "--proxy" in sys.argv:
        asyncio.run(proxy())
    else:
        direct()
