"""Calls to endpoints: sends signed and sealed requests and matches their answers (XP 5.2).

async with EndpointCaller(identity) as caller:
    answer = await caller.call(peer, "weather.get", {"location": "Bern"}, relays=relays, timeout_seconds=60)

An answer is accepted when it is verified, comes from the key that was called, is addressed to us, replies to
this request in its conversation, and is the first one. Everything else is dropped silently (`EventReceiver`),
so that a relay can withhold an answer but never forge one; a withheld one ends in a timeout.

If the identity is also an endpoint, there is one receiver for both: its hooks use `expects`, and accepted
answers go to `deliver`. Otherwise pass the bytes to `receive`.
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
from moot.protocol.operation import Json
from moot.resilience.rate_limits import TokenBucket
from moot.xprotocol.contracts.contracts import ERROR_KIND, ContractRefused
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.endpoint.relay_subscriptions import RelayRefused
from moot.xprotocol.events.access_rights import AuthorizedCaller
from moot.xprotocol.events.event_composer import answers, compose
from moot.xprotocol.events.event_receiver import (
    PROOFS,
    Accepted,
    Dropped,
    EventReceiver,
    Hooks,
    KindTerms,
    Outcome,
)
from moot.xprotocol.events.events import DEFAULT_TTL_SECONDS, DirectedEvent
from moot.xprotocol.events.faults import Fault, read_error
from moot.xprotocol.events.replay import ReplayCache
from moot.xprotocol.identity.keys import Identity

log = logging.getLogger(__name__)

# Concurrent calls; each has a future and the event, some 3 KB.
MAX_CALLS: Final = 1_024
# Open subscriptions, besides the calls.
MAX_SUBSCRIPTIONS: Final = 1_024
# Timeout for a relay's OK.
PUBLISH_SECONDS: Final = 15.0
# Rate limit for the updates of one subscription.
UPDATES_BURST: Final = 100
UPDATES_PER_SECOND: Final = 10.0
# retry_after when a limit of ours is met.
BUSY_SECONDS: Final = 1.0
_CORRELATION_BYTES: Final = 16

OnUpdate = Callable[[Json], None]


class EndpointFault(CallFailed):
    """The endpoint answered with `xp.error`; MCP clients get `fault` (XP 5.3)."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.code}: {fault.message}")
        self.fault = fault


@dataclass(frozen=True, slots=True)
class CalledEndpoint:
    """The endpoint's key, and the key to seal for it with."""

    key: str
    enc_key: str


@dataclass(frozen=True, slots=True)
class CallProofs:
    """Sent with every call: grants and delegations (D-59), and the one we act by (XP 6.4)."""

    proofs: tuple[Json, ...] = ()
    # The id of the last link of the chain among the proofs.
    delegation: str | None = None


NO_PROOFS: Final = CallProofs()


class _PendingCall:
    """A request without an answer; with `updated_kind`, a subscription that gets more events later."""

    __slots__ = ("done", "on_update", "publishing", "request", "update_rate", "updated_kind")

    def __init__(self, request: DirectedEvent, updated_kind: str | None, on_update: OnUpdate | None) -> None:
        self.request = request
        self.done: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self.updated_kind = updated_kind
        self.on_update = on_update
        self.publishing: asyncio.Task[None] | None = None
        self.update_rate = TokenBucket(UPDATES_PER_SECOND, UPDATES_BURST, request.timestamp)

    def is_answered_by(self, event: DirectedEvent) -> bool:
        return not self.done.done() and answers(event, self.request)

    def is_updated_by(self, event: DirectedEvent, now: float) -> bool:
        """Whether this is an update of it, within the rate limit."""
        return (
            event.kind == self.updated_kind
            and event.sender == self.request.recipient
            and event.correlation_id == self.request.correlation_id
            and not self.update_rate.take(now)
        )


class FollowedResource:
    """An open subscription: made by `EndpointCaller.follow`, ended by `close`."""

    __slots__ = ("_caller", "contents", "expires_at", "id")

    def __init__(self, caller: EndpointCaller, request: DirectedEvent, contents: Json) -> None:
        self._caller = caller
        self.id = request.id
        # The first contents, and when the endpoint drops the subscription.
        self.contents = contents
        self.expires_at = request.expires_at

    def close(self) -> None:
        """End it."""
        self._caller._pending.pop(self.id, None)
        self._caller._subscriptions.discard(self.id)


class EndpointCaller:
    """Calls endpoints with one identity; any number of calls at once, to any number of endpoints."""

    def __init__(
        self,
        identity: Identity,
        *,
        ttl_seconds: int = DEFAULT_TTL_SECONDS,
        max_calls: int = MAX_CALLS,
        is_revoked: Callable[[str, float], bool] = lambda _key, _now: False,
        revokers: Callable[[str], frozenset[str]] = lambda _key: frozenset(),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`ttl_seconds` is `relay.event_ttl_seconds`; answers of a key that `is_revoked` are dropped.

        `revokers` are all that revoked a key, whether they may or not: for words to people, and nothing else.
        """
        self.revokers = revokers
        self.identity = identity
        self._ttl_seconds = ttl_seconds
        self._max_calls = max_calls
        self._is_revoked = is_revoked
        self._clock = clock
        self._pending: dict[str, _PendingCall] = {}
        # The answered subscriptions among them, which do not count as calls.
        self._subscriptions: set[str] = set()
        self._publishing: set[asyncio.Task[None]] = set()
        self._closed = False
        # Dropped events by reason.
        self.dropped: dict[str, int] = {}
        hooks = Hooks(
            is_revoked=lambda key, now: self._is_revoked(key, now),
            seen_ids=ReplayCache(),
            # Only used for events that nobody expects; they are neither stored nor opened.
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
        """Pending calls fail with ConnectionLost."""
        self._closed = True
        for pending in self._pending.values():
            if not pending.done.done():
                pending.done.set_exception(ConnectionLost("closed before the endpoint answered"))
                pending.done.exception()
        self._pending.clear()
        self._subscriptions.clear()
        for task in tuple(self._publishing):
            task.cancel()
        await asyncio.gather(*self._publishing, return_exceptions=True)

    @property
    def pending_count(self) -> int:
        """The number of pending calls and open subscriptions."""
        return len(self._pending)

    # Calls

    async def call(
        self,
        peer: CalledEndpoint,
        kind: str,
        payload: Json,
        *,
        relays: RelayClient,
        timeout_seconds: float,
        credentials: CallProofs = NO_PROOFS,
    ) -> Json:
        """The payload of the answer. Cancelling is safe; the endpoint may have acted all the same.

        Raises EndpointFault when the endpoint answers with an error, TimedOut when it does not answer,
        Unreachable when no relay accepts the request, RelayRefused when one refuses it for good, and
        UsageError for what cannot be sent.
        """
        pending = self._start_call(peer, kind, payload, credentials, relays, None, None)
        try:
            return await self._wait_for_answer(pending, peer, timeout_seconds)
        finally:
            self._remove(pending)

    async def follow(
        self,
        peer: CalledEndpoint,
        kind: str,
        payload: Json,
        *,
        updated_kind: str,
        on_update: OnUpdate,
        relays: RelayClient,
        timeout_seconds: float,
        credentials: CallProofs = NO_PROOFS,
    ) -> FollowedResource:
        """Subscribe (D-78): the contents now, and `on_update` for each change until it is closed.

        The endpoint drops a subscription when the request expires: renew it before `expires_at`. Raises
        what `call` raises.
        """
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            raise OutboxFull(f"{MAX_SUBSCRIPTIONS} subscriptions are open already: end one first")
        pending = self._start_call(peer, kind, payload, credentials, relays, updated_kind, on_update)
        try:
            contents = await self._wait_for_answer(pending, peer, timeout_seconds)
        except BaseException:
            self._remove(pending)
            raise
        self._subscriptions.add(pending.request.id)
        return FollowedResource(self, pending.request, contents)

    def _start_call(
        self,
        peer: CalledEndpoint,
        kind: str,
        payload: Json,
        credentials: CallProofs,
        relays: RelayClient,
        updated_kind: str | None,
        on_update: OnUpdate | None,
    ) -> _PendingCall:
        if self._closed:
            raise ConnectionLost("the adapter is stopping")
        calls = len(self._pending) - len(self._subscriptions)
        if calls >= self._max_calls:
            raise OutboxFull(
                f"{calls} calls are pending, and at most {self._max_calls} may be: wait for some of them"
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
            ttl=self._ttl_seconds,
            correlation_id=urandom(_CORRELATION_BYTES).hex(),
            delegation=credentials.delegation,
        )
        pending = self._pending[signed.event.id] = _PendingCall(signed.event, updated_kind, on_update)

        async def publish() -> None:
            try:
                await relays.publish(signed, timeout_seconds=PUBLISH_SECONDS)
            except (RelayRefused, TimedOut, OutboxFull, ConnectionLost) as fault:
                if not pending.done.done():
                    pending.done.set_exception(fault)

        # Concurrently: the answer may arrive before the relay's OK.
        task = pending.publishing = asyncio.create_task(publish())
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)
        return pending

    def _remove(self, pending: _PendingCall) -> None:
        self._pending.pop(pending.request.id, None)
        if pending.publishing is not None:
            # An abandoned request must not be sent when a relay is back.
            pending.publishing.cancel()

    async def _wait_for_answer(
        self, pending: _PendingCall, peer: CalledEndpoint, timeout_seconds: float
    ) -> Json:
        try:
            async with asyncio.timeout(timeout_seconds):
                return await pending.done
        except TimeoutError as late:
            if isinstance(late, TimedOut):
                raise Unreachable(f"the request did not reach {peer.key}: {late}") from None
            raise TimedOut(f"{peer.key} did not answer within {timeout_seconds:g} s") from None

    def is_revoked(self, key: str) -> bool:
        """Whether we were told that a key is revoked, by somebody who may say so."""
        return self._is_revoked(key, self._clock())

    def fail_calls(self, key: str, fault: MootError) -> None:
        """End the pending calls to a key: its answers would not be believed any more."""
        for pending in self._pending.values():
            if pending.request.recipient == key and not pending.done.done():
                pending.done.set_exception(fault)
                pending.done.exception()

    # Answers

    def receive(self, raw: bytes) -> Outcome:
        """Check one event from a relay, and deliver it if it answers a call of ours."""
        outcome = self._receiver.receive(raw, self._clock())
        if isinstance(outcome, Accepted):
            self.deliver(outcome)
        elif isinstance(outcome, Dropped):
            self.dropped[outcome.reason] = self.dropped.get(outcome.reason, 0) + 1
        return outcome

    def expects(self, event: DirectedEvent) -> bool:
        """Whether a verified event is an expected answer or update: for `Hooks.is_expected`."""
        pending = self._pending.get(event.in_reply_to or "")
        if pending is None:
            return False
        return pending.is_answered_by(event) or pending.is_updated_by(event, self._clock())

    def deliver(self, accepted: Accepted) -> bool:
        """Deliver an accepted answer to its call; returns whether there was one."""
        event = accepted.event
        pending = self._pending.get(event.in_reply_to or "")
        if pending is None:
            return False
        if event.kind == pending.updated_kind and pending.on_update is not None:
            pending.on_update(accepted.payload)
            return True
        if pending.done.done():
            return False
        if event.kind != ERROR_KIND:
            pending.done.set_result(accepted.payload)
            return True
        pending.done.set_exception(EndpointFault(_parse_fault(accepted.payload)))
        # Nobody may await it any more.
        pending.done.exception()
        return True


def fault_of(trouble: MootError) -> Fault:
    """XP 5.3: the fault for a failed call."""
    match trouble:
        case EndpointFault(fault=fault):
            return fault
        case EventFault():
            return Fault(trouble.code, trouble.message, trouble.retry_after)
        case UsageError():
            # It cannot be sent: too large, or not JSON.
            return Fault("SCHEMA_VIOLATION", str(trouble))
        case ContractRefused():
            return Fault("UPSTREAM_ERROR", f"the endpoint's answer cannot be used: {trouble.message}")
        case OutboxFull():
            return Fault("RATE_LIMITED", str(trouble), BUSY_SECONDS)
    return Fault("ENDPOINT_UNAVAILABLE", str(trouble))


def _parse_fault(payload: Json) -> Fault:
    try:
        fault = read_error(payload)
    except ContractRefused:
        return Fault("INTERNAL", "the endpoint answered with an invalid error")
    wait = fault.retry_after
    # An untrusted number: it must be finite and not negative.
    usable = wait is not None and isfinite(wait) and wait >= 0
    return Fault(fault.code, fault.message, wait if usable else None)


def _with_proofs(payload: Json, proofs: Sequence[Json]) -> Json:
    """Add proofs, unless the payload has a member of that name."""
    if not proofs or not isinstance(payload, dict) or PROOFS in payload:
        return payload
    return {**payload, PROOFS: list(proofs)}


def _no_terms(_kind: str) -> KindTerms | None:
    return None


def _authorize_nobody(
    _event: DirectedEvent, _capability: str | None, _proofs: Sequence[Json], _now: float
) -> AuthorizedCaller:
    raise EventFault("nothing is served here")
