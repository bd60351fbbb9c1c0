"""Responses over HTTP: a JSON body when the answer comes at once, an event stream when there is more.

The server puts messages into an `EventStream`; readers come and go. In the handshake era its events have ids
and are kept for a while, so that a client whose connection broke continues where it stopped
(`Last-Event-ID`); in the stateless era they have none, and a reader that goes away cancels its request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

from moot.mcp.downstream import rpc
from moot.mcp.downstream.rpc import MISSING_CAPABILITY
from moot.mcp.eras import HEADER_MISMATCH, UNSUPPORTED_VERSION, JsonObject
from moot.protocol import strict_json
from moot.protocol.rpc_codes import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR

# Events of one stream that are kept for a client that lost it.
MAX_KEPT_EVENTS: Final = 256
# A response that takes longer becomes an event stream, so that proxies and clients see that it is alive.
# Not sooner: the client of the Python SDK takes 1 MiB in an event, and any size in a plain answer.
SILENCE_SECONDS: Final = 15.0
KEEPALIVE_SECONDS: Final = 15.0

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON_TYPE: Final = (b"content-type", b"application/json")
EVENT_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
# Stateless era: a JSON-RPC error has an HTTP status, so that proxies can see it.
STATUSES: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
# Most answers are there before a task that watches for a disconnect would be worth it.
_IMMEDIATE_SECONDS: Final = 0.05
# How long a client waits before it reconnects (MCP 2025-11-25, SSE polling).
_RETRY_MS: Final = 1000


class EventStream:
    """Messages for one client in order, of one request or of none."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._events: deque[tuple[int, bytes]] = deque()
        self._last = 0
        self.last_read = 0
        self._last_sent = 0
        # Whether a client has an event id to come back with.
        self._has_ids = False
        self._unread = 0
        self._wakeup = asyncio.Event()
        self._reader = 0
        self._reading = 0
        # Responses that are open for it, also before their first event.
        self._responses = 0
        self.ended = False
        # The response, if it came before anything else: then no stream is needed.
        self.sole_message: JsonObject | None = None

    def put(self, message: JsonObject, *, last: bool = False) -> None:
        if self.ended:
            return
        if last and not self._last:
            self.sole_message = message
        data = strict_json.encode(message)
        self._last += 1
        self._events.append((self._last, data))
        self._unread += len(data)
        if len(self._events) > MAX_KEPT_EVENTS:
            if not self._reading:
                # Nobody reads: old events are dropped, and a client that comes back lists anew.
                self._unread -= len(self._events.popleft()[1])
            elif self._events[0][0] <= self.last_read:
                self._events.popleft()
        self.ended = last or self._unread > rpc.UNREAD_BYTES
        self._wakeup.set()

    def close(self) -> None:
        """End the stream, with or without a response."""
        self.ended = True
        self._wakeup.set()

    @property
    def is_awaited(self) -> bool:
        """Whether a client may come back for events that were not sent."""
        return self._has_ids and self._last_sent < self._last

    def begin_ids(self) -> None:
        """The client is told an event id now."""
        self._has_ids = True

    def on_sent(self, number: int) -> None:
        """Everything up to this event has gone out."""
        self._last_sent = max(self._last_sent, number)

    async def wait_for_event(self, seconds: float) -> None:
        """Wait until something was put, or the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        except TimeoutError:
            pass

    def has_all_after(self, number: int) -> bool:
        """Whether everything after this event is still here."""
        return not self._events or self._events[0][0] <= number + 1

    @property
    def is_read(self) -> bool:
        """Whether a client would get what is put now."""
        return self._responses > 0

    @contextmanager
    def open_response(self) -> Iterator[None]:
        self._responses += 1
        try:
            yield
        finally:
            self._responses -= 1

    @contextmanager
    def attach_reader(self) -> Iterator[int]:
        """Become the reader; the previous one stops."""
        self._reader += 1
        self._reading += 1
        self._wakeup.set()
        try:
            yield self._reader
        finally:
            self._reading -= 1

    async def read(self, reader: int, after: int) -> list[tuple[int, bytes]] | None:
        """Events after this one; an empty list after a silence; None when nothing more will come."""
        unread = self._after(after)
        if not unread and not self.ended:
            self._wakeup.clear()
            await self.wait_for_event(KEEPALIVE_SECONDS)
            unread = self._after(after)
        if reader != self._reader:
            return None
        if not unread:
            return None if self.ended else []
        self.last_read = max(self.last_read, unread[-1][0])
        self._unread = 0
        return unread

    def _after(self, number: int) -> list[tuple[int, bytes]]:
        return [event for event in self._events if event[0] > number]


class DisconnectWatch:
    """Notices when the client disconnects, in a task that runs as long as the `async with`."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None
        self.happened = asyncio.Event()

    async def __aenter__(self) -> DisconnectWatch:
        self._task = asyncio.ensure_future(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.happened.set()


async def send_response(
    stream: EventStream,
    receive: Receive,
    send: Send,
    *,
    on_disconnect: Callable[[], None] | None = None,
    headers: tuple[tuple[bytes, bytes], ...] = (),
    statuses: Mapping[int, int] = {},
    with_ids: bool = False,
) -> None:
    """Answer one POST from its stream. `on_disconnect` is called if the client goes before the end."""
    await stream.wait_for_event(_IMMEDIATE_SECONDS)
    if stream.sole_message is None:
        async with DisconnectWatch(receive) as disconnect:
            await _wait_for_first(disconnect, stream, SILENCE_SECONDS)
            # After the silence, what comes as the only message is an event too.
            as_events = not disconnect.happened.is_set() and stream.sole_message is None
            if as_events:
                await send_events(stream, disconnect, send, after=0, headers=headers, with_ids=with_ids)
            if disconnect.happened.is_set() and on_disconnect is not None:
                on_disconnect()
            if as_events or disconnect.happened.is_set():
                return
    if stream.sole_message is not None:
        error = stream.sole_message.get("error")
        status = statuses.get(error["code"], 200) if error is not None else 200
        await respond(send, status, strict_json.encode(stream.sole_message), (JSON_TYPE, *headers))


async def _wait_for_first(disconnect: DisconnectWatch, stream: EventStream, seconds: float) -> None:
    """Wait for the first event, a disconnect, or silence for this long."""
    gone = asyncio.ensure_future(disconnect.happened.wait())
    event = asyncio.ensure_future(stream.wait_for_event(seconds))
    try:
        await asyncio.wait({gone, event}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        event.cancel()


async def send_events(
    stream: EventStream,
    disconnect: DisconnectWatch,
    send: Send,
    *,
    after: int,
    headers: tuple[tuple[bytes, bytes], ...] = (),
    with_ids: bool = False,
    opening: bytes = b"",
) -> None:
    """Send the events of a stream until it ends, the client disconnects, or another reader comes."""
    with stream.attach_reader() as reader:
        await send({"type": "http.response.start", "status": 200, "headers": [*EVENT_HEADERS, *headers]})
        if with_ids:
            stream.begin_ids()
            # MCP 2025-11-25: first an event without data, so that the client has an id to come back with.
            opening = f"id: {stream.name}-{after}\nretry: {_RETRY_MS}\ndata: \n\n".encode() + opening
        if opening:
            await _send_chunk(send, opening)
        while not disconnect.happened.is_set():
            events = await _first_of(stream.read(reader, after), disconnect)
            if events is None:
                break
            if not events:
                await _send_chunk(send, b": still here\n\n")
                continue
            after = events[-1][0]
            await _send_chunk(
                send, b"".join(_event(stream.name, *each, with_ids=with_ids) for each in events)
            )
            if not disconnect.happened.is_set():
                stream.on_sent(after)
    if not disconnect.happened.is_set():
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _first_of(
    reading: Awaitable[list[tuple[int, bytes]] | None], disconnect: DisconnectWatch
) -> list[tuple[int, bytes]] | None:
    read = asyncio.ensure_future(reading)
    gone = asyncio.ensure_future(disconnect.happened.wait())
    try:
        await asyncio.wait({read, gone}, return_when=asyncio.FIRST_COMPLETED)
        return read.result() if read.done() else None
    finally:
        gone.cancel()
        read.cancel()


def _event(name: str, number: int, data: bytes, *, with_ids: bool) -> bytes:
    id = f"id: {name}-{number}\n".encode() if with_ids else b""
    return id + b"event: message\ndata: " + data + b"\n\n"


async def _send_chunk(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def respond(
    send: Send, status: int, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = (JSON_TYPE,)
) -> None:
    """Send a whole response at once."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body, "more_body": False})
