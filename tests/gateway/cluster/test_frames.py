"""Frames of streams are not in the log: no gateway passes one on unless it knew the log a moment ago."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moot.gateway.cluster.nats import frame_relay
from moot.gateway.cluster.nats.frame_relay import FrameHead, FrameRelay
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import PEOPLE
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import running_gateway
from tests.waiting import until


async def test_while_a_stream_is_open_the_log_is_looked_at_more_often_and_without_it_frames_stop(
    own_nats: NatsServers, tmp_path: Path
) -> None:
    """Heartbeats alone would tell of a revocation half a minute later."""
    cluster: dict[str, Json] = {
        "servers": own_nats.addresses,
        "replicas": 1,
        "shards": 1,
        "heartbeat_seconds": 30,
        "gone_seconds": 300,
        "frame_stale_seconds": 0.5,
        "unavailable_seconds": 300,
        "stale_seconds": 600,
    }
    async with running_gateway(tmp_path, PEOPLE, cluster=cluster) as a:
        node, bob = a.gateway.node, await a.join("bob")
        assert node is not None
        shared = node.shards[0].log
        idle = shared.position
        await until(lambda: shared.age_seconds > 0.6)
        assert shared.position == idle, "nobody asks while there are no streams"
        await bob.say("stream/request", {"direction": "upload"})
        stream = (await bob.hear("stream/open"))["payload"]["stream_id"]
        opened = shared.position
        await until(lambda: shared.position >= opened + 3)
        own_nats.send(0, signal.SIGSTOP)
        await until(lambda: shared.age_seconds > 0.5)
        await bob.send(f"#{stream}#late")
        refusal = (await bob.hear("system/error"))["payload"]
        assert (refusal["error"], refusal["stream_id"]) == ("unavailable", stream)
        own_nats.send(0, signal.SIGCONT)


async def test_a_frame_of_another_gateway_waits_until_the_log_is_known_or_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, fresh, delivered = [0.0], [False], list[bytes]()
    monkeypatch.setattr(frame_relay, "time", SimpleNamespace(monotonic=lambda: now[0]))
    client: Any = None
    relay = FrameRelay(
        client,
        "frames",
        "a",
        serves=lambda _space: True,
        position_of=lambda _space: 7,
        is_fresh=lambda _space: fresh[0],
        deliver=lambda _head, raw: delivered.append(raw),
    )
    head = FrameHead("b", "lab", "b.1-1", 7, False)

    async def arrive(raw: bytes) -> None:
        message: Any = SimpleNamespace(data=relay.encode(head, raw))
        await relay._take(message)

    await arrive(b"one")
    relay.release()
    assert delivered == []
    fresh[0] = True
    relay.release()
    assert delivered == [b"one"]
    await arrive(b"two")
    assert delivered == [b"one", b"two"]
    fresh[0] = False
    await arrive(b"three")
    now[0] += 1.5
    fresh[0] = True
    relay.release()
    assert (delivered, relay.dropped) == ([b"one", b"two"], 1)
