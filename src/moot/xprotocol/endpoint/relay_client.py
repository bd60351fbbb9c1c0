"""The relay client: publishes and subscribes, over whichever of its relays can be reached.

async with RelayClient(["wss://relay.example", "wss://other.example"], identity) as relays:
    async with relays.subscribe([{"recipients": [identity.key.text]}]) as events:
        await relays.publish(signed)
        async for raw in events: ...

The first address is the preferred one, the others are fallbacks (XP 3.1). One relay is in use at a time.
When it fails, or does not confirm an event in time, the next is used at once; after all have failed, the
client waits `reconnect_interval_seconds` and starts with the first. On each new connection, events without
an OK are sent again and subscriptions continue. A relay may get an event twice; its id tells.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

from moot.errors import ConnectionLost, MootError, OutboxFull, TimedOut, Unreachable, UsageError
from moot.net.address_check import ForbiddenAddress
from moot.net.connect_errors import UpgradeRefused
from moot.protocol.operation import Json
from moot.xprotocol.endpoint import relay_session
from moot.xprotocol.endpoint.document_fetch import FetchPolicy
from moot.xprotocol.endpoint.relay_messages import PublishResult
from moot.xprotocol.endpoint.relay_session import RelaySession
from moot.xprotocol.endpoint.relay_subscriptions import RelayRefused, RelaySubscription
from moot.xprotocol.events.events import Signed
from moot.xprotocol.events.relay_auth import relay_address
from moot.xprotocol.identity.keys import Identity

# XP 3.1: the wait after all relays have failed.
RECONNECT_INTERVAL_SECONDS: Final = 5.0
# Published events without an OK.
MAX_PENDING_EVENTS: Final = 1_024
# On a fallback: how often the preferred relay is tried.
PREFERRED_RETRY_SECONDS: Final = 60.0
# Between two tries of an event that the relay refused for the moment.
PUBLISH_RETRY_SECONDS: Final = 1.0

log = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 0.5


class _PendingPublish:
    """An event without an OK yet."""

    __slots__ = ("done", "publishers", "raw", "sent_at")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        # The same event may be published by several at once.
        self.publishers = 0
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # None: not sent on the current connection.
        self.sent_at: float | None = None


class RelayClient:
    """Belongs to one loop and one identity. Use it as a context manager."""

    def __init__(
        self,
        urls: Sequence[str],
        identity: Identity,
        *,
        reconnect_interval_seconds: float | None = None,
        max_pending_events: int = MAX_PENDING_EVENTS,
        on_change: Callable[[str | None], None] = lambda _url: None,
        fetch_policy: FetchPolicy | None = None,
    ) -> None:
        """`on_change` gets the address of the relay in use, or None when there is none.

        `fetch_policy` is for addresses that discovery found: they may lead anywhere, now or at any reconnect,
        so every connection is checked. Without one they are the operator's own.
        """
        if not urls:
            raise UsageError("no relay is configured: give at least one, such as wss://relay.example")
        for url in urls:
            relay_address(url)
        self.urls = tuple(dict.fromkeys(urls))
        self._identity = identity
        self._reconnect_seconds = reconnect_interval_seconds or RECONNECT_INTERVAL_SECONDS
        self._max_pending = max_pending_events
        self._on_change = on_change
        self._fetch_policy = fetch_policy
        self._session: RelaySession | None = None
        self._pending: dict[str, _PendingPublish] = {}
        self._subscriptions: dict[str, RelaySubscription] = {}
        # Those that have received all stored events on the current connection.
        self._live: set[str] = set()
        self._subscription_count = 0
        self._connected = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._resending: asyncio.Task[None] | None = None
        # Whether an event found no room since `_resend` last looked.
        self._found_no_room = False
        self.last_fault: MootError | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def url(self) -> str | None:
        """The relay in use, if any."""
        return None if self._session is None else self._session.url

    async def wait_connected(self, timeout_seconds: float) -> str:
        """Wait for a relay and return its address. Raises Unreachable with the last relay's fault."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self._session is None:
                    self._connected.clear()
                    await self._connected.wait()
        except TimeoutError:
            why = self.last_fault or f"nothing within {timeout_seconds:g} s"
            raise Unreachable(f"no relay of {', '.join(self.urls)} is available: {why}") from None
        return self._session.url

    async def close(self) -> None:
        """Disconnect. Events without an OK fail with ConnectionLost; subscriptions end."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = None
        for subscription in list(self._subscriptions.values()):
            await subscription.close()
        for pending in self._pending.values():
            if not pending.done.done():
                pending.done.set_exception(ConnectionLost("closed before a relay confirmed the event"))
                pending.done.exception()
        self._pending.clear()

    # Publishing

    async def publish(self, signed: Signed, *, timeout_seconds: float = 30.0) -> str:
        """Publish an event; returns the relay's address once the event is on its disk.

        Raises RelayRefused when the relay refuses it for good, TimedOut when none confirmed it in time (one
        may have it all the same), OutboxFull when too many are pending. Cancelling is safe: the event may
        have been stored.
        """
        event_id = signed.event.id
        pending = self._pending.get(event_id)
        if pending is None:
            if len(self._pending) >= self._max_pending:
                raise OutboxFull(
                    f"{len(self._pending)} events wait for a relay's OK and max_pending_events is "
                    f"{self._max_pending}: wait until some have it"
                )
            pending = self._pending[event_id] = _PendingPublish(signed.raw)
            self._send(pending)
        pending.publishers += 1
        try:
            async with asyncio.timeout(timeout_seconds):
                return await asyncio.shield(pending.done)
        except TimeoutError:
            why = f" ({self.last_fault})" if self._session is None and self.last_fault else ""
            raise TimedOut(f"no relay confirmed an event within {timeout_seconds:g} s{why}") from None
        finally:
            pending.publishers -= 1
            if not pending.publishers and self._pending.get(event_id) is pending:
                del self._pending[event_id]

    def _send(self, pending: _PendingPublish) -> None:
        session = self._session
        if session is None or pending.done.done():
            return
        try:
            session.publish(pending.raw)
        except OutboxFull:
            # Sent later, when there is room.
            pending.sent_at = None
            self._resend_soon()
            return
        pending.sent_at = asyncio.get_running_loop().time()

    def _resend_soon(self) -> None:
        self._found_no_room = True
        if self._resending is None or self._resending.done():
            self._resending = asyncio.create_task(self._resend())

    async def _resend(self) -> None:
        """Send what was not sent on the current connection, no faster than the relay accepts it."""
        session = self._session
        try:
            self._found_no_room = True
            while self._found_no_room:
                self._found_no_room = False
                for pending in [each for each in self._pending.values() if each.sent_at is None]:
                    if session is None or session is not self._session:
                        return
                    await session.writable()
                    if pending.done.done() or pending.sent_at is not None:
                        continue
                    session.publish(pending.raw)
                    pending.sent_at = asyncio.get_running_loop().time()
        except (TimedOut, OutboxFull):
            if session is not None:
                session.end("it accepts no data")

    # Listening

    def subscribe(self, filters: Sequence[Mapping[str, Json]]) -> RelaySubscription:
        """Subscribe to events, now and after every reconnect, until it is closed.

        `recipients` can only be the key of our own identity. Events are raw bytes: nothing is
        verified yet (`moot.xprotocol.events.event_receiver` does that).
        """
        self._subscription_count += 1
        name = f"s{self._subscription_count}"
        subscription = RelaySubscription(name, filters, self._resume_reading, self._unsubscribe)
        self._subscriptions[name] = subscription
        if self._session is not None:
            self._session.subscribe(name, subscription.filters_for(self._session.url))
        return subscription

    def _unsubscribe(self, subscription: RelaySubscription) -> None:
        self._subscriptions.pop(subscription.name, None)
        self._live.discard(subscription.name)
        if self._session is not None:
            self._session.unsubscribe(subscription.name)
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Resume reading when all queues have room again."""
        session = self._session
        if session is None or not session.is_paused:
            return
        if all(each.has_room for each in self._subscriptions.values()):
            session.resume()

    # Callbacks of the session

    def on_event(self, session: RelaySession, subscription: str, raw: bytes) -> None:
        listener = self._subscriptions.get(subscription)
        if session is not self._session or listener is None:
            return
        listener.add_event(raw)
        if listener.is_full:
            session.pause()

    def on_stored(self, session: RelaySession, subscription: str) -> None:
        listener = self._subscriptions.get(subscription)
        if session is self._session and listener is not None:
            self._live.add(subscription)
            listener.mark_stored()

    def on_closed(self, session: RelaySession, subscription: str, reason: str) -> None:
        listener = self._subscriptions.get(subscription)
        if session is not self._session or listener is None:
            return
        log.warning("a relay ends a subscription", extra={"relay": session.url, "reason": reason})
        self._live.discard(subscription)
        if reason.startswith(("invalid:", "restricted:")):
            del self._subscriptions[subscription]
            listener.fail(RelayRefused(session.url, reason))
            return
        loop = asyncio.get_running_loop()
        loop.call_later(self._reconnect_seconds, self._resubscribe, session, subscription)

    def _resubscribe(self, session: RelaySession, subscription: str) -> None:
        listener = self._subscriptions.get(subscription)
        if session is self._session and listener is not None:
            session.subscribe(subscription, listener.filters_for(session.url))

    def on_publish_result(self, session: RelaySession, ok: PublishResult) -> None:
        pending = self._pending.get(ok.id)
        if session is not self._session or pending is None or pending.done.done():
            return
        if ok.accepted:
            pending.done.set_result(session.url)
        elif ok.is_retryable:
            pending.sent_at = None
            asyncio.get_running_loop().call_later(PUBLISH_RETRY_SECONDS, self._retry_publish, ok.id, pending)
        else:
            pending.done.set_exception(RelayRefused(session.url, ok.reason))

    def _retry_publish(self, event_id: str, pending: _PendingPublish) -> None:
        if self._pending.get(event_id) is pending and pending.sent_at is None:
            self._send(pending)

    # Connections

    async def _run(self) -> None:
        try:
            index = 0
            while True:
                session = await self._open_session(self.urls[index])
                while session is not None:
                    self._use_session(session)
                    preferred = await self._watch_session(session, index)
                    self._drop_session(session)
                    if preferred is not None:
                        index = 0
                    session = preferred
                index += 1
                if index == len(self.urls):
                    index = 0
                    await asyncio.sleep(self._reconnect_seconds)
        except Exception:
            # A connection's task: nobody awaits it before the end.
            log.exception("the relay client failed")
            raise
        finally:
            if self._resending is not None:
                self._resending.cancel()
            if self._session is not None:
                session = self._session
                session.end("closed by us")
                self._drop_session(session)
                await session.wait_closed()

    async def _open_session(self, url: str) -> RelaySession | None:
        try:
            return await RelaySession.open(url, self._identity, self, self._fetch_policy)
        except (Unreachable, UpgradeRefused, TimedOut, ConnectionLost, ForbiddenAddress) as fault:
            self.last_fault = fault
            log.info("a relay is unavailable", extra={"relay": url, "fault": str(fault)})
            return None

    def _use_session(self, session: RelaySession) -> None:
        self._session = session
        self._live.clear()
        for name, subscription in self._subscriptions.items():
            session.subscribe(name, subscription.filters_for(session.url))
        for pending in self._pending.values():
            pending.sent_at = None
        if self._resending is not None:
            self._resending.cancel()
        self._resending = asyncio.create_task(self._resend())
        self._connected.set()
        self._on_change(session.url)

    async def _watch_session(self, session: RelaySession, index: int) -> RelaySession | None:
        """Wait until this relay has to be dropped; returns the preferred one when it is back."""
        loop = asyncio.get_running_loop()
        next_try = loop.time() + PREFERRED_RETRY_SECONDS
        while not session.ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_SECONDS):
                    await session.ended.wait()
            now = loop.time()
            oldest = min(
                (each.sent_at for each in self._pending.values() if each.sent_at is not None), default=now
            )
            if now - oldest > relay_session.OK_TIMEOUT_SECONDS:
                session.end(f"no OK within {relay_session.OK_TIMEOUT_SECONDS:g} s")
            elif index > 0 and now >= next_try:
                preferred = await self._open_session(self.urls[0])
                if preferred is not None:
                    session.end("the preferred relay is back")
                    return preferred
                next_try = loop.time() + PREFERRED_RETRY_SECONDS
        self.last_fault = ConnectionLost(f"{session.url}: {session.reason}")
        log.info("a relay was dropped", extra={"relay": session.url, "reason": session.reason})
        return None

    def _drop_session(self, session: RelaySession) -> None:
        self._session = None
        for name in self._live:
            if (subscription := self._subscriptions.get(name)) is not None:
                subscription.set_complete_until(session.url, session.complete_until)
        self._live.clear()
        self._on_change(None)
