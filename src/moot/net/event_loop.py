"""The event loop that every program of Moot runs on: uvloop where it is installed, asyncio's own elsewhere.

uvloop halves what a message costs, but it is compiled and exists for CPython on Linux and macOS only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest loop that is installed. Imported here, not above: most commands need no loop at all."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run `main` to its end on a new loop, as `asyncio.run` does (which takes no loop before Python 3.12)."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
