"""One session with a relay: a connection for subscriptions, and another to publish on.

Two, because a slow subscriber stops reading, and an OK behind unread events would hold up the work that makes
room. Both go to the same relay and end together.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Final, Protocol

from moot.errors import ConnectionLost, OutboxFull, TimedOut
from moot.net.websocket_client import CONNECT_SECONDS, PING_SECONDS, ClientSocket, dial
from moot.protocol.operation import Json
from moot.xprotocol.endpoint import relay_messages
from moot.xprotocol.endpoint.document_fetch import FetchPolicy, tls_context
from moot.xprotocol.endpoint.relay_messages import (
    Challenge,
    EndOfStored,
    InvalidRelayMessage,
    PublishResult,
    RelayEvent,
    RelayNotice,
    SubscriptionClosed,
)
from moot.xprotocol.events.events import MAX_EVENT_BYTES
from moot.xprotocol.events.relay_auth import prove
from moot.xprotocol.identity.keys import Identity

# A relay that has not confirmed an event by then is dropped for the next one, and the event goes there.
OK_TIMEOUT_SECONDS: Final = 10.0
# Challenge and proof together.
AUTH_TIMEOUT_SECONDS: Final = 10.0
# Invalid messages on one connection; then it is closed.
MAX_FAULTS: Final = 20

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 1.0


# Settings of the relay client: timeouts, limits, and how far back it reads after a reconnect.

# Room for the message around the largest event.
_MESSAGE_BYTES: Final = MAX_EVENT_BYTES + 1_024


class SessionListener(Protocol):
    """Callbacks for a relay's messages. Called on the loop; they must not block or raise."""

    def on_event(self, session: RelaySession, subscription: str, raw: bytes) -> None: ...

    def on_stored(self, session: RelaySession, subscription: str) -> None: ...

    def on_closed(self, session: RelaySession, subscription: str, reason: str) -> None: ...

    def on_publish_result(self, session: RelaySession, ok: PublishResult) -> None: ...


class RelaySession:
    """Made by `open`; ended when `ended` is set."""

    def __init__(self, url: str, listener: SessionListener) -> None:
        self.url = url
        self.ended = asyncio.Event()
        self.reason = ""
        # The time until which no event can have been missed; known when it has ended.
        self.complete_until = 0.0
        self._listener = listener
        self._faults = 0
        self._listening: ClientSocket | None = None
        self._publishing: ClientSocket | None = None
        self._challenge: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._auth_result: asyncio.Future[PublishResult] = asyncio.get_running_loop().create_future()
        # Wall-clock time since when reading is paused.
        self._paused_at: float | None = None

    @classmethod
    async def open(
        cls,
        url: str,
        identity: Identity,
        listener: SessionListener,
        fetch_policy: FetchPolicy | None = None,
    ) -> RelaySession:
        """Connect and authenticate; raises Unreachable, UpgradeRefused, TimedOut, ConnectionLost.

        With `fetch_policy` the address is untrusted: it is resolved, checked and connected to in one step,
        which raises ForbiddenAddress.
        """
        session = cls(url, listener)
        try:
            session._listening = await session._dial(fetch_policy, is_subscriber=True)
            session._publishing = await session._dial(fetch_policy, is_subscriber=False)
            await session._authenticate(identity)
        except BaseException:
            session.end("connecting failed")
            raise
        return session

    async def _dial(self, policy: FetchPolicy | None, *, is_subscriber: bool) -> ClientSocket:
        ca_file = None if policy is None else policy.ca_file
        return await dial(
            self.url,
            _SessionFrameListener(self, is_subscriber=is_subscriber),
            headers={},
            message_bytes=_MESSAGE_BYTES,
            open_socket=None
            if policy is None
            else replace(policy, timeout_seconds=CONNECT_SECONDS).open_socket,
            tls=None if ca_file is None else tls_context(ca_file),
        )

    async def _authenticate(self, identity: Identity) -> None:
        try:
            async with asyncio.timeout(AUTH_TIMEOUT_SECONDS):
                challenge = await self._challenge
                proof = prove(identity, self.url, challenge, now=time.time())
                self._send(relay_messages.encode_auth(proof))
                ok = await self._auth_result
        except TimeoutError:
            raise TimedOut(f"{self.url} sent no challenge, or did not answer the proof, in time") from None
        if not ok.accepted:
            raise ConnectionLost(f"{self.url} refused our proof: {ok.reason}")

    # Requests

    def subscribe(self, name: str, filters: list[dict[str, Json]]) -> None:
        self._send(relay_messages.encode_subscribe(name, filters))

    def unsubscribe(self, name: str) -> None:
        self._send(relay_messages.encode_unsubscribe(name))

    def publish(self, raw: bytes) -> None:
        """Raises OutboxFull; does nothing on an ended session."""
        if self._publishing is not None and not self.ended.is_set():
            self._publishing.send(relay_messages.encode_publish(raw))

    async def writable(self) -> None:
        """Wait until the relay accepts more; raises TimedOut."""
        if self._publishing is not None and self._publishing.is_full:
            await self._publishing.wait_drained(OK_TIMEOUT_SECONDS)

    def pause(self) -> None:
        """Stop reading events for now."""
        if self._paused_at is None and _set_reading(self._listening, False):
            self._paused_at = time.time()

    def resume(self) -> None:
        if self._paused_at is not None:
            self._paused_at = None
            _set_reading(self._listening, True)

    @property
    def is_paused(self) -> bool:
        return self._paused_at is not None

    def end(self, reason: str) -> None:
        """End both connections now."""
        if self.ended.is_set():
            return
        self.reason = reason
        # A silently dead connection is noticed by an unanswered ping.
        until = time.time() if self._paused_at is None else self._paused_at
        self.complete_until = until - 2 * PING_SECONDS
        self.ended.set()
        fault = ConnectionLost(f"{self.url}: {reason}")
        for waiting in (self._challenge, self._auth_result):
            if not waiting.done():
                waiting.set_exception(fault)
                # Nobody may await it any more.
                waiting.exception()
        self.resume()
        for connection in (self._listening, self._publishing):
            if connection is not None:
                connection.close(1000, "")

    async def wait_closed(self) -> None:
        """Wait briefly until both connections have closed; then they are aborted."""
        for connection in (self._listening, self._publishing):
            if connection is not None:
                await connection.wait_closed(_CLOSE_SECONDS)

    def _send(self, message: bytes) -> None:
        if self._listening is None or self.ended.is_set():
            return
        try:
            self._listening.send(message)
        except OutboxFull:
            self.end("it accepts no data")

    # Messages

    def on_message(self, data: bytes, *, is_subscriber: bool) -> None:
        if self.ended.is_set():
            return
        try:
            message = relay_messages.parse_message(data)
        except InvalidRelayMessage:
            self._faults += 1
            if self._faults > MAX_FAULTS:
                self.end("too many invalid messages")
            return
        listener = self._listener
        match message:
            case RelayEvent(subscription, raw):
                if is_subscriber:
                    listener.on_event(self, subscription, raw)
            case PublishResult(id=relay_messages.PROOF_ID):
                if is_subscriber and not self._auth_result.done():
                    self._auth_result.set_result(message)
            case PublishResult():
                if not is_subscriber:
                    listener.on_publish_result(self, message)
            case EndOfStored(subscription):
                if is_subscriber:
                    listener.on_stored(self, subscription)
            case SubscriptionClosed(subscription, reason):
                if is_subscriber:
                    listener.on_closed(self, subscription, reason)
            case Challenge(challenge):
                if is_subscriber and not self._challenge.done():
                    self._challenge.set_result(challenge)
            case RelayNotice(reason):
                log.info("notice from a relay", extra={"relay": self.url, "notice": reason})


class _SessionFrameListener:
    """One of the two connections."""

    def __init__(self, session: RelaySession, *, is_subscriber: bool) -> None:
        self._session = session
        self._listens = is_subscriber

    def opened(self, _connection: ClientSocket) -> None:
        """Nothing to do: `dial` returns the socket."""

    def received(self, data: bytes, binary: bool) -> None:
        if not binary:
            self._session.on_message(data, is_subscriber=self._listens)

    def closed(self, code: int, reason: str) -> None:
        self._session.end(f"closed with {code} {reason}".rstrip())


def _set_reading(connection: ClientSocket | None, on: bool) -> bool:
    """Pause or resume reading; returns whether there is a connection."""
    transport = None if connection is None else connection._transport
    if transport is None:
        return False
    socket = transport.underlying_transport
    if on:
        socket.resume_reading()
    else:
        socket.pause_reading()
    return True
