"""A gateway of a cluster with `serves: shared`: it begins with the shards of its share, and leaves others.

    another one comes     it begins with its shards ─▶ tells so for some seconds ─▶ they are left to it
    another one is gone   it tells nothing for three seconds ─▶ those that are next begin with its shards
    this one stops        it tells that ─▶ the others begin with its shards ─▶ each is left ─▶ it ends

`shard_shares` says who serves what. Before anything is done a message has to come back from the log that was
written for it: a gateway that does not reach the log, or is with the smaller part of NATS, does nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from moot.config.cluster_config import ClusterConfig
from moot.errors import InvalidOperation, Refused, Unavailable
from moot.gateway.cluster.nats.served_exchange import FRESH_SECONDS, ServedExchange
from moot.gateway.cluster.shard_shares import Moves, chosen_of, moves_of
from moot.net.address_order import normal_address
from moot.resilience.task_set import TaskSet

if TYPE_CHECKING:
    from moot.gateway.cluster.cluster_node import ClusterNode

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
# What it could not begin with is left to the next one for so long.
_AGAIN_SECONDS: Final = 5.0
# At a stop the others have so long to begin with what this gateway serves.
HAND_OVER_SECONDS: Final = 4.0


def place_of(config: ClusterConfig, gateway: str) -> str:
    """What a gateway's share is drawn from: of `addresses` that which begins with its name, or else the name.

    Members draw the gateway that they go to from the same, and need not be relayed.
    """
    named = (each for each in config.addresses if (urlsplit(each).hostname or "").split(".")[0] == gateway)
    return next(map(normal_address, named), gateway)


class ShardSharing:
    """Keeps one gateway at its share of the shards."""

    def __init__(self, node: ClusterNode, exchange: ServedExchange) -> None:
        self._node = node
        self._exchange = exchange
        self._tasks = TaskSet("shares")
        # It hands over what it has, and ends.
        self.is_leaving = False
        # By an operator's word.
        self._refused: set[int] = set()
        # Those that it could not begin with: until when the next one has its turn.
        self._failed: dict[int, float] = {}
        self._moving: set[int] = set()
        self._is_moved = asyncio.Event()

    @property
    def refuses(self) -> frozenset[int]:
        """What it leaves to others."""
        now = time.monotonic()
        return frozenset(self._refused | {index for index, until in self._failed.items() if until > now})

    def server_of(self, index: int) -> str | None:
        """Who shall serve a shard, by what this gateway has heard."""
        return chosen_of(index, self._exchange.sharers())

    async def own_share(self) -> list[int]:
        """What this gateway serves from its start on; those that live are heard first, each for a while."""
        node, until = self._node, time.monotonic() + FRESH_SECONDS
        names = {node.name, *(name for name, _ in node.common.others_of(node.name))}
        while (left := until - time.monotonic()) > 0 and not self._exchange.sharers().keys() >= names:
            await self._exchange.wait_news(left)
        sharers = {name: each._replace(is_coming=False) for name, each in self._exchange.sharers().items()}
        return [index for index in range(1, len(node.shards)) if chosen_of(index, sharers) == node.name]

    async def run(self) -> None:
        try:
            while True:
                await self._exchange.wait_news(_LOOK_SECONDS)
                if any(self._moves()) and await self._reaches_log():
                    # What was told meanwhile counts, too.
                    self._start(self._moves())
        finally:
            await self._tasks.close()

    def note_unreachable(self, _index: int, gateways: Iterable[str]) -> None:
        """These tell to serve a shard, and cannot be reached: those that are next begin with theirs."""
        for each in gateways:
            self._exchange.note_lost(each)

    def _moves(self) -> Moves:
        """What is to be done now, without that which is being done."""
        node = self._node
        began = {shard.index: shard.served_since for shard in node.served}
        begin, leave = moves_of(node.name, self._exchange.sharers(), range(1, len(node.shards)), began)
        return Moves(
            frozenset() if self.is_leaving else begin - self._moving - self._failing(),
            {index: successor for index, successor in leave.items() if index not in self._moving},
        )

    def _failing(self) -> set[int]:
        now = time.monotonic()
        return {index for index, until in self._failed.items() if until > now}

    async def _reaches_log(self) -> bool:
        """Whether this gateway is not cut off, at this moment."""
        config, shared = self._node.config, self._node.common.log
        with suppress(TimeoutError):
            async with asyncio.timeout(config.unavailable_seconds):
                await shared.wait_known(time.monotonic())
                return True
        return False

    def _start(self, moves: Moves) -> None:
        for index in moves.begin:
            self._tasks.start(self._move(index, None))
        for index, successor in moves.leave.items():
            self._tasks.start(self._move(index, successor))

    async def _move(self, index: int, successor: str | None) -> None:
        """Begin with a shard, or leave it to another one."""
        self._moving.add(index)
        try:
            if successor is None:
                await self._node.serve(index)
            else:
                await self._node.leave(index, successor)
        except Unavailable as unavailable:
            # It is looked at again.
            log.info("shard not moved", extra={"shard": index, "why": unavailable.message})
        except Refused as refusal:
            log.error("shard not moved", extra={"shard": index, "why": refusal.message})
            if successor is None:
                self._failed[index] = time.monotonic() + _AGAIN_SECONDS
                self._exchange.tell_now()
        finally:
            self._moving.discard(index)
            self._is_moved.set()

    # What operators ask, and the end of this gateway

    async def accept(self, index: int) -> bool:
        """Serve a shard again that was refused, and whenever it is of this gateway's share."""
        self._refused.discard(index)
        self._failed.pop(index, None)
        return await self._node.serve(index)

    async def refuse(self, index: int) -> bool:
        """Leave a shard to the others from now on, once one of them serves it; whether it was served."""
        node = self._node
        if not 0 < index < len(node.shards):
            # Says why.
            return await node.leave(index)
        was_served = node.shards[index].state == "served"
        was_refused = index in self._refused
        self._refused.add(index)
        self._exchange.tell_now()
        if was_served and not await self._wait_left(lambda: node.shards[index].state == "not served"):
            if not was_refused:
                self._refused.discard(index)
            self._exchange.tell_now()
            raise InvalidOperation(
                f"no other gateway has begun with shard {index} within {HAND_OVER_SECONDS:g} seconds, and "
                "its members would find nobody: it is served on"
            )
        return was_served

    async def hand_over(self) -> None:
        """Let others serve what this gateway serves, before it ends; done when they do, or none is there."""
        self.is_leaving = True
        self._exchange.tell_now()
        node = self._node
        if not await self._wait_left(lambda: node.served == [node.common] or not self._has_others()):
            log.warning("stops before others serve all of its shards: they take them over by themselves")

    def _has_others(self) -> bool:
        own = self._node.name
        return any(not each.is_leaving for name, each in self._exchange.sharers().items() if name != own)

    async def _wait_left(self, is_done: Callable[[], bool]) -> bool:
        until = time.monotonic() + HAND_OVER_SECONDS
        while not is_done():
            if (left := until - time.monotonic()) <= 0:
                return False
            self._is_moved.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_moved.wait(), min(left, _LOOK_SECONDS))
        return True
