"""One process and everything it starts: begun as a group of its own, ended as a group.

A member gets an argument list, never a shell; the variables that are listed for it and a few harmless ones
(D-87); nothing on stdin; and a session of its own, so that Ctrl-C in the terminal reaches `moot up` alone,
which then ends members in its own order.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from moot.errors import UsageError
from moot.mcp.child_process import ChildExit, child_environment
from moot.mcp.process_groups import add_group, discard_group

# Time to say goodbye after SIGTERM; then SIGKILL. As long as an MCP server has (`ChildLimits`).
GOODBYE_SECONDS: Final = 1.5
# How often a dying group is looked at.
_POLL_SECONDS: Final = 0.02
# How long output of a process that has ended may still be on its way.
_DRAIN_SECONDS: Final = 0.25


class ProcessGroup(asyncio.SubprocessProtocol):
    """A process that runs. `ended` is done when it has ended and its output is in."""

    def __init__(self, on_output: Callable[[bytes], None]) -> None:
        self._on_output = on_output
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport | None = None
        self._open_pipes = 2
        self._has_exited = False
        self._is_killed = False
        self.ended: asyncio.Future[ChildExit] = self._loop.create_future()

    @property
    def pid(self) -> int:
        assert self._transport is not None  # noqa: S101  # only `start` makes these
        return self._transport.get_pid()

    async def stop(self, within: float = GOODBYE_SECONDS) -> None:
        """End the whole group: SIGTERM, some time, SIGKILL. Cancelling this ends them at once."""
        try:
            if self._signal(signal.SIGTERM):
                # Stopped processes (SIGSTOP) hear nothing until they go on.
                self._signal(signal.SIGCONT)
                with suppress(TimeoutError):
                    async with asyncio.timeout(within):
                        # The leader may be gone while what it started is not.
                        while self._signal(0):
                            await asyncio.sleep(_POLL_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the whole group now, and what is left of it when its leader has ended by itself."""
        self._signal(signal.SIGKILL)
        # From here on the number may become somebody else's.
        self._is_killed = True
        if self._transport is not None:
            discard_group(self._transport.get_pid())
            # Reaps the process as well.
            self._transport.close()

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        add_group(self._transport.get_pid())

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002
        self._on_output(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        self._open_pipes -= 1
        if self._has_exited and not self._open_pipes:
            self._tell_end()

    def process_exited(self) -> None:
        self._has_exited = True
        if self._open_pipes:
            # Something that it started may hold the pipes open for ever.
            self._loop.call_later(_DRAIN_SECONDS, self._tell_end)
        else:
            self._tell_end()

    # Inside

    def _tell_end(self) -> None:
        if not self.ended.done():
            assert self._transport is not None  # noqa: S101  # it has run
            self.ended.set_result(ChildExit(self._transport.get_returncode()))

    def _signal(self, number: int) -> bool:
        """Signal the group; False when nobody is left in it."""
        if self._transport is None or self._is_killed:
            return False
        try:
            os.killpg(self._transport.get_pid(), number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def keep_open_files() -> None:
    """Let no process that is started from here inherit what we inherited ourselves, but stdin and the like.

    Our own files are closed to children anyway (PEP 446); those that came from whoever started us are not,
    and uvloop leaves them open: a member would hold pipes and sockets of strangers.
    """
    for name in os.listdir("/dev/fd"):
        with suppress(OSError, ValueError):
            if int(name) > 2:
                os.set_inheritable(int(name), False)


def member_environment(listed: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables of a member. Its PATH begins with this installation: its `python3` and its `moot`."""
    environment = child_environment(listed, inherited)
    if "PATH" not in listed:
        here = str(Path(sys.executable).parent)
        others = [part for part in environment.get("PATH", os.defpath).split(os.pathsep) if part != here]
        environment["PATH"] = os.pathsep.join([here, *others])
    return environment


def argument_list(
    command: str, args: tuple[str, ...], environment: Mapping[str, str], cwd: Path
) -> list[str]:
    """What is run; raises UsageError when there is no such program. `moot` is always this installation."""
    if any("\0" in part for part in (command, *args)):
        raise UsageError("a command and its arguments hold no NUL byte")
    if command == "moot":
        return [sys.executable, "-m", "moot.cli", *args]
    # A path is meant from where the member runs.
    wanted = str(cwd / command) if os.sep in command else command
    program = shutil.which(wanted, path=environment.get("PATH"))
    if program is None:
        raise UsageError(
            f"no such program: {command!r}; install it, or give its full path (PATH is what `moot up` has)"
        )
    return [program, *args]


async def start(
    argv: list[str], *, environment: Mapping[str, str], cwd: Path, on_output: Callable[[bytes], None]
) -> ProcessGroup:
    """Start a process in a session of its own; raises UsageError when that cannot be."""
    if not cwd.is_dir():
        raise UsageError(f"cannot start {argv[0]!r}: its folder {cwd} is not there")
    try:
        _, running = await asyncio.get_running_loop().subprocess_exec(
            lambda: ProcessGroup(on_output),
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as fault:
        raise UsageError(f"cannot start {argv[0]!r}: {fault.strerror or fault}") from None
    return running
