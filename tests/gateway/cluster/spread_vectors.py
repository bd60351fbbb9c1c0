"""The conformance vectors on three gateways of a cluster: each connection and each post goes to the next one.

When has everything arrived that a step causes? On one gateway the answer to a mark says so
(`moot.conformance.live_driver`). Here a mark says it of one gateway only, so in between all of them have to
have read the log up to where it was when the actor was answered, and the frames that went beside the log.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Mapping, Sequence
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from moot.config import load
from moot.conformance.blocking_client import GatewayAddress
from moot.conformance.live_driver import GatewayControl, LiveDriver, LiveSession
from moot.conformance.runner import ReceivedMessages, run_vector
from moot.conformance.vectors import Vector
from moot.gateway.app import Gateway
from moot.gateway.cluster.cluster_node import ClusterNode
from moot.gateway.cluster.cluster_shard import LogClock
from moot.protocol.operation import Json
from moot.space.state_hash import hash_state
from tests.gateway.cluster.conftest import PATIENT
from tests.waiting import HANG_SECONDS, bounded, until

NAMES = ("a", "b", "c")
# Of a second of the machine, so much passes in a vector.
_PACE = 0.01
T = TypeVar("T")


class SpreadAddress(GatewayAddress):
    """Several gateways: sockets go to one after the other, and so do requests."""

    def __init__(self, urls: Sequence[str], first: int) -> None:
        super().__init__(urls[0])
        self._first = first
        self._each = [GatewayAddress(url) for url in urls]
        # How many connections each has taken.
        self.sockets = [0] * len(urls)
        self._requests = 0

    def ask(self, method: str, path: str, **given: Any) -> tuple[HTTPConnection, HTTPResponse]:
        if path == "/ws":
            index = (self._first + sum(self.sockets)) % len(self._each)
            self.sockets[index] += 1
        else:
            self._requests += 1
            index = self._requests % len(self._each)
        return self._each[index].ask(method, path, **given)


class LaterClock:
    """The log's time, and what has passed besides from some time of the log on."""

    def __init__(self, log_clock: LogClock, jumps: list[tuple[float, float]], start: float) -> None:
        """From `start` on, seconds pass slowly: a vector means those of its steps, not the machine's."""
        self.log_clock = log_clock
        self._start = start
        # Shared by the three gateways: each is later from the same message of the log on.
        self._jumps = jumps

    def __call__(self) -> float:
        latest = self.log_clock.latest
        passed = max(0.0, latest - self._start)
        slowly = latest - passed + passed * _PACE
        return slowly + sum(seconds for after, seconds in self._jumps if latest > after)


class SpreadCluster:
    """Three gateways on a loop and thread of their own, with a space for each vector."""

    def __init__(self, folder: Path, settings: Mapping[str, Json], vectors: Mapping[str, Vector]) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateways")
        self._thread.start()
        self._vectors = vectors
        self.gateways: list[Gateway] = []
        try:
            for name in NAMES:
                self.gateways.append(
                    self._do(
                        self._start(
                            folder / name,
                            {**PATIENT, **settings, "gateway": name},
                        )
                    )
                )
        except BaseException:
            self.stop()
            raise

    async def _start(self, folder: Path, cluster: Json) -> Gateway:
        folder.mkdir(parents=True)
        file = folder / "moot.yaml"
        gateway = {"port": 0, "data": "data", "max_connections_per_address": 0, "cluster": cluster}
        spaces = {name: _with_tokens(name, vector.space) for name, vector in self._vectors.items()}
        file.write_text(json.dumps({"gateway": gateway, "spaces": spaces}), "utf-8")
        file.chmod(0o600)
        started = Gateway(load(file, environ={}))
        await started.start()
        return started

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(HANG_SECONDS)

    @property
    def _nodes(self) -> list[ClusterNode]:
        return [gateway.node for gateway in self.gateways if gateway.node is not None]

    def stop(self) -> None:
        try:
            for gateway in self.gateways:
                self._do(gateway.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(HANG_SECONDS)
            self._loop.close()

    def play(self, space: str, first: int = 0) -> list[int]:
        """Play the vector of this space, from this gateway on; returns how many sockets each of them held.

        Raises Failed, and AssertionError when the gateways do not have the same state at the end.
        """
        vector = self._vectors[space]
        address = SpreadAddress([gateway.url for gateway in self.gateways], first)
        tokens = {who: _token(space, who) for who in vector.space["participants"]}
        driver = SpreadDriver(self, address, tokens, space)
        try:
            run_vector(vector, driver)
            self.settle(space)
            hashes = self._do(self._hash_states(space))
            assert len(hashes) == 1, f"the state of {space} differs between gateways"
        finally:
            driver.close()
        return address.sockets

    # What a driver asks

    def control(self, space: str) -> GatewayControl:
        jumps: list[tuple[float, float]] = []
        start = self._do(self._latest(space))
        for gateway in self.gateways:
            journaled = gateway.directory.hosts[space].journaled
            assert isinstance(journaled.clock, LogClock)
            journaled.clock = LaterClock(journaled.clock, jumps, start)

        async def jump(seconds: float) -> None:
            jumps.append((await self._latest(space), seconds))

        def wait(seconds: float) -> None:
            self._do(jump(seconds))

        async def tell_health(able: bool) -> None:
            for gateway in self.gateways:
                on_health = gateway.directory.hosts[space].journal.on_health
                assert on_health is not None
                on_health(able)

        def journal(able: bool) -> None:
            self._do(tell_health(able))

        return GatewayControl(wait, journal)

    async def _latest(self, space: str) -> float:
        return max(node.shard_of(space).clock.latest for node in self._nodes)

    def settle(self, space: str) -> None:
        """Every gateway has applied whatever any of them had taken in."""
        self._do(self._settle(space))

    async def _settle(self, space: str) -> None:
        async with bounded():
            await asyncio.gather(*(_pass_through_log(node, space) for node in self._nodes))
        logs = [node.shard_of(space).log for node in self._nodes]
        end = max(log.position for log in logs)
        await until(lambda: all(log.position >= end for log in logs))

    def settle_frames(self) -> None:
        """Frames that a gateway had taken in have come to the others."""
        self._do(self._settle_frames())

    async def _settle_frames(self) -> None:
        await until(lambda: all(node.frames._outgoing.empty() for node in self._nodes))
        clients = [node.connection.client for node in self._nodes if node.connection is not None]
        # First NATS has them, then the gateways: its answer comes behind what it sent before.
        for client in (*clients, *clients):
            await client.flush(timeout=int(HANG_SECONDS))
        await until(
            lambda: not any(each.pending_msgs for client in clients for each in client._subs.values())
        )
        relays = [node.frames._relay for node in self._nodes]
        await until(lambda: not any(relay is not None and relay._held for relay in relays))

    async def _hash_states(self, space: str) -> set[str]:
        hosts = [gateway.directory.hosts[space] for gateway in self.gateways]
        return {hash_state(host.space.save()) for host in hosts}


async def _pass_through_log(node: ClusterNode, space: str) -> None:
    """An input that does nothing comes back: what this gateway wrote before is in the log."""
    done = asyncio.get_running_loop().create_future()
    node.submit(node.shard_of(space), space, "expire", {}, done.set_result)
    await done


class SpreadDriver(LiveDriver):
    """One space of three gateways."""

    def __init__(
        self, cluster: SpreadCluster, address: SpreadAddress, tokens: Mapping[str, str], space: str
    ) -> None:
        super().__init__(address, tokens, space=space, control=cluster.control(space))
        self._cluster = cluster
        self._name = space
        self._has_frames = False

    def frame(self, name: str, text: str) -> ReceivedMessages:
        self._has_frames = True
        return super().frame(name, text)

    def _settle(self, actor: LiveSession | None) -> ReceivedMessages:
        if actor is not None:
            self._await_mark(actor, self._send_mark(actor))
        self._cluster.settle(self._name)
        if self._has_frames:
            self._cluster.settle_frames()
        return super()._settle(actor)


def _token(space: str, who: str) -> str:
    return f"{space}.{who}.and-something-long"


def _with_tokens(space: str, settings: Json) -> Json:
    participants = {}
    for who, entry in settings["participants"].items():
        section = {"capabilities": entry} if isinstance(entry, list) else dict(entry)
        participants[who] = section | {"tokens": [_token(space, who)]}
    return settings | {"participants": participants}


def needs_own_journal(vector: Vector) -> bool:
    """Whether a story has its gateway refuse what it cannot write: in a cluster the log keeps it."""
    return any(step.journal is False for step in vector.steps) and any(
        step.refused == "unavailable" for step in vector.steps
    )
