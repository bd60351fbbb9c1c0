"""Small values that all gateways of a cluster have in common and that belong to no space: a bucket of NATS.

Not in the log, which is read, copied into journals and kept: one of them is a private key.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import nats.js.errors
from nats.js.api import KeyValueConfig, StorageType
from nats.js.kv import KeyValue

from moot.config.cluster_config import ClusterConfig
from moot.errors import Unavailable, UsageError
from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS, ClusterConnection, retry

# One-time links of all gateways of a cluster: made at one, redeemed at any, once.
#
# A bucket of NATS and not the log: a link belongs to no space, and nobody has to know later that it was
# there.

# Longer than any link is valid. What is left of links, NATS forgets by itself then.
_KEEP_SECONDS: Final = 86_400
# Another one has taken it meanwhile: "wrong last sequence", in both of its forms.
_WRONG_LAST: Final = (10071, 10164)
# Gateways that change one value at a time: each time one of them is done.
_MAX_CHANGES: Final = 64


class SharedLinks:
    """Values that are taken once. Raises Unavailable when NATS does not answer, or not in time."""

    def __init__(self, config: ClusterConfig, connection: Callable[[], ClusterConnection | None]) -> None:
        self._bucket = SharedBucket(config, connection, "links", keep_seconds=_KEEP_SECONDS)

    async def add(self, key: str, value: bytes) -> None:
        try:
            await (await self._bucket.open()).put(key, value)
        except NATS_FAULTS as fault:
            raise unavailable(fault) from None

    async def read(self, key: str) -> bytes | None:
        return await self._bucket.read(key)

    async def take_out(self, key: str) -> bytes | None:
        """To the first who asks. Should the answer to that one be lost, nobody gets it."""
        try:
            bucket = await self._bucket.open()
            found = await bucket.get(key)
            await bucket.delete(key, last=found.revision)
        except nats.js.errors.KeyNotFoundError:
            return None
        except nats.js.errors.APIError as fault:
            if fault.err_code in _WRONG_LAST:
                return None
            raise unavailable(fault) from None
        except NATS_FAULTS as fault:
            raise unavailable(fault) from None
        return found.value


class SharedValues:
    """Read and written by key. All raise Unavailable when NATS does not answer, or not in time."""

    def __init__(self, config: ClusterConfig, connection: Callable[[], ClusterConnection | None]) -> None:
        self._bucket = SharedBucket(config, connection, "shared")

    async def read(self, key: str) -> bytes | None:
        return await self._bucket.read(key)

    async def write(self, key: str, value: bytes) -> None:
        try:
            await (await self._bucket.open()).put(key, value)
        except NATS_FAULTS as fault:
            raise unavailable(fault) from None

    async def create(self, key: str, value: bytes) -> bytes:
        """Write it if there is none yet; returns what is there, which whoever was first has written."""

        async def try_once() -> None:
            await (await self._bucket.open()).create(key, value)

        try:
            # Asked for at a start, when NATS may elect a leader.
            await retry(try_once)
            return value
        except nats.js.errors.KeyWrongLastSequenceError:
            found = await self.read(key)
            if found is None:
                # The server that was asked does not have it yet.
                raise Unavailable("a value of the cluster cannot be read yet: try again") from None
            return found
        except (*NATS_FAULTS, UsageError) as fault:
            raise unavailable(fault) from None

    async def change(self, key: str, edit: Callable[[bytes | None], bytes]) -> bytes:
        """Make another value of the one that is there; `edit` is asked again if another gateway was first."""
        try:
            bucket = await self._bucket.open()
            for _ in range(_MAX_CHANGES):
                found, revision = None, 0
                with suppress(nats.js.errors.KeyNotFoundError):
                    entry = await bucket.get(key)
                    found, revision = entry.value, entry.revision or 0
                changed = edit(found)
                try:
                    await bucket.update(key, changed, last=revision)
                except nats.js.errors.KeyWrongLastSequenceError:
                    continue
                return changed
        except NATS_FAULTS as fault:
            raise unavailable(fault) from None
        raise Unavailable("other gateways change the same value of the cluster: try again")


class SharedBucket:
    """A bucket of this cluster, made at the first use: most clusters need none."""

    def __init__(
        self,
        config: ClusterConfig,
        connection: Callable[[], ClusterConnection | None],
        name: str,
        *,
        keep_seconds: float | None = None,
    ) -> None:
        """With `keep_seconds`, NATS forgets each value after so long."""
        self._connection = connection
        self._wanted = KeyValueConfig(
            bucket=f"{config.name}-{name}",
            replicas=config.replicas,
            storage=StorageType.FILE,
            ttl=keep_seconds,
        )
        self._opened: KeyValue | None = None

    async def open(self, *, is_read: bool = False) -> KeyValue:
        """Raises Unavailable, or one of NATS_FAULTS. Where it `is_read`, it is not made: KeyNotFoundError."""
        connection = self._connection()
        if connection is None:
            raise Unavailable("this gateway is not connected to its cluster")
        if self._opened is None:
            context = connection.context
            try:
                self._opened = await context.key_value(self._wanted.bucket)
            except nats.js.errors.NotFoundError:
                if is_read:
                    raise nats.js.errors.KeyNotFoundError from None
                # Done twice it is the same one.
                self._opened = await context.create_key_value(self._wanted)
        return self._opened

    async def read(self, key: str) -> bytes | None:
        """Raises Unavailable."""
        try:
            return (await (await self.open(is_read=True)).get(key)).value
        except nats.js.errors.KeyNotFoundError:
            return None
        except NATS_FAULTS as fault:
            raise unavailable(fault) from None


def unavailable(fault: Exception) -> Unavailable:
    return Unavailable(f"the cluster's shared values cannot be reached: {type(fault).__name__}")
