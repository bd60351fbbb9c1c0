"""How tests wait: for an event, never for a time.

One bound for every wait. It catches what hangs and measures no speed: a machine with nothing else to do and
one that is a hundred times as slow give the same results. What tells of itself is waited for inside
`bounded()`; what tells nobody is asked again and again, by `until`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from types import ModuleType, SimpleNamespace
from typing import TypeVar

import pytest

T = TypeVar("T")

HANG_SECONDS = 300.0
# Between two looks: a part of what was waited so far, small beside it, large beside what a look costs.
_LOOK_SECONDS = (0.005, 0.05)
_LOOK_SHARE = 0.1


def bounded() -> asyncio.Timeout:
    """A block that fails with TimeoutError when it hangs."""
    return asyncio.timeout(HANG_SECONDS)


async def until(holds: Callable[[], T | None], describe: Callable[[], str] | None = None) -> T:
    """Look until something holds that nobody tells of; what was seen then.

    `describe` says how things stand, for the message when it never holds.
    """
    start = time.monotonic()
    while not (found := holds()):
        await asyncio.sleep(_pause(start, holds, describe))
    return found


async def until_told(ask: Callable[[], Awaitable[T]], describe: Callable[[], str] | None = None) -> T:
    """The same where looking is itself something to wait for: ask a gateway, run a command."""
    start = time.monotonic()
    while not (found := await ask()):
        await asyncio.sleep(_pause(start, ask, describe))
    return found


def until_seen(holds: Callable[[], T], describe: Callable[[], str] | None = None) -> T:
    """The same in a test that has no loop."""
    start = time.monotonic()
    while not (found := holds()):
        time.sleep(_pause(start, holds, describe))
    return found


def _pause(start: float, holds: Callable[[], object], describe: Callable[[], str] | None) -> float:
    waited = time.monotonic() - start
    assert waited < HANG_SECONDS, _never(holds, describe)
    least, most = _LOOK_SECONDS
    return min(max(least, waited * _LOOK_SHARE), most)


def move_clock(monkeypatch: pytest.MonkeyPatch, seconds: float, *modules: ModuleType) -> None:
    """For these modules it is so much later: whatever ends at a time need not be waited for."""
    for module in modules:
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: time.time() + seconds))


def _never(holds: Callable[[], object], describe: Callable[[], str] | None) -> str:
    try:
        waiting = inspect.getsource(holds).strip()
    except (OSError, TypeError):
        waiting = repr(holds)
    answer = f"\n{describe()}" if describe is not None else ""
    return f"not so within {HANG_SECONDS:g} seconds: {waiting}{answer}"
