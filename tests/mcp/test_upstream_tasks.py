"""Tools that run only as tasks of 2025-11-25, of a server that others wrote: `server-everything`."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from moot.mcp.eras import CLIENT_CAPABILITIES_KEY, JsonObject, is_input_required
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer, Upstream
from tests.mcp.upstreams import NODE, PATIENT, call, open_ready, text_of
from tests.waiting import until_told

TOOL = "simulate-research-query"
EVERYTHING = StdioServer(command=Command(argv=(str(NODE / "mcp-server-everything"),)), inherited=os.environ)


async def statuses(server: Upstream) -> list[str]:
    """How the tasks of the server stand."""
    return [task["status"] for task in (await server.request("tasks/list", {}))["tasks"]]


async def test_its_result_comes_as_that_of_any_other_tool() -> None:
    async with open_ready(EVERYTHING, limits=PATIENT) as server:
        # The list says which tools these are; a bridge asks for it first.
        await server.list_all("tools/list")
        meta: JsonObject = {CLIENT_CAPABILITIES_KEY: {"elicitation": {}}}
        arguments = {"topic": "moots", "ambiguous": True}
        asked = await call(server, TOOL, arguments, meta=meta, owner="ada")
        assert is_input_required(asked), asked
        (key,) = asked["inputRequests"]
        answer = {"action": "accept", "content": {"interpretation": "general"}}
        also: JsonObject = {"inputResponses": {key: answer}, "requestState": asked["requestState"]}
        result = await call(server, TOOL, arguments, meta=meta, owner="ada", also=also)
        assert "Research Report: moots (general)" in text_of(result)
        assert await statuses(server) == ["completed"]


async def test_giving_up_the_call_cancels_the_task() -> None:
    async with open_ready(EVERYTHING, limits=PATIENT) as server:
        await server.list_all("tools/list")
        waiting = asyncio.create_task(call(server, TOOL, {"topic": "moots"}))

        async def works() -> bool:
            return await statuses(server) == ["working"]

        await until_told(works)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting

        async def is_cancelled() -> bool:
            return await statuses(server) == ["cancelled"]

        await until_told(is_cancelled)
