"""Snapshots of a shard in NATS' object store, whose checksum is verified when one is read."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import msgspec
import nats.js.errors
from nats.js.object_store import ObjectStore

from moot.cluster.nats_connection import NATS_FAULTS, retry
from moot.protocol.operation import Json

log = logging.getLogger(__name__)


class ShardSnapshot(NamedTuple):
    """The state of all spaces of a shard behind a message of the log."""

    position: int
    fields: dict[str, Any]


class SnapshotStore:
    """The two latest snapshots of each shard: while one is replaced, the other can be read."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def save(self, shard: int, number: int, position: int, fields: dict[str, Json]) -> None:
        """Raises one of NATS_FAULTS."""
        encoded = msgspec.json.encode({"position": position} | fields)
        await self._store.put(f"{shard}-{number % 2}", encoded)

    async def load(self, shard: int) -> ShardSnapshot | None:
        """The newest that is whole; None if there is none. Raises UsageError when NATS does not answer."""
        found: list[ShardSnapshot] = []
        for place in (0, 1):
            try:
                result = await self._get(f"{shard}-{place}")
            except nats.js.errors.ObjectNotFoundError:
                continue
            except NATS_FAULTS as fault:
                log.warning("snapshot cannot be read", extra={"shard": shard, "why": repr(fault)})
                continue
            fields = msgspec.json.decode(result.data or b"{}")
            found.append(ShardSnapshot(fields.pop("position"), fields))
        return max(found, key=lambda each: each.position, default=None)

    async def _get(self, name: str) -> ObjectStore.ObjectResult:
        """While a leader is elected nobody answers, and that does not mean that there is no snapshot."""
        return await retry(lambda: self._store.get(name))
