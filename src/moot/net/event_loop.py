"""The event loop that every program of Moot runs on: uvloop where it is installed, asyncio's own elsewhere.

uvloop halves what a message costs, but it is compiled and exists for CPython on Linux and macOS only.
"""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest loop that is installed. Imported here, not above: most commands need no loop at all."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
