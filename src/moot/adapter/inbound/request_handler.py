"""Events that come to the adapter's key, and what is answered (XP 5.1, 8.3, D-76).

How it works. `receive` takes the bytes of one event through `receipt.Receiver`, which does every check in its
order: up to the signature in silence, then revocation, replay, rate, sealing, kind, the source's own rate,
capability, schema. It never waits. What passed becomes a task: it waits until the event's id is on disk, so
that no crash lets a replay run a tool twice, asks the server, and publishes the answer, signed and sealed for
the sender alone, in the same conversation. What failed is answered with an `xp.error`.

Everything is bounded: calls at once, calls of one sender, refusals told to one sender in a minute, the wait
for a server and the wait for a relay. A flood costs its sender's own quota and nobody else's.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from moot.adapter.config.adapter_settings import AdapterLimits
from moot.adapter.inbound.contract_registry import ContractRegistry, KindRoute
from moot.adapter.inbound.latest_keys import LatestKeys
from moot.adapter.inbound.mcp_source import SourceFault
from moot.adapter.inbound.proof_cache import check_proof_bytes
from moot.adapter.inbound.reply_publisher import ReplyPublisher
from moot.adapter.operations.adapter_metrics import AdapterMetrics
from moot.adapter.operations.audit_log import AuditLog
from moot.adapter.task_set import TaskSet
from moot.errors import (
    EndpointUnavailable,
    EventFault,
    InvalidStatement,
    SenderTooFast,
)
from moot.identity.keys import Identity
from moot.protocol.operation import Json
from moot.resilience.rate_limits import RateLimits, sliding_windows
from moot.xprotocol.access_rights import Access, AuthorizedCaller
from moot.xprotocol.contracts import ERROR_KIND
from moot.xprotocol.event_receiver import (
    Accepted,
    Dropped,
    EventReceiver,
    EventRejected,
    Hooks,
    KindTerms,
    PublicReceived,
)
from moot.xprotocol.events import REVOKE, DirectedEvent, SignedPublic
from moot.xprotocol.faults import Fault, fault
from moot.xprotocol.key_statements import read_revocation
from moot.xprotocol.replay import SeenIds

log = logging.getLogger(__name__)

# Refusals that wait for a relay, beside the calls themselves; beyond it they are not told.
REFUSALS_AT_ONCE: Final = 1_024
# Of the room for ids, what those may fill who have no rights here: keys cost nothing, and an id lives a day.
STRANGERS_SHARE: Final = 0.5
_CROWDED_SECONDS: Final = 60.0
# What a caller is told to wait when there is no room.
_BUSY_SECONDS: Final = 1.0
_STARTING_SECONDS: Final = 5.0


class DurableSeenIds(SeenIds, Protocol):
    """Seen ids that outlive the process."""

    def __len__(self) -> int:
        """How many are remembered now."""

    async def settled(self) -> None:
        """Wait until everything remembered so far is on disk; raises sqlite3.Error."""


class PendingAnswers(Protocol):
    """Who waits for answers to requests of our own (direction 2)."""

    def expects(self, event: DirectedEvent) -> bool: ...

    def take(self, accepted: Accepted) -> object: ...


class NullAnswers:
    """For an adapter that asks nobody anything."""

    def expects(self, _event: DirectedEvent) -> bool:
        return False

    def take(self, _accepted: Accepted) -> None:
        """Nothing is expected, so nothing comes."""


class OperationHandler(Protocol):
    """What a request comes to: kind and payload of its answer."""

    def terms(self, kind: str) -> KindTerms | None:
        """What a kind of our own asks for; None: it is none of those."""

    def may_come(self, kind: str) -> bool:
        """Whether a source that has not said yet what it offers could answer to this kind."""

    def is_about_nothing(self, kind: str) -> bool:
        """Whether acting twice on such a request does no harm."""

    async def perform(
        self, route: KindRoute | None, accepted: Accepted, proofs: Sequence[Json]
    ) -> tuple[str, Json]: ...


class RequestHandler:
    """The endpoint's side of the relay. `access` may be replaced at any time."""

    def __init__(
        self,
        identity: Identity,
        *,
        access: Access,
        registry: ContractRegistry,
        performer: OperationHandler,
        answering: ReplyPublisher,
        seen_ids: DurableSeenIds,
        limits: AdapterLimits,
        audit: AuditLog,
        measures: AdapterMetrics,
        answers: PendingAnswers | None = None,
        on_revoked: Callable[[SignedPublic], None] = lambda _signed: None,
    ) -> None:
        self.access = access
        self.answers: PendingAnswers = answers or NullAnswers()
        self._registry = registry
        self._performer = performer
        self._answering = answering
        self._seen_ids = seen_ids
        self._audit = audit
        self._measures = measures
        self._on_revoked = on_revoked
        # The rate of each source that has one, and the count for each sender.
        self._source_rates: dict[str, tuple[int, RateLimits]] = {}
        self._tasks: dict[asyncio.Task[None], DirectedEvent] = {}
        self._by_sender: Counter[str] = Counter()
        self._refusals = TaskSet("refusal")
        # Of requests that need them later on, until their task takes them.
        self._proofs: dict[str, Sequence[Json]] = {}
        # Senders whose proofs opened something, the latest last.
        self._proven = LatestKeys(limits.senders_counted)
        self._is_stopping = False
        self._revocations_full = False
        self._limit(limits)
        self._receiver = EventReceiver(
            identity,
            Hooks(
                is_revoked=self._is_revoked,
                seen_ids=seen_ids,
                too_fast=self._too_fast,
                terms=self._terms,
                authorize=self._authorize,
                is_expected=self._is_expected,
            ),
        )

    def _limit(self, limits: AdapterLimits) -> None:
        self._limits = limits
        self._rates = _per_minute(limits.requests_per_minute, limits)
        self._told = _per_minute(limits.requests_per_minute, limits)

    def configure(self, limits: AdapterLimits, requests_per_minute: dict[str, int | None]) -> None:
        """Other bounds from now on; counting begins anew where they differ. By source, None: no rate."""
        if limits != self._limits:
            self._limit(limits)
        for name, rate in requests_per_minute.items():
            known = self._source_rates.get(name)
            if rate is None:
                self._source_rates.pop(name, None)
            elif known is None or known[0] != rate:
                self._source_rates[name] = (rate, _per_minute(rate, limits))
        for name in self._source_rates.keys() - requests_per_minute.keys():
            del self._source_rates[name]

    @property
    def in_progress(self) -> int:
        return len(self._tasks)

    # What a relay brings

    def receive(self, raw: bytes) -> None:
        """Act on one event as it came; raises nothing, whatever the bytes are."""
        outcome = self._receiver.receive(raw, time.time())
        if outcome.__class__ is Accepted:
            if outcome.event.in_reply_to is not None or outcome.event.kind == ERROR_KIND:
                self._measures.event("answer")
                self.answers.take(outcome)
            else:
                self._begin(outcome, len(raw))
        elif outcome.__class__ is EventRejected:
            self._proofs.pop(outcome.event.id, None)
            self._refuse(outcome.event, outcome.fault, len(raw))
        elif outcome.__class__ is PublicReceived:
            self._heard(outcome.signed)
        elif outcome.__class__ is Dropped:
            self._measures.event("dropped")
            log.debug("dropped", extra={"reason": outcome.reason, "words": outcome.message})

    def _begin(self, accepted: Accepted, size: int) -> None:
        event, limits = accepted.event, self._limits
        proofs = self._proofs.pop(event.id, ())
        words: Fault | None = None
        if self._is_stopping:
            words = fault("ENDPOINT_UNAVAILABLE", "this endpoint is stopping", retry_after=_BUSY_SECONDS)
        elif not self._audit.able:
            words = fault("ENDPOINT_UNAVAILABLE", "this endpoint takes no calls for now")
        elif len(self._tasks) >= limits.calls:
            words = fault(
                "ENDPOINT_UNAVAILABLE",
                f"limits.calls is {limits.calls}: too many calls at once",
                retry_after=_BUSY_SECONDS,
            )
        elif self._by_sender[event.sender] >= limits.calls_per_sender:
            words = fault(
                "RATE_LIMITED",
                f"limits.calls_per_sender is {limits.calls_per_sender}: wait for an answer first",
                retry_after=_BUSY_SECONDS,
            )
        if words is not None:
            self._refuse(event, words, size)
            return
        # The one that the sender was checked against: it may be another one a moment later.
        route = self._registry.route(event.kind)
        task = asyncio.create_task(self._serve(accepted, route, proofs, size))
        self._tasks[task] = event
        self._by_sender[event.sender] += 1
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        event = self._tasks.pop(task)
        self._by_sender[event.sender] -= 1
        if not self._by_sender[event.sender]:
            del self._by_sender[event.sender]
        if not task.cancelled() and (trouble := task.exception()) is not None:
            log.error("a call failed", exc_info=trouble, extra={"event": event.id, "kind": event.kind})

    async def _serve(
        self, accepted: Accepted, route: KindRoute | None, proofs: Sequence[Json], size: int
    ) -> None:
        event = accepted.event
        begun = time.perf_counter()
        kind, payload, outcome = "", None, "ok"
        try:
            if not self._performer.is_about_nothing(event.kind):
                await self._seen_ids.settled()
            kind, payload = await self._performer.perform(route, accepted, proofs)
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
        sent = await self._answering.answer(event, kind, payload)
        self._measures.call(route.source if route is not None else "", outcome, seconds)
        self._audit.note(
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
                "result": sent.told if self._audit.plaintext else None,
            }
        )

    def _refuse(self, event: DirectedEvent, refusal: EventFault | Fault, size: int) -> None:
        self._measures.event(refusal.code)
        # A flood is answered as often as it may ask; after that it talks to itself.
        if self._told.take(event.sender, time.time()) or len(self._refusals) >= REFUSALS_AT_ONCE:
            return
        self._audit.note(
            {
                "event": event.id,
                "kind": event.kind,
                "sender": event.sender,
                "delegation": event.delegation,
                "correlation_id": event.correlation_id,
                "outcome": refusal.code,
                # What does not fit a schema may be told with names that stand in the payload.
                "reason": refusal.message
                if self._audit.plaintext or refusal.code != "SCHEMA_VIOLATION"
                else None,
                "bytes_in": size,
            }
        )
        log.info("refused", extra={"kind": event.kind, "sender": event.sender, "code": refusal.code})
        self._refusals.start(self._tell_refusal(event, refusal))

    async def _tell_refusal(self, event: DirectedEvent, refusal: EventFault | Fault) -> None:
        await self._answering.answer(event, ERROR_KIND, refusal)

    def _heard(self, signed: SignedPublic) -> None:
        if signed.event.kind != REVOKE:
            return
        try:
            self.access.revocations.add(read_revocation(signed))
        except InvalidStatement as refusal:
            log.debug("not a revocation", extra={"event": signed.event.id, "reason": str(refusal)})
            return
        except EventFault as refusal:
            # Once: strangers can send as many as they like.
            level = logging.DEBUG if self._revocations_full else logging.WARNING
            self._revocations_full = True
            log.log(level, "a revocation is not kept", extra={"reason": str(refusal)})
            return
        self._on_revoked(signed)

    # What the receiver asks

    def _is_revoked(self, key: str, now: float) -> bool:
        return self.access.is_revoked(key, now)

    def _too_fast(self, key: str, _size: int, now: float) -> float | None:
        wait = self._rates.take(key, now)
        if not wait and self._crowded_by_strangers(key):
            raise EndpointUnavailable(
                "too many events of senders who have no rights here: none can be told from a replay",
                retry_after=_CROWDED_SECONDS,
            )
        if not wait or self.access.is_revoked(key, now):
            return wait or None
        raise SenderTooFast(
            f"limits.requests_per_minute is {self._limits.requests_per_minute} for one key",
            retry_after=round(wait, 3),
        )

    def _crowded_by_strangers(self, key: str) -> bool:
        """No id is forgotten while it lives: those who may do nothing here get a part of the room."""
        is_crowded = len(self._seen_ids) >= self._limits.seen_events * STRANGERS_SHARE
        return is_crowded and key not in self.access.access and key not in self._proven

    def _terms(self, kind: str) -> KindTerms | None:
        route = self._registry.route(kind)
        if route is not None:
            return route.terms
        terms = self._performer.terms(kind)
        if terms is None and self._performer.may_come(kind):
            # Not NOT_FOUND: whoever asks again in a moment may find it.
            raise EndpointUnavailable("what answers to this kind is starting", retry_after=_STARTING_SECONDS)
        return terms

    def _authorize(
        self, event: DirectedEvent, capability: str | None, proofs: Sequence[Json], now: float
    ) -> AuthorizedCaller:
        route = self._registry.route(event.kind)
        # XP 8.4: before the capability, so that trying costs the same as calling.
        if route is not None and (limit := self._source_rates.get(route.source)) is not None:
            per_minute, rates = limit
            if wait := rates.take(event.sender, now):
                raise SenderTooFast(
                    f"requests_per_minute is {per_minute} for this source", retry_after=round(wait, 3)
                )
        check_proof_bytes(proofs)
        caller = self.access.authorize(
            event.sender, capability, delegation=event.delegation, proofs=proofs, now=now
        )
        if proofs and (route is None or route.what == "subscribe"):
            self._proofs[event.id] = proofs
        if proofs and capability is not None:
            self._proven.add(event.sender)
        return caller

    def _is_expected(self, event: DirectedEvent) -> bool:
        return self.answers.expects(event)

    # The end

    async def close(self) -> None:
        """Take no more calls, let those in progress end for a while, and tell the others what happened."""
        self._is_stopping = True
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self._limits.stop_seconds)
        unfinished = dict(self._tasks)
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(list(unfinished), timeout=_BUSY_SECONDS)
        words = fault("ENDPOINT_UNAVAILABLE", "this endpoint stopped; the call may have been carried out")
        told = TaskSet("goodbye")
        for event in unfinished.values():
            told.start(self._tell_refusal(event, words))
        for each in (told, self._refusals):
            await each.finished(_BUSY_SECONDS)
            await each.close()


def _per_minute(max_requests: int, limits: AdapterLimits) -> RateLimits:
    """XP 8.4: exactly so many in any minute, not on average; counted for each sender's key."""
    return sliding_windows(max_requests, 60.0, max_keys=limits.senders_counted)
