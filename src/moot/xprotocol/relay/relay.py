"""The relay's logic: handles each client message and delivers events to subscriptions. No sockets here.

An event is parsed, its times, id and signature are checked, and it is stored. When it is on disk its sender
gets OK, and subscribers get its original bytes. Nothing that was confirmed or delivered is lost in a crash.

A subscription starts with stored events, page by page, as fast as its reader takes them. Events that arrive
meanwhile are not queued for it: it is marked and reads those from the store, too, until it has caught up;
from then on it gets events as they are committed. Sequence numbers (`seq`) tell what it has had.
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
from moot.protocol import base64url
from moot.resilience.rate_limits import TokenBucket, token_buckets
from moot.xprotocol.event_store.event_query import EventReader
from moot.xprotocol.event_store.event_store import PERMANENT_KINDS, EventStore
from moot.xprotocol.event_store.event_writer import Added
from moot.xprotocol.events.events import SKEW_SECONDS, Event, Signed, check_times, decode, verify_event
from moot.xprotocol.events.relay_auth import CHALLENGE_BYTES, proven_key
from moot.xprotocol.relay import wire_messages
from moot.xprotocol.relay.subscription_filters import EventFilter, FilterIndex
from moot.xprotocol.relay.wire_messages import (
    AuthMessage,
    InvalidClientMessage,
    PublishMessage,
    SubscribeMessage,
    UnsubscribeMessage,
)

# Verifying takes some 100 µs: a connection at this rate uses a twentieth of a core.
EVENTS_PER_SECOND: Final = 500.0
# Of one key, over all its connections.
SENDER_EVENTS_PER_SECOND: Final = 500.0
# REQ, CLOSE and AUTH.
REQUESTS_PER_SECOND: Final = 20.0
# What may come at once of each.
MAX_BURST_EVENTS: Final = 2_000
MAX_SENDER_BURST_EVENTS: Final = 2_000
MAX_BURST_REQUESTS: Final = 100
# Keys whose rate is tracked; the one that was idle longest is dropped first.
MAX_SENDERS: Final = 50_000
# Events of one connection that are not committed yet.
MAX_UNCONFIRMED_EVENTS: Final = 4_096
# Invalid messages, events and proofs; beyond it the connection is closed with 1008.
FAULTS_PER_SECOND: Final = 5.0
MAX_BURST_FAULTS: Final = 50
MAX_SUBSCRIPTIONS: Final = 32
# Keys that one connection may authenticate.
MAX_KEYS: Final = 8

log = logging.getLogger(__name__)

_ID = re.compile(rb'"id"\s*:\s*"([0-9a-f]{64})"')
_UNKNOWN_ID: Final = "0" * 64
# Sequence numbers sent by one filter that the next one skips; beyond it an event may come twice.
_MAX_SEQS: Final = 100_000
_POLICY: Final = 1008


class ClientConnection(Protocol):
    """The connection to a client."""

    def send(self, frame: bytes) -> None: ...

    def end(self, code: int, reason: str) -> None: ...

    async def ready(self) -> None:
        """Wait until the send buffer has room; returns at once when the connection is closed."""


class RelayClientState:
    """The state of one client connection."""

    __slots__ = (
        "challenge",
        "connection",
        "events",
        "faults",
        "is_gone",
        "keys",
        "requests",
        "subscriptions",
        "unconfirmed",
    )

    def __init__(self, connection: ClientConnection, now: float, *, has_rates: bool = True) -> None:
        self.connection = connection
        self.challenge = base64url.encode(secrets.token_bytes(CHALLENGE_BYTES))
        self.keys: set[str] = set()
        self.subscriptions: dict[str, ClientSubscription] = {}
        self.unconfirmed = 0
        self.is_gone = False
        self.events = TokenBucket(EVENTS_PER_SECOND if has_rates else 0, MAX_BURST_EVENTS, now)
        self.requests = TokenBucket(REQUESTS_PER_SECOND if has_rates else 0, MAX_BURST_REQUESTS, now)
        self.faults = TokenBucket(FAULTS_PER_SECOND, MAX_BURST_FAULTS, now)


class ClientSubscription:
    """One subscription of one client."""

    __slots__ = ("after", "client", "filters", "head", "is_over", "missed", "name")

    def __init__(self, client: RelayClientState, name: str, filters: tuple[EventFilter, ...]) -> None:
        self.client = client
        self.name = name
        self.filters = filters
        self.head = wire_messages.event_head(name)
        # The last sequence number sent from the store; None: it has not caught up yet.
        self.after: int | None = None
        self.missed = False
        self.is_over = False

    def matches(self, event: Event) -> bool:
        return any(one.matches(event) for one in self.filters)


# Starts a task that the server owns.
Start = Callable[[Coroutine[Any, Any, None]], object]
Watcher = Callable[[Signed], None]


class Relay:
    """Handles the messages of all clients; belongs to one loop."""

    def __init__(
        self, store: EventStore, addresses: Sequence[str], start: Start, *, has_rates: bool = True
    ) -> None:
        self.store = store
        self.addresses = tuple(addresses)
        self.delivered = 0
        self.outcomes: Counter[str] = Counter()
        # Called with every new event that is on disk.
        self.watchers: list[Watcher] = []
        self._start = start
        self._index: FilterIndex[ClientSubscription] = FilterIndex()
        self._senders = token_buckets(
            SENDER_EVENTS_PER_SECOND if has_rates else 0, MAX_SENDER_BURST_EVENTS, max_keys=MAX_SENDERS
        )

    def add_client(self, client: RelayClientState) -> None:
        """Register a connection and send its challenge."""
        client.connection.send(wire_messages.auth_message(client.challenge))

    def remove_client(self, client: RelayClientState) -> None:
        client.is_gone = True
        for name in list(client.subscriptions):
            self._end_subscription(client, name)

    def receive(self, client: RelayClientState, data: bytes, now: float) -> None:
        """Handle one message of a client; raises nothing, whatever it holds."""
        try:
            message = wire_messages.read_message(data)
        except InvalidClientMessage as fault:
            self.outcomes["invalid"] += 1
            self._reject_message(client, f"invalid: {fault.message}", fault.subscription, now)
            return
        if message.__class__ is PublishMessage:
            self._publish(client, message.raw, now)
            return
        if (wait := client.requests.take(now)) and not isinstance(message, UnsubscribeMessage):
            reason = _rate_limited("requests_per_second", REQUESTS_PER_SECOND, wait)
            name = message.subscription if isinstance(message, SubscribeMessage) else None
            self._reject_message(client, reason, name, now)
        elif isinstance(message, SubscribeMessage):
            self._subscribe(client, message, now)
        elif isinstance(message, UnsubscribeMessage):
            self._end_subscription(client, message.subscription)
        elif isinstance(message, AuthMessage):
            self._authenticate(client, message.raw, now)

    # Publishing

    def _publish(self, client: RelayClientState, raw: bytes, now: float) -> None:
        try:
            signed = decode(raw)
        except MalformedEvent as fault:
            found = _ID.search(raw)
            self._refuse(client, found[1].decode() if found else _UNKNOWN_ID, f"invalid: {fault.message}")
            self._fault(client, now)
            return
        event = signed.event
        if wait := client.events.take(now):
            reason = _rate_limited("events_per_second", EVENTS_PER_SECOND, wait)
            self._refuse(client, event.id, reason)
            return
        if client.unconfirmed >= MAX_UNCONFIRMED_EVENTS:
            reason = f"rate-limited: {MAX_UNCONFIRMED_EVENTS} events wait for OK; wait for it"
            self._refuse(client, event.id, reason)
            return
        try:
            check_times(event, now)
            if now >= event.expires_at + SKEW_SECONDS and event.kind not in PERMANENT_KINDS:
                # A grant may be valid for longer than it is relayed.
                raise EventExpired(f"the event expired at {event.expires_at}")
            verify_event(signed)
        except EventExpired as fault:
            self._refuse(client, event.id, f"expired: {fault.message}")
            return
        except UnverifiedEvent as fault:
            self._refuse(client, event.id, f"invalid: {fault.message}")
            self._fault(client, now)
            return
        # After the signature check: else anybody could use up somebody else's rate.
        if wait := self._senders.take(event.sender, now):
            reason = _rate_limited("sender_events_per_second", SENDER_EVENTS_PER_SECOND, wait)
            self._refuse(client, event.id, reason)
            return
        client.unconfirmed += 1
        self.store.add(signed, now, partial(self._on_stored, client, signed))

    def _on_stored(self, client: RelayClientState, signed: Signed, added: Added, seq: int) -> None:
        client.unconfirmed -= 1
        self.outcomes[added] += 1
        if not client.is_gone:
            accepted, reason = _OK_RESULTS[added]
            client.connection.send(wire_messages.ok_message(signed.event.id, accepted, reason))
        if added == "stored":
            self._deliver(signed, seq)

    def _deliver(self, signed: Signed, seq: int) -> None:
        event = signed.event
        for subscription in self._index.candidates(event):
            if not subscription.matches(event):
                continue
            if subscription.after is None:
                subscription.missed = True
            elif seq > subscription.after:
                self.delivered += 1
                subscription.client.connection.send(
                    wire_messages.event_message(subscription.head, signed.raw)
                )
        for watcher in self.watchers:
            watcher(signed)

    # Subscribing

    def _subscribe(self, client: RelayClientState, request: SubscribeMessage, now: float) -> None:
        name = request.subscription
        self._end_subscription(client, name)
        wanted = {key for one in request.filters for key in one.recipients or ()}
        reason = None
        if len(client.subscriptions) >= MAX_SUBSCRIPTIONS:
            reason = f"rate-limited: at most {MAX_SUBSCRIPTIONS} subscriptions; close one first"
        elif wanted and not client.keys:
            reason = "auth-required: authenticate with this key to receive its events"
        elif not wanted <= client.keys:
            reason = "restricted: this connection has not authenticated with this recipient's key"
        if reason is not None:
            client.connection.send(wire_messages.closed_message(name, reason))
            return
        subscription = ClientSubscription(client, name, request.filters)
        client.subscriptions[name] = subscription
        self._index.add(subscription, subscription.filters)
        self._start(self._send_stored(subscription, now))

    async def _send_stored(self, subscription: ClientSubscription, now: float) -> None:
        try:
            await self._catch_up(subscription, now)
        except sqlite3.Error as fault:
            log.error("events cannot be read", extra={"fault": str(fault)})
            if not subscription.is_over:
                self._end_subscription(subscription.client, subscription.name)
                reason = "error: stored events cannot be read; try again later"
                subscription.client.connection.send(wire_messages.closed_message(subscription.name, reason))

    async def _catch_up(self, subscription: ClientSubscription, now: float) -> None:
        """Send stored events, then EOSE, then what arrived meanwhile, until it has caught up."""
        connection = subscription.client.connection
        first, last = 0, None
        sent: set[int] = set()
        is_end_sent = False
        while True:
            subscription.missed = False
            for index, one in enumerate(subscription.filters):
                reading = EventReader(one.to_query(now), first_seq=first, last_seq=last)
                while page := await self.store.page(reading):
                    if subscription.is_over:
                        return
                    for event in page:
                        if event.seq in sent:
                            continue
                        if index + 1 < len(subscription.filters) and len(sent) < _MAX_SEQS:
                            sent.add(event.seq)
                        self.delivered += 1
                        connection.send(wire_messages.event_message(subscription.head, event.raw))
                    await connection.ready()
                last = reading.last_seq
            if subscription.is_over or last is None:
                return
            if not is_end_sent:
                is_end_sent = True
                connection.send(wire_messages.eose_message(subscription.name))
            if not subscription.missed:
                subscription.after = last
                return
            # `limit` is only for the first round.
            first, last = last + 1, None
            subscription.filters = tuple(_without_limit(one) for one in subscription.filters)
            sent.clear()

    def _end_subscription(self, client: RelayClientState, name: str) -> None:
        subscription = client.subscriptions.pop(name, None)
        if subscription is not None:
            subscription.is_over = True
            self._index.remove(subscription, subscription.filters)

    # Authentication and faults

    def _authenticate(self, client: RelayClientState, raw: bytes, now: float) -> None:
        found = _AUTH_ID
        if len(client.keys) >= MAX_KEYS:
            reason = f"restricted: max_keys is {MAX_KEYS}; open another connection"
            client.connection.send(wire_messages.ok_message(found, False, reason))
            return
        try:
            key = proven_key(raw, relays=self.addresses, challenge=client.challenge, now=now)
        except UnverifiedEvent as fault:
            client.connection.send(wire_messages.ok_message(found, False, f"invalid: {fault.message}"))
            self._fault(client, now)
            return
        client.keys.add(key)
        client.connection.send(wire_messages.ok_message(found, True))

    def _refuse(self, client: RelayClientState, event_id: str, reason: str) -> None:
        self.outcomes[reason.partition(":")[0]] += 1
        client.connection.send(wire_messages.ok_message(event_id, False, reason))

    def _reject_message(
        self, client: RelayClientState, reason: str, subscription: str | None, now: float
    ) -> None:
        client.connection.send(
            wire_messages.notice_message(reason)
            if subscription is None
            else wire_messages.closed_message(subscription, reason)
        )
        self._fault(client, now)

    def _fault(self, client: RelayClientState, now: float) -> None:
        if client.faults.take(now):
            reason = f"too many faults: more than {FAULTS_PER_SECOND:g} a second"
            client.connection.end(_POLICY, reason)


# The id in the OK to a proof.
_AUTH_ID: Final = "auth"
_OK_RESULTS: Final[dict[Added, tuple[bool, str]]] = {
    "stored": (True, ""),
    "duplicate": (True, "duplicate: already stored"),
    "superseded": (True, "duplicate: there is a newer announce of this sender"),
    "full": (False, "full: the relay's limit, or its limit for one sender, is met; try again later"),
    "failed": (False, "error: the event could not be written; try again later"),
}


def _rate_limited(name: str, limit: float, wait: float) -> str:
    return f"rate-limited: {name} is {limit:g}; wait {wait:.1f} s"


def _without_limit(one: EventFilter) -> EventFilter:
    return one if one.limit is None else msgspec.structs.replace(one, limit=None)
