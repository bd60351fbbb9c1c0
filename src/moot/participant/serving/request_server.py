"""Serving requests of others (MEW 3.1, 8.2): each runs as a task, a bounded number at once.

    `to` names us       every method
    no `to`             list methods and server/discover only: one call, one execution (D-81)
    a proposal          nothing runs; only a request does (MEW 7.1)

An answer needs no right of its own (D-15), except to a broadcast. An answer that is ready while we are paused
or away waits for that to end. A caller that cancels gets none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from moot import tracing
from moot.errors import EnvelopeTooLarge, McpError, MootError, UsageError
from moot.participant.calls.call_listener import LOG_MESSAGE, PROGRESS
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender
from moot.participant.connection.inbound_check import InboundValidator
from moot.participant.connection.message_feed import Spawn
from moot.participant.decisions.proposal_list import ProposalList
from moot.participant.serving.traced_request import run_traced
from moot.protocol.answer_marks import NOT_OFFERED, mark_error
from moot.protocol.envelope import Envelope
from moot.protocol.kinds import CANCELLED, NOTIFICATION_PREFIX
from moot.protocol.large_content import CONTENT_KEY, too_large_result
from moot.protocol.operation import Json, operation_of
from moot.protocol.rpc_codes import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST

# That wait for their turn, twice as many as a bridge runs at once; more are answered with an error.
MAX_QUEUED_REQUESTS: Final = 512
# How long a finished answer waits for a pause to end or for a reconnect.
HELD_ANSWER_SECONDS: Final = 300.0

log = logging.getLogger(__name__)

# JSON-RPC's range for servers; MCP gives it no meaning of its own.
BUSY: Final = -32000

# D-81: methods that may be requested of everybody at once.
BROADCAST_METHODS: Final = frozenset(
    {"tools/list", "resources/list", "resources/templates/list", "prompts/list", "server/discover"}
)


@dataclass(slots=True, eq=False)
class IncomingRequest:
    """One request of somebody else. `params` is as the caller sent it; do not change it."""

    envelope: Envelope
    _server: RequestServer = field(repr=False)
    sender: str = field(init=False)
    method: str = field(init=False)
    params: dict[str, Any] = field(init=False)
    # The caller's JSON-RPC id; None for a notification, and for a request without one (D-95).
    rpc_id: str | int | None = field(init=False)
    is_broadcast: bool = field(init=False)
    is_cancelled: bool = False
    cancel_reason: str | None = None
    _cancelled: asyncio.Event | None = field(default=None, repr=False)
    _task: asyncio.Task[None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        payload = self.envelope.payload
        self.sender, self.is_broadcast = self.envelope.sender, not self.envelope.to
        self.method, self.params = payload.get("method", ""), payload.get("params", {})
        self.rpc_id = payload.get("id")

    @property
    def cancelled(self) -> asyncio.Event:
        """An event that is set when the caller cancels the request."""
        if self._cancelled is None:
            self._cancelled = asyncio.Event()
            if self.is_cancelled:
                self._cancelled.set()
        return self._cancelled

    @property
    def meta(self) -> dict[str, Any]:
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None, **more: Json
    ) -> bool:
        """Report progress to the caller; False if it did not ask for it, or it could not be sent."""
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
        """Send the caller a log message (`notifications/message`); False if it could not be sent."""
        params: dict[str, Json] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        return await self.notify(LOG_MESSAGE, params)

    async def notify(self, method: str, params: Mapping[str, Json]) -> bool:
        """Send the caller a notification about this request; False if it could not be sent."""
        check_rights = self.is_broadcast or self.is_cancelled
        return self._server.notify(
            method, params, to=self.sender, about=self.envelope.id, check_rights=check_rights
        )


RequestHandler = Callable[[IncomingRequest], Awaitable[dict[str, Json] | None]]
NotificationHandler = Callable[[IncomingRequest], Awaitable[None]]
CanRun = Callable[[str, Mapping[str, Json]], bool]


class RequestServer:
    """Runs the requests that are for us. Without a handler they are not answered."""

    def __init__(
        self, sender: EnvelopeSender, validator: InboundValidator, proposals: ProposalList, spawn: Spawn
    ) -> None:
        self._handler: RequestHandler | None = None
        self._notification_handler: NotificationHandler | None = None
        self._can_run: CanRun | None = None
        self._sender = sender
        self._validator = validator
        self._proposals = proposals
        self._spawn = spawn
        self._running: dict[str, IncomingRequest] = {}
        self._queue: deque[IncomingRequest] = deque()

    @property
    def running(self) -> int:
        return len(self._running)

    def use_handler(
        self,
        handler: RequestHandler,
        *,
        notifications: NotificationHandler | None = None,
        can_run: CanRun | None = None,
    ) -> None:
        """Answer every request for us with this handler, in place of the tools offered here; for bridges.

        The handler's result is sent as it is; McpError becomes an error with its code, message and data; None
        gives no answer. It is called for requests that name us, and for list methods that name nobody.
        `can_run` says whether a proposal for us could ever run; one that could not is rejected at once. An
        error of a request that could not is left to another connection of this member, if there is one.
        """
        self._handler = handler
        self._notification_handler = notifications
        self._can_run = can_run

    # What arrives

    def handle_request(self, envelope: Envelope) -> None:
        """A request for us or for everybody; what is to be done becomes a task."""
        handler = self._handler
        if handler is None:
            return
        if not envelope.to and (
            envelope.payload["method"] not in BROADCAST_METHODS or envelope.sender == self._sender.me
        ):
            return
        request = IncomingRequest(envelope, self)
        if len(self._running) < self._sender.limits.max_running_requests:
            self._begin(request, self._run(request, handler))
        elif len(self._queue) < MAX_QUEUED_REQUESTS:
            self._queue.append(request)
        elif not request.is_broadcast:
            self._refuse(request, BUSY, "busy: too many requests at once, come back later")

    def refuse_malformed(self, envelope: Envelope, message: str) -> None:
        """Answer a request to us that is none of MCP's, such as one whose id is null: its sender waits."""
        if self._handler is None or self._sender.me not in envelope.to:
            return
        payload = envelope.payload
        if "id" not in payload and str(payload.get("method")).startswith(NOTIFICATION_PREFIX):
            return
        try:
            # JSON-RPC 2.0, 5.1: an id that is not usable is answered as null; the envelope correlates (D-95).
            self._sender.send(
                "mcp/response",
                {"jsonrpc": "2.0", "id": None, "error": _error(INVALID_REQUEST, message)},
                to=envelope.sender,
                about=envelope.id,
                check_rights=False,
                request_operation=operation_of(payload),
                to_bare_request=True,
            )
        except MootError as fault:
            log.debug("not refused", extra={"envelope": envelope.id, "why": type(fault).__name__})

    def handle_notification(self, envelope: Envelope) -> None:
        """A cancellation stops a request; anything else goes to the notification handler."""
        if envelope.payload["method"] == CANCELLED:
            self._cancel(envelope)
            return
        handler = self._notification_handler
        if handler is None or (envelope.to and self._sender.me not in envelope.to):
            return
        if envelope.sender == self._sender.me:
            return
        request = IncomingRequest(envelope, self)
        if len(self._running) < self._sender.limits.max_running_requests:
            self._begin(request, self._run_notification(request, handler))

    def handle_proposal(self, envelope: Envelope) -> None:
        """MEW 3.3.2: reject at once what could never run here."""
        if self._can_run is None or list(envelope.to) != [self._sender.me]:
            return
        payload = envelope.payload
        if not self._can_run(payload["method"], payload.get("params", {})):
            body = {"reason": "incapable", NOT_OFFERED: True}
            if self._sender.may("mcp/reject", body, envelope.sender):
                self._try_send("mcp/reject", body, to=envelope.sender, about=envelope.id)

    def _cancel(self, envelope: Envelope) -> None:
        params = envelope.payload.get("params", {})
        for request in [*self._running.values(), *self._queue]:
            if request.envelope.id in envelope.correlation_id:
                if request.sender != envelope.sender:
                    self._validator.report(envelope, "not_requester", "only its sender cancels a request")
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

    def _begin(self, request: IncomingRequest, work: Coroutine[Any, Any, None]) -> None:
        self._running[request.envelope.id] = request
        request._task = self._spawn(work)
        if request._task is not None:
            # Not at the end of `work`: a task that is cancelled before its first step never gets there.
            request._task.add_done_callback(partial(self._done, request))

    async def _run(self, request: IncomingRequest, handler: RequestHandler) -> None:
        could_run = True
        try:
            try:
                if "_meta" in request.params:
                    await self._complete_params(request)
                # As it is now: a tool that is removed while it runs was there.
                could_run = self._can_run is None or self._can_run(request.method, request.params)
                if tracing.active is None:
                    result = await handler(request)
                else:
                    result = await run_traced(tracing.active, request, handler)
                body = None if result is None else {"result": result}
            except McpError as fault:
                data = fault.data if could_run else mark_error(fault.data)
                body = {"error": _error(fault.code, fault.message, data)}
            except Exception:
                # A request's task: the caller gets no detail.
                self._sender.counts.failed_handlers += 1
                log.exception("a request could not be answered")
                body = {"error": _error(INTERNAL_ERROR, "internal error")}
            if body is not None and not request.is_cancelled:
                await self._answer(request, body)
        except asyncio.CancelledError:
            if not request.is_cancelled:
                raise  # not cancelled by the caller: we are leaving

    async def _complete_params(self, request: IncomingRequest) -> None:
        """Put large values back; raises McpError when they cannot be had, before anything was done."""
        if CONTENT_KEY not in request.meta:
            return
        try:
            request.params = await self._sender.content.put_back(request.params, is_result=False)
        except MootError as fault:
            raise McpError(INVALID_PARAMS, f"nothing was done: {fault}") from None

    async def _run_notification(self, request: IncomingRequest, handler: NotificationHandler) -> None:
        try:
            await handler(request)
        except Exception:
            self._sender.counts.failed_handlers += 1
            log.exception("a notification could not be handled")

    def _done(self, request: IncomingRequest, _: asyncio.Task[None]) -> None:
        self._running.pop(request.envelope.id, None)
        if self._queue and self._handler is not None and self._sender.close_reason is None:
            request = self._queue.popleft()
            self._begin(request, self._run(request, self._handler))

    def interrupt(self, message: str) -> None:
        """MEW 3.9.9: stop whatever runs; its callers get an error."""
        for request in [*self._running.values(), *self._queue]:
            if request._task is not None and request._task.done():
                continue  # answered a moment ago
            self._stop(request)
            if not request.is_broadcast and not request.method.startswith(NOTIFICATION_PREFIX):
                self._refuse(request, BUSY, message)

    # Answering

    async def _answer(self, request: IncomingRequest, body: dict[str, Json]) -> None:
        sender = self._sender
        try:
            if not sender.is_joined or sender.pause is not None:
                await sender.ready(HELD_ANSWER_SECONDS)
            self._respond(request, body)
        except EnvelopeTooLarge as fault:
            await self._answer_in_parts(request, body, fault)
        except UsageError as fault:
            # Not JSON: the caller must not wait for it.
            log.warning(
                "an answer cannot be sent", extra={"envelope": request.envelope.id, "why": str(fault)}
            )
            self._refuse(request, INTERNAL_ERROR, f"the answer cannot be sent: {fault}")
        except MootError as fault:
            log.info("an answer was not sent", extra={"envelope": request.envelope.id, "why": str(fault)})

    async def _answer_in_parts(
        self, request: IncomingRequest, body: dict[str, Json], fault: EnvelopeTooLarge
    ) -> None:
        """Answer with a result whose large values are at the gateway; or say that it was too large."""
        result = body.get("result")
        try:
            if isinstance(result, dict):
                try:
                    small = await self._sender.content.take_out(result, is_result=True)
                    self._respond(request, {"result": small})
                except EnvelopeTooLarge as larger:
                    fault = larger
                else:
                    return
                if request.method == "tools/call":
                    # It was carried out, so it did not fail.
                    self._respond(request, {"result": too_large_result(fault.size, fault.most)})
                    return
            self._refuse(request, INTERNAL_ERROR, f"the answer cannot be sent: {fault}")
        except MootError as unsent:
            log.info("an answer was not sent", extra={"envelope": request.envelope.id, "why": str(unsent)})

    async def answer_late(self, request: IncomingRequest, result: dict[str, Json]) -> None:
        """Answer a request whose caller has cancelled it while it went on: its outcome is known after all.

        Only for what cannot be stopped. The gateway takes such an answer for an approved proposal (D-99).
        """
        await self._answer(request, {"result": result})

    def _respond(self, request: IncomingRequest, body: dict[str, Json]) -> None:
        envelope, sender = request.envelope, self._sender
        bare = request.rpc_id is None
        # D-95: the envelope correlates; what came without an id is answered without one.
        payload: dict[str, Json] = {"jsonrpc": "2.0", **({} if bare else {"id": request.rpc_id}), **body}
        to: tuple[str, ...] = (envelope.sender,)
        operation = None
        if request.is_broadcast or sender.dialect != "mew":
            to = self._recipients(envelope)
            # MEW's kind does not repeat the method, and an answer to a named request needs no right.
            operation = operation_of(envelope.payload)
            if request.is_broadcast and not sender.may("mcp/response", payload, to, operation):
                return
        sender.send(
            "mcp/response",
            payload,
            to=to,
            about=envelope.id,
            check_rights=False,
            request_operation=operation,
            to_bare_request=bare,
        )

    def _recipients(self, envelope: Envelope) -> tuple[str, ...]:
        """D-30: whoever asked; in the older dialects the proposer behind it too."""
        if self._sender.dialect == "mew":
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
        self,
        method: str,
        params: Mapping[str, Json] | None,
        *,
        to: Addressees = (),
        about: Addressees = (),
        check_rights: bool = True,
    ) -> bool:
        """Send a notification; False if we have no right, are paused or not connected, which is counted."""
        if not method.startswith(NOTIFICATION_PREFIX):
            raise UsageError(f"a notification is called {NOTIFICATION_PREFIX}…: {method!r}")
        payload: dict[str, Json] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            payload["params"] = dict(params)
        return self._try_send("mcp/request", payload, to=to, about=about, check_rights=check_rights)

    def _try_send(
        self,
        kind: str,
        payload: dict[str, Json],
        *,
        to: Addressees,
        about: Addressees,
        check_rights: bool = True,
    ) -> bool:
        try:
            self._sender.send(kind, payload, to=to, about=about, check_rights=check_rights)
        except UsageError:
            raise
        except MootError as fault:
            self._sender.counts.skipped_notifications += 1
            log.debug("skipped", extra={"kind": kind, "why": type(fault).__name__})
            return False
        return True


def _error(code: int, message: str, data: Json = None) -> dict[str, Json]:
    error: dict[str, Json] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return error
