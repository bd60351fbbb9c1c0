"""The conformance vectors over real sockets, judged exactly as on the pure space.

All of them run: there are no exclusions. Time and disk of a space are in the test's hands where a vector asks
for them; everything else goes over loopback.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from moot.config import load
from moot.config.configuration import Configuration
from moot.conformance.blocking_client import GatewayAddress
from moot.conformance.live_driver import GatewayControl, LiveDriver
from moot.conformance.runner import Failed, run_vector
from moot.conformance.vectors import Vector, VectorStep, read_vectors
from moot.errors import UsageError
from moot.gateway.app import Gateway
from moot.protocol.operation import Json
from tests.conformance_vectors import FILES, play_all
from tests.waiting import HANG_SECONDS

# Where a close waits behind what is not on disk yet.
WAITING = ("31-invites-and-kicks.yaml", "33-control.yaml")
T = TypeVar("T")


class Clock:
    """A space's time, which stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class Running:
    """A gateway on a loop and thread of its own; spaces are opened as vectors ask for them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway")
        self._thread.start()
        self.gateway = Gateway(self._read("first", {"participants": {}}))
        self._do(self.gateway.start())
        self.address = GatewayAddress(self.gateway.url)

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def _call(self, act: Callable[..., None], *arguments: Json) -> None:
        async def acting() -> None:
            act(*arguments)

        self._do(acting())

    def _read(self, name: str, space: Json) -> Configuration:
        file = self._folder / f"{name}.yaml"
        gateway = {"port": 0, "data": "data", "max_connections_per_address": 0}
        file.write_text(json.dumps({"gateway": gateway, "spaces": {name: space}}), "utf-8")
        file.chmod(0o600)
        return load(file, environ={})

    def driver(self, name: str, settings: Json) -> LiveDriver:
        """A new space with exactly these settings, and a token for each of its participants."""
        tokens = {who: f"{name}.{who}.and-something-long" for who in settings["participants"]}
        participants = {}
        for who, entry in settings["participants"].items():
            section = {"capabilities": entry} if isinstance(entry, list) else dict(entry)
            participants[who] = section | {"tokens": [tokens[who]]}
        configuration = self._read(name, settings | {"participants": participants})
        assert self.gateway._space_factory is not None
        self._do(self.gateway._space_factory.open(name, configuration.spaces[name]))
        return LiveDriver(self.address, tokens, space=name, control=self._hands(name))

    def _hands(self, name: str) -> GatewayControl:
        host = self.gateway.directory.hosts[name]
        clock = host.journaled.clock = Clock()

        def wait(seconds: float) -> None:
            clock.now += seconds
            self._call(host.journaled.expire_due)

        def journal(able: bool) -> None:
            assert host.journal.on_health is not None
            self._call(host.journal.on_health, able)

        return GatewayControl(wait, journal)

    def stop(self) -> None:
        self._do(self.gateway.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_SECONDS)
        self._loop.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    gateway = Running(tmp_path_factory.mktemp("gateway"))
    yield gateway
    gateway.stop()


def play(vector: Vector, driver: LiveDriver) -> None:
    try:
        run_vector(vector, driver)
    finally:
        driver.close()


@pytest.mark.parametrize("file", FILES)
@pytest.mark.requirement("MEW-3.6-4", "MEW-3.6.4-2", "MEW-3.6.4-9", "MEW-3.6.4-10", "MEW-3.6.6-4")
@pytest.mark.requirement("MEW-5.2-1", "MEW-8.1-1", "MCPX-5.2-1", "MCPX-8.1-1")
def test_vector_over_a_socket(running: Running, file: str) -> None:
    """Each vector on a space of its own of one gateway, every member on sockets of its own."""
    name = f"v{file[:2]}"
    play_all(file, lambda number, vector: play(vector, running.driver(f"{name}-{number}", vector.space)))


@pytest.mark.parametrize("file", WAITING)
def test_vector_over_a_socket_when_everything_waits_for_the_disk(running: Running, file: str) -> None:
    """D-41, `journal: strict`: order and closings are the same, only later."""

    def play_strict(number: int, vector: Vector) -> None:
        play(vector, running.driver(f"s{file[:2]}-{number}", vector.space | {"journal": "strict"}))

    play_all(file, play_strict)


SPACE: Json = {"participants": {"alice": ["*"], "bob": ["chat"]}}
CHAT: Json = {"by": "bob", "send": {"id": "c1", "kind": "chat", "payload": {"text": "hi"}}}


CLAIMS: list[Json] = [
    {"refused": "capability_violation"},
    {"relayed": ["alice"]},
    {"relayed": True, "hear": {"alice": [{"kind": "chat"}]}},
    {"hear": {"others": [{"kind": "chat", "payload": {"text": "ho"}}]}},
    {"relayed": True, "hear": {"carol": []}},
    {},
]


@pytest.mark.parametrize(("number", "claim"), list(enumerate(CLAIMS)))
def test_a_vector_that_says_something_false_fails_over_a_socket_too(
    running: Running, number: int, claim: Json
) -> None:
    """Nothing is missed because it had not arrived yet."""
    text = json.dumps([{"name": "x", "rows": [], "space": SPACE, "steps": [CHAT | claim]}])
    (vector,) = read_vectors(text, "inline")
    with pytest.raises(Failed):
        play(vector, running.driver(f"false{number}", SPACE))


def test_raw_text_that_no_text_message_can_hold_is_sent_as_bytes(running: Running) -> None:
    step = VectorStep(by="bob", raw='{"kind":"chat","payload":{"text":"\ud800"}}', refused="invalid_json")
    play(Vector("half a character", [], [step], SPACE), running.driver("bytes", SPACE))


def test_the_clock_of_a_gateway_elsewhere_is_not_in_our_hands(running: Running) -> None:
    driver = LiveDriver(running.address, {})
    with pytest.raises(UsageError, match="hands"):
        driver.wait(1)
    with pytest.raises(UsageError, match="hands"):
        driver.journal(False)
