"""Hearing what is said: bounded queues that tell honestly what they dropped, and handlers by kind.

A reader that is too slow loses the oldest items and finds a `Gap` where they were; memory never grows with
what others say. Handlers that are coroutines have such a queue each and run one item after the other, so
they keep the order of the space; plain functions are called at once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from moot.participant.calls.outcome import MissedMessages
from moot.participant.connection.envelope_sender import SendCounts
from moot.participant.limits import DEFAULT_LIMITS
from moot.protocol.envelope import Envelope
from moot.protocol.patterns.globs import glob

log = logging.getLogger(__name__)

T = TypeVar("T")
# Runs a coroutine in the member's task group; None when that has ended.
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None] | None]


class Feed(Generic[T]):
    """A queue for one reader, of at most `size` items and `most` bytes; it ends when the connection has."""

    def __init__(self, size: int, counts: SendCounts, most: int = DEFAULT_LIMITS.feed_bytes) -> None:
        self._items: deque[T | MissedMessages] = deque()
        self._size = size
        self._most = most
        self._bytes = 0
        self._counts = counts
        self._missed = 0
        self._ended = False
        self._news = asyncio.Event()

    def put(self, item: T | MissedMessages) -> None:
        if self._ended:
            return
        if item.__class__ is Envelope:
            self._bytes += len(item.raw)
        self._items.append(item)
        while len(self._items) > self._size or (self._bytes > self._most and len(self._items) > 1):
            self._take()
            self._missed += 1
            self._counts.gaps += 1
        self._news.set()

    def _take(self) -> T | MissedMessages:
        item = self._items.popleft()
        if item.__class__ is Envelope:
            self._bytes -= len(item.raw)
        return item

    def end(self) -> None:
        """Nothing more comes; what is there can still be read."""
        self._ended = True
        self._news.set()

    def __len__(self) -> int:
        return len(self._items)

    def __aiter__(self) -> AsyncIterator[T | MissedMessages]:
        return self

    async def __anext__(self) -> T | MissedMessages:
        while True:
            if self._missed:
                missed, self._missed = self._missed, 0
                return MissedMessages("slow", missed)
            if self._items:
                return self._take()
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()


class Feeds(Generic[T]):
    """All the feeds of one kind of news."""

    def __init__(self, counts: SendCounts) -> None:
        self._feeds: list[Feed[T]] = []
        self._counts = counts
        self._ended = False

    def open(self, size: int) -> Feed[T]:
        feed: Feed[T] = Feed(size, self._counts)
        if self._ended:
            feed.end()
        else:
            self._feeds.append(feed)
        return feed

    def close(self, feed: Feed[T]) -> None:
        feed.end()
        if feed in self._feeds:
            self._feeds.remove(feed)

    def read(self, size: int) -> Reader[T]:
        """A feed from now on, for as long as somebody holds it."""
        return Reader(self, self.open(size))

    def put(self, item: T | MissedMessages) -> None:
        for feed in self._feeds:
            feed.put(item)

    def end(self) -> None:
        self._ended = True
        for feed in self._feeds:
            feed.end()


class Reader(Generic[T]):
    """An iteration over a feed; letting go of it closes the feed."""

    def __init__(self, feeds: Feeds[T], feed: Feed[T]) -> None:
        self._feeds = feeds
        self._feed = feed

    def __aiter__(self) -> Reader[T]:
        return self

    async def __anext__(self) -> T | MissedMessages:
        return await self._feed.__anext__()

    async def aclose(self) -> None:
        self._feeds.close(self._feed)

    def __del__(self) -> None:
        self._feeds.close(self._feed)


Handler = Callable[[Envelope], Any]


class Handlers:
    """Functions by kind; `*` in a kind means what it means in a capability (D-11)."""

    def __init__(self, spawn: Spawn, counts: SendCounts, size: int) -> None:
        self._spawn = spawn
        self._counts = counts
        self._size = size
        self._patterns: list[tuple[Callable[[str], bool], bool, Callable[[Envelope], None]]] = []
        # By kind, in the order of registration; emptied when a handler is added.
        self._by_kind: dict[str, list[tuple[bool, Callable[[Envelope], None]]]] = {}
        self._feeds: list[Feed[Envelope]] = []

    def add(self, kind: str, handler: Handler, *, own: bool) -> None:
        """`own`: also for what we said ourselves."""
        wanted = glob(kind)
        call = called(handler, self._spawn, self._counts, self._size, self._feeds)
        self._patterns.append((wanted.matches, own, call))
        self._by_kind.clear()

    def call(self, envelope: Envelope, *, own: bool) -> None:
        if not self._patterns:
            return
        kind = envelope.kind
        found = self._by_kind.get(kind)
        if found is None:
            if len(self._by_kind) >= 256:
                # Kinds are whatever senders make up (D-08).
                self._by_kind.clear()
            found = self._by_kind[kind] = [(o, f) for matches, o, f in self._patterns if matches(kind)]
        for wants_own, handler in found:
            if wants_own or not own:
                handler(envelope)

    def end(self) -> None:
        for feed in self._feeds:
            feed.end()


def called(
    handler: Callable[[T], Any], spawn: Spawn, counts: SendCounts, size: int, feeds: list[Feed[T]]
) -> Callable[[T], None]:
    """A function that calls this handler: plain ones now, coroutines one after the other in a task."""
    if is_async(handler):
        feed: Feed[T] = Feed(size, counts)
        feeds.append(feed)
        spawn(_drain(feed, handler, counts))
        return feed.put

    def call(item: T) -> None:
        try:
            handler(item)
        except Exception:
            counts.failed_handlers += 1
            log.exception("a handler failed")

    return call


async def _drain(feed: Feed[T], handler: Callable[[T], Awaitable[object]], counts: SendCounts) -> None:
    async for item in feed:
        if isinstance(item, MissedMessages):
            log.warning("a handler is too slow", extra={"missed": item.missed})
            continue
        try:
            await handler(item)
        except Exception:
            counts.failed_handlers += 1
            log.exception("a handler failed")


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it gives something to await; callable objects and partials included."""
    inner = inspect.unwrap(getattr(function, "func", function))
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004
