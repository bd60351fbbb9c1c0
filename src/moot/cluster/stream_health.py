"""How NATS keeps one stream of the log: its leader, its copies, its end."""

from __future__ import annotations

import asyncio

import msgspec
from nats.js.api import StreamInfo

from moot.cluster.nats_connection import NATS_FAULTS, ClusterConnection


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
