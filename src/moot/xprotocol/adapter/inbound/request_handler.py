"""Handles the events that arrive for the adapter's key (XP 5.1, 8.3, D-76).

How it works. `receive` passes the bytes of one event to `EventReceiver`, which does every check in order: up
to the signature without an answer, then revocation, replay, rate, sealing, kind, the source's own rate,
capability, schema. It never blocks. An accepted request becomes a task: it waits until the event's id is on
disk, so that a replay after a crash cannot run a tool twice, calls the server, and publishes the answer,
signed and sealed for the sender alone, in the same conversation. A rejected one is answered with `xp.error`.

Everything is bounded: concurrent calls, calls of one sender, refusals sent to one sender in a minute, the
time for a server and the time for a relay. A flood uses up its sender's own quota and nobody else's.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from moot.errors import (
    EndpointUnavailable,
    EventFault,
    InvalidStatement,
    MalformedEvent,
    SenderTooFast,
)
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.resilience.rate_limits import RateLimits, sliding_windows
from moot.resilience.task_set import TaskSet
from moot.xprotocol.adapter.config.adapter_settings import AdapterLimits
from moot.xprotocol.adapter.inbound.backlog import Backlog
from moot.xprotocol.adapter.inbound.contract_registry import ContractRegistry, KindRoute
from moot.xprotocol.adapter.inbound.mcp_source import SourceFault
from moot.xprotocol.adapter.inbound.operation_runner import OperationRunner, check_proof_bytes
from moot.xprotocol.adapter.inbound.reply_publisher import ReplyPublisher
from moot.xprotocol.adapter.telemetry.adapter_metrics import AdapterMetrics
from moot.xprotocol.adapter.telemetry.audit_log import AuditLog
from moot.xprotocol.contracts.contracts import ERROR_KIND
from moot.xprotocol.endpoint.endpoint_caller import EndpointCaller
from moot.xprotocol.event_store import event_store
from moot.xprotocol.event_store.event_store import StoredSeenIds
from moot.xprotocol.events.access_rights import Access, AuthorizedCaller
from moot.xprotocol.events.event_receiver import (
    Accepted,
    Dropped,
    EventReceiver,
    EventRejected,
    Hooks,
    KindTerms,
    PublicReceived,
)
from moot.xprotocol.events.events import REVOKE, DirectedEvent, SignedPublic, decode
from moot.xprotocol.events.faults import Fault, fault
from moot.xprotocol.events.key_statements import read_revocation
from moot.xprotocol.identity.keys import Identity

# Keys whose rate is tracked; the one that was idle longest is dropped first.
MAX_SENDERS: Final = 50_000
# How long calls in progress may take to end when the adapter stops.
STOP_SECONDS: Final = 5.0

log = logging.getLogger(__name__)

# Refusals that wait for a relay, besides the calls themselves; beyond it none are sent.
MAX_PENDING_REFUSALS: Final = 1_024
# The share of the seen-ids store for senders without rights: keys are free, and an id is kept for a day.
UNTRUSTED_SHARE: Final = 0.5
_QUOTA_FULL_SECONDS: Final = 60.0
# retry_after when there are too many calls.
_BUSY_SECONDS: Final = 1.0
_STARTING_SECONDS: Final = 5.0
_REVOKED: Final = "the key of this endpoint has been revoked: ask its owner for the new one"


class RequestHandler:
    """Handles requests from relays. `access` may be replaced at any time."""

    def __init__(
        self,
        identity: Identity,
        *,
        access: Access,
        registry: ContractRegistry,
        operations: OperationRunner,
        replies: ReplyPublisher,
        seen_ids: StoredSeenIds,
        limits: AdapterLimits,
        audit: AuditLog,
        metrics: AdapterMetrics,
        caller: EndpointCaller,
        on_revoked: Callable[[SignedPublic], None],
    ) -> None:
        self.access = access
        # The outbound calls that wait for an answer.
        self._caller = caller
        self._registry = registry
        self._operations = operations
        self._replies = replies
        self._seen_ids = seen_ids
        self._audit = audit
        self._metrics = metrics
        self._on_revoked = on_revoked
        # The rate of each source that has one, and the count for each sender.
        self._source_rates: dict[str, tuple[int, RateLimits]] = {}
        self._tasks: dict[asyncio.Task[None], DirectedEvent] = {}
        self._by_sender: Counter[str] = Counter()
        self._refusals = TaskSet("refusal")
        # Proofs by event id, from the check until the request's task starts.
        self._proofs: dict[str, Sequence[Json]] = {}
        # Senders whose proofs granted something, the latest last.
        self._proven_senders: LatestDict[str, None] = LatestDict(MAX_SENDERS)
        self._is_stopping = False
        # Requests that waited at a relay, and those of them that run; `_is_late` while one is looked at.
        self._backlog = Backlog(self._receive_late, self._has_room_for_late)
        self._late_calls: set[asyncio.Task[None]] = set()
        self._is_late = False
        self._revocations_full = False
        self._set_limits(limits)
        self._receiver = EventReceiver(
            identity,
            Hooks(
                is_revoked=lambda key, now: self.access.is_revoked(key, now),
                seen_ids=seen_ids,
                too_fast=self._too_fast,
                terms=self._terms,
                authorize=self._authorize,
                is_expected=caller.expects,
            ),
        )

    def _set_limits(self, limits: AdapterLimits) -> None:
        self._limits = limits
        self._rates = _per_minute(limits.requests_per_minute)
        self._refusal_rates = _per_minute(limits.requests_per_minute)

    def configure(self, limits: AdapterLimits, requests_per_minute: dict[str, int | None]) -> None:
        """Set new limits; counting starts again where they differ. By source, None: no rate."""
        if limits != self._limits:
            self._set_limits(limits)
        for name, rate in requests_per_minute.items():
            known = self._source_rates.get(name)
            if rate is None:
                self._source_rates.pop(name, None)
            elif known is None or known[0] != rate:
                self._source_rates[name] = (rate, _per_minute(rate))
        for name in self._source_rates.keys() - requests_per_minute.keys():
            del self._source_rates[name]

    @property
    def in_progress(self) -> int:
        return len(self._tasks)

    # Events

    def receive(self, raw: bytes) -> None:
        """Process one event; raises nothing, whatever the bytes are."""
        outcome = self._receiver.receive(raw, time.time())
        if outcome.__class__ is Accepted:
            if outcome.event.in_reply_to is not None or outcome.event.kind == ERROR_KIND:
                self._metrics.count_event("answer")
                self._caller.deliver(outcome)
            else:
                self._start_call(outcome, len(raw))
        elif outcome.__class__ is EventRejected:
            self._proofs.pop(outcome.event.id, None)
            self._refuse(outcome.event, outcome.fault, len(raw))
        elif outcome.__class__ is PublicReceived:
            self._process_revocation(outcome.signed)
        elif outcome.__class__ is Dropped:
            self._metrics.count_event("dropped")
            log.debug("dropped", extra={"reason": outcome.reason, "detail": outcome.message})

    async def receive_stored(self, raw: bytes) -> None:
        """The same for an event that came while nobody was here; waits while too many wait already."""
        try:
            event = decode(raw).event
        except MalformedEvent:
            self.receive(raw)
            return
        if isinstance(event, DirectedEvent) and event.in_reply_to is None and event.kind != ERROR_KIND:
            await self._backlog.put(raw)
        else:
            # Answers to our own calls wait for nobody.
            self.receive(raw)

    def _receive_late(self, raw: bytes) -> None:
        self._is_late = True
        try:
            self.receive(raw)
        finally:
            self._is_late = False

    def _has_room_for_late(self) -> bool:
        limits = self._limits
        return len(self._tasks) < limits.max_calls and len(self._late_calls) < limits.max_calls_per_sender

    def _start_call(self, accepted: Accepted, size: int) -> None:
        event, limits = accepted.event, self._limits
        proofs = self._proofs.pop(event.id, ())
        refusal: Fault | None = None
        if self.access.is_own_key_revoked(time.time()):
            refusal = fault("ENDPOINT_UNAVAILABLE", _REVOKED)
        elif self._is_stopping:
            refusal = fault("ENDPOINT_UNAVAILABLE", "this endpoint is stopping", retry_after=_BUSY_SECONDS)
        elif not self._audit.accepts_calls:
            refusal = fault("ENDPOINT_UNAVAILABLE", "this endpoint accepts no calls at the moment")
        elif len(self._tasks) >= limits.max_calls:
            refusal = fault(
                "ENDPOINT_UNAVAILABLE",
                f"limits.max_calls is {limits.max_calls}: too many calls at once",
                retry_after=_BUSY_SECONDS,
            )
        elif not self._is_late and self._by_sender[event.sender] >= limits.max_calls_per_sender:
            refusal = fault(
                "RATE_LIMITED",
                f"limits.max_calls_per_sender is {limits.max_calls_per_sender}: wait for an answer first",
                retry_after=_BUSY_SECONDS,
            )
        if refusal is not None:
            self._refuse(event, refusal, size)
            return
        # The route that the sender was checked against: it may be replaced a moment later.
        route = self._registry.route(event.kind)
        task = asyncio.create_task(self._run_call(accepted, route, proofs, size))
        self._tasks[task] = event
        self._by_sender[event.sender] += 1
        if self._is_late:
            self._late_calls.add(task)
        task.add_done_callback(self._call_ended)

    def _call_ended(self, task: asyncio.Task[None]) -> None:
        event = self._tasks.pop(task)
        self._late_calls.discard(task)
        self._backlog.pump()
        self._by_sender[event.sender] -= 1
        if not self._by_sender[event.sender]:
            del self._by_sender[event.sender]
        if not task.cancelled() and (trouble := task.exception()) is not None:
            log.error("a call failed", exc_info=trouble, extra={"event": event.id, "kind": event.kind})

    async def _run_call(
        self, accepted: Accepted, route: KindRoute | None, proofs: Sequence[Json], size: int
    ) -> None:
        event = accepted.event
        begun = time.perf_counter()
        kind, payload, outcome = "", None, "ok"
        try:
            if not self._operations.is_idempotent(event.kind):
                await self._seen_ids.wait_committed()
            kind, payload = await self._operations.run(route, accepted, proofs)
            if payload.__class__ is dict and payload.get("isError") is True:
                outcome = "tool_error"
        except SourceFault as refusal:
            kind, payload, outcome = ERROR_KIND, refusal.fault, refusal.fault.code
        except EventFault as refusal:
            kind, payload, outcome = ERROR_KIND, refusal, refusal.code
        except sqlite3.Error as trouble:
            log.error("seen ids cannot be written", extra={"reason": str(trouble)})
            refused = fault("ENDPOINT_UNAVAILABLE")
            kind, payload, outcome = ERROR_KIND, refused, refused.code
        except Exception:
            # A request's task: the peer gets no detail.
            log.exception("a call failed", extra={"event": event.id, "kind": event.kind})
            refused = fault("INTERNAL")
            kind, payload, outcome = ERROR_KIND, refused, refused.code
        seconds = time.perf_counter() - begun
        sent = await self._replies.send(event, kind, payload)
        self._metrics.count_call(route.source if route is not None else "", outcome, seconds)
        self._audit.record(
            {
                "event": event.id,
                "kind": event.kind,
                "sender": event.sender,
                "principal": accepted.caller.principal,
                "delegation": event.delegation,
                "correlation_id": event.correlation_id,
                "source": route.source if route is not None else None,
                "tool": route.name or None if route is not None else None,
                "outcome": outcome if sent.fault is None else sent.fault,
                "milliseconds": round(seconds * 1_000, 3),
                "bytes_in": size,
                "bytes_out": sent.size,
                "answer": sent.id,
                "arguments": accepted.payload if self._audit.plaintext else None,
                "result": sent.payload if self._audit.plaintext else None,
            }
        )

    def _refuse(self, event: DirectedEvent, refusal: EventFault | Fault, size: int) -> None:
        self._metrics.count_event(refusal.code)
        # A flood gets as many refusals as it may send requests; after that none.
        is_flood = self._refusal_rates.take(event.sender, time.monotonic()) > 0
        if is_flood or len(self._refusals) >= MAX_PENDING_REFUSALS:
            return
        self._audit.record_refusal(
            {
                "event": event.id,
                "kind": event.kind,
                "sender": event.sender,
                "delegation": event.delegation,
                "correlation_id": event.correlation_id,
                "outcome": refusal.code,
                # A schema violation may quote names from the payload.
                "reason": refusal.message
                if self._audit.plaintext or refusal.code != "SCHEMA_VIOLATION"
                else None,
                "bytes_in": size,
            }
        )
        log.info("refused", extra={"kind": event.kind, "sender": event.sender, "code": refusal.code})
        self._refusals.start(self._send_refusal(event, refusal))

    async def _send_refusal(self, event: DirectedEvent, refusal: EventFault | Fault) -> None:
        await self._replies.send(event, ERROR_KIND, refusal)

    def _process_revocation(self, signed: SignedPublic) -> None:
        if signed.event.kind != REVOKE:
            return
        try:
            self.access.revocations.add(read_revocation(signed))
        except InvalidStatement as refusal:
            log.debug("not a revocation", extra={"event": signed.event.id, "reason": str(refusal)})
            return
        except EventFault as refusal:
            # Once: anybody can send any number of them.
            level = logging.DEBUG if self._revocations_full else logging.WARNING
            self._revocations_full = True
            log.log(level, "a revocation is not stored", extra={"reason": str(refusal)})
            return
        self._on_revoked(signed)

    # Hooks of the receiver

    def _too_fast(self, key: str, _size: int, now: float) -> float | None:
        # Requests that waited for us were not sent too fast.
        wait = None if self._is_late else self._rates.take(key, time.monotonic())
        if not wait and self._untrusted_quota_full(key):
            raise EndpointUnavailable(
                "too many events of senders without rights here: replays could not be detected",
                retry_after=_QUOTA_FULL_SECONDS,
            )
        if not wait or self.access.is_revoked(key, now):
            return wait or None
        raise SenderTooFast(
            f"limits.requests_per_minute is {self._limits.requests_per_minute} for one key",
            retry_after=round(wait, 3),
        )

    def _untrusted_quota_full(self, key: str) -> bool:
        """Whether senders without rights have used up their share of the seen-ids store."""
        is_full = len(self._seen_ids) >= event_store.MAX_SEEN_IDS * UNTRUSTED_SHARE
        return is_full and key not in self.access.access and key not in self._proven_senders

    def _terms(self, kind: str) -> KindTerms | None:
        route = self._registry.route(kind)
        if route is not None:
            return route.terms
        terms = self._operations.terms(kind)
        if terms is None and self._operations.may_be_offered_later(kind):
            # Not NOT_FOUND: a retry in a moment may succeed.
            raise EndpointUnavailable("the server for this kind is starting", retry_after=_STARTING_SECONDS)
        return terms

    def _authorize(
        self, event: DirectedEvent, capability: str | None, proofs: Sequence[Json], now: float
    ) -> AuthorizedCaller:
        route = self._registry.route(event.kind)
        # XP 8.4: before the capability check, so that a failed attempt counts like a call.
        if route is not None and (limit := self._source_rates.get(route.source)) is not None:
            per_minute, rates = limit
            if wait := rates.take(event.sender, time.monotonic()):
                raise SenderTooFast(
                    f"requests_per_minute is {per_minute} for this source", retry_after=round(wait, 3)
                )
        check_proof_bytes(proofs)
        caller = self.access.authorize(
            event.sender, capability, delegation=event.delegation, proofs=proofs, now=now
        )
        if proofs and (route is None or route.target == "subscribe"):
            self._proofs[event.id] = proofs
        if proofs and capability is not None:
            self._proven_senders[event.sender] = None
        return caller

    # The end

    async def close(self) -> None:
        """Refuse new calls, give those in progress time to end, and answer the rest with a fault."""
        self._is_stopping = True
        # They are not looked at yet, so the next start finds them at the relay.
        self._backlog.clear()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=STOP_SECONDS)
        unfinished = dict(self._tasks)
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(list(unfinished), timeout=_BUSY_SECONDS)
        refusal = fault("ENDPOINT_UNAVAILABLE", "this endpoint stopped; the call may have been run")
        last_answers = TaskSet("last answer")
        for event in unfinished.values():
            last_answers.start(self._send_refusal(event, refusal))
        for each in (last_answers, self._refusals):
            await each.wait(_BUSY_SECONDS)
            await each.close()


def _per_minute(max_requests: int) -> RateLimits:
    """XP 8.4: exactly so many in any minute, not on average; counted for each sender's key."""
    return sliding_windows(max_requests, 60.0, max_keys=MAX_SENDERS)
