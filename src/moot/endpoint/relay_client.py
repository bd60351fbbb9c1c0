"""An endpoint's relays: publish and listen, over whichever of them can be reached.

async with Relays(["wss://relay.example", "wss://other.example"], identity) as relays:
    async with relays.subscribe([{"recipients": [identity.key.text]}]) as events:
        await relays.publish(signed)
        async for raw in events: ...

The first address is the preferred one, the others are fall-backs (XP 3.1). One relay is in use at a time.
When it breaks, or says no OK in time, the next is taken at once; when all were tried, after
`reconnect_interval_seconds` from the first one again. Wherever we come to, events without an OK are sent
again and subscriptions go on. An event may so come to a relay twice; relays and receivers know it by its id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

from moot.endpoint.relay_messages import PublishResult
from moot.endpoint.relay_session import RelaySession
from moot.endpoint.relay_settings import RelaysSettings
from moot.endpoint.relay_subscriptions import RelayRefused, RelaySubscription
from moot.errors import ConnectionLost, MootError, OutboxFull, TimedOut, Unreachable, UsageError
from moot.identity.keys import Identity
from moot.net.websocket_client import UpgradeRefused
from moot.protocol.operation import Json
from moot.xprotocol.events import Signed
from moot.xprotocol.relay_auth import relay_address

log = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 0.5
DEFAULT_SETTINGS: Final = RelaysSettings()


class _PendingPublish:
    """An event without an OK yet."""

    __slots__ = ("done", "publishers", "raw", "sent_at")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        # The same event may be published by several at once.
        self.publishers = 0
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # None: not sent on the present connection.
        self.sent_at: float | None = None


class RelayClient:
    """Belongs to one loop and one identity. Use it as a context manager."""

    def __init__(
        self,
        urls: Sequence[str],
        identity: Identity,
        settings: RelaysSettings = DEFAULT_SETTINGS,
        *,
        on_change: Callable[[str | None], None] = lambda _url: None,
    ) -> None:
        """`on_change` is told the address of the relay that is in use, or None when none is."""
        if not urls:
            raise UsageError("no relay is named: give at least one, such as wss://relay.example")
        for url in urls:
            relay_address(url)
        self.urls = tuple(dict.fromkeys(urls))
        self._identity = identity
        self._settings = settings
        self._on_change = on_change
        self._session: RelaySession | None = None
        self._waiting: dict[str, _PendingPublish] = {}
        self._subscriptions: dict[str, RelaySubscription] = {}
        # Those that have heard of everything stored, on the present connection.
        self._live: set[str] = set()
        self._numbers = 0
        self._connected = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._resending: asyncio.Task[None] | None = None
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

    async def connected(self, within: float) -> str:
        """Wait for a relay; its address. Raises Unreachable, which says what was wrong with the last one."""
        try:
            async with asyncio.timeout(within):
                while self._session is None:
                    self._connected.clear()
                    await self._connected.wait()
        except TimeoutError:
            why = self.last_fault or f"nothing within {within:g} s"
            raise Unreachable(f"no relay of {', '.join(self.urls)} can be used: {why}") from None
        return self._session.url

    async def close(self) -> None:
        """Leave. Events without an OK fail with ConnectionLost; subscriptions end."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = None
        for subscription in list(self._subscriptions.values()):
            await subscription.close()
        for waiting in self._waiting.values():
            if not waiting.done.done():
                waiting.done.set_exception(ConnectionLost("closed before a relay said OK"))
                waiting.done.exception()
        self._waiting.clear()

    # Publishing

    async def publish(self, signed: Signed, *, within: float = 30.0) -> str:
        """Have a relay keep this event; returns which one did, once the event is on its disk.

        Raises RelayRefused when the relay will never take it, TimedOut when none did in time (one may have it
        all the same), OutboxFull when too many wait. Cancelling is safe: the event may have been taken.
        """
        event_id = signed.event.id
        waiting = self._waiting.get(event_id)
        if waiting is None:
            if len(self._waiting) >= self._settings.publish_waiting:
                raise OutboxFull(
                    f"{len(self._waiting)} events wait for a relay's OK and publish_waiting is "
                    f"{self._settings.publish_waiting}: wait until some have it"
                )
            waiting = self._waiting[event_id] = _PendingPublish(signed.raw)
            self._send(waiting)
        waiting.publishers += 1
        try:
            async with asyncio.timeout(within):
                return await asyncio.shield(waiting.done)
        except TimeoutError:
            why = f" ({self.last_fault})" if self._session is None and self.last_fault else ""
            raise TimedOut(f"no relay said OK to an event within {within:g} s{why}") from None
        finally:
            waiting.publishers -= 1
            if not waiting.publishers and self._waiting.get(event_id) is waiting:
                del self._waiting[event_id]

    def _send(self, waiting: _PendingPublish) -> None:
        session = self._session
        if session is None or waiting.done.done():
            return
        try:
            session.publish(waiting.raw)
        except OutboxFull:
            # It is sent with the others as soon as there is room.
            waiting.sent_at = None
            self._resend_soon()
            return
        waiting.sent_at = asyncio.get_running_loop().time()

    def _resend_soon(self) -> None:
        if self._resending is None or self._resending.done():
            self._resending = asyncio.create_task(self._resend())

    async def _resend(self) -> None:
        """Send whatever was not sent on the present connection, no faster than it is taken."""
        session = self._session
        try:
            for waiting in [each for each in self._waiting.values() if each.sent_at is None]:
                if session is None or session is not self._session:
                    return
                await session.writable()
                if waiting.done.done() or waiting.sent_at is not None:
                    continue
                session.publish(waiting.raw)
                waiting.sent_at = asyncio.get_running_loop().time()
        except (TimedOut, OutboxFull):
            if session is not None:
                session.end("it takes nothing")

    # Listening

    def subscribe(self, filters: Sequence[Mapping[str, Json]]) -> RelaySubscription:
        """Listen for events, now and after every break, until it is closed.

        `recipients` can only be the key of our own identity. Events are bytes as they came: nothing is
        verified yet (`moot.xprotocol.event_receiver` does that).
        """
        self._numbers += 1
        name = f"s{self._numbers}"
        subscription = RelaySubscription(name, filters, self._settings, self._room, self._unsubscribe)
        self._subscriptions[name] = subscription
        if self._session is not None:
            self._session.subscribe(name, subscription.wish(self._session.url))
        return subscription

    def _unsubscribe(self, subscription: RelaySubscription) -> None:
        self._subscriptions.pop(subscription.name, None)
        self._live.discard(subscription.name)
        if self._session is not None:
            self._session.unsubscribe(subscription.name)
        self._room()

    def _room(self) -> None:
        """Somebody took an event: read on when nobody is behind any more."""
        session = self._session
        if session is None or not session.is_paused:
            return
        if all(each.has_room for each in self._subscriptions.values()):
            session.resume()

    # What a session tells

    def heard(self, session: RelaySession, subscription: str, raw: bytes) -> None:
        listener = self._subscriptions.get(subscription)
        if session is not self._session or listener is None:
            return
        listener.heard(raw)
        if listener.is_full:
            session.pause()

    def told_stored(self, session: RelaySession, subscription: str) -> None:
        listener = self._subscriptions.get(subscription)
        if session is self._session and listener is not None:
            self._live.add(subscription)
            listener.told_stored()

    def closed(self, session: RelaySession, subscription: str, words: str) -> None:
        listener = self._subscriptions.get(subscription)
        if session is not self._session or listener is None:
            return
        log.warning("a relay ends a subscription", extra={"relay": session.url, "words": words})
        self._live.discard(subscription)
        if words.startswith(("invalid:", "restricted:")):
            del self._subscriptions[subscription]
            listener.refused(RelayRefused(session.url, words))
            return
        loop = asyncio.get_running_loop()
        loop.call_later(self._settings.reconnect_interval_seconds, self._ask_again, session, subscription)

    def _ask_again(self, session: RelaySession, subscription: str) -> None:
        listener = self._subscriptions.get(subscription)
        if session is self._session and listener is not None:
            session.subscribe(subscription, listener.wish(session.url))

    def answered(self, session: RelaySession, ok: PublishResult) -> None:
        waiting = self._waiting.get(ok.id)
        if session is not self._session or waiting is None or waiting.done.done():
            return
        if ok.taken:
            waiting.done.set_result(session.url)
        elif ok.may_try_later:
            waiting.sent_at = None
            asyncio.get_running_loop().call_later(
                self._settings.retry_seconds, self._try_again, ok.id, waiting
            )
        else:
            waiting.done.set_exception(RelayRefused(session.url, ok.words))

    def _try_again(self, event_id: str, waiting: _PendingPublish) -> None:
        if self._waiting.get(event_id) is waiting and waiting.sent_at is None:
            self._send(waiting)

    # The round of relays

    async def _run(self) -> None:
        try:
            place = 0
            while True:
                session = await self._opened(self.urls[place])
                while session is not None:
                    self._take(session)
                    preferred = await self._watched(session, place)
                    self._leave(session)
                    if preferred is not None:
                        place = 0
                    session = preferred
                place += 1
                if place == len(self.urls):
                    place = 0
                    await asyncio.sleep(self._settings.reconnect_interval_seconds)
        except Exception:
            # A connection's task: nobody awaits it before the end.
            log.exception("the round of relays failed")
            raise
        finally:
            if self._resending is not None:
                self._resending.cancel()
            if self._session is not None:
                session = self._session
                session.end("we leave")
                self._leave(session)
                await session.gone()

    async def _opened(self, url: str) -> RelaySession | None:
        try:
            return await RelaySession.open(url, self._identity, self, self._settings)
        except (Unreachable, UpgradeRefused, TimedOut, ConnectionLost) as fault:
            self.last_fault = fault
            log.info("a relay cannot be used", extra={"relay": url, "fault": str(fault)})
            return None

    def _take(self, session: RelaySession) -> None:
        self._session = session
        self._live.clear()
        for name, subscription in self._subscriptions.items():
            session.subscribe(name, subscription.wish(session.url))
        for waiting in self._waiting.values():
            waiting.sent_at = None
        if self._resending is not None:
            self._resending.cancel()
        self._resending = asyncio.create_task(self._resend())
        self._connected.set()
        self._on_change(session.url)

    async def _watched(self, session: RelaySession, place: int) -> RelaySession | None:
        """Until this relay is to be left; returns the preferred one when it is there again."""
        loop = asyncio.get_running_loop()
        settings = self._settings
        look_again = loop.time() + settings.return_seconds
        while not session.ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_SECONDS):
                    await session.ended.wait()
            now = loop.time()
            oldest = min(
                (each.sent_at for each in self._waiting.values() if each.sent_at is not None), default=now
            )
            if now - oldest > settings.ok_seconds:
                session.end(f"no OK within {settings.ok_seconds:g} s")
            elif place > 0 and now >= look_again:
                preferred = await self._opened(self.urls[0])
                if preferred is not None:
                    session.end("the preferred relay is back")
                    return preferred
                look_again = loop.time() + settings.return_seconds
        self.last_fault = ConnectionLost(f"{session.url}: {session.reason}")
        log.info("a relay is left", extra={"relay": session.url, "reason": session.reason})
        return None

    def _leave(self, session: RelaySession) -> None:
        self._session = None
        for name in self._live:
            if (subscription := self._subscriptions.get(name)) is not None:
                subscription.complete_until(session.url, session.heard_until)
        self._live.clear()
        self._on_change(None)
