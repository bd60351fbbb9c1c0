"""A few functions as the tools of an MCP server over stdio.

With our own server and not the SDK's: that one takes over a second of a processor to be imported, at each
start of a space.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from moot import __version__
from moot.errors import McpError
from moot.mcp.downstream import stdio_server
from moot.mcp.downstream.backend import BackendCall, Change, ServerDescription, text_result
from moot.mcp.downstream.mcp_server import McpServer
from moot.mcp.eras import JsonObject, OfferKind
from moot.protocol.rpc_codes import INVALID_PARAMS, METHOD_NOT_FOUND

A = TypeVar("A", bound=msgspec.Struct)


class ToolError(Exception):
    """The tool could not do it; the text says why, to whoever called it."""


@dataclass(frozen=True, slots=True)
class ServerTool(Generic[A]):
    """One tool: how it is listed, its arguments, and the text that it answers with."""

    definition: JsonObject
    arguments: type[A]
    # May raise ToolError.
    run: Callable[[A], Awaitable[str]]


class ToolBackend:
    """Tools that never change, and nothing else."""

    def __init__(self, name: str, instructions: str, tools: Sequence[ServerTool[Any]]) -> None:
        self.about = ServerDescription({"name": name, "version": __version__}, instructions)
        self._tools = {str(tool.definition["name"]): tool for tool in tools}

    async def offers(self, kind: OfferKind) -> list[JsonObject]:
        return [tool.definition for tool in self._tools.values()] if kind == "tools" else []

    def tool(self, name: str) -> JsonObject | None:
        found = self._tools.get(name)
        return None if found is None else found.definition

    async def perform(self, call: BackendCall) -> JsonObject:
        if call.method != "tools/call":
            raise McpError(METHOD_NOT_FOUND, f"Method not found: {call.method[:128]}")
        tool = self._tools.get(str(call.params.get("name")))
        if tool is None:
            raise McpError(INVALID_PARAMS, f"Unknown tool: {str(call.params.get('name'))[:128]}")
        try:
            # Not strict: models write numbers as texts.
            arguments = msgspec.convert(call.params.get("arguments") or {}, tool.arguments, strict=False)
            return text_result(await tool.run(arguments))
        except (ToolError, msgspec.ValidationError) as fault:
            return text_result(str(fault), is_error=True)

    async def subscribe(self, uri: str) -> None:
        raise McpError(INVALID_PARAMS, "there are no resources here", {"uri": uri})

    async def unsubscribe(self, uri: str) -> None:
        """Nothing is ever subscribed."""

    def watch(self, _listener: Callable[[Change], None]) -> Callable[[], None]:
        """The lists never change."""
        return lambda: None

    async def pending(self, _handle: str) -> None:
        """No call waits for a decision here."""


def run_over_stdio(backend: ToolBackend) -> None:
    """Serve until the client closes its end."""

    async def serve() -> None:
        async with McpServer(backend) as server:
            await stdio_server.serve(server, stop=asyncio.Event())

    asyncio.run(serve())
