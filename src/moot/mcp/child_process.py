"""An MCP server as a child process (D-87): lines in, lines out, and an end that is certain.

How it works. The child gets an argument list, never a shell; the variables that were listed for it and
a few harmless ones, never our whole environment; and a session of its own, so that it and everything it
starts can be ended as one group. Whatever it does, it is reported and memory stays bounded:

- stdout is cut into lines. A line longer than `line_bytes` is dropped while it arrives; its first and
  last bytes are reported, since the id of the response is there.
- stdin is written without waiting; once `unread_bytes` wait for a child that does not read, `send` raises.
- stderr goes to a `StderrTail`.
- The end is reported once, when stdout ends or the process does, whichever comes first, with a short wait
  for the other: the last response may still be in the pipe, and a grandchild may keep the pipe open.

The SDK's own stdio transport is not used: it reads lines of any length, hands stderr to a file of ours
that nobody bounds, and takes each message through two pydantic models and two streams (measured: 140 µs of
CPU for a request and its response in the transport alone; a whole call of ours takes half of that).
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, cast

from moot.errors import UsageError
from moot.mcp.process_groups import add_group, discard_group
from moot.mcp.stderr_tail import StderrTail

log = logging.getLogger(__name__)

# What the MCP SDKs pass on, and what sets language, time zone and temporary directory.
INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")

# How long the end of the process and the end of its stdout wait for each other.
_DRAIN_SECONDS: Final = 0.25
# Only a process stuck in the kernel takes longer to be killed.
_KILL_SECONDS: Final = 5.0
# How often to look whether a group has ended.
_POLL_SECONDS: Final = 0.02
# Enough for `{"jsonrpc":"2.0","id":…` at either end.
_EDGE_BYTES: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """Every bound on a child process."""

    # 16 MiB, sixteen times the largest envelope of a space: an image or two.
    line_bytes: int = 16 << 20
    # 8 MiB that the child has not read: eight of the largest requests.
    unread_bytes: int = 8 << 20
    # MCP's own order of ending: close stdin, wait, SIGTERM, wait, SIGKILL. The SDKs wait two seconds each
    # time; this stays below the two that a person waits who has pressed Ctrl-C.
    exit_seconds: float = 0.5
    terminate_seconds: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to start: an argument list and its environment variables."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None

    def __repr__(self) -> str:
        # Arguments and variables may hold keys.
        return f"Command({self.argv[:1]!r}, args={len(self.argv) - 1}, env={sorted(self.env)!r})"


class ChildGone(Exception):
    """The child has ended, or reads too slowly."""


def child_environment(listed: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables of a child: the listed ones over the harmless ones of `inherited`."""
    # A value that starts so is an exported shell function: code, not data.
    kept = {name: inherited[name] for name in INHERITED if not inherited.get(name, "()").startswith("()")}
    return kept | dict(listed)


@dataclass(frozen=True, slots=True)
class ChildExit:
    """How a child ended: its exit code (negative: the signal), or None if it only closed its stdout."""

    code: int | None

    def __str__(self) -> str:
        if self.code is None:
            return "closed its output"
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-self.code).name}"
        return f"was ended by signal {-self.code}"


class Child(asyncio.SubprocessProtocol):
    """A running child. `on_line` gets each line without its end; `on_oversize` the edges of one too long."""

    def __init__(
        self,
        on_line: Callable[[bytes], None],
        on_oversize: Callable[[bytes, bytes, int], None],
        stderr: StderrTail,
        limits: ChildLimits,
    ) -> None:
        self._on_line = on_line
        self._on_oversize = on_oversize
        self._stderr = stderr
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._pieces: list[bytes] = []
        self._kept_bytes = 0
        # Set while a line that is too long still arrives: its first and its latest bytes.
        self._head: bytes | None = None
        self._tail = b""
        self._paused: asyncio.TimerHandle | None = None
        self._exited = asyncio.Event()
        self.ended: asyncio.Future[ChildExit] = self._loop.create_future()

    @property
    def pid(self) -> int:
        assert self._transport is not None  # noqa: S101  # only `start` makes children
        return self._transport.get_pid()

    def send(self, line: bytes) -> None:
        """Write one line; raises ChildGone when nobody reads at the other end."""
        pipe = self._stdin
        if pipe is None or pipe.is_closing() or self.ended.done():
            raise ChildGone("it has ended")
        if pipe.get_write_buffer_size() + len(line) > self._limits.unread_bytes:
            raise ChildGone(f"it does not read: {self._limits.unread_bytes} bytes wait for it")
        pipe.write(line + b"\n")

    def pause_reading(self, seconds: float) -> None:
        """Read nothing from the child for a while: the pipe fills and the child has to wait."""
        pipe = self._pipe(1)
        if pipe is not None and self._paused is None and not pipe.is_closing():
            cast("asyncio.ReadTransport", pipe).pause_reading()
            self._paused = self._loop.call_later(seconds, self._resume_reading)

    async def stop(self) -> None:
        """End the child and its whole group, gently first; cancelling this ends them at once."""
        try:
            await self._end_gently()
        finally:
            self._signal(signal.SIGKILL)
            try:
                # Nothing survives that; waiting for it leaves no zombie.
                async with asyncio.timeout(_KILL_SECONDS):
                    await self._exited.wait()
                discard_group(self.pid)
            except TimeoutError:
                log.warning("a child did not end", extra={"pid": self.pid})
            finally:
                self._close()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        add_group(self._transport.get_pid())
        self._stdin = self._pipe(0)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._split_lines(data)
        else:
            self._stderr.feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        if fd == 1:
            self._report_end_soon()

    def process_exited(self) -> None:
        self._exited.set()
        self._report_end_soon()

    # Inside

    def _split_lines(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._head is not None:
                head, size = self._head, self._kept_bytes + len(line)
                self._head, self._kept_bytes = None, 0
                self._on_oversize(head, (self._tail + line)[-_EDGE_BYTES:], size)
                continue
            if self._pieces:
                line = b"".join((*self._pieces, line))
                self._pieces.clear()
            self._kept_bytes = 0
            if len(line) > self._limits.line_bytes:
                self._on_oversize(line[:_EDGE_BYTES], line[-_EDGE_BYTES:], len(line))
            elif line:
                self._on_line(line)
        if rest:
            self._keep_partial(rest)

    def _keep_partial(self, rest: bytes) -> None:
        self._kept_bytes += len(rest)
        if self._head is not None:
            self._tail = (self._tail + rest)[-_EDGE_BYTES:]
        elif self._kept_bytes > self._limits.line_bytes:
            line = b"".join((*self._pieces, rest))
            self._pieces.clear()
            self._head, self._tail = line[:_EDGE_BYTES], line[-_EDGE_BYTES:]
        else:
            self._pieces.append(rest)

    def _resume_reading(self) -> None:
        self._paused = None
        pipe = self._pipe(1)
        if pipe is not None and not pipe.is_closing():
            cast("asyncio.ReadTransport", pipe).resume_reading()

    def _report_end_soon(self) -> None:
        if self.ended.done():
            return
        if self._exited.is_set() and self._pipe_closed(1):
            self._report_end()
        else:
            self._loop.call_later(_DRAIN_SECONDS, self._report_end)

    def _report_end(self) -> None:
        if not self.ended.done():
            code = self._transport.get_returncode() if self._transport is not None else None
            self.ended.set_result(ChildExit(code))

    async def _end_gently(self) -> None:
        pipe = self._pipe(0)
        if pipe is not None and not pipe.is_closing():
            pipe.close()
        # It may be blocked writing to a pipe that we do not read: read on, and drop what comes.
        self._on_line, self._on_oversize = _ignore_line, _ignore_oversize
        if self._paused is not None:
            self._paused.cancel()
            self._resume_reading()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.exit_seconds):
                await self._exited.wait()
        if not self._signal(signal.SIGTERM):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.terminate_seconds):
                # The leader may be gone while what it started is not.
                while self._signal(0) or not self._exited.is_set():
                    await asyncio.sleep(_POLL_SECONDS)

    def _signal(self, number: int) -> bool:
        """Signal the group; False when nobody is left in it."""
        if self._transport is None:
            return False
        try:
            os.killpg(self._transport.get_pid(), number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _close(self) -> None:
        self._report_end()
        if self._transport is not None:
            self._transport.close()
        self._stderr.close()

    def _pipe(self, fd: int) -> asyncio.WriteTransport | None:
        if self._transport is None:
            return None
        return cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(fd))

    def _pipe_closed(self, fd: int) -> bool:
        pipe = self._pipe(fd)
        return pipe is None or pipe.is_closing()


async def start(
    command: Command,
    *,
    on_line: Callable[[bytes], None],
    on_oversize: Callable[[bytes, bytes, int], None],
    stderr: StderrTail,
    inherited: Mapping[str, str],
    limits: ChildLimits,
) -> Child:
    """Start a child; raises UsageError when there is no such program or it cannot be run."""
    environment = child_environment(command.env, inherited)
    if not command.argv or any("\0" in argument for argument in command.argv):
        raise UsageError("a command is a list of arguments, at least one, without NUL bytes")
    program = shutil.which(command.argv[0], path=environment.get("PATH"))
    if program is None:
        raise UsageError(
            f"no such program: {command.argv[0]!r}; give its full path, or make sure that it is in PATH"
        )
    loop = asyncio.get_running_loop()
    try:
        _, child = await loop.subprocess_exec(
            lambda: Child(on_line, on_oversize, stderr, limits),
            program,
            *command.argv[1:],
            env=environment,
            cwd=command.cwd,
            start_new_session=True,
        )
    except OSError as fault:
        raise UsageError(f"cannot start {command.argv[0]!r}: {fault.strerror or fault}") from None
    return child


def _ignore_line(line: bytes) -> None:
    del line


def _ignore_oversize(head: bytes, tail: bytes, size: int) -> None:
    del head, tail, size
