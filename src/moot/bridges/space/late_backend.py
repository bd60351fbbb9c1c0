"""A backend for a space that cannot be joined yet: a client that starts before its gateway need not fail.

Clients start their MCP servers once and give up on those that do not answer. So `moot mcp` answers from the
start; until the gateway is there, the lists have only our own tools, and a call says what is waited for. Then
everything goes to the space, and the client is told that its lists have changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from moot import __version__
from moot.bridges.space.own_tools import list_own_tools
from moot.errors import McpError
from moot.mcp.downstream.backend import (
    Backend,
    BackendCall,
    Change,
    ListChanged,
    PendingCall,
    ServerDescription,
    text_result,
)
from moot.mcp.downstream.rpc import NOT_DONE
from moot.mcp.eras import JsonObject, OfferKind

# How long a request waits for the gateway before it says that it is not there.
WAIT_SECONDS: Final = 5.0


class LateBackend:
    """Passes everything to a backend that comes later."""

    def __init__(
        self,
        gateway: str,
        *,
        tools: Callable[[], list[JsonObject]] = list_own_tools,
    ) -> None:
        """`tools` are those that are listed from the start."""
        self._gateway = gateway
        self._tools = tools
        self._backend: Backend | None = None
        self._attached = asyncio.Event()
        self._tried = asyncio.Event()
        self._listeners: dict[int, tuple[Callable[[Change], None], Callable[[], None] | None]] = {}
        self._numbers = 0
        # Who we are in the space, and why it cannot be joined; empty while not known.
        self.me = ""
        self.problem = ""

    def attach(self, backend: Backend, me: str) -> None:
        """The space is there: from now on everything goes to this backend."""
        self._backend, self.me = backend, me
        self._attached.set()
        self._tried.set()
        for number, (listener, _) in tuple(self._listeners.items()):
            self._listeners[number] = (listener, backend.watch(listener))
            for what in ("tools", "resources", "prompts"):
                listener(ListChanged(what))

    def detach(self) -> None:
        """The space has been left: whoever asks waits for a while until it is joined again."""
        self._backend = None
        self._attached.clear()
        for number, (listener, stop) in tuple(self._listeners.items()):
            if stop is not None:
                stop()
            self._listeners[number] = (listener, None)

    def report_problem(self, problem: str) -> None:
        """An attempt to join failed: from now on clients are told why."""
        self.problem = problem
        self._tried.set()

    async def wait_tried(self) -> None:
        """Wait until the first attempt to join has succeeded or failed."""
        await self._tried.wait()

    async def wait_attached(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._attached.wait()
        except TimeoutError:
            return False
        return True

    @property
    def about(self) -> ServerDescription:
        if self._backend is not None:
            return self._backend.about
        info: JsonObject = {"name": "moot", "title": "Moot space", "version": __version__}
        return ServerDescription(info, f"{self._explain()} Its tools are listed when it is there.")

    async def offers(self, kind: OfferKind) -> list[JsonObject]:
        if (backend := await self._wait()) is not None:
            return await backend.offers(kind)
        return self._tools() if kind == "tools" else []

    def tool(self, name: str) -> JsonObject | None:
        return None if self._backend is None else self._backend.tool(name)

    async def perform(self, call: BackendCall) -> JsonObject | PendingCall:
        if (backend := await self._wait()) is not None:
            return await backend.perform(call)
        if call.method == "tools/call":
            return text_result(f"{self._explain()} Nothing was sent: call again soon.", is_error=True)
        raise McpError(NOT_DONE, self._explain())

    async def subscribe(self, uri: str) -> None:
        await (await self._require()).subscribe(uri)

    async def unsubscribe(self, uri: str) -> None:
        if self._backend is not None:
            await self._backend.unsubscribe(uri)

    def watch(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        self._numbers += 1
        number = self._numbers
        stop = None if self._backend is None else self._backend.watch(listener)
        self._listeners[number] = (listener, stop)

        def unwatch() -> None:
            _, stop = self._listeners.pop(number)
            if stop is not None:
                stop()

        return unwatch

    async def pending(self, handle: str) -> PendingCall | None:
        return await (await self._require()).pending(handle)

    async def _wait(self) -> Backend | None:
        if self._backend is None:
            await self.wait_attached(WAIT_SECONDS)
        return self._backend

    async def _require(self) -> Backend:
        backend = await self._wait()
        if backend is None:
            raise McpError(NOT_DONE, self._explain())
        return backend

    def _explain(self) -> str:
        why = f" ({self.problem})" if self.problem else ""
        return f"The gateway {self._gateway} cannot be reached yet{why}; it is waited for."
