"""Large values of the spaces of a cluster, in a stream of NATS: any gateway keeps them, and any gives them.

    CLUSTER.content.SPACE.SHA256.BYTES.PART

One message a part; a part that is sent again takes the place of the earlier one. The first parts of a space
tell what it keeps: the subject has the size of the value, and the oldest first part is of the value that
nobody sent or fetched for longest. So there is no second list that could differ from what is there, and what
a gateway left half written goes with its first part.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from typing import Final, NamedTuple, TypeVar

import nats.js.errors
from nats.js.api import DiscardPolicy, Header, RawStreamMsg, StorageType, StreamConfig
from nats.js.client import JetStreamContext

from moot.config.cluster_config import ClusterConfig
from moot.errors import ResourceLimit, Unavailable, UsageError
from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS, ClusterConnection, retry

T = TypeVar("T")

# Small beside the largest message of NATS, 1 MiB unless its operator says otherwise.
_PART_BYTES: Final = 128 << 10
# Of one space, as listed in one answer of NATS.
_MAX_VALUES: Final = 4096
# Through an election of JetStream, which takes up to 9 s.
_SECONDS: Final = 30.0
# A value that is fetched often is written again once in so long, and not for each who fetches it.
_RENEW_SECONDS: Final = 300.0
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class SharedValue(NamedTuple):
    """A value that was found: its size, and its bytes, part by part. Reading raises Unavailable."""

    size: int
    parts: AsyncIterator[bytes]


class SharedContent:
    """Keeps and finds values by space and hash. All raise Unavailable when NATS does not answer in time."""

    def __init__(self, config: ClusterConfig, connection: Callable[[], ClusterConnection | None]) -> None:
        self._config = config
        self._connection = connection
        self._stream = f"{config.name}-content"
        self._is_made = False

    async def keep(self, space: str, data: bytes, *, max_total_bytes: int) -> str:
        """Keep a value, as safely as the cluster's log when this returns; its SHA-256.

        Raises ResourceLimit when the values of other spaces leave no room.
        """
        digest = sha256(data).hexdigest()
        prefix = f"{self._subject(space)}.{digest}.{len(data)}"

        async def write(context: JetStreamContext, part_bytes: int) -> None:
            if not self._is_made:
                await self._make_stream(context)
            await self._make_room(context, space, max_total_bytes, adding=max(1, len(data)))
            for number, start in enumerate(range(0, max(1, len(data)), part_bytes)):
                part = data[start : start + part_bytes]
                await retry(lambda at=f"{prefix}.{number}", part=part: context.publish(at, part))  # type: ignore[misc]
            await self._make_room(context, space, max_total_bytes)
            if await self._next(context, f"{prefix}.0") is None:
                raise Unavailable("this value has made room for others while it was sent: send it again")

        async def clear(context: JetStreamContext, _: int) -> None:
            """Nobody counts parts without the first one."""
            if await self._next(context, f"{prefix}.0") is None:
                await retry(lambda: context.purge_stream(self._stream, subject=f"{prefix}.*"))

        try:
            await self._run(write)
        except Unavailable:
            with suppress(Unavailable):
                await self._run(clear)
            raise
        return digest

    async def forget(self, space: str) -> None:
        """Remove what is kept for a space that was dropped."""

        async def purge(context: JetStreamContext, _: int) -> None:
            with suppress(nats.js.errors.NotFoundError):
                await context.purge_stream(self._stream, subject=f"{self._subject(space)}.>")

        await self._run(purge)

    async def find(self, space: str, digest: str) -> SharedValue | None:
        """None if it is not kept (any more)."""
        if not _DIGEST.fullmatch(digest):
            return None

        async def look(context: JetStreamContext, _: int) -> RawStreamMsg | None:
            found = await self._next(context, f"{self._subject(space)}.{digest}.*.0")
            if found is not None and _age_seconds(found) > _RENEW_SECONDS:
                # Used just now. Unless somebody has removed it meanwhile: half a value would be left.
                expected = {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(found.seq)}
                with suppress(*NATS_FAULTS):
                    await context.publish(found.subject or "", found.data or b"", headers=expected)
            return found

        first = await self._run(look)
        if first is None:
            return None
        size = int((first.subject or "").split(".")[-2])
        return SharedValue(size, self._parts(first, size))

    async def _parts(self, first: RawStreamMsg, size: int) -> AsyncIterator[bytes]:
        prefix = (first.subject or "").removesuffix("0")
        read, number, part = 0, 0, first.data or b""
        while True:
            yield part
            read, number = read + len(part), number + 1
            if read >= size:
                return
            at = f"{prefix}{number}"
            found = await self._run(lambda context, _, at=at: self._next(context, at))  # type: ignore[misc]
            if found is None or not found.data:
                raise Unavailable("this value has just made room for others")
            part = found.data

    async def _make_room(
        self, context: JetStreamContext, space: str, max_bytes: int, *, adding: int = 0
    ) -> None:
        """Those that nobody used for longest go, until the rest fits, with what is added to all spaces."""
        # Not left to NATS: it would set so much aside at once, and the log could not have it.
        most = self._config.max_content_bytes
        firsts = f"{self._subject(space)}.*.*.0"
        while True:
            # Before the oldest is looked for: what is sent again from now on stays.
            state = (await retry(lambda: context.stream_info(self._stream, firsts))).state
            sizes = [int(subject.split(".")[-2]) for subject in state.subjects or ()]
            is_full = adding > 0 and state.bytes + adding > most
            if is_full and state.bytes + adding - sum(sizes) > most:
                raise ResourceLimit(
                    f"the cluster keeps {most} bytes of large values (gateway.cluster.max_content_bytes), "
                    "and those of other spaces leave no room"
                )
            if sum(sizes) <= max_bytes and len(sizes) <= _MAX_VALUES and not is_full:
                return
            oldest = await self._next(context, firsts)
            if oldest is None:
                return
            whole = (oldest.subject or "").removesuffix("0") + "*"
            await retry(
                lambda whole=whole, end=state.last_seq + 1: context.purge_stream(  # type: ignore[misc]
                    self._stream, seq=end, subject=whole
                )
            )

    async def _next(self, context: JetStreamContext, subject: str) -> RawStreamMsg | None:
        """The oldest message of these subjects."""
        try:
            return await retry(lambda: context.get_msg(self._stream, seq=1, subject=subject, next=True))
        except nats.js.errors.NotFoundError:
            return None

    async def _make_stream(self, context: JetStreamContext) -> None:
        """At the first use: most clusters need none. Made twice it is the same one."""
        wanted = StreamConfig(
            name=self._stream,
            subjects=[f"{self._config.name}.content.>"],
            storage=StorageType.FILE,
            num_replicas=self._config.replicas,
            discard=DiscardPolicy.NEW,
            max_msgs_per_subject=1,
            metadata={"moot_cluster": self._config.name},
        )
        try:
            await retry(lambda: context.stream_info(self._stream))
        except nats.js.errors.NotFoundError:
            await retry(lambda: context.add_stream(wanted))
        self._is_made = True

    def _subject(self, space: str) -> str:
        # A name may have dots and stars.
        return f"{self._config.name}.content.{sha256(space.encode()).hexdigest()[:32]}"

    async def _run(self, ask: Callable[[JetStreamContext, int], Awaitable[T]]) -> T:
        connection = self._connection()
        if connection is None:
            raise Unavailable("this gateway is not connected to its cluster")
        try:
            async with asyncio.timeout(_SECONDS):
                return await ask(connection.context, min(_PART_BYTES, connection.max_payload_bytes // 2))
        except (*NATS_FAULTS, UsageError) as fault:
            # It may have been removed, with all of NATS.
            self._is_made = False
            why = type(fault).__name__
            raise Unavailable(f"the cluster's large values cannot be reached: {why}") from None


def _age_seconds(stored: RawStreamMsg) -> float:
    return math.inf if stored.time is None else time.time() - stored.time.timestamp()
