"""An MCP server that runs programs in one folder: `python3 -m moot.up.servers.commands FOLDER`.

Meant for proposals: whoever may request `run` can do on this machine whatever its user can.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Final

import msgspec

from moot.errors import UsageError
from moot.mcp.eras import JsonObject
from moot.resilience.child_process import start_child
from moot.resilience.process_groups import kill_groups
from moot.up.servers.tool_server import ServerTool, ToolBackend, ToolError, run_over_stdio

# The end of the output usually says how it went.
OUTPUT_BYTES: Final = 64 << 10
# Enough for a test suite; run what takes longer by hand.
MAX_SECONDS: Final = 600.0
_DEFAULT_SECONDS: Final = 120.0
_TERMINATE_SECONDS: Final = 2.0


# Pinned in the data of spaces, with titles and order: another word suspends rules and withholds the tool.
_RUN: Final[JsonObject] = {
    "annotations": {"destructiveHint": True, "openWorldHint": True, "readOnlyHint": False},
    "description": "Run a program in the folder and give back its exit code and the end of what it printed.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "command": {
                "description": "the program and its arguments, one each",
                "items": {"type": "string"},
                "minItems": 1,
                "title": "Command",
                "type": "array",
            },
            "seconds": {
                "default": _DEFAULT_SECONDS,
                "exclusiveMinimum": 0,
                "maximum": MAX_SECONDS,
                "title": "Seconds",
                "type": "number",
            },
        },
        "required": ["command"],
        "title": "runArguments",
    },
    "name": "run",
}


class RunArguments(msgspec.Struct):
    command: Annotated[list[str], msgspec.Meta(min_length=1)]
    seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)] = _DEFAULT_SECONDS


def server_of(folder: Path) -> ToolBackend:
    """A server with one tool, `run`."""

    async def run(given: RunArguments) -> str:
        return await run_program(given.command, folder, given.seconds)

    instructions = f"Runs programs in {folder}. Without a shell: one program and its arguments."
    return ToolBackend("moot-commands", instructions, [ServerTool(_RUN, RunArguments, run)])


async def run_program(command: list[str], folder: Path, seconds: float) -> str:
    """Run it to its end, or for at most so long; raises ToolError when it cannot be started."""
    if any("\0" in word for word in command):
        raise ToolError("a command holds no NUL")
    kept, total = b"", 0

    def keep(data: bytes) -> None:
        nonlocal kept, total
        total += len(data)
        kept = (kept + data)[-OUTPUT_BYTES:]

    try:
        # What it has left in the background may still print, for as long as there is time.
        child = await start_child(
            command, environment=None, cwd=folder, on_stdout=keep, drain_seconds=seconds
        )
    except UsageError as fault:
        raise ToolError(str(fault)) from None
    try:
        done, _ = await asyncio.wait([child.ended], timeout=seconds)
    finally:
        # The program and all that it started, also when the caller has cancelled the call.
        await child.stop(terminate_seconds=_TERMINATE_SECONDS)
    ended = "ended" if done else f"was ended after {seconds:g} s"
    cut = f"… {total - len(kept)} bytes before this\n" if total > len(kept) else ""
    code = child.ended.result().code
    return f"{ended} with exit code {code}\n{cut}{kept.decode('utf-8', 'replace')}"


def _end_all(number: int, _frame: object) -> None:
    kill_groups()
    os._exit(128 + number)


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.stderr.write("usage: python3 -m moot.up.servers.commands FOLDER\n")
        return 2
    # Whoever ends this server may not wait for it to end what it runs.
    signal.signal(signal.SIGTERM, _end_all)
    run_over_stdio(server_of(Path(sys.argv[1]).absolute()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
