"""Requests to others (MEW 3.1): they wait for answers, pass on progress, and can be cancelled.

An answer counts only if it refers to the request's envelope and comes from a member that was asked (D-80).
Our own echo (D-02) shows the runtime ids that `to` stands for, before any answer can come. A wait ends with
the answer, with its timeout, when the host stays away, or when the connection breaks. Cancelling it is safe:
the host is then sent `notifications/cancelled`, if anything can still be sent.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Final, NamedTuple, Unpack

import msgspec

from moot import tracing
from moot.errors import (
    AnswerTimedOut,
    BadAnswer,
    EnvelopeTooLarge,
    HostLeft,
    McpError,
    MemberLeft,
    MootError,
    OutboxFull,
    Refused,
    TimedOut,
)
from moot.participant.calls.call_listener import LOG_MESSAGE, PROGRESS, CallListener, FollowedProposal
from moot.participant.calls.call_options import LogHandler, ProgressHandler, RequestOptions
from moot.participant.calls.outcome import error_of, result_of
from moot.participant.connection.correlation_index import CorrelationIndex, KnownEnvelope
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender, addressees
from moot.participant.connection.inbound_check import InboundValidator
from moot.participant.connection.message_feed import HandlerRunner
from moot.participant.connection.roster import Roster
from moot.protocol.envelope import Envelope
from moot.protocol.kinds import CANCELLED
from moot.protocol.operation import Json, operation_of

# Requests of our own that wait for an answer; the gateway's default is the same.
MAX_OPEN_REQUESTS: Final = 1_024

log = logging.getLogger(__name__)


class RequestAnswer(NamedTuple):
    """A result, who sent it, and for which request."""

    result: dict[str, Json]
    host: str
    request_id: str


_NO_LISTENER: Final[tuple[Sequence[str], CallListener | None]] = ((), None)


class _Pending(msgspec.Struct, eq=False):
    id: str
    rpc_id: int
    asked: Sequence[str]
    future: asyncio.Future[RequestAnswer]
    # By the loop's clock.
    sent_at: float
    # It carries out a proposal.
    is_fulfilment: bool = False
    listener: CallListener | None = None
    # Of a broadcast: everybody's answers; the future is only resolved when all have come.
    collected: dict[str, dict[str, Json] | McpError] | None = None


class RequestClient:
    """Our requests that wait for an answer."""

    def __init__(
        self,
        sender: EnvelopeSender,
        roster: Roster,
        correlations: CorrelationIndex,
        validator: InboundValidator,
        runner: HandlerRunner,
    ) -> None:
        self._sender = sender
        self._roster = roster
        self._correlations = correlations
        self._validator = validator
        self._runner = runner
        self._pending: dict[str, _Pending] = {}
        self._rpc_ids = itertools.count(1)
        # By the id of a request that fulfils a proposal of ours: whom it asks, and what listens.
        self._fulfilments: dict[str, tuple[Sequence[str], CallListener]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    async def request(
        self,
        to: Addressees,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        check_rights: bool = True,
        proposal: Envelope | None = None,
        as_proposed: Mapping[str, Json] | None = None,
        **options: Unpack[RequestOptions],
    ) -> RequestAnswer:
        """The first answer of a member that was asked; raises McpError, TimedOut, MemberLeft, BadAnswer, …

        `proposal`: that which this carries out, and to whose trace it belongs; `as_proposed`: what of its
        payload goes on the wire in the proposer's own bytes.
        """
        if tracing.active is None:
            return await self._request(to, method, params, as_proposed, options, check_rights=check_rights)
        with tracing.active.operation(
            "client",
            method,
            params,
            carrier=None if proposal is None else tracing.active.context_of(proposal.raw, proposal.payload),
            moot__member=", ".join(addressees(to)),
            moot__proposal__id=None if proposal is None else proposal.id,
            network__transport="tcp",
        ) as operation:
            answer = await self._request(to, method, params, as_proposed, options, check_rights=check_rights)
            if operation is not None:
                operation.result = answer.result
            return answer

    async def _request(
        self,
        to: Addressees,
        method: str,
        params: Mapping[str, Json] | None,
        as_proposed: Mapping[str, Json] | None,
        options: RequestOptions,
        *,
        check_rights: bool,
    ) -> RequestAnswer:
        progress, on_log = options.get("progress"), options.get("log")
        adds_token = as_proposed is None and progress is not None
        payload, token = self._body(method, params, add_token=adds_token)
        about, context = options.get("about", ()), options.get("context")
        try:
            pending = self._send(to, payload, about, context, as_proposed, check_rights=check_rights)
        except EnvelopeTooLarge:
            if as_proposed is not None or "params" not in payload:
                raise
            payload["params"] = await self._sender.content.take_out(payload["params"], is_result=False)
            pending = self._send(to, payload, about, context, None, check_rights=check_rights)
        if progress is not None or on_log is not None:
            pending.listener = self._listener(token, progress, on_log)
        given = options.get("timeout_seconds")
        seconds = self._sender.limits.request_seconds if given is None else given
        timer = pending.future.get_loop().call_later(seconds, self._expire, pending, method, seconds)
        try:
            answer = await pending.future
        except (asyncio.CancelledError, TimedOut, MemberLeft) as ended:
            self._send_cancellation(
                pending, "timed out" if isinstance(ended, TimedOut) else "no longer needed"
            )
            raise
        finally:
            timer.cancel()
            self._forget(pending)
        if "_meta" not in answer.result:
            return answer
        return answer._replace(result=await self._sender.content.whole_result(answer.result))

    async def request_all(
        self, method: str, params: Mapping[str, Json] | None, timeout_seconds: float
    ) -> dict[str, dict[str, Json] | McpError]:
        """Answers to a broadcast by member: until all who are here have answered, or the time is up."""
        payload, _ = self._body(method, params, add_token=False)
        pending = self._send((), payload, (), None, None)
        collected: dict[str, dict[str, Json] | McpError] = {}
        pending.collected = collected
        try:
            async with asyncio.timeout(timeout_seconds):
                await pending.future
        except TimeoutError:
            pass
        finally:
            self._forget(pending)
        return collected

    def _body(
        self, method: str, params: Mapping[str, Json] | None, *, add_token: bool
    ) -> tuple[dict[str, Json], Json]:
        payload: dict[str, Json] = {"jsonrpc": "2.0", "id": next(self._rpc_ids), "method": method}
        body, token = _with_token(params, payload["id"] if add_token else None)
        if body is not None:
            payload["params"] = body
        return payload, token

    def _send(
        self,
        to: Addressees,
        payload: dict[str, Json],
        about: Addressees,
        context: str | None,
        as_proposed: Mapping[str, Json] | None,
        *,
        check_rights: bool = True,
    ) -> _Pending:
        if len(self._pending) >= MAX_OPEN_REQUESTS:
            raise OutboxFull(f"{MAX_OPEN_REQUESTS} requests of ours wait for an answer already")
        sent = self._sender.send(
            "mcp/request",
            payload,
            to=to,
            about=about,
            context=context,
            encoded=None if as_proposed is None else {**payload, **as_proposed},
            check_rights=check_rights,
        )
        future: asyncio.Future[RequestAnswer] = asyncio.get_running_loop().create_future()
        pending = _Pending(
            sent.id,
            payload["id"],
            sent.to,
            future,
            future.get_loop().time(),
            is_fulfilment=as_proposed is not None,
        )
        self._pending[sent.id] = pending
        if not self._sender.is_echoed("mcp/request", about, context):
            asked = [self._roster.id_of(member) for member in pending.asked]
            # Answers are checked against it as if it had come back.
            known = KnownEnvelope(
                sent.kind, self._sender.me, asked, addressees(about), context, operation_of(payload)
            )
            self._correlations.add_known(sent.id, known)
            self._set_asked(pending, asked)
        return pending

    def _listener(
        self, token: Json, progress: ProgressHandler | None, log: LogHandler | None
    ) -> CallListener | None:
        if progress is None and log is None:
            return None
        return CallListener(
            token,
            None if progress is None else self._runner.start(progress),
            None if log is None else self._runner.start(log),
        )

    def _forget(self, pending: _Pending) -> None:
        self._pending.pop(pending.id, None)
        if pending.listener is not None:
            pending.listener.end()

    def _expire(self, pending: _Pending, method: str, seconds: float) -> None:
        who = ", ".join(pending.asked) or "nobody"
        message = f"{who} did not answer {method} within {seconds:g} s: whether it was done is not known"
        _fail(pending, AnswerTimedOut(message))

    def _send_cancellation(self, pending: _Pending, reason: str) -> None:
        """Tell the host that nobody waits any more, if anything can still be sent."""
        payload: dict[str, Json] = {
            "jsonrpc": "2.0",
            "method": CANCELLED,
            "params": {"requestId": pending.rpc_id, "reason": reason},
        }
        if not pending.asked:
            return
        try:
            self._sender.send("mcp/request", payload, to=pending.asked, about=pending.id, check_rights=False)
        except MootError as fault:
            self._sender.counts.skipped_notifications += 1
            log.debug("not cancelled", extra={"envelope": pending.id, "why": type(fault).__name__})

    # Fulfilments of our proposals by others

    def prepare_proposal(
        self, params: Mapping[str, Json] | None, progress: ProgressHandler | None, log: LogHandler | None
    ) -> tuple[dict[str, Json] | None, CallListener | None]:
        """Params for a proposal, and the listener for its fulfilment by somebody else."""
        body, token = _with_token(params, f"p{next(self._rpc_ids)}" if progress is not None else None)
        return body, self._listener(token, progress, log)

    def follow_fulfilment(self, seen: FollowedProposal, listener: CallListener) -> Callable[[], None]:
        """Listen to what the host sends to the fulfiller, as everybody gets it; call the result to stop."""

        def follow() -> None:
            if seen.request_id is not None:
                self._fulfilments[seen.request_id] = (seen.asked, listener)

        def stop() -> None:
            seen.watchers.remove(follow)
            self._fulfilments.pop(seen.request_id or "", None)
            listener.end()

        seen.watchers.append(follow)
        return stop

    # What arrives

    def handle_echo(self, envelope: Envelope) -> None:
        """Our own request as the gateway delivered it: `to` holds runtime ids now (D-19)."""
        pending = self._pending.get(envelope.id)
        if pending is not None:
            self._set_asked(pending, envelope.to)

    def _set_asked(self, pending: _Pending, asked: Sequence[str]) -> None:
        pending.asked = asked
        if pending.is_fulfilment:
            # The gateway refuses it if nobody is there to hear it; whoever polls over HTTP is in no roster.
            return
        # In the one order of the space, whoever is not here now was sent nothing and never will be (D-41).
        for member in asked:
            if self._is_here(member):
                return
        if asked:
            _fail(pending, MemberLeft(", ".join(asked)))

    def handle_response(self, envelope: Envelope) -> None:
        """An answer that passed the checks; it may answer several requests at once (MEW 3)."""
        if self._pending.keys().isdisjoint(envelope.correlation_id):
            return
        answered = [found for id in envelope.correlation_id if (found := self._pending.get(id)) is not None]
        payload = envelope.payload
        if "id" in payload and payload["id"] not in [pending.rpc_id for pending in answered]:
            self._validator.report(envelope, "wrong_rpc_id", "payload.id is not that of the request")
            self.handle_bad_answer(envelope, "payload.id is not that of the request")
            return
        for pending in answered:
            if pending.asked and envelope.sender not in pending.asked:
                # The correlation index is bounded and may have forgotten it; what we wait for is kept.
                self._validator.report(envelope, "unasked_answer", "somebody else was asked")
                continue
            self._resolve(pending, envelope)

    def _resolve(self, pending: _Pending, envelope: Envelope) -> None:
        payload = envelope.payload
        fault = error_of(payload) if "error" in payload else None
        if pending.collected is not None:
            pending.collected[envelope.sender] = result_of(payload) if fault is None else fault
            if all(id in pending.collected for id in self._roster) and not pending.future.done():
                pending.future.set_result(RequestAnswer({}, envelope.sender, pending.id))
        elif fault is not None:
            _fail(pending, fault)
        elif not pending.future.done():
            pending.future.set_result(RequestAnswer(result_of(payload), envelope.sender, pending.id))

    def handle_bad_answer(self, envelope: Envelope, fault: str) -> None:
        """An answer was dropped. If it came from the member that was asked, no better one will come."""
        for id in envelope.correlation_id:
            pending = self._pending.get(id)
            if pending is not None and pending.collected is None and envelope.sender in pending.asked:
                _fail(pending, BadAnswer(envelope.sender, fault))

    def handle_notification(self, envelope: Envelope) -> None:
        """Progress and log messages about a request of ours, from the member that was asked."""
        method = envelope.payload["method"]
        if method not in (PROGRESS, LOG_MESSAGE):
            return
        for id in envelope.correlation_id:
            pending = self._pending.get(id)
            if pending is not None:
                asked, listener = pending.asked, pending.listener
            else:
                asked, listener = self._fulfilments.get(id, _NO_LISTENER)
            if listener is None:
                continue
            if asked and envelope.sender not in asked:
                self._validator.report(envelope, "unasked_answer", f"{method} about somebody else's request")
                continue
            listener.notify(method, envelope.payload.get("params", {}))

    def handle_refusal(self, id: str, refusal: Refused) -> bool:
        """Whether the refusal was about a request of ours, which fails with it."""
        pending = self._pending.get(id)
        return pending is not None and _fail(pending, refusal)

    def handle_member_left(self, member: str) -> None:
        """Requests to this member alone fail, unless it is back soon."""
        waiting = [pending for pending in self._pending.values() if list(pending.asked) == [member]]
        if waiting:
            grace = self._sender.limits.host_return_seconds
            asyncio.get_running_loop().call_later(grace, self._fail_if_away, waiting)

    def _fail_if_away(self, waiting: Sequence[_Pending]) -> None:
        for pending in waiting:
            if not self._is_here(pending.asked[0]):
                _fail(pending, HostLeft(pending.asked[0]))

    def _is_here(self, member: str) -> bool:
        return member in self._roster or member == self._sender.me

    def fail_all(self, fault: Callable[[], Exception], *, keep: Container[str] = ()) -> None:
        """Fail all but these; broadcasts are not kept."""
        for pending in list(self._pending.values()):
            if pending.id not in keep or pending.collected is not None:
                _fail(pending, fault())

    # Outliving a gateway of a cluster

    def __contains__(self, id: str) -> bool:
        return id in self._pending

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest request has waited."""
        now = asyncio.get_running_loop().time()
        return max((now - pending.sent_at for pending in self._pending.values()), default=0.0)

    def go_on_waiting(self, ids: Collection[str]) -> None:
        """These were delivered: whoever was asked answers, unless it has left meanwhile."""
        for pending in [self._pending[id] for id in ids if id in self._pending]:
            if len(pending.asked) == 1:
                self.handle_member_left(pending.asked[0])


def _fail(pending: _Pending, fault: Exception) -> bool:
    if pending.future.done():
        return False
    pending.future.set_exception(fault)
    return True


def _with_token(params: Mapping[str, Json] | None, token: Json) -> tuple[dict[str, Json] | None, Json]:
    """Params with a progress token: their own if they have one, else this one, or none at all."""
    if params is None and token is None:
        return None, None
    body = dict(params or {})
    meta = body.get("_meta")
    own = meta.get("progressToken") if isinstance(meta, dict) else None
    if own is not None or token is None:
        return body, own
    body["_meta"] = {**(meta if isinstance(meta, dict) else {}), "progressToken": token}
    return body, token
