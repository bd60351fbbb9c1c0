"""Calls to endpoints: a request leaves signed and sealed, and only its own answer comes back (XP 5.2).

async with Caller(identity) as caller:
    answer = await caller.call(peer, "weather.current.get", {"location": "Bern"}, by=relays, within=60)

An answer counts when it is verified, is from the key that was asked, for us, about this very request and in
its conversation, and is the first one. Everything else is dropped without a word (`xprotocol.receipt`), so
that a relay can withhold an answer but never make one up; what it withholds ends by `within`.

Whoever shares an identity with an endpoint has one receiver for both: give its hooks `expects`, and hand what
it accepts to `take`. Everybody else hands the bytes to `hear`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from os import urandom
from typing import Final, Self

from moot.endpoint.relay_client import RelayClient
from moot.endpoint.relay_subscriptions import RelayRefused
from moot.errors import (
    CallFailed,
    ConnectionLost,
    EventFault,
    MootError,
    OutboxFull,
    TimedOut,
    Unreachable,
    UsageError,
)
from moot.identity.keys import Identity
from moot.protocol.operation import Json
from moot.xprotocol.access_rights import AuthorizedCaller
from moot.xprotocol.contracts import ERROR_KIND, ContractRefused
from moot.xprotocol.event_composer import answers, compose
from moot.xprotocol.event_receiver import PROOFS, Accepted, Dropped, EventReceiver, Hooks, KindTerms, Outcome
from moot.xprotocol.events import DEFAULT_TTL_SECONDS, DirectedEvent
from moot.xprotocol.faults import Fault, read_error
from moot.xprotocol.replay import ReplayCache

log = logging.getLogger(__name__)

# Requests that wait for their answer at once; each has a future and the event, some 3 KB.
MAX_WAITING: Final = 1_024
# Subscriptions that last, beside them.
MAX_FOLLOWINGS: Final = 1_024
# A relay that has not said OK by then is as good as none.
PUBLISH_SECONDS: Final = 15.0
# Of one subscription in a row, and then so many a second: a chatty resource is not an attack, a flood is.
UPDATES_BURST: Final = 100
UPDATES_PER_SECOND: Final = 10.0
# What whoever meets a bound of ours is told to wait.
BUSY_SECONDS: Final = 1.0
_CORRELATION_BYTES: Final = 16

OnUpdate = Callable[[Json], None]


class EndpointFault(CallFailed):
    """The endpoint answered with `xp.error`; `fault` is what MCP clients are told (XP 5.3)."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.code}: {fault.message}")
        self.fault = fault


@dataclass(frozen=True, slots=True)
class CalledEndpoint:
    """Whom to ask, and what to seal for it with."""

    key: str
    enc_key: str


@dataclass(frozen=True, slots=True)
class CallProofs:
    """What goes along with every call: grants and delegations (D-59), and the one we act by (XP 6.4)."""

    proofs: tuple[Json, ...] = ()
    # The id of the last link of the chain among the proofs.
    delegation: str | None = None


NO_CREDENTIALS: Final = CallProofs()


class _PendingCall:
    """A request without its answer; with `updated_kind`, one that more events belong to later."""

    __slots__ = ("done", "on_update", "publishing", "request", "room", "room_at", "updated_kind")

    def __init__(self, request: DirectedEvent, updated_kind: str | None, on_update: OnUpdate | None) -> None:
        self.request = request
        self.done: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self.updated_kind = updated_kind
        self.on_update = on_update
        self.publishing: asyncio.Task[None] | None = None
        self.room = float(UPDATES_BURST)
        self.room_at = 0.0

    def is_answered_by(self, event: DirectedEvent) -> bool:
        return not self.done.done() and answers(event, self.request)

    def is_updated_by(self, event: DirectedEvent, now: float) -> bool:
        """Whether this is an update that it has room for."""
        request = self.request
        if (
            event.kind != self.updated_kind
            or event.sender != request.recipient
            or event.correlation_id != request.correlation_id
        ):
            return False
        self.room = min(UPDATES_BURST, self.room + max(0.0, now - self.room_at) * UPDATES_PER_SECOND)
        self.room_at = now
        if self.room < 1:
            return False
        self.room -= 1
        return True


class FollowedResource:
    """A subscription that lasts: made by `Caller.follow`, over with `close`."""

    __slots__ = ("_caller", "contents", "expires_at", "id")

    def __init__(self, caller: EndpointCaller, request: DirectedEvent, contents: Json) -> None:
        self._caller = caller
        self.id = request.id
        # What there was when it began, and when the endpoint forgets it.
        self.contents = contents
        self.expires_at = request.expires_at

    def close(self) -> None:
        """Hear no more of it."""
        self._caller._waiting.pop(self.id, None)
        self._caller._followings.discard(self.id)


class EndpointCaller:
    """One identity that asks; any number of calls at once, to any number of endpoints."""

    def __init__(
        self,
        identity: Identity,
        *,
        ttl: int = DEFAULT_TTL_SECONDS,
        most: int = MAX_WAITING,
        is_revoked: Callable[[str, float], bool] = lambda _key, _now: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`ttl` is `relay.event_ttl_seconds`; `is_revoked` says whose answers count for nothing."""
        self.identity = identity
        self._ttl = ttl
        self._most = most
        self._is_revoked = is_revoked
        self._clock = clock
        self._waiting: dict[str, _PendingCall] = {}
        # Of these, the ones that were answered and last: they take no call's place.
        self._followings: set[str] = set()
        self._publishing: set[asyncio.Task[None]] = set()
        self._closed = False
        self.calls = 0
        self.faults = 0
        # By the reason; for metrics and for whoever wonders what a relay is up to.
        self.dropped: dict[str, int] = {}
        hooks = Hooks(
            is_revoked=lambda key, now: self._is_revoked(key, now),
            seen_ids=ReplayCache(),
            # Only ever asked about what nobody waits for. That is neither remembered nor opened.
            too_fast=lambda _key, _size, _now: 1.0,
            terms=_no_terms,
            authorize=_authorize_nobody,
            is_expected=self.expects,
        )
        self._receiver = EventReceiver(identity, hooks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Calls that wait fail with ConnectionLost."""
        self._closed = True
        for waiting in self._waiting.values():
            if not waiting.done.done():
                waiting.done.set_exception(ConnectionLost("closed before the endpoint answered"))
                waiting.done.exception()
        self._waiting.clear()
        self._followings.clear()
        for task in tuple(self._publishing):
            task.cancel()
        await asyncio.gather(*self._publishing, return_exceptions=True)

    @property
    def waiting(self) -> int:
        """Requests and subscriptions that are open now."""
        return len(self._waiting)

    # Asking

    async def call(
        self,
        peer: CalledEndpoint,
        kind: str,
        payload: Json,
        *,
        by: RelayClient,
        within: float,
        credentials: CallProofs = NO_CREDENTIALS,
    ) -> Json:
        """The payload of the answer. Cancelling is safe; the endpoint may have acted all the same.

        Raises EndpointFault when the endpoint says no, TimedOut when it says nothing, Unreachable when no
        relay takes the request, RelayRefused when one never will, and UsageError for what cannot be sent.
        """
        waiting = self._begin(peer, kind, payload, credentials, by, None, None)
        try:
            return await self._answer(waiting, peer, within)
        finally:
            self._forget(waiting)

    async def follow(
        self,
        peer: CalledEndpoint,
        kind: str,
        payload: Json,
        *,
        updated_kind: str,
        on_update: OnUpdate,
        by: RelayClient,
        within: float,
        credentials: CallProofs = NO_CREDENTIALS,
    ) -> FollowedResource:
        """Subscribe (D-78): what there is now, and `on_update` for each change until it is closed.

        The endpoint forgets a subscription when the request expires: ask again before `expires_at`. Raises
        what `call` raises.
        """
        if len(self._followings) >= MAX_FOLLOWINGS:
            raise OutboxFull(f"{MAX_FOLLOWINGS} subscriptions are open, and no more can be: end one first")
        waiting = self._begin(peer, kind, payload, credentials, by, updated_kind, on_update)
        try:
            contents = await self._answer(waiting, peer, within)
        except BaseException:
            self._forget(waiting)
            raise
        self._followings.add(waiting.request.id)
        return FollowedResource(self, waiting.request, contents)

    def _begin(
        self,
        peer: CalledEndpoint,
        kind: str,
        payload: Json,
        credentials: CallProofs,
        by: RelayClient,
        updated_kind: str | None,
        on_update: OnUpdate | None,
    ) -> _PendingCall:
        if self._closed:
            raise ConnectionLost("the adapter is stopping")
        calls = len(self._waiting) - len(self._followings)
        if calls >= self._most:
            raise OutboxFull(
                f"{calls} calls wait for their answers and {self._most} are the most at once: "
                "wait for some of them, or raise limits.outward_calls"
            )
        now = self._clock()
        if self._is_revoked(peer.key, now):
            raise EndpointFault(Fault("ENDPOINT_UNAVAILABLE", "the endpoint's own key has been revoked"))
        signed = compose(
            self.identity,
            kind,
            _with_proofs(payload, credentials.proofs),
            recipient=peer.key,
            enc_key=peer.enc_key,
            now=now,
            ttl=self._ttl,
            correlation_id=urandom(_CORRELATION_BYTES).hex(),
            delegation=credentials.delegation,
        )
        waiting = self._waiting[signed.event.id] = _PendingCall(signed.event, updated_kind, on_update)
        self.calls += 1

        async def publish() -> None:
            try:
                await by.publish(signed, within=PUBLISH_SECONDS)
            except (RelayRefused, TimedOut, OutboxFull, ConnectionLost) as fault:
                if not waiting.done.done():
                    waiting.done.set_exception(fault)

        # Beside the wait for the answer, which may be here before the relay's OK is.
        task = waiting.publishing = asyncio.create_task(publish())
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)
        return waiting

    def _forget(self, waiting: _PendingCall) -> None:
        self._waiting.pop(waiting.request.id, None)
        if waiting.publishing is not None:
            # A request that nobody waits for any more must not be sent when a relay is back.
            waiting.publishing.cancel()

    async def _answer(self, waiting: _PendingCall, peer: CalledEndpoint, within: float) -> Json:
        try:
            async with asyncio.timeout(within):
                return await waiting.done
        except TimeoutError as late:
            if isinstance(late, TimedOut):
                raise Unreachable(f"the request did not get to {peer.key}: {late}") from None
            raise TimedOut(f"{peer.key} did not answer within {within:g} s") from None
        except EndpointFault:
            self.faults += 1
            raise

    # Hearing

    def hear(self, raw: bytes) -> Outcome:
        """Take one event from a relay through all checks; what answers a call of ours does so here."""
        outcome = self._receiver.receive(raw, self._clock())
        if isinstance(outcome, Accepted):
            self.take(outcome)
        elif isinstance(outcome, Dropped):
            self.dropped[outcome.reason] = self.dropped.get(outcome.reason, 0) + 1
        return outcome

    def expects(self, event: DirectedEvent) -> bool:
        """Whether a verified event is an answer or an update that we wait for: `Hooks.is_expected`."""
        waiting = self._waiting.get(event.in_reply_to or "")
        if waiting is None:
            return False
        return waiting.is_answered_by(event) or waiting.is_updated_by(event, self._clock())

    def take(self, accepted: Accepted) -> bool:
        """Give an accepted answer to whoever waits for it; whether somebody did."""
        event = accepted.event
        waiting = self._waiting.get(event.in_reply_to or "")
        if waiting is None:
            return False
        if event.kind == waiting.updated_kind and waiting.on_update is not None:
            waiting.on_update(accepted.payload)
            return True
        if waiting.done.done():
            return False
        if event.kind != ERROR_KIND:
            waiting.done.set_result(accepted.payload)
            return True
        waiting.done.set_exception(EndpointFault(_told(accepted.payload)))
        # Perhaps nobody asks any more.
        waiting.done.exception()
        return True


def fault_of(trouble: MootError) -> Fault:
    """XP 5.3: any failure of a call as the fault that it is to a client."""
    match trouble:
        case EndpointFault(fault=fault):
            return fault
        case EventFault():
            return Fault(trouble.code, trouble.message, trouble.retry_after)
        case UsageError():
            # What cannot be sent: too large, or nothing that JSON can hold.
            return Fault("SCHEMA_VIOLATION", str(trouble))
        case ContractRefused():
            return Fault("UPSTREAM_ERROR", f"the endpoint's answer cannot be used: {trouble.message}")
        case OutboxFull():
            return Fault("RATE_LIMITED", str(trouble), BUSY_SECONDS)
    return Fault("ENDPOINT_UNAVAILABLE", str(trouble))


def _told(payload: Json) -> Fault:
    try:
        fault = read_error(payload)
    except ContractRefused:
        return Fault("INTERNAL", "the endpoint answered an error that cannot be read")
    wait = fault.retry_after
    # A stranger's number: neither for ever nor before now.
    usable = wait is not None and isfinite(wait) and wait >= 0
    return Fault(fault.code, fault.message, wait if usable else None)


def _with_proofs(payload: Json, proofs: Sequence[Json]) -> Json:
    """A tool that has an argument of this name gets its argument; then nothing can come along."""
    if not proofs or not isinstance(payload, dict) or PROOFS in payload:
        return payload
    return {**payload, PROOFS: list(proofs)}


def _no_terms(_kind: str) -> KindTerms | None:
    return None


def _authorize_nobody(
    _event: DirectedEvent, _capability: str | None, _proofs: Sequence[Json], _now: float
) -> AuthorizedCaller:
    raise EventFault("nothing is served here")
