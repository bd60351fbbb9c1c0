"""An MCP server over stdio that lists tools of a benchmark's catalogue, and answers no call.

python -m bench.catalog_server SET FIRST COUNT
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.types import ListToolsResult, Tool

from bench.search_sets import sets
from moot.xprotocol.search import Document

PAGE: Final = 250


def tool_of(document: Document) -> Tool:
    """A tool with the texts of a document; what its parameters are is not told."""
    names = document.parameter_names.split("\n") if document.parameter_names else []
    texts = [*document.parameters.split("\n"), *[""] * len(names)]
    properties = {
        name: {"type": "string", "description": text} for name, text in zip(names, texts, strict=False)
    }
    return Tool(
        name=document.name,
        description=document.description,
        input_schema={"type": "object", "properties": properties},
    )


async def main(name: str, first: int, count: int) -> None:
    (chosen,) = (each for each in sets() if each.name == name)
    tools = [tool_of(document) for document in chosen.documents[first : first + count]]

    async def list_tools(_context: Any, params: Any) -> ListToolsResult:
        at = int(params.cursor) if params is not None and params.cursor else 0
        following = at + PAGE
        return ListToolsResult(
            tools=tools[at:following], next_cursor=str(following) if following < len(tools) else None
        )

    server: Server[Any] = Server("catalogue", on_list_tools=list_tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
