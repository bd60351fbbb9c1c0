"""Asking others (MEW 3.1): requests that wait for their answers, progress on the way, and calling them off.

An answer counts only if it refers to the request's envelope and comes from a member that was asked (D-80).
Our own echo (D-02) tells whom the gateway took `to` to mean, before any answer can come. A wait ends with the
answer, with its timeout, when the host stays away, or when the connection breaks; cancelling it is safe.
Where nobody waits any more the host is told with `notifications/cancelled`, as far as we can still speak.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from moot.errors import (
    BadAnswer,
    McpError,
    MemberLeft,
    MootError,
    OutboxFull,
    Refused,
    TimedOut,
)
from moot.participant.calls.outcome import Progress
from moot.participant.connection.correlation_index import KnownEnvelope
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender, addressees
from moot.participant.connection.inbound_check import InboundValidator
from moot.participant.connection.message_feed import Feed, Spawn, called
from moot.participant.connection.roster import Roster
from moot.participant.decisions.proposal_list import SeenProposal
from moot.protocol.envelope import Envelope
from moot.protocol.kinds import CANCELLED
from moot.protocol.operation import Json, operation_of

log = logging.getLogger(__name__)

PROGRESS: Final = "notifications/progress"
LOG_MESSAGE: Final = "notifications/message"

ProgressHandler = Callable[[Progress], Any]
LogHandler = Callable[[Mapping[str, Json]], Any]


class RequestAnswer(NamedTuple):
    """A result, who gave it, and to which request."""

    result: dict[str, Json]
    host: str
    request_id: str


@dataclass(slots=True, eq=False)
class CallListener:
    """What a host says on the way to its answer, and who wants to know."""

    token: Json
    progress: Callable[[Progress], None] | None = None
    log: Callable[[Mapping[str, Json]], None] | None = None
    feeds: list[Feed[Any]] = field(default_factory=list)

    def tell(self, method: str, params: Mapping[str, Json]) -> None:
        if method == LOG_MESSAGE:
            if self.log is not None:
                self.log(params)
            return
        done, total, message = params.get("progress"), params.get("total"), params.get("message")
        if self.progress is None or params.get("progressToken") != self.token or not _is_number(done):
            return
        words = message if isinstance(message, str) else None
        self.progress(Progress(float(done or 0), total if _is_number(total) else None, words, params))

    def end(self) -> None:
        for feed in self.feeds:
            feed.end()


_NOBODY: Final[tuple[Sequence[str], CallListener | None]] = ((), None)


@dataclass(slots=True, eq=False)
class _Pending:
    id: str
    rpc_id: int
    asked: Sequence[str]
    future: asyncio.Future[RequestAnswer]
    heard: CallListener | None = None
    # Of a broadcast: everybody's answers; the future is then only told when all have come.
    collected: dict[str, dict[str, Json] | McpError] | None = None


class RequestClient:
    """Our requests that wait for an answer."""

    def __init__(
        self, voice: EnvelopeSender, roster: Roster, inspector: InboundValidator, spawn: Spawn
    ) -> None:
        self._voice = voice
        self._roster = roster
        self._inspector = inspector
        self._spawn = spawn
        self._pending: dict[str, _Pending] = {}
        self._rpc_ids = itertools.count(1)
        # By the id of a request that others made for us: whom it asks, and what listens.
        self._overheard: dict[str, tuple[Sequence[str], CallListener]] = {}
        inspector.on_bad_answer.append(self._bad_answer)

    def __len__(self) -> int:
        return len(self._pending)

    async def ask(
        self,
        to: Addressees,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        log: LogHandler | None = None,
        about: Addressees = (),
        context: str | None = None,
        encode: Callable[[dict[str, Json]], Json] | None = None,
        add_token: bool = True,
    ) -> RequestAnswer:
        """The first answer of a member that was asked; raises McpError, TimedOut, MemberLeft, BadAnswer, …"""
        payload, token = self._body(method, params, add_token=add_token and progress is not None)
        pending = self._send(to, payload, about, context, encode)
        if progress is not None or log is not None:
            pending.heard = self._listener(token, progress, log)
        seconds = self._voice.limits.request_seconds if timeout is None else timeout
        timer = pending.future.get_loop().call_later(seconds, self._expire, pending, method, seconds)
        try:
            return await pending.future
        except (asyncio.CancelledError, TimedOut, MemberLeft) as ended:
            self._call_off(pending, "timed out" if isinstance(ended, TimedOut) else "no longer needed")
            raise
        finally:
            timer.cancel()
            self._forget(pending)

    async def ask_all(
        self, method: str, params: Mapping[str, Json] | None, within: float
    ) -> dict[str, dict[str, Json] | McpError]:
        """Answers to a broadcast by member: until all who are here have answered, or time is up."""
        payload, _ = self._body(method, params, add_token=False)
        pending = self._send((), payload, (), None, None)
        collected: dict[str, dict[str, Json] | McpError] = {}
        pending.collected = collected
        try:
            async with asyncio.timeout(within):
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
        encode: Callable[[dict[str, Json]], Json] | None,
    ) -> _Pending:
        most = self._voice.limits.open_requests
        if len(self._pending) >= most:
            raise OutboxFull(f"{most} requests of ours wait for an answer already (open_requests)")
        encoded = None if encode is None else encode(payload)
        sent = self._voice.say("mcp/request", payload, to=to, about=about, context=context, encoded=encoded)
        future: asyncio.Future[RequestAnswer] = asyncio.get_running_loop().create_future()
        pending = self._pending[sent.id] = _Pending(sent.id, payload["id"], addressees(to), future)
        if not self._voice.hears_itself("mcp/request", about, context):
            asked = [self._roster.id_of(member) for member in pending.asked]
            # Answers are judged by it as if it had come back.
            known = KnownEnvelope(
                sent.kind, self._voice.me, asked, addressees(about), context, operation_of(payload)
            )
            self._inspector.lineage.keep(sent.id, known)
            self._passed_on(pending, asked)
        return pending

    def _listener(
        self, token: Json, progress: ProgressHandler | None, log: LogHandler | None
    ) -> CallListener:
        heard = CallListener(token)
        size, counts = self._voice.limits.feed_items, self._voice.counts
        if progress is not None:
            heard.progress = called(progress, self._spawn, counts, size, heard.feeds)
        if log is not None:
            heard.log = called(log, self._spawn, counts, size, heard.feeds)
        return heard

    def _forget(self, pending: _Pending) -> None:
        self._pending.pop(pending.id, None)
        if pending.heard is not None:
            pending.heard.end()

    def _expire(self, pending: _Pending, method: str, seconds: float) -> None:
        who = ", ".join(pending.asked) or "nobody"
        _fail(pending, TimedOut(f"{who} did not answer {method} within {seconds:g} s"))

    def _call_off(self, pending: _Pending, reason: str) -> None:
        """MCP's way to tell a host that nobody waits any more; only as good as the connection."""
        payload: dict[str, Json] = {
            "jsonrpc": "2.0",
            "method": CANCELLED,
            "params": {"requestId": pending.rpc_id, "reason": reason},
        }
        if not pending.asked:
            return
        try:
            self._voice.say("mcp/request", payload, to=pending.asked, about=pending.id, owed=True)
        except MootError as fault:
            self._voice.counts.skipped_notifications += 1
            log.debug("not cancelled", extra={"envelope": pending.id, "why": type(fault).__name__})

    # What is heard

    def overheard(
        self, params: Mapping[str, Json] | None, progress: ProgressHandler | None, log: LogHandler | None
    ) -> tuple[dict[str, Json] | None, CallListener | None]:
        """Params for a proposal, and what listens to the fulfilment that others will make of it."""
        if progress is None and log is None:
            return (None if params is None else dict(params)), None
        body, token = _with_token(params, f"p{next(self._rpc_ids)}" if progress is not None else None)
        return body, self._listener(token, progress, log)

    def overhear(self, seen: SeenProposal, heard: CallListener) -> Callable[[], None]:
        """Listen to the host, which tells its fulfiller, and so everybody (D-01); call the result to stop."""

        def follow() -> None:
            if seen.request_id is not None:
                self._overheard[seen.request_id] = (seen.asked, heard)

        def stop() -> None:
            seen.watchers.remove(follow)
            self._overheard.pop(seen.request_id or "", None)
            heard.end()

        seen.watchers.append(follow)
        return stop

    def echo(self, envelope: Envelope) -> None:
        """Our own request as the gateway passed it on: `to` holds runtime ids now (D-19)."""
        pending = self._pending.get(envelope.id)
        if pending is not None:
            self._passed_on(pending, envelope.to)

    def _passed_on(self, pending: _Pending, asked: Sequence[str]) -> None:
        pending.asked = asked
        # In the one order of the space, whoever is not here now was sent nothing and never will be (D-41).
        for member in asked:
            if self._is_here(member):
                return
        if asked:
            _fail(pending, MemberLeft(", ".join(asked)))

    def response(self, envelope: Envelope) -> None:
        """An answer that has passed inspection; it may close several requests at once (MEW 3)."""
        answered = [found for id in envelope.correlation_id if (found := self._pending.get(id)) is not None]
        if not answered:
            return
        payload = envelope.payload
        if payload["id"] not in [pending.rpc_id for pending in answered]:
            self._inspector.report(envelope, "wrong_rpc_id", "payload.id is not that of the request")
            self._bad_answer(envelope, "payload.id is not that of the request")
            return
        for pending in answered:
            if pending.asked and envelope.sender not in pending.asked:
                # The window of lineage is bounded; what we wait for is not forgotten.
                self._inspector.report(envelope, "unasked_answer", "somebody else was asked")
                continue
            self._take(pending, envelope)

    def _take(self, pending: _Pending, envelope: Envelope) -> None:
        payload = envelope.payload
        error = payload.get("error")
        fault = None if error is None else McpError(error["code"], error["message"], error.get("data"))
        if pending.collected is not None:
            pending.collected[envelope.sender] = payload["result"] if fault is None else fault
            if all(id in pending.collected for id in self._roster) and not pending.future.done():
                pending.future.set_result(RequestAnswer({}, envelope.sender, pending.id))
        elif fault is not None:
            _fail(pending, fault)
        elif not pending.future.done():
            pending.future.set_result(RequestAnswer(payload["result"], envelope.sender, pending.id))

    def _bad_answer(self, envelope: Envelope, fault: str) -> None:
        """An answer was dropped. If it came from the member that was asked, no better one will come."""
        for id in envelope.correlation_id:
            pending = self._pending.get(id)
            if pending is not None and pending.collected is None and envelope.sender in pending.asked:
                _fail(pending, BadAnswer(envelope.sender, fault))

    def notification(self, envelope: Envelope) -> None:
        """Progress and log messages about a request of ours, from the member that was asked."""
        method = envelope.payload["method"]
        if method not in (PROGRESS, LOG_MESSAGE):
            return
        for id in envelope.correlation_id:
            pending = self._pending.get(id)
            told = (pending.asked, pending.heard) if pending is not None else self._overheard.get(id, _NOBODY)
            asked, heard = told
            if heard is None:
                continue
            if asked and envelope.sender not in asked:
                self._inspector.report(envelope, "unasked_answer", f"{method} about somebody else's request")
                continue
            heard.tell(method, envelope.payload.get("params", {}))

    def refused(self, id: str, refusal: Refused) -> bool:
        """Whether the gateway's refusal was about a request of ours."""
        pending = self._pending.get(id)
        return pending is not None and _fail(pending, refusal)

    def left(self, member: str) -> None:
        """A member is not here. Those who asked it alone are told, unless it is back soon."""
        waiting = [pending for pending in self._pending.values() if list(pending.asked) == [member]]
        if waiting:
            grace = self._voice.limits.host_grace_seconds
            asyncio.get_running_loop().call_later(grace, self._stayed_away, waiting)

    def _stayed_away(self, waiting: Sequence[_Pending]) -> None:
        for pending in waiting:
            if not self._is_here(pending.asked[0]):
                _fail(pending, MemberLeft(pending.asked[0]))

    def _is_here(self, member: str) -> bool:
        return member in self._roster or member == self._voice.me

    def fail_all(self, fault: Callable[[], Exception]) -> None:
        for pending in list(self._pending.values()):
            _fail(pending, fault())

    def asked(self) -> Iterable[str]:
        """The ids of the requests that wait."""
        return tuple(self._pending)


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


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
