"""Tasks that belong together and end together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

# Longer than anything needs to clean up: a second cancellation would interrupt that.
_ASK_AGAIN_SECONDS: Final = 5.0


def check_cancelled() -> None:
    """End this task if it was cancelled and goes on; raises CancelledError.

    Before Python 3.12 `asyncio.wait_for` loses a cancellation that comes together with what it waits for, and
    anyio one that comes together with the end of its own time. Whoever begins something that may last for
    ever asks here first.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended, however they do.

    They are asked again after some seconds: a task that has lost its cancellation (see `check_cancelled`)
    goes on as if nothing had been.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_ASK_AGAIN_SECONDS)


async def wait_for_any(*awaited: Awaitable[object], timeout_seconds: float | None = None) -> None:
    """Wait until one of these is done, or the time is over. Futures go on; the rest is cancelled."""
    futures = [asyncio.ensure_future(each) for each in awaited]
    try:
        await asyncio.wait(futures, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for given, future in zip(awaited, futures, strict=True):
            if future is not given:
                future.cancel()


async def end_other_tasks() -> None:
    """End all tasks of this loop but the one that asks: for whoever is about to close the loop.

    `asyncio.Runner` does the same at its end, but asks once and then waits for ever.
    """
    await end_tasks(asyncio.all_tasks() - {asyncio.current_task()})


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
        await end_tasks(list(self._tasks))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("a task failed", exc_info=fault, extra={"task": self._name})


class BackgroundTasks:
    """Starts tasks in a group that somebody else owns, and cancels those that still run."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
