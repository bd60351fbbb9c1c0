"""A moment in which a server that is started here does not run, and none of its calls does.

What it would write when it ends is written before others change its files, and what it remembers of them is
read anew afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from moot.errors import McpError
from moot.mcp.eras import UNREACHABLE
from moot.mcp.stdio_child import EXIT_SECONDS, TERMINATE_SECONDS
from moot.mcp.upstream import StdioServer, Upstream
from moot.resilience.child_process import ChildProcess, StartChild

# How long running calls may take to end before nothing is done.
IDLE_SECONDS: Final = 30.0


class ServerPause:
    """Calls of one server, and the starts of its process."""

    def __init__(self) -> None:
        self._running = 0
        self._may_run = asyncio.Event()
        self._may_run.set()
        self._idle = asyncio.Event()
        self._idle.set()
        # Set unless a start is under way.
        self._started = asyncio.Event()
        self._started.set()
        self._one_at_a_time = asyncio.Lock()
        self._child: ChildProcess | None = None

    def watch(self, server: StdioServer) -> StdioServer:
        """The server, as it is started from now on."""
        start = server.command.start

        async def start_later(*args: Any, **options: Any) -> ChildProcess:
            while not self._may_run.is_set():
                await self._may_run.wait()
            self._started.clear()
            try:
                self._child = await start(*args, **options)
            finally:
                self._started.set()
            return self._child

        made: StartChild = start_later
        return replace(server, command=replace(server.command, start=made))

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """A call runs; it begins after a pause."""
        while not self._may_run.is_set():
            await self._may_run.wait()
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    @asynccontextmanager
    async def pause(self, upstream: Upstream) -> AsyncIterator[None]:
        """The server does not run; raises McpError if its calls take too long."""
        async with self._one_at_a_time:
            self._may_run.clear()
            try:
                try:
                    async with asyncio.timeout(IDLE_SECONDS):
                        await self._idle.wait()
                except TimeoutError:
                    text = "nothing was done: the MCP server is busy with other calls; try again later"
                    raise McpError(UNREACHABLE, text) from None
                upstream.restart()
                await self._started.wait()
                if self._child is not None:
                    # Also one that has not answered yet, which nobody else would end.
                    await self._child.stop(exit_seconds=EXIT_SECONDS, terminate_seconds=TERMINATE_SECONDS)
                yield
            finally:
                self._may_run.set()
