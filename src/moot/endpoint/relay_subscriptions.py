"""What an endpoint listens for, over as many connections as it takes: nothing lost, nothing twice.

After a break a subscription asks again, from a while before the break on (`overlap_seconds` says how long and
why), and passes over what it has had. It knows an event by the hash of its bytes, not by the `id` in it:
nothing is verified here, and a hostile relay could send a forgery under the id of an event that it wants
lost. Whoever acts on events verifies them and remembers their ids (`xprotocol.receipt`).

The queue is bounded. When it is full the sockets are read no further; the relay then waits, or closes the
connection as too slow, and what was not taken is asked for again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final, Self

from moot.endpoint.relay_settings import RelaysSettings
from moot.errors import MootError, UsageError
from moot.protocol.operation import Json

_DIGEST_BYTES: Final = 16


class RelayRefused(MootError):
    """A relay said no, and saying it again changes nothing; the text is the relay's own words."""

    def __init__(self, url: str, words: str) -> None:
        super().__init__(f"{url} refused: {words}")
        self.url = url
        self.words = words


class SubscriptionMemory:
    """Hashes of events that were heard; past its bound the oldest are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._digests: dict[bytes, None] = {}

    def is_new(self, raw: bytes) -> bool:
        """Whether these bytes come for the first time; they are known from now on."""
        digest = sha256(raw).digest()[:_DIGEST_BYTES]
        if digest in self._digests:
            return False
        self._digests[digest] = None
        if len(self._digests) > self._most:
            del self._digests[next(iter(self._digests))]
        return True


class RelaySubscription:
    """The bytes of events as they come: `async for raw in subscription`. Made by `Relays.subscribe`."""

    def __init__(
        self,
        name: str,
        filters: Sequence[Mapping[str, Json]],
        settings: RelaysSettings,
        on_room: Callable[[], None],
        on_close: Callable[[RelaySubscription], None],
    ) -> None:
        if not filters:
            raise UsageError("a subscription needs a filter; {} asks for all public events")
        self.name = name
        self._filters = [dict(one) for one in filters]
        self._settings = settings
        self._on_room = on_room
        self._on_close = on_close
        self._memory = SubscriptionMemory(settings.remembered_events)
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._changed = asyncio.Event()
        self._told_stored = asyncio.Event()
        self._fault: MootError | None = None
        self._is_over = False
        # By the relay's address: until when nothing was missed there.
        self._complete_until: dict[str, float] = {}
        self.repeats = 0

    # What whoever listens calls

    async def stored(self) -> None:
        """Wait until a relay has told everything that it had stored when it was asked."""
        await self._told_stored.wait()
        if self._fault is not None:
            raise self._fault

    async def close(self) -> None:
        """No more events; those that wait are dropped."""
        if not self._is_over:
            self._end(None)
            self._on_close(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The next event; raises RelayRefused when the relay will not have this subscription at all."""
        while not self._queue:
            if self._fault is not None:
                raise self._fault
            if self._is_over:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        raw = self._queue.popleft()
        self._queued_bytes -= len(raw)
        self._on_room()
        return raw

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # What the relays call

    @property
    def is_full(self) -> bool:
        settings = self._settings
        return len(self._queue) >= settings.queue_events or self._queued_bytes >= settings.queue_bytes

    @property
    def has_room(self) -> bool:
        """Whether so much was taken that it is worth reading on."""
        settings = self._settings
        return (
            len(self._queue) <= settings.queue_events // 2 and self._queued_bytes <= settings.queue_bytes // 2
        )

    def heard(self, raw: bytes) -> None:
        if self._is_over:
            return
        if not self._memory.is_new(raw):
            self.repeats += 1
            return
        self._queue.append(raw)
        self._queued_bytes += len(raw)
        self._changed.set()

    def told_stored(self) -> None:
        self._told_stored.set()

    def refused(self, fault: MootError) -> None:
        self._end(fault)

    def complete_until(self, url: str, moment: float) -> None:
        """On this relay nothing made or delivered before `moment` was missed."""
        self._complete_until[url] = moment

    def wish(self, url: str) -> list[dict[str, Json]]:
        """The filters for this relay now: all, or after a break from the overlap on."""
        moment = self._complete_until.get(url)
        if moment is None:
            return self._filters
        since = int(moment) - self._settings.overlap_seconds
        return [_narrowed(one, since) for one in self._filters]

    def _end(self, fault: MootError | None) -> None:
        self._is_over = True
        self._fault = fault
        if fault is None:
            self._queue.clear()
            self._queued_bytes = 0
        self._changed.set()
        self._told_stored.set()
        self._on_room()


def _narrowed(one: Mapping[str, Json], since: int) -> dict[str, Json]:
    if one.get("recipients") is None:
        # Delegations and revocations come to a relay however long after they were made, and are few.
        return dict(one)
    # `limit` was about the first time; now everything that was missed is wanted.
    narrowed = {name: value for name, value in one.items() if name != "limit"}
    before = one.get("since")
    narrowed["since"] = max(since, before if isinstance(before, int) else 0, 0)
    return narrowed
