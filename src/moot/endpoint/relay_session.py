"""One relay while it lasts: a connection to listen on, and another to publish on.

Two, because a listener that cannot keep up stops reading, and an OK that waits behind unread events would
hold up the very work that makes room. Both go to the same relay and end together.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol

from moot.endpoint import relay_messages
from moot.endpoint.relay_messages import (
    Challenge,
    EndOfStored,
    NotARelay,
    PublishResult,
    RelayEvent,
    RelayNotice,
    SubscriptionClosed,
)
from moot.endpoint.relay_settings import RelaysSettings
from moot.errors import ConnectionLost, OutboxFull, TimedOut
from moot.identity.keys import Identity
from moot.net.websocket_client import ClientSocket, dial
from moot.protocol.operation import Json
from moot.xprotocol.relay_auth import prove

log = logging.getLogger(__name__)

_GOODBYE_SECONDS = 1.0


class SessionListener(Protocol):
    """Who is told what a relay says. Called from the loop; nothing here may block or raise."""

    def heard(self, session: RelaySession, subscription: str, raw: bytes) -> None: ...

    def told_stored(self, session: RelaySession, subscription: str) -> None: ...

    def closed(self, session: RelaySession, subscription: str, words: str) -> None: ...

    def answered(self, session: RelaySession, ok: PublishResult) -> None: ...


class RelaySession:
    """Made by `open`; over when `ended` is set."""

    def __init__(self, url: str, audience: SessionListener, settings: RelaysSettings) -> None:
        self.url = url
        self.ended = asyncio.Event()
        self.reason = ""
        # Up to when nothing can have been missed on it; known when it is over.
        self.heard_until = 0.0
        self._audience = audience
        self._settings = settings
        self._faults = 0
        self._listening: ClientSocket | None = None
        self._publishing: ClientSocket | None = None
        self._challenge: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._proven: asyncio.Future[PublishResult] = asyncio.get_running_loop().create_future()
        # When it was last told to stop reading, by the clock on the wall.
        self._paused_at: float | None = None

    @classmethod
    async def open(
        cls,
        url: str,
        identity: Identity,
        audience: SessionListener,
        settings: RelaysSettings,
    ) -> RelaySession:
        """Connect and prove the key; raises Unreachable, TurnedAway, TimedOut, ConnectionLost."""
        session = cls(url, audience, settings)
        try:
            session._listening = await session._dialled(listens=True)
            session._publishing = await session._dialled(listens=False)
            await session._prove(identity)
        except BaseException:
            session.end("it never began")
            raise
        return session

    async def _dialled(self, *, listens: bool) -> ClientSocket:
        return await dial(
            self.url, _RelayFrameListener(self, listens=listens), headers={}, limits=self._settings.dial
        )

    async def _prove(self, identity: Identity) -> None:
        try:
            async with asyncio.timeout(self._settings.proof_seconds):
                challenge = await self._challenge
                proof = prove(identity, self.url, challenge, now=time.time())
                self._say(relay_messages.authenticate(proof))
                ok = await self._proven
        except TimeoutError:
            raise TimedOut(f"{self.url} asked for no proof, or did not answer one, in time") from None
        if not ok.taken:
            raise ConnectionLost(f"{self.url} does not take our proof: {ok.words}")

    # What the relays ask for

    def subscribe(self, name: str, filters: list[dict[str, Json]]) -> None:
        self._say(relay_messages.request(name, filters))

    def unsubscribe(self, name: str) -> None:
        self._say(relay_messages.close(name))

    def publish(self, raw: bytes) -> None:
        """Raises OutboxFull; on a session that is over it goes nowhere."""
        if self._publishing is not None and not self.ended.is_set():
            self._publishing.send(relay_messages.publish(raw))

    async def writable(self) -> None:
        """Wait until the relay takes more; raises TimedOut."""
        if self._publishing is not None and self._publishing.is_full:
            await self._publishing.wait_drained(self._settings.ok_seconds)

    def pause(self) -> None:
        """Read no more events for now."""
        if self._paused_at is None and _read_on(self._listening, False):
            self._paused_at = time.time()

    def resume(self) -> None:
        if self._paused_at is not None:
            self._paused_at = None
            _read_on(self._listening, True)

    @property
    def is_paused(self) -> bool:
        return self._paused_at is not None

    def end(self, reason: str) -> None:
        """Leave this relay, now."""
        if self.ended.is_set():
            return
        self.reason = reason
        # A connection that died without a word is noticed by a ping that stays unanswered.
        until = time.time() if self._paused_at is None else self._paused_at
        self.heard_until = until - 2 * self._settings.dial.ping_seconds
        self.ended.set()
        fault = ConnectionLost(f"{self.url}: {reason}")
        for waiting in (self._challenge, self._proven):
            if not waiting.done():
                waiting.set_exception(fault)
                # Perhaps nobody asks any more.
                waiting.exception()
        self.resume()
        for line in (self._listening, self._publishing):
            if line is not None:
                line.close(1000, "")

    async def gone(self) -> None:
        """Wait until both connections have ended, for a moment; then they are cut off."""
        for line in (self._listening, self._publishing):
            if line is not None:
                await line.wait_closed(_GOODBYE_SECONDS)

    def _say(self, message: bytes) -> None:
        if self._listening is None or self.ended.is_set():
            return
        try:
            self._listening.send(message)
        except OutboxFull:
            self.end("it takes nothing")

    # What the connections tell

    def said(self, data: bytes, *, listens: bool) -> None:
        if self.ended.is_set():
            return
        try:
            message = relay_messages.read(data)
        except NotARelay:
            self._faults += 1
            if self._faults > self._settings.faults:
                self.end("it sends what no relay sends")
            return
        audience = self._audience
        match message:
            case RelayEvent(subscription, raw):
                if listens:
                    audience.heard(self, subscription, raw)
            case PublishResult(id=relay_messages.PROOF_ID):
                if listens and not self._proven.done():
                    self._proven.set_result(message)
            case PublishResult():
                if not listens:
                    audience.answered(self, message)
            case EndOfStored(subscription):
                if listens:
                    audience.told_stored(self, subscription)
            case SubscriptionClosed(subscription, words):
                if listens:
                    audience.closed(self, subscription, words)
            case Challenge(challenge):
                if listens and not self._challenge.done():
                    self._challenge.set_result(challenge)
            case RelayNotice(words):
                log.info("a relay says", extra={"relay": self.url, "words": words})


class _RelayFrameListener:
    """One of the two connections."""

    def __init__(self, session: RelaySession, *, listens: bool) -> None:
        self._session = session
        self._listens = listens

    def opened(self, _line: ClientSocket) -> None:
        """`dial` returns it."""

    def received(self, data: bytes, binary: bool) -> None:
        if not binary:
            self._session.said(data, listens=self._listens)

    def closed(self, code: int, reason: str) -> None:
        self._session.end(f"closed with {code} {reason}".rstrip())


def _read_on(line: ClientSocket | None, on: bool) -> bool:
    """Have a connection read, or not; returns whether it could be told."""
    transport = None if line is None else line._transport
    if transport is None:
        return False
    socket = transport.underlying_transport
    if on:
        socket.resume_reading()
    else:
        socket.pause_reading()
    return True
