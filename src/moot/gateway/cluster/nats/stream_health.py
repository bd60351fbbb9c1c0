"""How NATS keeps one stream of the log: its leader, its copies, its end."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from nats.js.api import StreamInfo

from moot.errors import UsageError
from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS, ClusterConnection, retry

# Servers of NATS hear each other every second.
_HEARD_NANOSECONDS: Final = 3 * 10**9
_ASK_SECONDS: Final = 0.2
# JetStream elects a leader in 4 to 9 seconds, and has no setting for it.
_ELECTION_SECONDS: Final = 20.0


class StreamHealth(msgspec.Struct, frozen=True):
    """One stream, as its leader describes it."""

    # None where NATS is no cluster.
    leader: str | None
    # That of the leader and those that have everything.
    current_copies: int
    # Servers whose copies do not.
    late_servers: list[str]
    messages: int
    bytes: int
    last: int


async def ask_stream(connection: ClusterConnection, stream: str, seconds: float) -> StreamHealth | None:
    """None when nobody answers for it in time."""
    if not connection.client.is_connected:
        return None
    try:
        return read_stream_info(await asyncio.wait_for(connection.context.stream_info(stream), seconds))
    except NATS_FAULTS:
        return None


def read_stream_info(info: StreamInfo) -> StreamHealth:
    peers = (info.cluster.replicas if info.cluster else None) or []
    late = [peer.name or "?" for peer in peers if peer.offline or not peer.current]
    return StreamHealth(
        leader=info.cluster.leader if info.cluster else None,
        current_copies=1 + len(peers) - len(late),
        late_servers=late,
        messages=info.state.messages,
        bytes=info.state.bytes,
        last=info.state.last_seq,
    )


def is_led(info: StreamInfo) -> bool:
    """Whether this was answered by a leader that hears a majority, so that it has all that was acknowledged.

    A server that knows no leader answers as well, with what it has, which may be less; and one that was cut
    off takes itself for the leader until it has heard nobody for 10 to 20 seconds.
    """
    if info.cluster is None:
        return True
    peers = info.cluster.replicas or []
    heard = [peer for peer in peers if not peer.offline and (peer.active or 0) < _HEARD_NANOSECONDS]
    return bool(info.cluster.leader) and 2 * (1 + len(heard)) > 1 + len(peers)


async def wait_led(connection: ClusterConnection, stream: str, seconds: float) -> StreamInfo:
    """What the stream's leader says of it. Raises UsageError when it has none for so long, or longer than an
    election takes."""
    try:
        async with asyncio.timeout(max(seconds, _ELECTION_SECONDS)):
            while True:
                info = await retry(lambda: connection.context.stream_info(stream))
                if is_led(info):
                    return info
                await asyncio.sleep(_ASK_SECONDS)
    except TimeoutError:
        raise UsageError(f"NATS elects no leader for {stream}: too few of its servers run") from None
