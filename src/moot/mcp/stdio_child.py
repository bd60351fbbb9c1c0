"""An MCP server as a child process (D-87): lines in, lines out. `resilience.child_process` supervises it.

The child gets the variables that were listed for it and a few harmless ones, never our whole environment.
Whatever it does, it is reported and memory stays bounded:

- stdout is cut into lines. A line longer than `LINE_BYTES` is dropped while it arrives; its first and
  last bytes are reported, since the id of the response is there.
- stdin is written without waiting; once `UNREAD_BYTES` wait for a child that does not read, `send` raises.
- stderr goes to a `StderrTail`.

The SDK's own stdio transport is not used: it reads lines of any length, hands stderr to a file of ours
that nobody bounds, and takes each message through two pydantic models and two streams (measured: 140 µs of
CPU for a request and its response in the transport alone; a whole call of ours takes half of that).
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from moot.errors import UsageError
from moot.mcp.stderr_tail import StderrTail
from moot.mcp.stdio_lines import LineSplitter
from moot.resilience.child_process import (
    ChildExit,
    ChildProcess,
    StartChild,
    child_environment,
    start_child,
)

# 80 MiB: a value of 32 MiB, the most that a gateway keeps, twice: SDKs send what a tool returns as text and
# as structured content. And what JSON and base64 add to it.
LINE_BYTES: Final = 80 << 20
# 64 MiB that the child has not read: more than the largest request.
UNREAD_BYTES: Final = 64 << 20
# MCP's own order of ending: close stdin, wait, SIGTERM, wait, SIGKILL. The SDKs wait two seconds each
# time; this stays below the two that a person waits who has pressed Ctrl-C.
EXIT_SECONDS: Final = 0.5
TERMINATE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to start: an argument list and its environment variables."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    # How: as a child of ours like any other, or in a box.
    start: StartChild = field(default=start_child, compare=False)

    def __repr__(self) -> str:
        # Arguments and variables may hold keys.
        return f"Command({self.argv[:1]!r}, args={len(self.argv) - 1}, env={sorted(self.env)!r})"


class ChildGone(Exception):
    """The child has ended, or reads too slowly."""


class StdioChild:
    """A running child that reads and writes lines."""

    def __init__(self, process: ChildProcess, lines: LineSplitter, stderr: StderrTail) -> None:
        self._process = process
        self._lines = lines
        self._stderr = stderr
        self.ended: asyncio.Future[ChildExit] = process.ended

    @property
    def is_closed(self) -> bool:
        """Whether nobody reads any more. How the child has ended is known a moment later."""
        pipe = self._process.stdin
        return pipe is None or pipe.is_closing() or self.ended.done()

    def send(self, line: bytes) -> None:
        """Write one line; raises ChildGone when nobody reads at the other end."""
        pipe = self._process.stdin
        if pipe is None or self.is_closed:
            raise ChildGone("it has ended")
        if pipe.get_write_buffer_size() + len(line) > UNREAD_BYTES:
            raise ChildGone(f"it does not read: {UNREAD_BYTES} bytes wait for it")
        pipe.write(line + b"\n")

    def pause_reading(self, seconds: float) -> None:
        """Read nothing from the child for a while: the pipe fills and the child has to wait."""
        self._process.pause_reading(seconds)

    async def stop(self) -> None:
        """End the child and its whole group, gently first; cancelling this ends them at once."""
        # What it still writes is read, so that it can end, and dropped.
        self._lines.close()
        try:
            await self._process.stop(exit_seconds=EXIT_SECONDS, terminate_seconds=TERMINATE_SECONDS)
        finally:
            self._stderr.close()


async def start(
    command: Command,
    *,
    on_line: Callable[[bytes], None],
    on_oversize: Callable[[bytes, bytes, int], None],
    stderr: StderrTail,
    inherited: Mapping[str, str],
) -> StdioChild:
    """Start a child; raises UsageError when there is no such program or it cannot be run."""
    environment = child_environment(command.env, inherited)
    if not command.argv or any("\0" in argument for argument in command.argv):
        raise UsageError("a command is a list of arguments, at least one, without NUL bytes")
    program = shutil.which(command.argv[0], path=environment.get("PATH"))
    if program is None:
        raise UsageError(
            f"no such program: {command.argv[0]!r}; give its full path, or make sure that it is in PATH"
        )
    lines = LineSplitter(on_line, on_oversize, max_line_bytes=LINE_BYTES)
    process = await command.start(
        [program, *command.argv[1:]],
        environment=environment,
        cwd=command.cwd,
        on_stdout=lines.feed,
        on_stderr=stderr.feed,
        has_stdin=True,
        ends_with_stdout=True,
    )
    return StdioChild(process, lines, stderr)
