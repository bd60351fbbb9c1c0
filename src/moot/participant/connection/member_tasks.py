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
        self._is_closed = False

    async def enter(self) -> None:
        await self._group.__aenter__()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start a task; None when the member has left. What it raises is logged, and ends nothing else."""
        if self._is_closed:
            work.close()
            return None
        task = self._group.create_task(_run_guarded(work))
        self._running[task] = work
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        # If the task was cancelled before its first step, `work` was never awaited.
        self._running.pop(task).close()

    def cancel(self) -> None:
        """Start nothing new, and cancel every task except the calling one."""
        self._is_closed = True
        current = asyncio.current_task()
        for task in tuple(self._running):
            if task is not current:
                task.cancel()

    async def leave(self) -> None:
        """Cancel the tasks and wait for the last of them."""
        self.cancel()
        await self._group.__aexit__(None, None, None)


async def _run_guarded(work: Coroutine[Any, Any, None]) -> None:
    """An error in one task must not end the group, and with it the whole block."""
    try:
        await work
    except Exception:
        log.exception("a task failed")
