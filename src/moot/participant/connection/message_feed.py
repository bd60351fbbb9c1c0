"""Reading what arrives: bounded queues that report what they dropped, and handlers by kind.

A reader that is too slow loses the oldest items and finds `MissedMessages` in their place, so memory never
grows with what others send. A handler that is a coroutine function has such a queue of its own and runs for
one item after the other, so it keeps the order of the space. Plain functions are called at once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from moot.participant.connection.envelope_sender import SendCounts
from moot.protocol.envelope import Envelope
from moot.protocol.patterns.globs import glob

# What the queue of one reader or handler holds before the oldest is dropped.
MAX_FEED_MESSAGES: Final = 1_000
MAX_FEED_BYTES: Final = 16 << 20

log = logging.getLogger(__name__)

T = TypeVar("T")
# Runs a coroutine in the member's task group; None when that has ended.
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None] | None]


class MissedMessages(msgspec.Struct, frozen=True):
    """Something is missing here: `missed` messages because the reader was slow, or any number while away."""

    why: Literal["slow", "reconnected"]
    missed: int | None = None


class Feed(Generic[T]):
    """A bounded queue for one reader; it ends with the connection."""

    def __init__(self, max_messages: int, counts: SendCounts, max_bytes: int = MAX_FEED_BYTES) -> None:
        self._items: deque[T | MissedMessages] = deque()
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._counts = counts
        self._missed = 0
        # It reads what we sent ourselves, too.
        self.has_own = True
        self._ended = False
        self._arrived = asyncio.Event()

    def put(self, item: T | MissedMessages) -> None:
        if self._ended:
            return
        if item.__class__ is Envelope:
            self._bytes += len(item.raw)
        self._items.append(item)
        while len(self._items) > self._max_messages or (
            self._bytes > self._max_bytes and len(self._items) > 1
        ):
            self._take_oldest()
            self._missed += 1
            self._counts.gaps += 1
        self._arrived.set()

    def _take_oldest(self) -> T | MissedMessages:
        item = self._items.popleft()
        if item.__class__ is Envelope:
            self._bytes -= len(item.raw)
        return item

    def end(self) -> None:
        """Take nothing more; what is there can still be read."""
        self._ended = True
        self._arrived.set()

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
                return self._take_oldest()
            if self._ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()


class Feeds(Generic[T]):
    """All readers of one kind of item."""

    def __init__(self, counts: SendCounts) -> None:
        self.feeds: list[Feed[T]] = []
        self._counts = counts
        self._ended = False

    def open(self, max_messages: int, *, own: bool = True) -> Feed[T]:
        feed: Feed[T] = Feed(max_messages, self._counts)
        feed.has_own = own
        if self._ended:
            feed.end()
        else:
            self.feeds.append(feed)
        return feed

    def close(self, feed: Feed[T]) -> None:
        feed.end()
        if feed in self.feeds:
            self.feeds.remove(feed)

    def read(self, max_messages: int, *, own: bool = True) -> Reader[T]:
        """A feed from now on, for as long as somebody holds it; `own`: also of what we sent ourselves."""
        return Reader(self, self.open(max_messages, own=own))

    def put(self, item: T | MissedMessages, *, own: bool = False) -> None:
        for feed in self.feeds:
            if feed.has_own or not own:
                feed.put(item)

    def end(self) -> None:
        self._ended = True
        for feed in self.feeds:
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


class RunningHandler(msgspec.Struct, Generic[T], frozen=True):
    """A handler that is ready to be called; `end` when no more calls will come."""

    call: Callable[[T], None]
    end: Callable[[], None]


class HandlerRunner:
    """Starts handlers: plain functions run at once, coroutine functions in a task, one item at a time."""

    def __init__(self, spawn: Spawn, counts: SendCounts, max_messages: int) -> None:
        self.spawn = spawn
        self.counts = counts
        self._max_messages = max_messages
        # A dict keeps the order; coroutine handlers only.
        self._feeds: dict[Feed[Any], None] = {}

    def start(self, handler: Callable[[T], Any]) -> RunningHandler[T]:
        if is_async(handler):
            feed: Feed[T] = Feed(self._max_messages, self.counts)
            self._feeds[feed] = None

            def end() -> None:
                self._feeds.pop(feed, None)
                feed.end()

            self.spawn(_drain(feed, handler, self.counts))
            return RunningHandler(feed.put, end)

        def call(item: T) -> None:
            try:
                handler(item)
            except Exception:
                self.counts.failed_handlers += 1
                log.exception("a handler failed")

        return RunningHandler(call, _do_nothing)

    def end(self) -> None:
        """No handler is called any more; what waits for one can still be handled."""
        for feed in self._feeds:
            feed.end()
        self._feeds.clear()


class KindHandlers:
    """Handlers of envelopes by kind; `*` in a kind means what it means in a capability (D-11)."""

    def __init__(self, runner: HandlerRunner) -> None:
        self._runner = runner
        self.patterns: list[tuple[Callable[[str], bool], bool, Callable[[Envelope], None]]] = []
        # By kind, in the order of registration; emptied when a handler is added.
        self._by_kind: dict[str, list[tuple[bool, Callable[[Envelope], None]]]] = {}

    def add(self, kind: str, handler: Callable[[Envelope], Any], *, own: bool) -> None:
        """`own`: also call it for envelopes that we sent ourselves."""
        wanted = glob(kind)
        self.patterns.append((wanted.matches, own, self._runner.start(handler).call))
        self._by_kind.clear()

    def call(self, envelope: Envelope, *, own: bool) -> None:
        kind = envelope.kind
        found = self._by_kind.get(kind)
        if found is None:
            if len(self._by_kind) >= 256:
                # Kinds are whatever senders make up (D-08).
                self._by_kind.clear()
            found = self._by_kind[kind] = [(o, f) for matches, o, f in self.patterns if matches(kind)]
        for wants_own, handler in found:
            if wants_own or not own:
                handler(envelope)


def _do_nothing() -> None:
    pass


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
