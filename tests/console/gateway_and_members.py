"""A gateway, members and a browser for the console's tests, each on a thread or in a process of its own.

    def test_…(gateway: Running, page_as: PageAs, member: MemberAs) -> None:
        page = page_as("human")                       # stays signed in; no token is in the address
        agent = member("agent")                       # an SDK member that is there until the test ends
        proposal = agent.run(lambda space: space.propose("files", "tools/call", {...}))

Playwright's synchronous interface owns the main thread, so everything that awaits runs elsewhere.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar, overload

import uvloop

from moot.config import load
from moot.gateway.app import Gateway
from moot.participant import JoinedSpace, ToolError, connect
from moot.protocol.operation import Json
from tests.config.former_constants import former_constants
from tests.gateway.running_gateway import gateway_settings, participants, space_settings, write_config
from tests.waiting import HANG_SECONDS, until_seen

T = TypeVar("T")


# What a human of the demo holds, what a new agent holds, and what a tool member needs.
PEOPLE = participants(
    human=["*"],
    second=["*"],
    agent=["mcp/proposal", "mcp/withdraw", "mcp/response", "chat", "chat/*", "reasoning/*", "stream/*"],
    files=[
        "mcp/response",
        "chat",
        "chat/*",
        "participant/status",
        "stream/*",
        {"kind": "mcp/request", "payload": {"method": "notifications/*"}},
    ],
    watcher=["chat"],
)


class Loop:
    """An event loop that turns on a thread."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._turn, daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def start(self, doing: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(doing, self._loop)

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        return self.start(doing).result(HANG_SECONDS)

    def close(self) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_SECONDS)
        self._loop.close()

    async def _end(self) -> None:
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        # Bounded: one task that does not end must not keep the whole session from ending.
        if rest:
            await asyncio.wait(rest, timeout=HANG_SECONDS / 2)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()


class Running:
    """A gateway with `lab` and `attic`, where `human` is too; it can be stopped and come back."""

    def __init__(
        self,
        folder: Path,
        loop: Loop,
        spaces: Mapping[str, Json],
        *,
        port: int = 0,
        environ: Mapping[str, str] | None = None,
        **settings: Json,
    ) -> None:
        self._loop = loop
        self._environ = environ or {}
        self._file = write_config(folder, gateway_settings(spaces, **settings))
        self._gateway: Gateway | None = None
        self._constants = ExitStack()
        self.port = port
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def gateway(self) -> Gateway:
        assert self._gateway is not None
        return self._gateway

    def token(self, name: str) -> str:
        return f"t-{name}"

    def start(self) -> None:
        """Listen; on the same port as before, if it ran before."""
        self._constants.enter_context(former_constants(self._file))
        self._gateway = Gateway(load(self._file, environ=self._environ, port=self.port))
        self._loop.run(self._gateway.start())
        self.port = self._gateway.port

    def stop(self) -> None:
        if self._gateway is not None:
            self._loop.run(self._gateway.stop())
            self._gateway = None
            self._constants.close()

    def restart(self) -> None:
        self.stop()
        self.start()


def gathered(into: list[T], count: int) -> list[T]:
    """What a member has heard, once it is this much: a page may show a thing before others have heard it."""
    until_seen(lambda: len(into) >= count)
    return into


class Driven:
    """A member of the SDK, driven from the test's thread."""

    def __init__(self, loop: Loop, name: str) -> None:
        self._loop = loop
        self.name = name
        self.space: JoinedSpace
        self._entered: Future[None] = Future()
        self._leaving = asyncio.Event()
        self._life: Future[None] | None = None

    def enter(self, url: str, space: str, token: str, **options: Any) -> None:
        async def live() -> None:
            # Entered and left in one task, as the SDK asks for.
            try:
                async with connect(url, space, token, **options) as joined:
                    self.space = joined
                    self._entered.set_result(None)
                    await self._leaving.wait()
            except BaseException as fault:
                if not self._entered.done():
                    self._entered.set_exception(fault)
                    return
                raise

        self._life = self._loop.start(live())
        try:
            self._entered.result(HANG_SECONDS)
        except BaseException:
            # Still trying, perhaps: nobody waits for it any more.
            self._life.cancel()
            raise

    @overload
    def run(
        self,
        act: Callable[[JoinedSpace], Coroutine[Any, Any, T]],
    ) -> T: ...

    @overload
    def run(self, act: Callable[[JoinedSpace], T]) -> T: ...

    def run(self, act: Callable[[JoinedSpace], Any]) -> Any:
        """Do something as this member, on its loop, and wait for what comes of it."""

        async def acting() -> Any:
            done = act(self.space)
            return await done if isinstance(done, Awaitable) else done

        return self._loop.run(acting())

    def sees(self, holds: Callable[[JoinedSpace], T]) -> T:
        """Look until this holds for the member: a page may show a thing before others have heard it."""
        return until_seen(lambda: self.run(holds))

    def start(self, act: Callable[[JoinedSpace], Awaitable[T]]) -> Future[T]:
        """Begin something as this member, and go on."""

        async def acting() -> T:
            return await act(self.space)

        return self._loop.start(acting())

    def leave(self) -> None:
        async def ask() -> None:
            self._leaving.set()

        if self._life is not None and not self._life.done():
            self._loop.run(ask())
            self._life.result(HANG_SECONDS)


def spaces() -> dict[str, Json]:
    """The space of most tests, and a second one that the same human may enter."""
    return {
        "lab": space_settings(PEOPLE),
        "attic": space_settings(participants(human=["*"], hermit=["chat", "mcp/proposal"])),
    }


def offer_tools(space: JoinedSpace) -> None:
    """What the member `files` can do: read, write, and fail."""
    kept: dict[str, str] = {"notes.txt": "first line\nsecond line\n"}

    @space.tool
    def read_file(path: str) -> str:
        """Read a file."""
        if path not in kept:
            raise ToolError(f"there is no {path}")
        return kept[path]

    @space.tool
    def write_file(path: str, content: str) -> str:
        """Write a file: content replaces what was there."""
        kept[path] = content
        return f"{len(content)} characters written to {path}"

    @space.tool
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b
