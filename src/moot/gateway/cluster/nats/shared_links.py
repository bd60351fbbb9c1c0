"""One-time links of all gateways of a cluster: made at one, redeemed at any, once.

A bucket of NATS and not the log: a link belongs to no space, and nobody has to know later that it was there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import nats.js.errors

from moot.config.cluster_config import ClusterConfig
from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS, ClusterConnection
from moot.gateway.cluster.nats.shared_values import SharedBucket, unavailable

# Longer than any link is valid. What is left of links, NATS forgets by itself then.
_KEEP_SECONDS: Final = 86_400
# Another one has taken it meanwhile: "wrong last sequence", in both of its forms.
_WRONG_LAST: Final = (10071, 10164)


class SharedLinks:
    """Values that are taken once. Raises Unavailable when NATS does not answer, or not in time."""

    def __init__(self, config: ClusterConfig, connection: Callable[[], ClusterConnection | None]) -> None:
        self._bucket = SharedBucket(config, connection, "links", keep_seconds=_KEEP_SECONDS)

    async def add(self, key: str, value: bytes) -> None:
        try:
            await (await self._bucket.open()).put(key, value)
        except NATS_FAULTS as fault:
            raise unavailable(fault) from None

    async def take(self, key: str) -> bytes | None:
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
