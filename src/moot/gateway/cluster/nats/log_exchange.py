"""What gateways of a cluster have in common of a log: its name, its newest checkpoint, and its entries.

Names and checkpoints are in a bucket of NATS. A checkpoint takes the place of the one that its signer had
seen there, and of no other: that is the fence, and nobody needs to be elected. Entries are asked for by core
NATS: any gateway answers that has them, and whoever asked compares them with the signed root.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final, Literal, NamedTuple

import msgspec
import nats.js.errors
from nats.aio.msg import Msg

from moot.config.cluster_config import ClusterConfig
from moot.errors import Unavailable
from moot.evidence.merkle_tree import HASH_BYTES
from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS, ClusterConnection
from moot.gateway.cluster.nats.shared_values import SharedBucket, SharedValues, unavailable

_KEYS: Final = "log-keys"
_MAX_ENTRIES: Final = 8192
_ANSWER_SECONDS: Final = 2.0

Kind = Literal["checkpoint", "cosigned"]


class SharedNote(msgspec.Struct, frozen=True):
    """A checkpoint, and which gateway put it there."""

    by: str
    note: str


class SeenNote(NamedTuple):
    """`revision` is what it is replaced by, and `raw` what is there."""

    revision: int
    by: str
    raw: bytes


class EntriesWanted(msgspec.Struct, frozen=True):
    origin: str
    first: int
    count: int


# Entries of a log by its origin; b"" for what is not there.
FindEntries = Callable[[EntriesWanted], Awaitable[bytes]]


class LogExchange:
    """For the logs of one gateway. All raise Unavailable when NATS does not answer."""

    def __init__(
        self, config: ClusterConfig, gateway: str, connection: Callable[[], ClusterConnection | None]
    ) -> None:
        self.gateway = gateway
        self._subject = f"{config.name}.log-entries"
        self._connection = connection
        self._values = SharedValues(config, connection)
        self._bucket = SharedBucket(config, connection, "shared")

    async def share_keys(self, own: bytes) -> bytes:
        """The keys of the cluster's logs: those of whoever was first."""
        return await self._values.create(_KEYS, own)

    async def replace_keys(self, keys: bytes) -> None:
        await self._values.write(_KEYS, keys)

    async def share_origin(self, log: str, own: str) -> str:
        """What the log of a space is called: as whoever was first did."""
        return (await self._values.create(f"{key_of(log)}.origin", own.encode())).decode()

    async def read(self, log: str, kind: Kind) -> SeenNote | None:
        try:
            found = await (await self._bucket.open()).get(f"{key_of(log)}.{kind}")
        except nats.js.errors.KeyNotFoundError:
            return None
        except NATS_FAULTS as fault:
            raise unavailable(fault) from None
        shared = msgspec.json.decode(found.value or b"", type=SharedNote)
        return SeenNote(found.revision or 0, shared.by, shared.note.encode())

    async def replace(self, log: str, kind: Kind, note: str, seen: SeenNote | None) -> bool:
        """Put a checkpoint in the place of the one that was seen; False if there is another one by now."""
        value = msgspec.json.encode(SharedNote(self.gateway, note))
        try:
            bucket, key = await self._bucket.open(), f"{key_of(log)}.{kind}"
            if seen is None:
                await bucket.create(key, value)
            else:
                await bucket.update(key, value, seen.revision)
        except nats.js.errors.KeyWrongLastSequenceError:
            return False
        except NATS_FAULTS as fault:
            raise unavailable(fault) from None
        return True

    async def serve(self, find: FindEntries) -> None:
        """Answer other gateways from now on."""

        async def answer(message: Msg) -> None:
            try:
                wanted = msgspec.json.decode(message.data, type=EntriesWanted)
                if wanted.first < 0 or not 0 < wanted.count <= _MAX_ENTRIES:
                    return
                if found := await find(wanted):
                    await message.respond(found)
            except (msgspec.MsgspecError, OSError, *NATS_FAULTS):
                # Another one may have them; whoever asks does so again.
                return

        await self._connected().client.subscribe(self._subject, cb=answer)

    async def fetch(self, origin: str, first: int, count: int) -> bytes:
        """Some entries from another gateway, at least one and perhaps fewer than asked for."""
        connection = self._connected()
        most = min(count, _MAX_ENTRIES, connection.max_payload_bytes // 2 // HASH_BYTES)
        wanted = msgspec.json.encode(EntriesWanted(origin, first, most))
        try:
            answer = await connection.client.request(self._subject, wanted, timeout=_ANSWER_SECONDS)
        except NATS_FAULTS:
            raise Unavailable(f"no gateway has entry {first} of {origin} just now") from None
        if len(answer.data) % HASH_BYTES or not 0 < len(answer.data) <= most * HASH_BYTES:
            raise Unavailable("a gateway answered with something else than entries")
        return answer.data

    def _connected(self) -> ClusterConnection:
        connection = self._connection()
        if connection is None:
            raise Unavailable("this gateway is not connected to its cluster")
        return connection


def key_of(log: str) -> str:
    # A name of a space may have dots and stars.
    return f"log.{sha256(log.encode()).hexdigest()[:32]}"
