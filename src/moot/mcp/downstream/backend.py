"""What stands behind the MCP face: something that offers tools, resources and prompts, and does things.

The face knows MCP and its clients; a backend knows where things come from, what its caller may do, and who
has to agree first. Two stand behind it: a space seen by one member, and endpoints of XProtocol.

A backend speaks the newest MCP shapes as plain JSON. A call answers with

    a result     complete, or `input_required` with questions for the client (MRTR)
    Pending      somebody has to decide first; it can be waited for, withdrawn, and asked for later
    McpError     raised: the JSON-RPC error that the client gets; code, message and data stay as they are
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from moot.errors import McpError
from moot.mcp.eras import JsonObject
from moot.protocol.operation import Json

Offering = Literal["tools", "resources", "resourceTemplates", "prompts"]
Listener = Callable[[JsonObject], None]


@dataclass(frozen=True, slots=True)
class ListChanged:
    """A list is not what it was."""

    what: Literal["tools", "resources", "prompts"]


@dataclass(frozen=True, slots=True)
class ResourceUpdated:
    """A subscribed resource holds something new."""

    uri: str


Change = ListChanged | ResourceUpdated


@dataclass(frozen=True, slots=True)
class BackendCall:
    """One thing that a client wants done. `params` are the backend's to keep; names are those it showed."""

    method: str
    params: JsonObject
    # Called with the params of `notifications/progress` and `notifications/message`; None: not wanted.
    progress: Listener | None = None
    log: Listener | None = None


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """How a backend introduces itself."""

    info: JsonObject  # Implementation: name, version, title …
    instructions: str | None = None


class PendingCall:
    """A call that waits for somebody's decision, and what became of it. Kept by the backend for a while.

    `decided` is set when it is clear whether it will be done, `finished` when the answer is there; both, in
    this order, on every way it can end. `headline` says what waits for whom.
    """

    def __init__(
        self,
        handle: str,
        *,
        headline: str,
        call: BackendCall,
        withdraw: Callable[[str], Awaitable[None]],
        pending_result: Callable[[PendingCall], JsonObject],
        lives_seconds: float,
    ) -> None:
        self.handle = handle
        self.headline = headline
        self.call = call
        self.lives_seconds = lives_seconds
        self.created = self.updated = time.time()
        self.note = "waiting for a decision"
        self.withdrawn = False
        self.decided = asyncio.Event()
        self.finished = asyncio.Event()
        self.watchers: list[Callable[[PendingCall], None]] = []
        self._withdraw = withdraw
        self._pending_result = pending_result
        self._result: JsonObject | None = None
        self._fault: McpError | None = None

    def says(self, note: str) -> None:
        """Something happened that a person waiting would like to read."""
        self.note = note
        self._changed()

    def approved(self, note: str) -> None:
        self.decided.set()
        self.says(note)

    def settle(self, answer: JsonObject | McpError, note: str, *, withdrawn: bool = False) -> None:
        """It is over: the result that the call has, or the error."""
        if self.finished.is_set():
            return
        if isinstance(answer, McpError):
            self._fault = answer
        else:
            self._result = answer
        self.withdrawn = withdrawn
        self.decided.set()
        self.finished.set()
        self.says(note)

    def result(self) -> JsonObject:
        """What came of it; raises McpError if that was an error. Only once `finished` is set."""
        if self._fault is not None:
            raise self._fault
        if self._result is None:
            raise RuntimeError("asked for the result of a call that is still waiting")
        return self._result

    def pending_result(self) -> JsonObject:
        """A result for a client that cannot be told later: it says what is pending, and how to ask again."""
        return self._pending_result(self)

    async def withdraw(self, reason: str) -> None:
        """Take it back, unless it is decided; never raises because it is too late."""
        if not self.decided.is_set():
            await self._withdraw(reason)

    def _changed(self) -> None:
        self.updated = time.time()
        for watcher in tuple(self.watchers):
            watcher(self)


class Backend(Protocol):
    """What a face shows. All lists are this caller's own, in an order that does not change by itself."""

    @property
    def about(self) -> ServerDescription: ...

    async def offers(self, what: Offering) -> list[JsonObject]:
        """Everything of a kind that the caller may use, as shown in a list result."""

    def tool(self, name: str) -> JsonObject | None:
        """The description of a shown tool, without waiting; the same object until it changes."""

    async def perform(self, call: BackendCall) -> JsonObject | PendingCall:
        """Do it. Cancelling the caller cancels what was asked for."""

    async def subscribe(self, uri: str) -> None:
        """From now on `Updated` comes for this resource; raises McpError. Each needs its `unsubscribe`."""

    async def unsubscribe(self, uri: str) -> None: ...

    def watch(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Tell `listener` of changes until the returned function is called."""

    def pending(self, handle: str) -> PendingCall | None:
        """What is known under this handle: still waiting, or finished not too long ago."""


@dataclass(slots=True)
class OfferCounts:
    """What a face has done, for metrics and tests."""

    requests: int = 0
    notifications: int = 0
    faults: int = 0
    cancelled: int = 0
    sessions: int = 0
    channels: dict[str, int] = field(default_factory=dict)

    def channel(self, name: str) -> None:
        self.channels[name] = self.channels.get(name, 0) + 1


def text_result(text: str, *, is_error: bool = False, **more: Json) -> JsonObject:
    """A tool result that is one text."""
    made: JsonObject = {"content": [{"type": "text", "text": text}], **more}
    if is_error:
        made["isError"] = True
    return made
