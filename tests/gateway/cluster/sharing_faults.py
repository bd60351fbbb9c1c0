"""What goes wrong in the rounds of `sharing_soak`: gateways end, come and go while shards move."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from contextlib import suppress
from typing import Final

import httpx
import websockets

from moot.protocol.operation import Json
from tests.gateway.cluster.cluster_faults import (
    Fault,
    kill_nats,
    partition,
    stop_gateway,
    stop_nats,
    talker,
)
from tests.gateway.cluster.cluster_rounds import NAMES, REVOCABLE, ClusterRounds
from tests.gateway.running_gateway import Closed

# The gateway that comes and goes.
GUEST: Final = "d"
# Until one that was killed or stopped is started again: at once, before others are at their new shares, and
# behind that.
_AWAY_SECONDS: Final = (0.0, 1.0, 4.0, 12.0)
_FLOOD: Final = 40


async def serving(rounds: ClusterRounds) -> str:
    """A gateway that serves the space, of those that are always there; any if none says so."""
    found = []
    for name in NAMES:
        with suppress(httpx.HTTPError):
            answer = await rounds.gateways[name].http.get("/readyz", params={"space": "lab"})
            if answer.status_code == 200:
                found.append(name)
    return rounds.random.choice(found or NAMES)


async def kill_serving(rounds: ClusterRounds) -> None:
    name = await serving(rounds) if rounds.random.random() < 0.8 else rounds.random.choice(NAMES)
    rounds.roaming.note_kill(rounds.urls[name])
    await rounds.gateways[name].end(signal.SIGKILL)
    await asyncio.sleep(rounds.random.choice(_AWAY_SECONDS))
    await rounds.start(name)
    await rounds.roaming.forget_kill()


async def stop_serving(rounds: ClusterRounds) -> None:
    """One ends as it should, and comes again."""
    name = await serving(rounds)
    code, _ = await rounds.gateways[name].end(signal.SIGTERM)
    assert code == 0, rounds.gateways[name].stderr()
    await asyncio.sleep(rounds.random.choice(_AWAY_SECONDS))
    await rounds.start(name)


async def come_or_go(rounds: ClusterRounds) -> None:
    """One more gateway joins, or leaves for good."""
    if GUEST in rounds.gateways:
        code, _ = await rounds.gateways.pop(GUEST).end(signal.SIGTERM)
        assert code == 0
        return
    await rounds.start(GUEST)
    # Until the others have left its share to it, or shortly before.
    await asyncio.sleep(rounds.random.uniform(0, 8))


async def kill_while_one_comes(rounds: ClusterRounds) -> None:
    """Of a gateway that comes and one that serves, one is killed while shards move."""
    if GUEST in rounds.gateways:
        await rounds.gateways.pop(GUEST).end(signal.SIGTERM)
    await rounds.start(GUEST)
    await asyncio.sleep(rounds.random.uniform(0, 6))
    if rounds.random.random() < 0.5:
        await rounds.gateways.pop(GUEST).end(signal.SIGKILL)
        return
    name = await serving(rounds)
    await rounds.gateways[name].end(signal.SIGKILL)
    await rounds.start(name)


async def flood_and_stop(rounds: ClusterRounds) -> None:
    """One ends while many messages wait to be written."""
    name = await serving(rounds)
    flood = asyncio.gather(*(rounds.talk("bob", NAMES.index(name), 5) for _ in range(_FLOOD)))
    await asyncio.sleep(rounds.random.uniform(0, 0.2))
    await rounds.gateways[name].end(signal.SIGTERM)
    await rounds.start(name)
    await flood


async def revoke_while_moving(rounds: ClusterRounds) -> None:
    """Somebody is removed while the gateway that serves them ends; wherever they come back, they are out."""
    who = f"eve{len(rounds.revoked_at)}"
    assert len(rounds.revoked_at) < REVOCABLE
    name = await serving(rounds)
    eve, talking = await talker(rounds, rounds.random.choice(NAMES), who)
    number = rounds.random.choice((signal.SIGTERM, signal.SIGKILL))
    ending = asyncio.create_task(rounds.gateways[name].end(number))
    await asyncio.sleep(rounds.random.uniform(0, 0.5))
    kick: dict[str, Json] = {"id": f"kick-{who}", "kind": "space/kick", "payload": {"participant_id": who}}
    assert await rounds.post("alice", kick, rounds.random.randrange(len(NAMES))) in ("", "duplicate_id")
    rounds.revoked_at[who] = time.monotonic()
    await ending
    await eve.closed()
    await talking
    await rounds.start(name)
    said: dict[str, Json] = {"id": f"behind-{who}", "kind": "chat", "payload": {"text": who}}
    for other in itertools.cycle(NAMES):
        with suppress(httpx.HTTPError, OSError, Closed, websockets.WebSocketException):
            answer = await rounds.gateways[other].post(who, said, space="lab")
            if answer.status_code in (401, 403):
                return
            assert answer.status_code == 503, answer.text
        await asyncio.sleep(0.1)


# One cycle: ten of them are 100 kills of gateways, 30 times that one comes or goes, 30 kills of NATS servers
# and 30 partitions and pauses.
ALONE: dict[str, tuple[Fault, int]] = {
    "gateway killed": (kill_serving, 9),
    "gateway killed while one comes": (kill_while_one_comes, 1),
    "gateway stopped and started": (stop_serving, 1),
    "gateway comes or goes": (come_or_go, 1),
    "gateway stopped in a flood": (flood_and_stop, 1),
    "NATS killed": (kill_nats, 3),
    "gateway paused": (stop_gateway, 1),
    "NATS paused": (stop_nats, 1),
    "revoked while the shard moves": (revoke_while_moving, 1),
}
ON_MACHINES: dict[str, tuple[Fault, int]] = {"partition": (partition, 1)}
