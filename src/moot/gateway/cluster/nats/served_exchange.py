"""Which shards each gateway of a cluster serves: told by each every second and at each change, by core NATS.

It orders nothing: who goes by it serves in vain at worst, and who serves is whoever is in a shard's log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS
from moot.gateway.cluster.shard_shares import Sharer
from moot.net.relay_connection import RelayAddress
from moot.resilience.task_set import TaskSet

log = logging.getLogger(__name__)

_TELL_SECONDS: Final = 1.0
# What was told before that is not known any more.
FRESH_SECONDS: Final = 3.0
_MAX_GATEWAYS: Final = 256


class ServedShards(msgspec.Struct, frozen=True):
    """What one gateway tells."""

    gateway: str
    shards: frozenset[int]
    # How it is reached by gateways that relay to it.
    address: RelayAddress | None = None
    # With `serves: shared`: what its share is drawn from, what it leaves to others, and whether it ends.
    place: str = ""
    refuses: frozenset[int] = frozenset()
    is_leaving: bool = False
    # It does not take anybody in yet.
    is_coming: bool = False
    # Gateways that it has just failed to reach.
    lost: frozenset[str] = frozenset()


_decoder: Final = msgspec.json.Decoder(ServedShards)


class ServedExchange:
    """Tells the others what this gateway serves, and keeps what they tell."""

    def __init__(self, client: Client, subject: str, own: Callable[[], ServedShards]) -> None:
        self._client = client
        self._subject = subject
        self._own = own
        self._told: dict[str, tuple[float, ServedShards]] = {}
        # Since when each has told so of a shard without a break.
        self._since: dict[str, dict[int, float]] = {}
        # Those that somebody failed to reach: until when nothing is expected of them.
        self._lost_until: dict[str, float] = {}
        self._to_tell_lost: set[str] = set()
        self._is_changed = asyncio.Event()
        self._changed_at = 0.0
        # Set by what others tell, and at each change of our own.
        self._news = asyncio.Event()
        # The next time that another gateway tells something, or this one serves something else.
        self.moved = asyncio.Event()

    async def wait_news(self, seconds: float) -> None:
        """Wait for news, for so long at most."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)
        self._news.clear()

    def note_news(self) -> None:
        self._news.set()
        self.moved.set()
        self.moved = asyncio.Event()

    async def start(self, tasks: TaskSet) -> None:
        await self._client.subscribe(self._subject, cb=self._take)
        tasks.start(self._tell())

    def note_change(self) -> None:
        """What this gateway serves is different now."""
        self._changed_at = time.monotonic()
        self._is_changed.set()
        self.note_news()

    def note_lost(self, gateway: str) -> None:
        """It cannot be reached from here: others need not wait until they hear it no more.

        They may be right to begin with its shards. One that is there tells so again, and is believed later.
        """
        if not self._is_lost(gateway):
            self._lose(gateway)
            self._to_tell_lost.add(gateway)
            self._is_changed.set()
            self.note_news()

    def _lose(self, gateway: str) -> None:
        self._lost_until[gateway] = time.monotonic() + FRESH_SECONDS
        if gateway in self._told:
            # Of the process that may be started there it says nothing.
            at, told = self._told[gateway]
            self._told[gateway] = at, msgspec.structs.replace(told, shards=frozenset())

    def _is_lost(self, gateway: str) -> bool:
        return self._lost_until.get(gateway, 0.0) > time.monotonic()

    def served_by(self, gateway: str) -> frozenset[int] | None:
        """The shards that a gateway serves; None if that is not known.

        Whoever left a shard did so because another one serves it, which may have told that too early.
        """
        told_at, told = self._told.get(gateway, (0.0, None))
        is_known = told_at > max(self._changed_at, time.monotonic() - FRESH_SECONDS)
        return told.shards if told is not None and is_known else None

    def gateways_of(self, shard: int) -> list[str]:
        """Those that have told to serve it, which may not be so any more."""
        return [name for name, (_, told) in self._fresh() if shard in told.shards]

    def sharers(self) -> dict[str, Sharer]:
        """Those that have told a moment ago, this one among them as long as it reaches them."""
        return {
            name: Sharer(
                told.place or name, at, self._since[name], told.refuses, told.is_leaving, told.is_coming
            )
            for name, (at, told) in self._fresh()
        }

    def _fresh(self) -> list[tuple[str, tuple[float, ServedShards]]]:
        since = time.monotonic() - FRESH_SECONDS
        return [each for each in self._told.items() if each[1][0] > since and not self._is_lost(each[0])]

    def address_of(self, gateway: str, shard: int) -> RelayAddress | None:
        """How a gateway is reached that told to serve this shard, however long ago."""
        _, told = self._told.get(gateway, (0.0, None))
        return None if told is None or shard not in told.shards or self._is_lost(gateway) else told.address

    def told_address(self, gateway: str) -> RelayAddress | None:
        _, told = self._told.get(gateway, (0.0, None))
        return None if told is None else told.address

    def place_of(self, gateway: str) -> str:
        """What its share is drawn from, as far as is known."""
        _, told = self._told.get(gateway, (0.0, None))
        return told.place or gateway if told is not None else gateway

    def tell_now(self) -> None:
        self._is_changed.set()

    async def _take(self, message: Msg) -> None:
        try:
            told = _decoder.decode(message.data)
        except msgspec.MsgspecError:
            log.warning("what a gateway serves cannot be read")
            return
        self.note(told)
        self.note_news()

    def note(self, told: ServedShards) -> None:
        """A gateway has told this now."""
        if told.gateway not in self._told and len(self._told) >= _MAX_GATEWAYS:
            # Each start may have another name.
            self._told = dict(self._fresh())
            self._since = {name: self._since[name] for name in self._told}
            self._lost_until.clear()
        if told.gateway in self._told or len(self._told) < _MAX_GATEWAYS:
            now = time.monotonic()
            for lost in told.lost & self._told.keys():
                self._lose(lost)
            before, _ = self._told.get(told.gateway, (0.0, None))
            kept = self._since.get(told.gateway, {}) if before > now - FRESH_SECONDS else {}
            self._since[told.gateway] = {shard: kept.get(shard, now) for shard in told.shards}
            self._told[told.gateway] = now, told

    async def _tell(self) -> None:
        while True:
            self._is_changed.clear()
            # What was found when nobody could be told of it, others may know better by now.
            self._to_tell_lost = {each for each in self._to_tell_lost if self._is_lost(each)}
            if self._client.is_connected:
                lost = frozenset(self._to_tell_lost)
                told = msgspec.structs.replace(self._own(), lost=lost)
                try:
                    await self._client.publish(self._subject, msgspec.json.encode(told))
                    self._to_tell_lost -= lost
                except NATS_FAULTS as fault:
                    log.debug("shards not told", extra={"fault": repr(fault)})
            try:
                await asyncio.wait_for(self._is_changed.wait(), _TELL_SECONDS)
            except TimeoutError:
                continue
