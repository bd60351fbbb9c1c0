"""A child process and everything it starts: started as a group of its own, supervised, ended as a group.

How it works. A child gets an argument list, never a shell, and a session of its own: Ctrl-C in a terminal
reaches only us, and the child can be ended together with whatever it has started; what has left its group is
found by a mark (`descendants`). Its end is reported once,
when the process has exited and its output is closed. The one waits for the other only for `drain_seconds`:
the last output may still be in the pipe, but a grandchild may keep the pipe open for ever.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, cast

import msgspec

from moot.errors import UsageError
from moot.resilience.descendants import MARK, awaited, end_marked, new_mark, signal_marked
from moot.resilience.process_groups import add_group, discard_group, signal_group

log = logging.getLogger(__name__)

# What the MCP SDKs pass on, and what sets language, time zone and temporary directory.
INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
# Whom to trust and how to get out of a company's network: without these npx and uvx fetch nothing there.
CERTIFICATES: Final = (
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
PROXIES: Final = (
    *("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"),
    *("all_proxy", "https_proxy", "http_proxy", "no_proxy"),
)

# Between SIGTERM and SIGKILL: below the two seconds that a person waits who has pressed Ctrl-C.
TERMINATE_SECONDS: Final = 1.5
DRAIN_SECONDS: Final = 0.25
# Only a process stuck in the kernel takes longer to be killed.
_KILL_SECONDS: Final = 5.0
# How often to look whether a group has ended.
_POLL_SECONDS: Final = 0.02


class ChildExit(msgspec.Struct, frozen=True):
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


class ChildProcess(asyncio.SubprocessProtocol):
    """A running child. `ended` is done when it has ended and its output is in. Made by `start_child`."""

    def __init__(
        self,
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None] | None,
        *,
        ends_with_stdout: bool,
        drain_seconds: float,
        mark: str | None,
    ) -> None:
        self._mark = mark
        self._on_stdout = on_stdout
        self._on_stderr = on_stderr or on_stdout
        self._ends_with_stdout = ends_with_stdout
        self._drain_seconds = drain_seconds
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport | None = None
        self._resume_timer: asyncio.TimerHandle | None = None
        # Those whose end belongs to the end of the child.
        self._open_pipes = {1} if ends_with_stdout or on_stderr is None else {1, 2}
        self._is_killed = False
        self._exited = asyncio.Event()
        self.stdin: asyncio.WriteTransport | None = None
        self.ended: asyncio.Future[ChildExit] = self._loop.create_future()

    @property
    def pid(self) -> int:
        assert self._transport is not None  # noqa: S101  # only `start_child` makes children
        return self._transport.get_pid()

    def pause_reading(self, seconds: float) -> None:
        """Read nothing from stdout for a while: the pipe fills and the child has to wait."""
        pipe = self._stdout()
        if pipe is not None and self._resume_timer is None:
            pipe.pause_reading()
            self._resume_timer = self._loop.call_later(seconds, self.resume_reading)

    def resume_reading(self) -> None:
        """Read on before the pause is over."""
        if self._resume_timer is not None:
            self._resume_timer.cancel()
            self._resume_timer = None
            pipe = self._stdout()
            if pipe is not None:
                pipe.resume_reading()

    async def stop(self, *, exit_seconds: float = 0.0, terminate_seconds: float = TERMINATE_SECONDS) -> None:
        """End the whole group, gently first; cancelling this kills it at once.

        Closes stdin and waits for `exit_seconds`, sends SIGTERM and waits for `terminate_seconds`, then
        sends SIGKILL.
        """
        try:
            await self._stop_gently(exit_seconds, terminate_seconds)
        finally:
            self._signal(signal.SIGKILL)
            try:
                # Nothing survives that; waiting for it leaves no zombie.
                async with asyncio.timeout(_KILL_SECONDS):
                    await self._exited.wait()
            except TimeoutError:
                log.warning("a child did not end", extra={"pid": self.pid})
            finally:
                self.kill()

    def kill(self) -> None:
        """Kill the whole group now, and what is left of it when its leader has ended by itself."""
        self._signal(signal.SIGKILL)
        # From here on the number may belong to another process.
        self._is_killed = True
        if self._mark is not None:
            end_marked(self._mark)
        if self._transport is not None:
            discard_group(self._transport.get_pid())
            self._report_end()
            # Reaps the process as well; uvloop kills it once more, and it may have gone in this moment.
            with suppress(ProcessLookupError):
                self._transport.close()
            awaited.discard(self._transport.get_pid())

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.stdin = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))
        add_group(self._transport.get_pid())
        awaited.add(self._transport.get_pid())

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._on_stdout(data)
        else:
            self._on_stderr(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        self._open_pipes.discard(fd)
        if self._exited.is_set() or (fd == 1 and self._ends_with_stdout):
            self._report_end_soon()

    def process_exited(self) -> None:
        awaited.discard(self.pid)
        self._exited.set()
        self._report_end_soon()

    # Inside

    def _report_end_soon(self) -> None:
        if self._exited.is_set() and not self._open_pipes:
            self._report_end()
        else:
            self._loop.call_later(self._drain_seconds, self._report_end)

    def _report_end(self) -> None:
        if not self.ended.done():
            code = self._transport.get_returncode() if self._transport is not None else None
            self.ended.set_result(ChildExit(code))

    async def _stop_gently(self, exit_seconds: float, terminate_seconds: float) -> None:
        if self.stdin is not None and not self.stdin.is_closing():
            self.stdin.close()
        # It may be blocked writing to a pipe that we do not read.
        self.resume_reading()
        with suppress(TimeoutError):
            async with asyncio.timeout(exit_seconds):
                await self._exited.wait()
        if self._mark is not None:
            signal_marked(self._mark, signal.SIGTERM)
        if not self._signal(signal.SIGTERM):
            return
        # A stopped process (SIGSTOP) gets no signal until it continues.
        self._signal(signal.SIGCONT)
        with suppress(TimeoutError):
            async with asyncio.timeout(terminate_seconds):
                # The leader may have ended while what it started has not.
                while self._signal(0) or not self._exited.is_set():
                    await asyncio.sleep(_POLL_SECONDS)

    def _signal(self, number: int) -> bool:
        if self._transport is None or self._is_killed:
            return False
        return signal_group(self._transport.get_pid(), number)

    def _stdout(self) -> asyncio.ReadTransport | None:
        if self._transport is None:
            return None
        pipe = cast("asyncio.ReadTransport | None", self._transport.get_pipe_transport(1))
        return None if pipe is None or pipe.is_closing() else pipe


async def start_child(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None,
    cwd: Path | str | None,
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None] | None = None,
    has_stdin: bool = False,
    ends_with_stdout: bool = False,
    drain_seconds: float = DRAIN_SECONDS,
    pass_fds: Sequence[int] = (),
) -> ChildProcess:
    """Start a process in a session of its own; raises UsageError when that is not possible.

    Without `environment` it inherits ours, and daemons of its end with us rather than with it. Without
    `on_stderr` its stderr goes where its stdout goes. With `ends_with_stdout` closing its stdout counts as
    its end. `pass_fds` are the open files that it gets besides its three.
    """
    if cwd is not None and not Path(cwd).is_dir():
        raise UsageError(f"cannot start {argv[0]!r}: its folder {cwd} is not there")
    mark = None if environment is None else new_mark()
    pipe, devnull, stdout = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL, asyncio.subprocess.STDOUT
    try:
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: ChildProcess(
                on_stdout,
                on_stderr,
                ends_with_stdout=ends_with_stdout,
                drain_seconds=drain_seconds,
                mark=mark,
            ),
            *argv,
            stdin=pipe if has_stdin else devnull,
            stdout=pipe,
            stderr=stdout if on_stderr is None else pipe,
            env=None if environment is None or mark is None else {**environment, MARK: mark},
            cwd=cwd,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    except OSError as fault:
        raise UsageError(f"cannot start {argv[0]!r}: {fault.strerror or fault}") from None
    return child


class StartChild(Protocol):
    """Starts a process as `start_child` does, or confines it besides."""

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None,
        cwd: Path | str | None,
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None] | None = None,
        has_stdin: bool = False,
        ends_with_stdout: bool = False,
    ) -> ChildProcess: ...


def child_environment(listed: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables of a child: the listed ones over the harmless ones of `inherited`."""
    # A value that starts so is an exported shell function: code, not data.
    kept = {
        name: inherited[name]
        for name in (*INHERITED, *CERTIFICATES)
        if not inherited.get(name, "()").startswith("()")
    }
    for name in PROXIES:
        # Not one with a password in it: whoever needs that lists it.
        if "@" not in inherited.get(name, "@"):
            kept[name] = inherited[name]
    return kept | dict(listed)
