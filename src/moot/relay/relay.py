"""The relay itself: what becomes of each message, who hears of which event. No sockets here.

An event is read, its times, id and signature are checked, and it is handed to the store. When it is on disk
its sender is told OK, and whoever subscribed gets the bytes that came. So whatever anybody hears or was told
is there after a crash.

A subscription begins with what is stored, page by page, as fast as its reader takes it. Events that come
meanwhile are not collected for it: it is marked, and reads those from the store, too, until nothing is left
behind; from then on it hears events as they are committed. Numbers (`seq`) tell what it has had.
"""

from __future__ import annotations

import logging
import re
import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from moot.errors import EventExpired, MalformedEvent, UnverifiedEvent
from moot.identity import base64url
from moot.relay import wire_messages
from moot.relay.relay_settings import RelayLimits
from moot.relay.subscription_filters import EventFilter, FilterIndex
from moot.relay.wire_messages import (
    AuthMessage,
    NotAMessage,
    PublishMessage,
    SubscribeMessage,
    UnsubscribeMessage,
)
from moot.resilience.rate_limits import token_buckets
from moot.resilience.token_bucket import TokenBucket
from moot.store.event_query import EventReader
from moot.store.event_store import KEPT_FOR_GOOD, EventStore
from moot.store.event_writer import Added
from moot.xprotocol.events import SKEW_SECONDS, Event, Signed, check_times, decode, verify_event
from moot.xprotocol.relay_auth import CHALLENGE_BYTES, proven_key

log = logging.getLogger(__name__)

_ID = re.compile(rb'"id"\s*:\s*"([0-9a-f]{64})"')
_NO_ID: Final = "0" * 64
# Numbers of events sent by one filter that the next one passes over; past it an event may come twice.
_NUMBERS_KEPT: Final = 100_000
_POLICY: Final = 1008


class ClientConnection(Protocol):
    """How a client is written to."""

    def send(self, frame: bytes) -> None: ...

    def end(self, code: int, reason: str) -> None: ...

    async def ready(self) -> None:
        """Wait until what was sent is mostly gone; returns at once when the connection is."""


class RelayClientState:
    """One connection, as the relay knows it."""

    __slots__ = (
        "challenge",
        "events",
        "faults",
        "is_gone",
        "keys",
        "line",
        "requests",
        "subscriptions",
        "unconfirmed",
    )

    def __init__(self, line: ClientConnection, limits: RelayLimits, now: float) -> None:
        self.line = line
        self.challenge = base64url.encode(secrets.token_bytes(CHALLENGE_BYTES))
        self.keys: set[str] = set()
        self.subscriptions: dict[str, ClientSubscription] = {}
        self.unconfirmed = 0
        self.is_gone = False
        self.events = TokenBucket(limits.events_per_second, limits.events_burst, now)
        self.requests = TokenBucket(limits.requests_per_second, limits.requests_burst, now)
        self.faults = TokenBucket(limits.faults_per_second, limits.faults_burst, now)


class ClientSubscription:
    """What one client has asked for."""

    __slots__ = ("after", "client", "filters", "head", "is_over", "missed", "name")

    def __init__(self, client: RelayClientState, name: str, filters: tuple[EventFilter, ...]) -> None:
        self.client = client
        self.name = name
        self.filters = filters
        self.head = wire_messages.event_head(name)
        # The last number that it was told from the store; None: not done with that yet.
        self.after: int | None = None
        self.missed = False
        self.is_over = False

    def wants(self, event: Event) -> bool:
        return any(one.matches(event) for one in self.filters)


# Who looks after a coroutine: a task group of whoever runs the relay.
Start = Callable[[Coroutine[Any, Any, None]], object]
Watcher = Callable[[Signed], None]


class Relay:
    """Told what clients send and what time it is; belongs to one loop."""

    def __init__(
        self, store: EventStore, limits: RelayLimits, addresses: Sequence[str], start: Start
    ) -> None:
        self.store = store
        self.limits = limits
        self.addresses = tuple(addresses)
        self.delivered = 0
        self.outcomes: Counter[str] = Counter()
        # Called with every event that is new and on disk; for whoever shows or counts them.
        self.watchers: list[Watcher] = []
        self._start = start
        self._index: FilterIndex[ClientSubscription] = FilterIndex()
        self._senders = token_buckets(
            limits.sender_events_per_second, limits.sender_events_burst, max_keys=limits.senders_counted
        )

    def enter(self, client: RelayClientState) -> None:
        """A new connection: it is given its challenge."""
        client.line.send(wire_messages.auth_message(client.challenge))

    def leave(self, client: RelayClientState) -> None:
        client.is_gone = True
        for name in list(client.subscriptions):
            self._end(client, name)

    def receive(self, client: RelayClientState, data: bytes, now: float) -> None:
        """One message of a client; raises nothing, whatever it holds."""
        try:
            message = wire_messages.read_message(data, self.limits)
        except NotAMessage as fault:
            self._not_a_message(client, fault, now)
            return
        if message.__class__ is PublishMessage:
            self._publish(client, message.raw, now)
            return
        if (wait := client.requests.take(now)) and not isinstance(message, UnsubscribeMessage):
            words = _too_fast("requests_per_second", self.limits.requests_per_second, wait)
            name = message.subscription if isinstance(message, SubscribeMessage) else None
            client.line.send(
                wire_messages.notice_message(words)
                if name is None
                else wire_messages.closed_message(name, words)
            )
            self._fault(client, now)
        elif isinstance(message, SubscribeMessage):
            self._subscribe(client, message, now)
        elif isinstance(message, UnsubscribeMessage):
            self._end(client, message.subscription)
        elif isinstance(message, AuthMessage):
            self._authenticate(client, message.raw, now)

    # Publishing

    def _publish(self, client: RelayClientState, raw: bytes, now: float) -> None:
        try:
            signed = decode(raw)
        except MalformedEvent as fault:
            found = _ID.search(raw)
            self._refuse(client, found[1].decode() if found else _NO_ID, f"invalid: {fault.message}")
            self._fault(client, now)
            return
        event, limits = signed.event, self.limits
        if wait := client.events.take(now):
            words = _too_fast("events_per_second", limits.events_per_second, wait)
            self._refuse(client, event.id, words)
            return
        if client.unconfirmed >= limits.unconfirmed_events:
            words = f"rate-limited: limits.unconfirmed_events is {limits.unconfirmed_events}; wait for OK"
            self._refuse(client, event.id, words)
            return
        try:
            check_times(event, now)
            if now >= event.expires_at + SKEW_SECONDS and event.kind not in KEPT_FOR_GOOD:
                # A grant holds as long as it says, but is not carried around for that long.
                raise EventExpired(f"the event expired at {event.expires_at}")
            verify_event(signed)
        except EventExpired as fault:
            self._refuse(client, event.id, f"expired: {fault.message}")
            return
        except UnverifiedEvent as fault:
            self._refuse(client, event.id, f"invalid: {fault.message}")
            self._fault(client, now)
            return
        # Only now: before the signature, anybody could use up somebody else's rate.
        if wait := self._senders.take(event.sender, now):
            words = _too_fast("sender_events_per_second", limits.sender_events_per_second, wait)
            self._refuse(client, event.id, words)
            return
        client.unconfirmed += 1
        self.store.add(signed, now, partial(self._settled, client, signed))

    def _settled(self, client: RelayClientState, signed: Signed, added: Added, seq: int) -> None:
        client.unconfirmed -= 1
        self.outcomes[added] += 1
        if not client.is_gone:
            taken, words = _SAID[added]
            client.line.send(wire_messages.ok_message(signed.event.id, taken, words))
        if added == "stored":
            self._deliver(signed, seq)

    def _deliver(self, signed: Signed, seq: int) -> None:
        event = signed.event
        for subscription in self._index.candidates(event):
            if not subscription.wants(event):
                continue
            if subscription.after is None:
                subscription.missed = True
            elif seq > subscription.after:
                self.delivered += 1
                subscription.client.line.send(wire_messages.event_message(subscription.head, signed.raw))
        for watcher in self.watchers:
            watcher(signed)

    # Subscribing

    def _subscribe(self, client: RelayClientState, request: SubscribeMessage, now: float) -> None:
        name, limits = request.subscription, self.limits
        self._end(client, name)
        wanted = {key for one in request.filters for key in one.recipients or ()}
        words = None
        if len(client.subscriptions) >= limits.subscriptions:
            words = f"rate-limited: limits.subscriptions is {limits.subscriptions}; close one first"
        elif wanted and not client.keys:
            words = "auth-required: events for a key go to whoever has proven to hold it"
        elif not wanted <= client.keys:
            words = "restricted: a recipient is not a key that this connection has proven"
        if words is not None:
            client.line.send(wire_messages.closed_message(name, words))
            return
        subscription = ClientSubscription(client, name, request.filters)
        client.subscriptions[name] = subscription
        self._index.add(subscription, subscription.filters)
        self._start(self._tell_stored(subscription, now))

    async def _tell_stored(self, subscription: ClientSubscription, now: float) -> None:
        try:
            await self._catch_up(subscription, now)
        except sqlite3.Error as fault:
            log.error("events cannot be read", extra={"fault": str(fault)})
            if not subscription.is_over:
                self._end(subscription.client, subscription.name)
                words = "error: stored events cannot be read; try again later"
                subscription.client.line.send(wire_messages.closed_message(subscription.name, words))

    async def _catch_up(self, subscription: ClientSubscription, now: float) -> None:
        """Send what is stored, then EOSE, then what came meanwhile, until nothing is left behind."""
        line = subscription.client.line
        first, last = 0, None
        sent: set[int] = set()
        told_end = False
        while True:
            subscription.missed = False
            for place, one in enumerate(subscription.filters):
                reading = EventReader(one.query(now), first_seq=first, last_seq=last)
                while page := await self.store.page(reading):
                    if subscription.is_over:
                        return
                    for event in page:
                        if event.seq in sent:
                            continue
                        if place + 1 < len(subscription.filters) and len(sent) < _NUMBERS_KEPT:
                            sent.add(event.seq)
                        self.delivered += 1
                        line.send(wire_messages.event_message(subscription.head, event.raw))
                    await line.ready()
                last = reading.last_seq
            if subscription.is_over or last is None:
                return
            if not told_end:
                told_end = True
                line.send(wire_messages.eose_message(subscription.name))
            if not subscription.missed:
                subscription.after = last
                return
            # Past the first round `limit` has done its work, and times cannot have changed.
            first, last = last + 1, None
            subscription.filters = tuple(_without_limit(one) for one in subscription.filters)
            sent.clear()

    def _end(self, client: RelayClientState, name: str) -> None:
        subscription = client.subscriptions.pop(name, None)
        if subscription is not None:
            subscription.is_over = True
            self._index.remove(subscription, subscription.filters)

    # Proofs and faults

    def _authenticate(self, client: RelayClientState, raw: bytes, now: float) -> None:
        found = _ID_OF_PROOF
        if len(client.keys) >= self.limits.keys:
            words = f"restricted: limits.keys is {self.limits.keys}; open another connection"
            client.line.send(wire_messages.ok_message(found, False, words))
            return
        try:
            key = proven_key(raw, relays=self.addresses, challenge=client.challenge, now=now)
        except UnverifiedEvent as fault:
            client.line.send(wire_messages.ok_message(found, False, f"invalid: {fault.message}"))
            self._fault(client, now)
            return
        client.keys.add(key)
        client.line.send(wire_messages.ok_message(found, True))

    def _refuse(self, client: RelayClientState, event_id: str, words: str) -> None:
        self.outcomes[words.partition(":")[0]] += 1
        client.line.send(wire_messages.ok_message(event_id, False, words))

    def _not_a_message(self, client: RelayClientState, fault: NotAMessage, now: float) -> None:
        self.outcomes["invalid"] += 1
        words = f"invalid: {fault.message}"
        client.line.send(
            wire_messages.notice_message(words)
            if fault.subscription is None
            else wire_messages.closed_message(fault.subscription, words)
        )
        self._fault(client, now)

    def _fault(self, client: RelayClientState, now: float) -> None:
        if client.faults.take(now):
            limits = self.limits
            words = f"too many faults: limits.faults_per_second is {limits.faults_per_second:g}"
            client.line.end(_POLICY, words)


# An OK about a proof names no event.
_ID_OF_PROOF: Final = "auth"
_SAID: Final[dict[Added, tuple[bool, str]]] = {
    "stored": (True, ""),
    "duplicate": (True, "duplicate: it is here already"),
    "superseded": (True, "duplicate: a newer announce of this sender is here"),
    "full": (False, "full: this relay, or what it keeps for one sender, has no room; try again later"),
    "failed": (False, "error: the event could not be written; try again later"),
}


def _too_fast(name: str, most: float, wait: float) -> str:
    return f"rate-limited: limits.{name} is {most:g}; wait {wait:.1f} s"


def _without_limit(one: EventFilter) -> EventFilter:
    return one if one.limit is None else msgspec.structs.replace(one, limit=None)
