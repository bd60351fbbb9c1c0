"""A process of ours: started, watched, restarted with back-off, and certainly ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from moot.errors import UsageError
from moot.resilience.child_process import ChildExit, ChildProcess
from moot.resilience.restart_loop import DEFAULT_RESTART, RestartPolicy, keep_running
from moot.up.member_log import MemberLog
from moot.up.part_status import Kind, PartState, PartStatus

log = logging.getLogger(__name__)

# Starts the process; with a message to show while it runs. Raises UsageError.
Start = Callable[[], Awaitable[tuple[ChildProcess, str]]]


def always(_ended: ChildExit | None) -> bool:
    """Restart it however it ended."""
    return True


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
        restart: RestartPolicy = DEFAULT_RESTART,
    ) -> None:
        self.name = name
        self.space = space
        self.pid: int | None = None
        self.log = output
        self._kind: Kind = kind
        self._start = start
        self._should_restart = should_restart
        self._restart = restart
        self._state = PartState(on_change)

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
        )

    async def run(self) -> None:
        """Run until cancelled, or until it has ended and is not to be restarted. Leaves no process behind."""
        try:
            _, reason = await keep_running(
                self._run_once,
                self._restart,
                should_restart=lambda end: self._should_restart(end[0]),
                on_delay=lambda end, seconds: self._state.wait_for_restart(end[1], seconds),
            )
            self._state.change("ended", reason)
        finally:
            self.log.close()

    async def _run_once(self) -> tuple[ChildExit | None, str]:
        """One run of the process; how it ended, and that as text."""
        self._state.start()
        try:
            child, message = await self._start()
        except UsageError as fault:
            self.log.note(f"cannot be started: {fault}")
            return None, str(fault)
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
        self.log.note(str(ended))
        log.info("%s ended", self._kind, extra=facts | {"how": str(ended)})
        return ended, str(ended)
