"""Answering others (MEW 3.1, 8.2): requests become tasks, a bounded number at once, results become responses.

    asked by name (`to` names us)      every method
    asked as everybody (no `to`)       list methods and server/discover only: one call, one execution (D-81)
    proposed                           nothing runs; only a request does (MEW 7.1)

An answer is owed and needs no right of its own (D-15); to a broadcast nobody owes one. An answer that is
ready while we are paused or away waits for that to end. A caller that cancels gets none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from moot.errors import McpError, MootError, UsageError
from moot.participant.calls.request_client import LOG_MESSAGE, PROGRESS
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender
from moot.participant.connection.inbound_check import InboundValidator
from moot.participant.connection.message_feed import Spawn
from moot.participant.decisions.proposal_list import ProposalList
from moot.protocol.envelope import Envelope
from moot.protocol.kinds import CANCELLED, NOTIFICATION_PREFIX
from moot.protocol.operation import Json, operation_of

log = logging.getLogger(__name__)

METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
# JSON-RPC's range for servers; MCP gives it no meaning of its own.
BUSY: Final = -32000

# D-81: what may be asked of everybody at once.
BROADCAST_METHODS: Final = frozenset(
    {"tools/list", "resources/list", "resources/templates/list", "prompts/list", "server/discover"}
)


@dataclass(slots=True, eq=False)
class IncomingRequest:
    """One request of somebody else. `params` is the caller's, field by field; do not change it."""

    envelope: Envelope
    _host: RequestServer = field(repr=False)
    is_cancelled: bool = False
    cancel_reason: str | None = None
    _cancelled: asyncio.Event | None = field(default=None, repr=False)
    _task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def cancelled(self) -> asyncio.Event:
        """Set when the caller has called it off, for whoever waits for that."""
        if self._cancelled is None:
            self._cancelled = asyncio.Event()
            if self.is_cancelled:
                self._cancelled.set()
        return self._cancelled

    @property
    def sender(self) -> str:
        return self.envelope.sender

    @property
    def method(self) -> str:
        method: str = self.envelope.payload["method"]
        return method

    @property
    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.envelope.payload.get("params", {})
        return params

    @property
    def rpc_id(self) -> str | int | None:
        """The caller's JSON-RPC id; None for a notification."""
        return self.envelope.payload.get("id")

    @property
    def meta(self) -> dict[str, Any]:
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def is_broadcast(self) -> bool:
        return not self.envelope.to

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None, **more: Json
    ) -> bool:
        """Tell the caller how far it is; False if it did not ask to be told, or cannot be."""
        token = self.meta.get("progressToken")
        if token is None:
            return False
        params: dict[str, Json] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        return await self.notify(PROGRESS, params | more)

    async def log(self, level: str, data: Json, logger: str | None = None) -> bool:
        """Tell the caller something in passing (`notifications/message`)."""
        params: dict[str, Json] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        return await self.notify(LOG_MESSAGE, params)

    async def notify(self, method: str, params: Mapping[str, Json]) -> bool:
        """A notification to the caller about this request; False if it could not be sent."""
        owed = not self.is_broadcast and not self.is_cancelled
        return self._host.notify(method, params, to=self.sender, about=self.envelope.id, owed=owed)


RequestHandler = Callable[[IncomingRequest], Awaitable[dict[str, Json] | None]]
NotificationHandler = Callable[[IncomingRequest], Awaitable[None]]
CanRun = Callable[[str, Mapping[str, Json]], bool]


class RequestServer:
    """Runs the requests that concern us. `handler` answers them; None leaves them all alone."""

    def __init__(
        self, voice: EnvelopeSender, inspector: InboundValidator, proposals: ProposalList, spawn: Spawn
    ) -> None:
        self.handler: RequestHandler | None = None
        self.notifications: NotificationHandler | None = None
        # Whether a proposal that names us could ever run here; None: no opinion (MEW 3.3.2).
        self.can_run: CanRun | None = None
        self._voice = voice
        self._inspector = inspector
        self._proposals = proposals
        self._spawn = spawn
        self._running: dict[str, IncomingRequest] = {}
        self._queue: deque[IncomingRequest] = deque()

    @property
    def running(self) -> int:
        return len(self._running)

    # What is heard

    def request(self, envelope: Envelope) -> None:
        """A request for somebody; only what concerns us becomes a task."""
        handler = self.handler
        if handler is None:
            return
        if envelope.to:
            if self._voice.me not in envelope.to:
                return
        elif envelope.payload["method"] not in BROADCAST_METHODS or envelope.sender == self._voice.me:
            return
        request = IncomingRequest(envelope, self)
        if len(self._running) < self._voice.limits.handlers:
            self._start(request, handler)
        elif len(self._queue) < self._voice.limits.queued_requests:
            self._queue.append(request)
        elif not request.is_broadcast:
            self._refuse(request, BUSY, "busy: too many requests at once, come back later")

    def notification(self, envelope: Envelope) -> None:
        """Cancelling is ours to act on; anything else goes to whoever hosts."""
        if envelope.payload["method"] == CANCELLED:
            self._cancel(envelope)
            return
        handler = self.notifications
        if handler is None or (envelope.to and self._voice.me not in envelope.to):
            return
        if envelope.sender == self._voice.me:
            return
        request = IncomingRequest(envelope, self)
        if len(self._running) < self._voice.limits.handlers:
            self._running[envelope.id] = request
            request._task = self._spawn(self._run_notification(request, handler))

    def proposal(self, envelope: Envelope) -> None:
        """MEW 3.3.2: say at once that we could never do what is proposed to us."""
        if self.can_run is None or list(envelope.to) != [self._voice.me]:
            return
        payload = envelope.payload
        if not self.can_run(payload["method"], payload.get("params", {})):
            body = {"reason": "incapable"}
            if self._voice.may("mcp/reject", body, envelope.sender):
                self._say("mcp/reject", body, to=envelope.sender, about=envelope.id)

    def _cancel(self, envelope: Envelope) -> None:
        params = envelope.payload.get("params", {})
        for request in [*self._running.values(), *self._queue]:
            if request.envelope.id in envelope.correlation_id:
                if request.sender != envelope.sender:
                    self._inspector.report(envelope, "not_requester", "only its sender cancels a request")
                    continue
            elif (
                envelope.correlation_id
                or request.sender != envelope.sender
                or request.rpc_id is None
                or request.rpc_id != params.get("requestId")
            ):
                continue
            reason = params.get("reason")
            request.cancel_reason = reason if isinstance(reason, str) else None
            self._stop(request)

    def _stop(self, request: IncomingRequest) -> None:
        request.is_cancelled = True
        if request._cancelled is not None:
            request._cancelled.set()
        if request._task is not None:
            request._task.cancel()
        elif request in self._queue:
            self._queue.remove(request)

    # Running

    def _start(self, request: IncomingRequest, handler: RequestHandler) -> None:
        self._running[request.envelope.id] = request
        request._task = self._spawn(self._run(request, handler))

    async def _run(self, request: IncomingRequest, handler: RequestHandler) -> None:
        try:
            try:
                result = await handler(request)
                body = None if result is None else {"result": result}
            except McpError as fault:
                body = {"error": _error(fault.code, fault.message, fault.data)}
            except Exception:
                # A request's task: the caller gets no detail.
                self._voice.counts.failed_handlers += 1
                log.exception("a request could not be answered")
                body = {"error": _error(INTERNAL_ERROR, "internal error")}
            if body is not None and not request.is_cancelled:
                await self._answer(request, body)
        except asyncio.CancelledError:
            if not request.is_cancelled:
                raise  # not the caller's doing: we are leaving
        finally:
            self._done(request)

    async def _run_notification(self, request: IncomingRequest, handler: NotificationHandler) -> None:
        try:
            await handler(request)
        except Exception:
            self._voice.counts.failed_handlers += 1
            log.exception("a notification could not be handled")
        finally:
            self._done(request)

    def _done(self, request: IncomingRequest) -> None:
        self._running.pop(request.envelope.id, None)
        if self._queue and self.handler is not None and self._voice.ending is None:
            self._start(self._queue.popleft(), self.handler)

    def interrupt(self, message: str) -> None:
        """MEW 3.9.9: end whatever runs; its callers are told."""
        for request in [*self._running.values(), *self._queue]:
            self._stop(request)
            if request.rpc_id is not None and not request.is_broadcast:
                self._refuse(request, BUSY, message)

    # Answering

    async def _answer(self, request: IncomingRequest, body: dict[str, Json]) -> None:
        voice = self._voice
        try:
            if not voice.is_joined or voice.pause is not None:
                await voice.ready(voice.limits.held_answer_seconds)
            self._respond(request, body)
        except UsageError as fault:
            # Too large, or no JSON: the caller must not wait for it.
            log.warning(
                "an answer cannot be sent", extra={"envelope": request.envelope.id, "why": str(fault)}
            )
            self._refuse(request, INTERNAL_ERROR, f"the answer cannot be sent: {fault}")
        except MootError as fault:
            log.info("an answer was not given", extra={"envelope": request.envelope.id, "why": str(fault)})

    def _respond(self, request: IncomingRequest, body: dict[str, Json]) -> None:
        envelope, voice = request.envelope, self._voice
        payload: dict[str, Json] = {"jsonrpc": "2.0", "id": request.rpc_id, **body}
        to = self._addressees(envelope)
        asked = None
        if request.is_broadcast or voice.dialect != "mew":
            # MEW's own kind does not repeat what was asked, and what is owed needs no right.
            asked = operation_of(envelope.payload)
            if request.is_broadcast and not voice.may("mcp/response", payload, to, asked):
                return
        voice.say("mcp/response", payload, to=to, about=envelope.id, owed=True, asked=asked)

    def _addressees(self, envelope: Envelope) -> tuple[str, ...]:
        """D-30: whoever asked; in the older dialects the proposer behind it too."""
        if self._voice.dialect == "mew":
            return (envelope.sender,)
        seen = (self._proposals.get(id) for id in envelope.correlation_id)
        proposers = [found.proposer for found in seen if found is not None]
        return tuple(dict.fromkeys([envelope.sender, *proposers]))

    def _refuse(self, request: IncomingRequest, code: int, message: str) -> None:
        try:
            self._respond(request, {"error": _error(code, message)})
        except MootError as fault:
            log.debug("not answered", extra={"envelope": request.envelope.id, "why": type(fault).__name__})

    def notify(
        self, method: str, params: Mapping[str, Json] | None, *, to: Addressees, about: Addressees, owed: bool
    ) -> bool:
        """A notification; whether it was sent. No right, a pause or no connection: skipped and counted."""
        if not method.startswith(NOTIFICATION_PREFIX):
            raise UsageError(f"a notification is called {NOTIFICATION_PREFIX}…: {method!r}")
        payload: dict[str, Json] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            payload["params"] = dict(params)
        return self._say("mcp/request", payload, to=to, about=about, owed=owed)

    def _say(
        self, kind: str, payload: dict[str, Json], *, to: Addressees, about: Addressees, owed: bool = False
    ) -> bool:
        try:
            self._voice.say(kind, payload, to=to, about=about, owed=owed)
        except UsageError:
            raise
        except MootError as fault:
            self._voice.counts.skipped_notifications += 1
            log.debug("skipped", extra={"kind": kind, "why": type(fault).__name__})
            return False
        return True


def _error(code: int, message: str, data: Json = None) -> dict[str, Json]:
    error: dict[str, Json] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return error
