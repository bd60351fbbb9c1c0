"""Waits for one value by its key, never without a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from moot.errors import TimedOut

T = TypeVar("T")


class PendingReplies(Generic[T]):
    """Waits by key. Cancelling a wait is safe and leaves nothing behind."""

    def __init__(self) -> None:
        self._futures: dict[str, asyncio.Future[T]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._futures

    def __len__(self) -> int:
        return len(self._futures)

    async def wait(self, key: str, timeout_seconds: float, what: str) -> T:
        """What `resolve` brings for this key; raises TimedOut, or whatever `fail` was given."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._futures[key] = future
        timer = loop.call_later(timeout_seconds, _expire, future, what, timeout_seconds)
        try:
            return await future
        finally:
            timer.cancel()
            if self._futures.get(key) is future:
                del self._futures[key]

    def resolve(self, key: str, value: T) -> bool:
        """Whether somebody was waiting for it."""
        future = self._futures.pop(key, None)
        if future is None or future.done():
            return False
        future.set_result(value)
        return True

    def fail(self, key: str, fault: Exception) -> bool:
        """Whether somebody was waiting for it."""
        future = self._futures.pop(key, None)
        if future is None or future.done():
            return False
        future.set_exception(fault)
        return True

    def fail_all(self, fault: Callable[[], Exception]) -> None:
        for key in list(self._futures):
            self.fail(key, fault())


def _expire(future: asyncio.Future[T], what: str, timeout_seconds: float) -> None:
    if not future.done():
        future.set_exception(TimedOut(f"{what} did not come within {timeout_seconds:g} s"))
