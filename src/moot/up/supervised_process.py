"""A process of ours: started, watched, restarted with back-off, and certainly ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from moot.errors import UsageError
from moot.resilience.child_process import ChildExit, ChildProcess
from moot.resilience.restart_loop import DEFAULT_RESTART, RestartPolicy, keep_running
from moot.up.member_log import MemberLog
from moot.up.part_status import LAST_LINES, Kind, PartState, PartStatus

log = logging.getLogger(__name__)

# Starts the process; with a message to show while it runs. Raises UsageError.
Start = Callable[[], Awaitable[tuple[ChildProcess, str]]]


# As much of its last line as a row of the status has room for; the log has the rest.
LAST_LINE_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class RunEnd:
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
        restart: RestartPolicy = DEFAULT_RESTART,
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
        self._restart = restart
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

    async def run(self) -> None:
        """Run until cancelled, or until it has ended and is not to be restarted. Leaves no process behind."""
        try:
            end = await keep_running(
                self._run_once,
                self._restart,
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
