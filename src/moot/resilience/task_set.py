"""Tasks that belong together and end together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class TaskSet:
    """Tasks started and owned here. A task that fails is logged; the others go on."""

    def __init__(self, name: str) -> None:
        """`name` stands in the log when a task fails."""
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait(self, timeout_seconds: float) -> None:
        """Wait until all have ended, or the time is over."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout_seconds)

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
            log.error("a task failed", exc_info=fault, extra={"task": self._name})
