"""Frames of streams on one gateway of a cluster.

They are not in the log, so nothing orders them behind a revocation. A gateway therefore passes a frame on
only if it knew the whole log FRAME_STALE_SECONDS ago or later: who was revoked before then is not heard.
While streams are open it proves that more often than its heartbeats would, with empty messages in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from moot.config.cluster_config import ClusterConfig
from moot.errors import Unavailable
from moot.gateway.cluster.cluster_shard import Shard
from moot.gateway.cluster.nats.frame_relay import FrameHead, FrameRelay
from moot.gateway.cluster.nats.nats_connection import ClusterConnection
from moot.protocol.frames import Frame
from moot.resilience.task_set import TaskSet
from moot.space.config import SessionId

# What waits to be sent to other gateways; more is dropped, as frames are when anybody is too slow.
_MAX_OUTGOING_FRAMES: Final = 1_000
# Frames of streams stop when what this gateway knows of the log is so old.
FRAME_STALE_SECONDS: Final = 1.0
# What is known of the log is proven anew when it is so old, as a part of that.
_PROVE_AT: Final = 0.4


class ClusterFrames:
    """Takes frames of this gateway's members to the others, and theirs to its members."""

    def __init__(
        self, config: ClusterConfig, gateway: str, shards: Sequence[Shard], shard_of: Callable[[str], Shard]
    ) -> None:
        self._config = config
        self._gateway = gateway
        self._shards = shards
        self._shard_of = shard_of
        self._relay: FrameRelay | None = None
        self._outgoing: asyncio.Queue[tuple[FrameHead, bytes]] = asyncio.Queue(_MAX_OUTGOING_FRAMES)

    async def start(self, connection: ClusterConnection, tasks: TaskSet) -> None:
        self._relay = FrameRelay(
            connection.client,
            f"{self._config.name}.frames",
            self._gateway,
            serves=lambda space: self._shard_of(space).state == "served",
            position_of=lambda space: self._shard_of(space).log.position,
            is_fresh=self._is_fresh,
            deliver=self._deliver,
        )
        await self._relay.start()
        tasks.start(self._send(self._relay))

    def check(self, space: str) -> None:
        """Raises Unavailable while this gateway may not know who was revoked."""
        if not self._is_fresh(space):
            raise Unavailable("this gateway may be cut off from its cluster, and frames are not kept")

    def send(self, space: str, session: str, frame: Frame) -> None:
        """To the gateways of other members."""
        head = FrameHead(self._gateway, space, session, self._shard_of(space).log.position, frame.binary)
        with suppress(asyncio.QueueFull):
            self._outgoing.put_nowait((head, frame.raw))

    def release(self) -> None:
        """The log was read further."""
        if self._relay is not None:
            self._relay.release()

    def prove_fresh(self) -> None:
        """To be called several times in FRAME_STALE_SECONDS."""
        for shard in self._shards:
            if shard.state != "served":
                continue
            if shard.log.age_seconds > _PROVE_AT * FRAME_STALE_SECONDS and any(
                order.space.state.streams.open for order in shard.orders.values()
            ):
                shard.log.writer.probe()

    def _is_fresh(self, space: str) -> bool:
        shard = self._shard_of(space)
        return shard.state == "served" and shard.log.age_seconds <= FRAME_STALE_SECONDS

    async def _send(self, relay: FrameRelay) -> None:
        while True:
            await relay.send(*await self._outgoing.get())

    def _deliver(self, head: FrameHead, raw: bytes) -> None:
        order = self._shard_of(head.space).orders.get(head.space)
        if order is not None:
            order.applier.frames.take(SessionId(head.session), raw, head.binary)
