"""An MCP server whose one tool runs a script of Python in its folder; for previews."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import msgspec

from moot.up.servers.tool_server import ServerTool, ToolBackend, ToolError, run_over_stdio


class RunArguments(msgspec.Struct):
    script: str


async def _run(given: RunArguments) -> str:
    said: list[str] = []
    names = {"folder": Path(sys.argv[1]), "os": os, "socket": socket, "say": said.append, "state": _STATE}
    try:
        await asyncio.to_thread(exec, given.script, names)
    except Exception as fault:  # noqa: BLE001  # whatever a script does
        raise ToolError(f"{type(fault).__name__}: {fault}") from None
    return "\n".join(map(str, said)) or "done"


_STATE: dict[str, object] = {}
_SCHEMA = {"type": "object", "properties": {"script": {"type": "string"}}, "required": ["script"]}
_TOOL = {"description": "Runs a script.", "inputSchema": _SCHEMA}
TOOLS = [
    ServerTool({"name": "change", **_TOOL}, RunArguments, _run),
    ServerTool({"name": "look", "annotations": {"readOnlyHint": True}, **_TOOL}, RunArguments, _run),
]


if __name__ == "__main__":
    run_over_stdio(ToolBackend("changing", "Changes files.", TOOLS))
