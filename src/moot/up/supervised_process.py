"""A process of ours: started, watched, restarted with back-off, and certainly ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from moot.config.secrets.secret import Secret
from moot.errors import UsageError
from moot.mcp.stderr_tail import StderrTail
from moot.resilience.child_process import ChildExit, ChildProcess
from moot.resilience.restart_loop import keep_running
from moot.up.part_status import LAST_LINES, Kind, PartState, PartStatus

log = logging.getLogger(__name__)

# Starts the process; with a message to show while it runs. Raises UsageError.
Start = Callable[[], Awaitable[tuple[ChildProcess, str]]]


# As much of its last line as a row of the status has room for; the log has the rest.
LAST_LINE_CHARS: Final = 200


# The output of a member, in DATA/logs/NAME.log: bounded on disk and in memory, and without its token.

# Four megabytes and their predecessor: a chatty agent fills it in a day or two.
FILE_BYTES: Final = 4 << 20
# A line without an end is searched for the token in pieces of this size.
_MAX_PARTIAL_BYTES: Final = 64 << 10
_REDACTED: Final = b"[redacted]"
_NOTE: Final = "-- "


class MemberLog:
    """Takes the output of one member. `last_line` is the latest one that is not blank."""

    def __init__(self, file: Path, token: Secret, *, file_bytes: int = FILE_BYTES) -> None:
        self.file = file
        self._tail = StderrTail(file, file_bytes=file_bytes)
        self._token = token.reveal().encode()
        self._partial = b""
        self.last_line = ""

    def feed(self, data: bytes) -> None:
        """Output of the member, in pieces of any size; never raises."""
        whole, newline, rest = (self._partial + data).rpartition(b"\n")
        if newline:
            self._keep(whole + newline)
        self._partial = rest
        if len(self._partial) > _MAX_PARTIAL_BYTES:
            # The token may cross the cut: as much as could be its beginning waits.
            cut = len(self._partial) - len(self._token)
            redacted = self._partial.replace(self._token, _REDACTED)
            ready, self._partial = (
                (self._partial[:cut], self._partial[cut:]) if redacted == self._partial else (redacted, b"")
            )
            self._keep(ready)

    def last_lines(self, count: int) -> list[str]:
        """The last lines since it was started, oldest first: escape them before they are shown."""
        lines = self._tail.last_lines(count)
        notes = [at for at, line in enumerate(lines) if line.startswith(_NOTE)]
        return lines[notes[-1] + 1 :] if notes else lines

    def note(self, text: str) -> None:
        """A line of `moot up` itself."""
        self.flush()
        self._keep(f"{_NOTE}{text}\n".encode())

    def flush(self) -> None:
        """The member has ended: an unfinished line counts as a line too."""
        if self._partial:
            self._keep(self._partial + b"\n")
            self._partial = b""

    def close(self) -> None:
        self.flush()
        self._tail.close()

    def _keep(self, lines: bytes) -> None:
        lines = lines.replace(self._token, _REDACTED)
        self._tail.feed(lines)
        written = [line for line in lines.decode("utf-8", "replace").splitlines() if line.strip()]
        if written:
            self.last_line = written[-1].strip()


class RunEnd(msgspec.Struct, frozen=True):
    """How one run ended: None if it could not be started, after how long, and that as text."""

    exit: ChildExit | None
    seconds: float
    message: str


def always(_ended: ChildExit | None) -> bool:
    """Restart it however it ended."""
    return True


def never(_ended: RunEnd) -> bool:
    """No end is one that only a person can mend."""
    return False


class SupervisedProcess:
    """One process. `run` keeps it running until cancelled; `status` says how it is doing."""

    def __init__(
        self,
        name: str,
        start: Start,
        output: MemberLog,
        *,
        kind: Kind,
        on_change: Callable[[], None],
        space: str = "",
        should_restart: Callable[[ChildExit | None], bool] = always,
        gives_up: Callable[[RunEnd], bool] = never,
    ) -> None:
        self.name = name
        self.space = space
        self.pid: int | None = None
        self.log = output
        self._kind: Kind = kind
        self._start = start
        self._should_restart = should_restart
        self._gives_up = gives_up
        # It ended, and would end in the same way until a person has changed something.
        self.gave_up = False
        self._state = PartState(on_change)
        self._last_output: tuple[str, ...] = ()

    def status(self) -> PartStatus:
        state, message = self._state.state, self._state.message
        return PartStatus(
            space=self.space,
            name=self.name,
            kind=self._kind,
            state=state,
            pid=self.pid,
            since=self._state.since,
            restarts=self._state.restarts,
            message=message or self.log.last_line if state == "running" else message,
            output=self._last_output,
            log_file=self.log.file,
        )

    def describe(self, message: str) -> None:
        """Say this of it while it runs, instead of what it wrote last."""
        self._state.change("running", message)

    async def run(self) -> None:
        """Run until cancelled, or until it has ended and is not to be restarted. Leaves no process behind."""
        try:
            end = await keep_running(
                self._run_once,
                should_restart=lambda end: not self._gives_up(end) and self._should_restart(end.exit),
                on_delay=lambda end, seconds: self._state.wait_for_restart(end.message, seconds),
            )
            self.gave_up = self._gives_up(end)
            self._state.change("ended", end.message)
        finally:
            self.log.close()

    async def _run_once(self) -> RunEnd:
        self._state.start()
        # What an earlier run wrote is not why this one ends.
        self.log.last_line = ""
        clock = asyncio.get_running_loop().time
        started_at = clock()
        try:
            child, message = await self._start()
        except UsageError as fault:
            self.log.note(f"cannot be started: {fault}")
            return RunEnd(None, 0.0, str(fault))
        self.pid = child.pid
        self._state.change("running", message)
        facts = {"space": self.space, "participant": self.name}
        log.info("%s started", self._kind, extra=facts | {"pid": self.pid})
        try:
            # Not awaited itself: cancelling this task would cancel the future for everybody.
            await asyncio.wait([child.ended])
        except asyncio.CancelledError:
            self._state.change("stopping")
            await child.stop()
            raise
        finally:
            child.kill()
            self.log.flush()
            self.pid = None
        ended = child.ended.result()
        last_line = self.log.last_line if ended.code != 0 else ""
        self._last_output = tuple(self.log.last_lines(LAST_LINES)) if last_line else ()
        self.log.note(str(ended))
        log.info("%s ended", self._kind, extra=facts | {"how": str(ended)})
        message = f"{ended}: {last_line[:LAST_LINE_CHARS]}" if last_line else str(ended)
        return RunEnd(ended, clock() - started_at, message)
