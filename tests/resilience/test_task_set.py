"""Tasks that end together."""

from __future__ import annotations

import asyncio

import pytest

from moot.resilience import task_set
from moot.resilience.task_set import TaskSet, end_tasks, wait_for_any


async def test_a_task_that_loses_a_cancellation_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_set, "_ASK_AGAIN_SECONDS", 0.01)
    asked: list[str] = []

    async def lose_one(name: str) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                asked.append(name)
                if asked.count(name) > 1:
                    raise

    tasks = [asyncio.create_task(lose_one(name)) for name in ("a", "b")]
    owned = TaskSet("test")
    owned.start(lose_one("c"))
    await asyncio.sleep(0)
    await end_tasks(tasks)
    assert all(task.cancelled() for task in tasks)
    await owned.close()
    assert sorted(asked) == ["a", "a", "b", "b", "c", "c"]
    await end_tasks(tasks)


async def test_whoever_waits_for_any_leaves_futures_alone_and_ends_the_rest() -> None:
    first, never, future = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop().create_future()
    ended: list[str] = []

    async def wait(event: asyncio.Event, name: str) -> None:
        try:
            await event.wait()
        finally:
            ended.append(name)

    first.set()
    await wait_for_any(wait(first, "first"), wait(never, "never"), future)
    await asyncio.sleep(0)
    assert ended == ["first", "never"]
    assert not future.done()
    await wait_for_any(future, timeout_seconds=0.0)
    assert not future.done()
