"""Waiting until this gateway knows what the log had when somebody asked.

A token that another gateway has just made is in the log before its holder knows it, and perhaps not applied
here yet. So a token that nobody has here is judged behind a barrier. Strangers come with wrong tokens as
often as they like: all who wait share one barrier, and between two of them there is a pause.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from moot.errors import Unavailable
from moot.gateway.cluster.nats.shared_log import SharedLog
from moot.resilience.task_set import TaskSet

log = logging.getLogger(__name__)

# One barrier costs an empty message in each shard: at most twenty in a second.
_PAUSE_SECONDS: Final = 0.05

OnPassed = Callable[[Unavailable | None], None]


class LogBarrier:
    """One for all shards of a gateway; `max_seconds` is how long to wait at most."""

    def __init__(
        self, logs: Callable[[], Sequence[SharedLog]], max_seconds: Callable[[], float], tasks: TaskSet
    ) -> None:
        self._logs = logs
        self._max_seconds = max_seconds
        self._tasks = tasks
        self._is_running = False
        # Who asked after the barrier began that is passed now: they wait for the next one.
        self.waiting: list[OnPassed] = []
        # How many there were.
        self.passed = 0

    def call_when_passed(self, call: OnPassed) -> None:
        """Call back when all that is in the log by now is applied here, or with what keeps us from it."""
        self.waiting.append(call)
        if not self._is_running:
            self._is_running = True
            self._tasks.start(self._run())

    async def _run(self) -> None:
        try:
            while self.waiting:
                calls, self.waiting = self.waiting, []
                refusal = await self._pass()
                self.passed += 1
                for call in calls:
                    try:
                        call(refusal)
                    except Exception:
                        # The others wait for theirs.
                        log.exception("who waited for the cluster's log could not go on")
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._is_running = False

    async def _pass(self) -> Unavailable | None:
        since, most = time.monotonic(), self._max_seconds()
        logs = self._logs()
        if any(each.failed.done() or each.age_seconds > most for each in logs):
            return _cut_off()
        try:
            async with asyncio.timeout(most):
                await asyncio.gather(*(each.wait_known(since) for each in logs))
        except TimeoutError:
            return _cut_off()
        return None


def _cut_off() -> Unavailable:
    return Unavailable("this gateway does not reach the log of its cluster: try again, or another one")
