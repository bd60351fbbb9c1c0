"""A shard that nobody serves is served again: by the first of those that live, in an order for each shard.

Who lives stands in the common shard, and each tells what it serves. As long as one that lives has not told,
nothing is done: it may serve. If the first in the order cannot, the next one does after some seconds. Two
that take one shard over serve it both, which every gateway may. So a gateway that should relay members, and
reaches none of those that tell to serve their shard, need not be right either: it serves at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from moot.errors import Refused
from moot.gateway.cluster.nats.served_exchange import ServedExchange
from moot.net.address_order import score

if TYPE_CHECKING:
    from moot.gateway.cluster.cluster_node import ClusterNode

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0


class ShardTakeover:
    """Looks after the shards that its gateway does not serve."""

    def __init__(self, node: ClusterNode, exchange: ServedExchange) -> None:
        self._node = node
        self._exchange = exchange
        # Since when nobody serves a shard.
        self._unserved: dict[int, float] = {}
        # Those whose gateways cannot be reached from here, and until when that is not looked at again.
        self._unreachable: dict[int, float] = {}
        self._due: set[int] = set()

    async def run(self) -> None:
        while True:
            await self._exchange.wait_news(_LOOK_SECONDS)
            for index in self._unserved_shards():
                await self._take_over(index)

    def note_unreachable(self, index: int, _gateways: Iterable[str]) -> None:
        """Members of this shard are here, and none of those that tell to serve it can be reached."""
        now = time.monotonic()
        if now >= self._unreachable.get(index, 0.0):
            self._unreachable[index] = now + self._node.config.gone_seconds
            self._due.add(index)
            self._exchange.note_news()

    def _unserved_shards(self) -> list[int]:
        """Those that nobody serves, for so long that it is this gateway's turn."""
        node, now = self._node, time.monotonic()
        others = [name for name, _ in node.common.others_of(node.name)]
        served = [self._exchange.served_by(name) for name in others]
        due, unreachable, self._due = list[int](), self._due, set()
        for shard in node.shards:
            index = shard.index
            if shard.state == "not served" and index in unreachable:
                due.append(index)
                continue
            if shard.state != "not served" or any(each is None or index in each for each in served):
                self._unserved.pop(index, None)
                continue
            ordered = sorted([node.name, *others], key=lambda name: score(index, name), reverse=True)
            since = self._unserved.setdefault(index, now)
            if now - since >= ordered.index(node.name) * node.config.gone_seconds:
                due.append(index)
        return due

    async def _take_over(self, index: int) -> None:
        log.warning("nobody serves this shard: it is taken over", extra={"shard": index})
        try:
            await self._node.serve(index)
        except Refused as refusal:
            log.error("shard not taken over", extra={"shard": index, "why": refusal.message})
            # Not at once again; the next in the order does not wait for that.
            self._unserved[index] = time.monotonic() + self._node.config.gone_seconds
