"""Tools that run only as tasks of 2025-11-25, of a server that others wrote: `server-everything`."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from moot.mcp.eras import CLIENT_CAPABILITIES_KEY, JsonObject, is_input_required
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer, Upstream
from tests.mcp.upstreams import NODE, PATIENT, call, open_ready, text_of
from tests.waiting import until_told

TOOL = "simulate-research-query"
EVERYTHING = StdioServer(command=Command(argv=(str(NODE / "mcp-server-everything"),)), inherited=os.environ)


# As 2025-11-25 says, progress of a task names the token of the call that made it, until the task has ended.
REPORTING = r"""
import json, sys

def say(*messages):
    sys.stdout.write("".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in messages))
    sys.stdout.flush()

def progress(step):
    return {"method": "notifications/progress", "params": {"progressToken": token, "progress": step}}

token = None
for line in sys.stdin:
    asked = json.loads(line)
    id, method, params = asked.get("id"), asked["method"], asked.get("params") or {}
    if method == "initialize":
        about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "tasks": {}},
                 "serverInfo": {"name": "reporting", "version": "1"}}
        say({"id": id, "result": about})
    elif method == "tools/list":
        tool = {"name": "dig", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
        say({"id": id, "result": {"tools": [tool]}})
    elif method == "tools/call":
        token = params.get("_meta", {}).get("progressToken")
        # In one breath: nobody waits for the result yet.
        say({"id": id, "result": {"task": {"taskId": "t", "status": "working"}}}, progress(1))
    elif method == "tasks/result":
        done = {"content": [{"type": "text", "text": "dug"}]}
        say(progress(2), progress(3), {"id": id, "result": done}, progress(4))
    elif id is not None:
        say({"id": id, "error": {"code": -32601, "message": "unknown"}})
"""


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


async def test_its_progress_reaches_the_caller_under_the_callers_own_token(tmp_path: Path) -> None:
    script = tmp_path / "reporting.py"
    script.write_text(REPORTING)
    command = Command(argv=(sys.executable, str(script)))
    received: list[tuple[object, object]] = []

    def listen(_: str, params: JsonObject) -> None:
        received.append((params["progressToken"], params["progress"]))

    async with open_ready(StdioServer(command=command, inherited=os.environ), limits=PATIENT) as server:
        await server.list_all("tools/list")
        for _ in range(2):
            meta: JsonObject = {"progressToken": "mine"}
            assert text_of(await call(server, "dig", meta=meta, listener=listen)) == "dug"
        # What comes after the end belongs to nobody, and nobody who asked for none is told.
        assert text_of(await call(server, "dig", listener=listen)) == "dug"
    assert received == [("mine", step) for step in (1, 2, 3, 1, 2, 3)]
