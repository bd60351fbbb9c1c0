"""The tasks of a member: one group that ends with the block of its connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class MemberTasks:
    """Work that runs until it ends or the member leaves. Enter and leave in the same task."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: dict[asyncio.Task[None], Coroutine[Any, Any, None]] = {}
        self._is_over = False

    async def enter(self) -> None:
        await self._group.__aenter__()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start something; None when the member has left. What it raises is logged and harms nobody."""
        if self._is_over:
            work.close()
            return None
        task = self._group.create_task(_guarded(work))
        self._running[task] = work
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        # Cancelled before its first step, the guard never came to await the work.
        self._running.pop(task).close()

    def cancel(self) -> None:
        """Nothing new begins, and whatever runs is stopped, but for the task that says so."""
        self._is_over = True
        current = asyncio.current_task()
        for task in tuple(self._running):
            if task is not current:
                task.cancel()

    async def leave(self) -> None:
        """Wait until the last of them is gone."""
        self.cancel()
        await self._group.__aexit__(None, None, None)


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    """An error in one task must not end the group, and with it the whole block."""
    try:
        await work
    except Exception:
        log.exception("a task failed")
