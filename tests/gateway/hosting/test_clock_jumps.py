"""A wall clock that is set an hour ahead or back under a running gateway changes no deadline and no poll."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from moot.protocol.operation import Json
from moot.store.journal_reader import read_records, verify
from tests.gateway.fault_shim import FaultShim
from tests.gateway.running_gateway import (
    CALL,
    Client,
    fields,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import served

PEOPLE = participants(alice=["*"], agent=["chat", "mcp/proposal", "mcp/request"], tool=["chat"])
HOUR = 3_600
# Long beside what a test takes on a busy machine, short beside an hour.
LONG_SECONDS = 1_800
SHORT_SECONDS = 1.0


def config(folder: Path, **limits: Json) -> Path:
    rules: dict[str, Json] = {
        "limits": {"proposal_seconds": LONG_SECONDS, "messages_per_second": 20} | limits
    }
    return write_config(folder, gateway_settings({"lab": space_settings(PEOPLE, **rules)}))


def set_clock(shim: FaultShim, seconds: float) -> None:
    shim.set(clock_shift=int(seconds * 1e9))


async def pause(alice: Client, seconds: float, who: str = "agent") -> None:
    payload: Json = {"timeout_seconds": seconds, "reason": "wait"}
    assert await alice.refused("participant/pause", payload, to=[who]) is None


async def retry_after(client: Client) -> float:
    """What a paused member is told, in seconds."""
    answer: Any = await client.ask("chat", {"text": "may I"})
    assert answer["payload"]["error"] == "participant_paused", answer
    return float(answer["payload"]["retry_after"])


@pytest.mark.parametrize("way", ["compiled", "pure"])
@pytest.mark.parametrize("hours", [1, -1])
async def test_nothing_ends_early_and_nothing_is_extended(tmp_path: Path, hours: int, way: str) -> None:
    shim = FaultShim(tmp_path)
    environ = shim.environ | ({"MOOT_PURE_PYTHON": "1"} if way == "pure" else {})
    async with served(config(tmp_path), environ=environ) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        assert await agent.refused("mcp/proposal", CALL, id="p1", to=["tool"]) is None
        before = await gateway.poll("alice")
        await pause(alice, LONG_SECONDS)
        left = await retry_after(agent)
        set_clock(shim, hours * HOUR)
        assert 0 < await retry_after(agent) <= left
        # Sent by the fast path too, where there is one, and at the rate that the space allows.
        for number in range(10):
            await alice.say("chat", {"text": str(number)}, id=f"c{number}")
        assert await alice.refused("chat", id="last") is None
        # Whoever polls misses nothing, by the cursor or by the wall clock of before.
        for since in (before["next"], repr(time.time() + hours * HOUR - 60)):
            received = [each["id"] for each in (await gateway.poll("alice", since=since))["messages"]]
            assert received[-11:] == [*(f"c{number}" for number in range(10)), "last"], (since, received)
        # The proposal is as open as before, and so is a pause that should end soon.
        assert await agent.refused("chat") == "participant_paused"
        assert await alice.refused("mcp/request", CALL, id="r1", to=["tool"], about=["p1"]) in (
            None,
            "target_absent",
            "target_not_found",
        )
        assert await alice.refused("participant/resume", {}, to=["agent"]) is None
        await pause(alice, SHORT_SECONDS)
        start = time.monotonic()
        while await agent.refused("chat") == "participant_paused":
            assert time.monotonic() - start < 60, "the pause does not end"
    times = [record.time for record in read_records(tmp_path / "data" / "spaces" / "lab" / "journal")]
    assert times == sorted(times)
    assert times[-1] - times[0] < LONG_SECONDS


async def test_a_clock_that_went_back_over_a_restart_gives_no_time_back(tmp_path: Path) -> None:
    shim = FaultShim(tmp_path)
    file = config(tmp_path)
    async with served(file, environ=shim.environ) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        await pause(alice, LONG_SECONDS)
        left = await retry_after(agent)
    set_clock(shim, -HOUR)
    async with served(file, environ=shim.environ) as gateway:
        agent = await gateway.join("agent")
        assert 0 < await retry_after(agent) <= left
        assert (await gateway.post("alice", fields("chat"))).status_code == 200
        metrics = (await gateway.http.get("/metrics")).text
        (ahead,) = [
            line for line in metrics.splitlines() if line.startswith("moot_wall_clock_ahead_seconds{")
        ]
        assert float(ahead.split()[-1]) < -HOUR / 2
        assert "the wall clock was set" in gateway.stderr()
    journal = tmp_path / "data" / "spaces" / "lab" / "journal"
    assert verify(journal).ok
    records = list(read_records(journal))
    assert [record.time for record in records] == sorted(record.time for record in records)
    (clock,) = [record for record in records if record.kind == "clock"]
    assert clock.fields["wall"] < clock.time - HOUR / 2


async def test_without_a_journal_a_clock_that_went_back_gives_no_time_back_either(tmp_path: Path) -> None:
    shim = FaultShim(tmp_path)
    spaces = {"lab": space_settings(PEOPLE)}
    file = write_config(tmp_path, gateway_settings(spaces, journal="off"))
    async with served(file, environ=shim.environ) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        await pause(alice, LONG_SECONDS)
        left = await retry_after(agent)
    set_clock(shim, -HOUR)
    async with served(file, environ=shim.environ) as gateway:
        agent = await gateway.join("agent")
        assert 0 < await retry_after(agent) <= left


async def test_what_was_granted_for_a_time_or_a_use_does_not_come_back_with_a_restart(tmp_path: Path) -> None:
    """The gateway is killed, and starts with a clock that tells nothing about how long it was stopped."""
    shim = FaultShim(tmp_path)
    people = participants(alice=["*"], agent=["chat"], tool=["mcp/response"])
    file = write_config(tmp_path, gateway_settings({"lab": space_settings(people)}))
    read = {"kind": "mcp/request", "payload": {"method": "tools/call"}}
    notes = {"kind": "vendor/note"}
    async with served(file, environ=shim.environ) as gateway:
        alice, agent, _tool = [await gateway.join(name) for name in ("alice", "agent", "tool")]
        for id, right, limit in (
            ("used", read, {"max_uses": 1}),
            ("timed", notes, {"expires_in_seconds": LONG_SECONDS}),
        ):
            grant: Json = {"recipient": "agent", "capabilities": [right], **limit}
            assert await alice.refused("capability/grant", grant, id=id) is None
        assert await agent.refused("mcp/request", CALL, to=["tool"]) is None
        assert await agent.refused("vendor/note", {}) is None
        await gateway.close()
        await gateway.end(signal.SIGKILL)
    async with served(file, environ=shim.environ) as gateway:
        alice, agent, _tool = [await gateway.join(name) for name in ("alice", "agent", "tool")]
        assert await agent.refused("mcp/request", CALL, to=["tool"]) == "capability_violation"
        assert await agent.refused("vendor/note", {}) is None
    set_clock(shim, -HOUR)
    async with served(file, environ=shim.environ) as gateway:
        agent = await gateway.join("agent")
        assert await agent.refused("vendor/note", {}) == "capability_violation"
    journal = tmp_path / "data" / "spaces" / "lab" / "journal"
    assert [r.fields["clock_lost"] for r in read_records(journal) if r.kind == "restart"] == [False, True]


async def test_uses_are_counted_on_the_fast_path_too(tmp_path: Path) -> None:
    people = participants(alice=["*"], agent=["mcp/proposal"])
    async with running_gateway(tmp_path, people) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        grant: Json = {"recipient": "agent", "capabilities": [{"kind": "chat"}], "max_uses": 3}
        assert await alice.refused("capability/grant", grant) is None
        answer = [await agent.refused("chat", {"text": str(number)}) for number in range(5)]
        assert answer == [None, None, None, "capability_violation", "capability_violation"]


async def test_a_post_uses_a_grant_as_a_socket_does(tmp_path: Path) -> None:
    people = participants(alice=["*"], agent=["chat"])
    async with running_gateway(tmp_path, people) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        grant: Json = {"recipient": "agent", "capabilities": [{"kind": "vendor/note"}], "max_uses": 2}
        assert await alice.refused("capability/grant", grant) is None
        assert (await gateway.post("agent", fields("vendor/note"))).status_code == 200
        assert await agent.refused("vendor/note", {}) is None
        refused = await gateway.post("agent", fields("vendor/note"))
        assert refused.json()["error"] == "capability_violation"


async def test_a_grant_ends_on_time_and_everybody_hears_it(tmp_path: Path) -> None:
    people = participants(alice=["*"], agent=["chat"], other=["chat"])
    async with running_gateway(tmp_path, people) as gateway:
        alice, agent, other = [await gateway.join(name) for name in ("alice", "agent", "other")]
        grant: Json = {"recipient": "agent", "capabilities": [{"kind": "vendor/note"}]}
        limits: Json = {"expires_in_seconds": 0.2}
        assert await alice.refused("capability/grant", grant | limits, id="g1") is None
        answer = await other.hear("capability/revoke")
        assert (answer["from"], answer["payload"]["reason"]) == ("system:gateway", "expired")
        assert await agent.refused("vendor/note", {}) == "capability_violation"
