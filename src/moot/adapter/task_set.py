"""Tasks that belong together and end together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class TaskSet:
    """Started here and owned by nobody else. One that fails is told of in the log; the others go on."""

    def __init__(self, what: str) -> None:
        """`what` says in the log what has failed."""
        self._what = what
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finished(self, within: float) -> None:
        """Wait until all have ended, for a while."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=within)

    async def close(self) -> None:
        """Cancel what is left and wait for its end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("a task failed", exc_info=fault, extra={"task": self._what})
