"""A subscription that survives reconnects: nothing is lost, nothing comes twice.

After a break it subscribes again, from OVERLAP_SECONDS before the break on, and skips what it has had. It
knows an event by the hash of its bytes, not by its `id`: nothing is verified here, and a hostile relay could
send a forgery under the id of an event that it wants to suppress. `EventReceiver` verifies events and
remembers their ids.

The queue is bounded. When it is full the socket is not read; the relay then waits, or closes the connection
as too slow, and the rest is requested again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final, Self

from moot.errors import MootError, UsageError
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.xprotocol.events.events import DEFAULT_TTL_SECONDS, SKEW_SECONDS

# Queue of one subscription; when it is full, the socket is not read.
MAX_QUEUED_EVENTS: Final = 1_024
MAX_QUEUED_BYTES: Final = 16 << 20
# An event can reach a relay until it expires. After a break since `t`, nothing is missed if the client
# reads everything created since `t` minus the longest lifetime that its peers use, and the clock skew.
OVERLAP_SECONDS: Final = DEFAULT_TTL_SECONDS + SKEW_SECONDS
# Hashes of some 100 bytes; must cover the overlap, or an event may be delivered twice.
MAX_SEEN_EVENTS: Final = 200_000

_DIGEST_BYTES: Final = 16


class RelayRefused(MootError):
    """A relay refused for good; the text is the relay's."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url} refused: {reason}")
        self.url = url
        self.reason = reason


class SubscriptionMemory:
    """Hashes of received events; beyond the limit the oldest are dropped."""

    def __init__(self, max_events: int) -> None:
        self._digests: LatestDict[bytes, None] = LatestDict(max_events)

    def is_new(self, raw: bytes) -> bool:
        """Whether these bytes come for the first time; remembers them."""
        digest = sha256(raw).digest()[:_DIGEST_BYTES]
        if digest in self._digests:
            return False
        self._digests[digest] = None
        return True


class RelaySubscription:
    """Yields the bytes of events: `async for raw in subscription`. Made by `RelayClient.subscribe`."""

    def __init__(
        self,
        name: str,
        filters: Sequence[Mapping[str, Json]],
        on_room: Callable[[], None],
        on_close: Callable[[RelaySubscription], None],
    ) -> None:
        if not filters:
            raise UsageError("a subscription needs a filter; {} matches all public events")
        self.name = name
        self._filters = [dict(one) for one in filters]
        self._on_room = on_room
        self._on_close = on_close
        self._memory = SubscriptionMemory(MAX_SEEN_EVENTS)
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._changed = asyncio.Event()
        self._stored = asyncio.Event()
        # While a relay sends what it had stored, after each connect; and how many of the queued are of these.
        self._is_replaying = False
        self._queued_stored = 0
        # Whether the event that was yielded last had been stored: it came before we were there.
        self.is_stored = False
        self._fault: MootError | None = None
        self._is_over = False
        # By relay address: the time until which no event was missed there.
        self._complete_until: dict[str, float] = {}

    # For the subscriber

    async def wait_stored(self) -> None:
        """Wait until a relay has sent all events that it had stored."""
        await self._stored.wait()
        if self._fault is not None:
            raise self._fault

    async def close(self) -> None:
        """End it; queued events are dropped."""
        if not self._is_over:
            self._end(None)
            self._on_close(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The next event; raises RelayRefused when the relay refuses this subscription for good."""
        while not self._queue:
            if self._fault is not None:
                raise self._fault
            if self._is_over:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        raw = self._queue.popleft()
        self._queued_bytes -= len(raw)
        self.is_stored = self._queued_stored > 0
        self._queued_stored -= self.is_stored
        self._on_room()
        return raw

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # For the relay client

    @property
    def is_full(self) -> bool:
        return len(self._queue) >= MAX_QUEUED_EVENTS or self._queued_bytes >= MAX_QUEUED_BYTES

    @property
    def has_room(self) -> bool:
        """Whether the queue is at most half full, so that reading may resume."""
        return len(self._queue) <= MAX_QUEUED_EVENTS // 2 and self._queued_bytes <= MAX_QUEUED_BYTES // 2

    def add_event(self, raw: bytes) -> None:
        if self._is_over or not self._memory.is_new(raw):
            return
        self._queue.append(raw)
        self._queued_bytes += len(raw)
        # Live events that are still queued from before a break are taken for stored ones: they waited, too.
        self._queued_stored = len(self._queue) if self._is_replaying else self._queued_stored
        self._changed.set()

    def mark_stored(self) -> None:
        self._is_replaying = False
        self._stored.set()

    def fail(self, fault: MootError) -> None:
        self._end(fault)

    def set_complete_until(self, url: str, moment: float) -> None:
        """Nothing created or delivered before `moment` was missed on this relay."""
        self._complete_until[url] = moment

    def filters_for(self, url: str) -> list[dict[str, Json]]:
        """The filters for this relay: as given, or after a break from the overlap on."""
        self._is_replaying = True
        moment = self._complete_until.get(url)
        if moment is None:
            return self._filters
        since = int(moment) - OVERLAP_SECONDS
        return [_narrow(one, since) for one in self._filters]

    def _end(self, fault: MootError | None) -> None:
        self._is_over = True
        self._fault = fault
        if fault is None:
            self._queue.clear()
            self._queued_bytes = self._queued_stored = 0
        self._changed.set()
        self._stored.set()
        self._on_room()


def _narrow(one: Mapping[str, Json], since: int) -> dict[str, Json]:
    if one.get("recipients") is None:
        # Delegations and revocations may reach a relay long after they were made, and are few.
        return dict(one)
    # `limit` was for the first time; now everything that was missed is needed.
    narrowed = {name: value for name, value in one.items() if name != "limit"}
    before = one.get("since")
    narrowed["since"] = max(since, before if isinstance(before, int) else 0, 0)
    return narrowed
