"""Snapshots of a shard in NATS' object store, whose checksum is verified when one is read."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import nats.js.errors
from nats.js.api import ObjectMeta, ObjectMetaOptions
from nats.js.object_store import OBJ_DEFAULT_CHUNK_SIZE, ObjectStore

from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS, TRY_SECONDS, ClusterConnection, retry
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

# What a message has beside its part.
_HEADER_BYTES: Final = 512


class ShardSnapshot(NamedTuple):
    """The state of all spaces of a shard behind a message of the log."""

    position: int
    fields: dict[str, Any]
    # What members were sent, not read here: messages stay the bytes that they were.
    histories: msgspec.Raw


class SnapshotStore:
    """The two latest snapshots of each shard: while one is replaced, the other can be read."""

    def __init__(self, store: ObjectStore, connection: ClusterConnection, bucket: str) -> None:
        self._store = store
        self._context = connection.context
        self._bucket = bucket
        self._chunk_bytes = min(OBJ_DEFAULT_CHUNK_SIZE, connection.max_payload_bytes - _HEADER_BYTES)

    async def save(self, shard: int, number: int, position: int, fields: dict[str, Json]) -> None:
        """Raises one of NATS_FAULTS."""
        encoded = msgspec.json.encode({"position": position} | fields)
        options = ObjectMetaOptions(max_chunk_size=self._chunk_bytes)
        await self._store.put(f"{shard}-{number % 2}", encoded, ObjectMeta(options=options))

    async def load(self, shard: int) -> ShardSnapshot | None:
        """The newest that is whole; None if there is none. Raises UsageError when NATS does not answer."""
        found: list[ShardSnapshot] = []
        for place in (0, 1):
            try:
                get = partial(self._get, f"{shard}-{place}", iter(TRY_SECONDS))
                # A large one takes as long as it takes.
                encoded = await retry(get, times=[None] * len(TRY_SECONDS))
            except nats.js.errors.ObjectNotFoundError:
                continue
            except NATS_FAULTS as fault:
                log.warning("snapshot cannot be read", extra={"shard": shard, "why": repr(fault)})
                continue
            found.append(_decode(encoded))
        return max(found, key=lambda each: each.position, default=None)

    async def _get(self, name: str, times: Iterator[float]) -> bytes:
        """`times`: for each answer, by try. Raises TimeoutError when nobody answers, as while a leader is
        elected, and when it is replaced meanwhile: the client's own `get` would wait for ever for parts that
        were removed."""
        seconds = next(times)
        async with asyncio.timeout(seconds):
            info = await self._store.get_info(name)
        async with asyncio.timeout(seconds):
            parts = await self._context.subscribe(f"$O.{self._bucket}.C.{info.nuid}", ordered_consumer=True)
        found: list[bytes] = []
        try:
            while sum(map(len, found)) < (info.size or 0):
                found.append((await parts.next_msg(seconds)).data)
        finally:
            await parts.unsubscribe()
        encoded = b"".join(found)
        digest = base64.urlsafe_b64encode(hashlib.sha256(encoded).digest()).decode()
        if info.digest != f"SHA-256={digest}":
            raise nats.js.errors.DigestMismatchError
        return encoded


def _decode(encoded: bytes) -> ShardSnapshot:
    raw = msgspec.json.decode(encoded, type=dict[str, msgspec.Raw])
    histories = raw.pop("histories", msgspec.Raw(b"{}"))
    fields = {name: msgspec.json.decode(each) for name, each in raw.items()}
    return ShardSnapshot(fields.pop("position"), fields, histories)
