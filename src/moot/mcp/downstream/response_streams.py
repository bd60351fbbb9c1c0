"""Answers over HTTP: a JSON body when the answer comes at once, an event stream when there is more to tell.

An `EventStream` is what the server puts in; readers come and go. In the handshake era its events have ids and
are kept for a while, so that a client whose connection broke reads on where it stopped (`Last-Event-ID`); in
the stateless era they have none, and a reader that goes away cancels its request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.rpc import MISSING_CAPABILITY
from moot.mcp.eras import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    JsonObject,
)
from moot.protocol import strict_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON_TYPE: Final = (b"content-type", b"application/json")
EVENT_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
# Stateless era: a JSON-RPC error has an HTTP status, so that what stands between can see it.
STATUSES: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
# Most answers are there before a watch for hanging up would be worth its task.
_AT_ONCE_SECONDS: Final = 0.05
# What a client waits before it comes back for more (MCP 2025-11-25, SSE polling).
_RETRY_MS: Final = 1000


class EventStream:
    """Messages for one client in order, from one request or from the server at large."""

    def __init__(self, name: str, limits: McpServerLimits) -> None:
        self.name = name
        self._limits = limits
        self._events: deque[tuple[int, bytes]] = deque()
        self._last = 0
        self.taken = 0
        self._unread = 0
        self._woken = asyncio.Event()
        self._reader = 0
        self._reading = 0
        self.ended = False
        # The answer, if it came before anything else: then there is no need for a stream.
        self.only: JsonObject | None = None

    def put(self, message: JsonObject, *, last: bool = False) -> None:
        if self.ended:
            return
        if last and not self._last:
            self.only = message
        data = strict_json.encode(message)
        self._last += 1
        self._events.append((self._last, data))
        self._unread += len(data)
        if len(self._events) > self._limits.kept_events:
            if not self._reading:
                # Nobody is there: what is old is forgotten, who comes back will look for itself.
                self._unread -= len(self._events.popleft()[1])
            elif self._events[0][0] <= self.taken:
                self._events.popleft()
        self.ended = last or self._unread > self._limits.unread_bytes
        self._woken.set()

    def close(self) -> None:
        """Nothing more will come, whether or not there was an answer."""
        self.ended = True
        self._woken.set()

    async def woken(self, seconds: float) -> None:
        """Until something was put, or the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    def knows(self, number: int) -> bool:
        """Whether everything after this event is still here."""
        return not self._events or self._events[0][0] <= number + 1

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Become the one who reads; whoever did until now stops."""
        self._reader += 1
        self._reading += 1
        self._woken.set()
        try:
            yield self._reader
        finally:
            self._reading -= 1

    async def read(self, reader: int, after: int) -> list[tuple[int, bytes]] | None:
        """What came after that event; an empty list after a silence; None when there will be nothing more."""
        fresh = self._after(after)
        if not fresh and not self.ended:
            self._woken.clear()
            await self.woken(self._limits.keepalive_seconds)
            fresh = self._after(after)
        if reader != self._reader:
            return None
        if not fresh:
            return None if self.ended else []
        self.taken = max(self.taken, fresh[-1][0])
        self._unread = 0
        return fresh

    def _after(self, number: int) -> list[tuple[int, bytes]]:
        return [event for event in self._events if event[0] > number]


class PendingResponse:
    """Watches for a client that hangs up, in a task that lives as long as the `async with`."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None
        self.up = asyncio.Event()

    async def __aenter__(self) -> PendingResponse:
        self._task = asyncio.ensure_future(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.up.set()


async def answer(
    stream: EventStream,
    receive: Receive,
    send: Send,
    *,
    limits: McpServerLimits,
    hung_up: Callable[[], None] | None = None,
    headers: tuple[tuple[bytes, bytes], ...] = (),
    statuses: Mapping[int, int] = {},
    with_ids: bool = False,
) -> None:
    """Answer one POST from its stream. `hung_up` is called when the client goes away before the end."""
    await stream.woken(_AT_ONCE_SECONDS)
    if stream.only is None:
        async with PendingResponse(receive) as hanging:
            await _until(hanging, stream, limits.silence_seconds)
            if not hanging.up.is_set() and stream.only is None:
                await follow(stream, hanging, send, after=0, headers=headers, with_ids=with_ids)
            if hanging.up.is_set():
                if hung_up is not None:
                    hung_up()
                return
    if stream.only is not None:
        error = stream.only.get("error")
        status = statuses.get(error["code"], 200) if error is not None else 200
        await respond(send, status, strict_json.encode(stream.only), (JSON_TYPE, *headers))


async def _until(hanging: PendingResponse, stream: EventStream, seconds: float) -> None:
    """The first event, the client's hanging up, or silence for this long."""
    up = asyncio.ensure_future(hanging.up.wait())
    woken = asyncio.ensure_future(stream.woken(seconds))
    try:
        await asyncio.wait({up, woken}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        up.cancel()
        woken.cancel()


async def follow(
    stream: EventStream,
    hanging: PendingResponse,
    send: Send,
    *,
    after: int,
    headers: tuple[tuple[bytes, bytes], ...] = (),
    with_ids: bool = False,
    opening: bytes = b"",
) -> None:
    """Write a stream's events until it ends, the client hangs up, or somebody else reads it."""
    with stream.reading() as reader:
        await send({"type": "http.response.start", "status": 200, "headers": [*EVENT_HEADERS, *headers]})
        if with_ids:
            # MCP 2025-11-25: first an event without data, so that the client has an id to come back with.
            opening = f"id: {stream.name}-{after}\nretry: {_RETRY_MS}\ndata: \n\n".encode() + opening
        if opening:
            await _more(send, opening)
        while not hanging.up.is_set():
            events = await _first_of(stream.read(reader, after), hanging)
            if events is None:
                break
            if not events:
                await _more(send, b": still here\n\n")
                continue
            after = events[-1][0]
            await _more(send, b"".join(_event(stream.name, *each, with_ids=with_ids) for each in events))
    if not hanging.up.is_set():
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _first_of(
    reading: Awaitable[list[tuple[int, bytes]] | None], hanging: PendingResponse
) -> list[tuple[int, bytes]] | None:
    read = asyncio.ensure_future(reading)
    up = asyncio.ensure_future(hanging.up.wait())
    try:
        await asyncio.wait({read, up}, return_when=asyncio.FIRST_COMPLETED)
        return read.result() if read.done() else None
    finally:
        up.cancel()
        read.cancel()


def _event(name: str, number: int, data: bytes, *, with_ids: bool) -> bytes:
    id = f"id: {name}-{number}\n".encode() if with_ids else b""
    return id + b"event: message\ndata: " + data + b"\n\n"


async def _more(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def respond(
    send: Send, status: int, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = (JSON_TYPE,)
) -> None:
    """A whole response at once."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body, "more_body": False})
