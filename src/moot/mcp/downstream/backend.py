"""What the MCP server serves: something that offers tools, resources and prompts, and runs calls.

The server knows MCP and its clients; a backend knows where offers come from, what its caller may do, and who
has to approve first. There are two: a space as one member sees it, and XProtocol endpoints.

A backend uses the newest MCP shapes as plain JSON. A call returns

    a result     complete, or `input_required` with requests to the client (MRTR)
    PendingCall  somebody has to decide first; it can be waited for, withdrawn, and looked up later
    McpError     raised: the JSON-RPC error that the client gets; code, message and data stay as they are
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from moot.errors import McpError
from moot.mcp.eras import JsonObject, OfferKind
from moot.protocol.continuation import wanted_input
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS

Listener = Callable[[JsonObject], None]


@dataclass(frozen=True, slots=True)
class ListChanged:
    """A list has changed."""

    what: Literal["tools", "resources", "prompts"]


@dataclass(frozen=True, slots=True)
class ResourceUpdated:
    """A subscribed resource has changed."""

    uri: str


Change = ListChanged | ResourceUpdated


@dataclass(frozen=True, slots=True)
class BackendCall:
    """One call of a client. The backend may keep `params`; names are those that it listed."""

    method: str
    params: JsonObject
    # Called with the params of `notifications/progress` and `notifications/message`; None: not wanted.
    progress: Listener | None = None
    log: Listener | None = None


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """How a backend introduces itself."""

    # MCP's Implementation: name, version, title …
    info: JsonObject
    instructions: str | None = None


PersonDecision = Literal["approve", "reject"]


class PendingCall:
    """A call that waits for somebody's decision, and its result. Kept by the backend for a while.

    `decided` is set when it is clear whether it will be done, `finished` when the result is there; both, in
    this order, however it ends. `headline` says what waits for whom.
    """

    def __init__(
        self,
        handle: str,
        *,
        headline: str,
        call: BackendCall,
        withdraw: Callable[[str], Awaitable[None]],
        pending_result: Callable[[PendingCall], JsonObject],
        kept_seconds: float,
        details: Callable[[], str] = str,
        decide: Callable[[PersonDecision], Awaitable[None]] | None = None,
    ) -> None:
        """`details` says more about it for whoever reads: the exact call, and who decides where. `decide` is
        there if the person at the client may decide; it never raises."""
        self.handle = handle
        self.headline = headline
        self.details = details
        self.decide = decide
        self.call = call
        self.kept_seconds = kept_seconds
        # For people, by the wall clock; how long it is kept goes by `age_seconds` and `idle_seconds`.
        self.created = self.updated = time.time()
        self._created_at = self._updated_at = time.monotonic()
        self.note = "waiting for a decision"
        self.withdrawn = False
        # Its client polls it as a task, and may do so until it is not kept any more.
        self.is_task = False
        self.decided = asyncio.Event()
        self.finished = asyncio.Event()
        self.watchers: list[Callable[[PendingCall], None]] = []
        # Requests of clients that wait for it now, how many there were, when the last one came, and whether
        # any of them was given the result.
        self.waiting = 0
        self.requests = 0
        self.requested_at = 0.0
        # How often the same call was made again while it was pending.
        self.repetitions = 0
        self._delivered = False
        self._doubted_until = 0.0
        self.on_delivered: Callable[[PendingCall], None] | None = None
        self._withdraw = withdraw
        self._pending_result = pending_result
        self._result: JsonObject | None = None
        self._fault: McpError | None = None

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self._created_at

    @property
    def idle_seconds(self) -> float:
        """Since the last change."""
        return time.monotonic() - self._updated_at

    def status_text(self) -> str:
        """How it stands, for whoever reads only this: what waits, who can decide on it, and where."""
        if self.decided.is_set():
            return self.note
        note = f"{self.note[:1].upper()}{self.note[1:]}."
        return " ".join(part for part in (self.headline, note, self.details()) if part)

    def set_note(self, note: str) -> None:
        """Set the text that a waiting person reads."""
        self.note = note
        self._changed()

    def mark_approved(self, note: str) -> None:
        self.decided.set()
        self.set_note(note)

    def settle(self, answer: JsonObject | McpError, note: str, *, withdrawn: bool = False) -> None:
        """Finish with the result of the call, or its error."""
        if self.finished.is_set():
            return
        if isinstance(answer, McpError):
            self._fault = answer
        else:
            self._result = answer
        if self.repetitions:
            self.add_text(
                f"You made this call {self.repetitions + 1} times with the same arguments before its outcome "
                "was known. It was one proposal, decided and carried out at most once."
            )
        self.withdrawn = withdrawn
        self.decided.set()
        self.finished.set()
        self.set_note(note)

    def outcome(self) -> JsonObject | McpError:
        """The result of the call or its error, for whoever writes it down. Only once `finished` is set."""
        return self._fault if self._fault is not None else self._result or {}

    def result(self, *, told: bool = True, doubt_seconds: float = 0.0) -> JsonObject:
        """The result for a client, which counts as delivered if `told`; raises McpError if the call failed.

        Only once `finished` is set. `doubt_seconds`: it counts only after this, since it may not be read.
        """
        # Input that a tool asks for is not its outcome: who calls again is asked again.
        if self.finished.is_set() and told and self.wanted_input is None:
            is_first, self._delivered = not self._delivered, True
            self._doubted_until = time.monotonic() + doubt_seconds
            if is_first and self.on_delivered is not None:
                self.on_delivered(self)
        if self._fault is not None:
            raise self._fault
        if self._result is None:
            raise RuntimeError("the call is still pending: it has no result")
        return self._result

    @property
    def wanted_input(self) -> str | None:
        """What its tool asks for, if it has answered that it needs input (`protocol.continuation`)."""
        return wanted_input(self._result)

    @property
    def delivered(self) -> bool:
        """Whether a client was given the result, and must have read it."""
        return self._delivered and time.monotonic() >= self._doubted_until

    def note_repetition(self) -> None:
        """The same call was made again while it is pending."""
        self.repetitions += 1

    def add_text(self, text: str) -> None:
        """Put a text before the content of the result, where it has content."""
        if self._result is not None and isinstance(self._result.get("content"), list):
            content = [{"type": "text", "text": text}, *self._result["content"]]
            self._result = {**self._result, "content": content}

    def pending_result(self) -> JsonObject:
        """The result for a client that cannot wait: it says what is pending, and how to look it up."""
        return self._pending_result(self)

    async def withdraw(self, reason: str) -> None:
        """Withdraw it unless it is decided; never raises because it is too late."""
        if not self.decided.is_set():
            await self._withdraw(reason)

    def _changed(self) -> None:
        self.updated = time.time()
        self._updated_at = time.monotonic()
        for watcher in tuple(self.watchers):
            watcher(self)


class Backend(Protocol):
    """What a server serves. All lists are those of this caller, in a stable order."""

    @property
    def about(self) -> ServerDescription: ...

    async def offers(self, kind: OfferKind) -> list[JsonObject]:
        """All offers of a kind that the caller may use, as in a list result."""

    def tool(self, name: str) -> JsonObject | None:
        """The definition of a listed tool, without waiting; the same object until it changes."""

    async def perform(self, call: BackendCall) -> JsonObject | PendingCall:
        """Run a call. Cancelling this cancels the call."""

    async def subscribe(self, uri: str) -> None:
        """Report changes of this resource from now on; raises McpError. Each needs an `unsubscribe`."""

    async def unsubscribe(self, uri: str) -> None: ...

    def watch(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` on changes until the returned function is called."""

    async def pending(self, handle: str) -> PendingCall | None:
        """The call with this handle, pending or finished recently, also of an earlier run; raises McpError
        if that cannot be told now."""


class ToolsOnlyBackend:
    """What a server with a few tools answers to everything else: nothing changes, and no call is kept."""

    async def subscribe(self, uri: str) -> None:
        raise McpError(INVALID_PARAMS, "there are no resources here", {"uri": uri})

    async def unsubscribe(self, uri: str) -> None:
        """Nothing is ever subscribed."""

    def watch(self, _listener: Callable[[Change], None]) -> Callable[[], None]:
        """The lists never change."""
        return lambda: None

    async def pending(self, _handle: str) -> PendingCall | None:
        """No call waits for others once it has returned."""
        return None


@dataclass(slots=True)
class McpServerCounts:
    """What a server has done so far, for metrics and tests."""

    requests: int = 0
    sessions: int = 0
    channels: dict[str, int] = field(default_factory=dict)

    def count_channel(self, name: str) -> None:
        self.channels[name] = self.channels.get(name, 0) + 1


def text_result(text: str, *, is_error: bool = False, **more: Json) -> JsonObject:
    """A tool result that is one text."""
    made: JsonObject = {"content": [{"type": "text", "text": text}], **more}
    if is_error:
        made["isError"] = True
    return made
