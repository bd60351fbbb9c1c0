"""An MCP server made with the official SDK: both eras, over stdio, Streamable HTTP or SSE.

python -m tests.mcp.servers.workshop stdio
python -m tests.mcp.servers.workshop streamable-http 0     (the port is told on stderr)
"""

from __future__ import annotations

import sys
from typing import Annotated

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field

server = MCPServer("workshop", version="7", instructions="A workshop.")


class Name(BaseModel):
    name: str


def who() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def greet(name: Annotated[Name, Resolve(who)]) -> str:
    """Greets whoever says their name."""
    return f"hello {name.name}"


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    """Reports progress."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return "counted"


@server.tool()
async def tell(ctx: Context) -> str:
    """Logs at two levels."""
    await ctx.debug("quiet")
    await ctx.warning("loud")
    return "told"


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool."""

    def grown() -> str:
        return "grown"

    server.add_tool(grown)
    await ctx.notify_tools_changed()
    return "grew"


@server.tool()
async def touch(uri: str, ctx: Context) -> str:
    """Says that a resource changed."""
    await ctx.notify_resource_updated(uri)
    return "touched"


@server.tool()
def where(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """An argument that HTTP repeats in a header, and the server checks."""
    return f"in {region}"


@server.tool(structured_output=False)
def long(size: int) -> str:
    """A long text."""
    return "x" * size


@server.resource("note://one")
def one() -> str:
    """A note."""
    return "the first note"


@server.resource("note://{id}/text")
def note(id: str) -> str:
    """Any note."""
    return f"note {id}"


@server.prompt()
def review(code: str) -> str:
    """Asks for a review."""
    return f"Review this: {code}"


@server.completion()  # type: ignore[no-untyped-call,untyped-decorator]
async def complete(ref: object, argument: object, context: object) -> object:
    from mcp_types import Completion

    del ref, argument, context
    return Completion(values=["python", "pascal"], total=2, has_more=False)


class _Telling(uvicorn.Server):
    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        for each in self.servers:
            print(f"port {each.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)


def main() -> None:
    transport = sys.argv[1]
    if transport == "stdio":
        server.run("stdio")
        return
    app = server.streamable_http_app() if transport == "streamable-http" else server.sse_app()
    port = int(sys.argv[2])
    _Telling(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning")).run()


if __name__ == "__main__":
    main()
