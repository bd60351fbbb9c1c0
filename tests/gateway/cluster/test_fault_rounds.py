"""A few of the faults of `make soak`, each once: a partition, a revocation during it, clocks, a gap."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moot.gateway.cluster.log_applier import CLOCK_TOLERANCE_SECONDS
from moot.gateway.cluster.nats import log_reader
from moot.gateway.cluster.nats.log_reader import LogReader
from moot.protocol.operation import Json
from moot.space.proposals.proposal_ledger import ProposalLedger
from moot.space.state_hash import hash_state
from tests.gateway.cluster import shifted_log
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.histories import executions_of
from tests.gateway.cluster.nats_proxy import proxied
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import CALL, Client, LocalGateway, about_of, participants
from tests.waiting import until

QUICK: dict[str, Json] = {"heartbeat_seconds": 0.1, "gone_seconds": 60, "frame_stale_seconds": 0.5}
HOUR = 3_600


async def test_who_is_revoked_while_its_gateway_is_cut_off_is_not_heard_any_more(
    nats: NatsServers, start: StartGateway
) -> None:
    async with (
        proxied(nats) as (proxy, address),
        start("a", cluster=QUICK) as a,
        start("b", cluster=QUICK | {"servers": [address]}) as b,
    ):
        alice, bob, carol = await a.join("alice"), await b.join("bob"), await b.join("carol")
        await bob.say("stream/request", {"direction": "upload"})
        stream = (await bob.hear("stream/open"))["payload"]["stream_id"]
        await carol.hear("stream/open")
        await bob.ask("chat", {"text": "before"})
        proxy.part()
        await alice.ask("space/kick", {"participant_id": "bob"})
        await bob.say("chat", {"text": "after"})
        assert b.gateway.node is not None
        shared = b.gateway.node.shards[0].log
        await until(lambda: shared.age_seconds > 0.5)
        await bob.send(f"#{stream}#after")
        assert (await bob.hear("system/error"))["payload"]["error"] == "unavailable"
        proxy.heal()
        assert (await bob.closed())[0] == 4003
        for client in (alice, carol):
            await client.fence()
            assert [each["payload"]["text"] for each in _envelopes(client, "chat")] == ["before"]
            assert f"#{stream}#after" not in client.received


async def test_one_proposal_is_carried_out_once_whatever_both_sides_of_a_partition_decide(
    nats: NatsServers, start: StartGateway
) -> None:
    async with (
        proxied(nats) as (proxy, address),
        start("a", cluster=QUICK) as a,
        start(
            "b", cluster=QUICK | {"servers": [address], "unavailable_seconds": 200, "stale_seconds": 300}
        ) as b,
    ):
        assert await _executions(a, b, proxy.part, proxy.heal) == {"p": 1}


async def test_the_check_sees_a_build_that_carries_a_proposal_out_twice(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProposalLedger, "_close", lambda *_: None)
    async with start("a", cluster=QUICK) as a, start("b", cluster=QUICK) as b:
        assert await _executions(a, b, _nothing, _nothing) == {"p": 2}


async def test_clocks_of_nats_that_are_set_change_no_order_and_let_no_proposal_run_twice(
    start: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "_place_of", log_reader._place_of)
    shifts = tmp_path / "shifts"
    shifts.touch()
    shifted_log.shift_log(shifts)
    async with start("a", cluster=QUICK) as a, start("b", cluster=QUICK) as b:
        alice, bob = await a.join("alice"), await b.join("bob")
        clock = b.gateway.directory.hosts["lab"].journaled.clock
        for number, hours in enumerate((1_000, -1_000, 1)):
            before = clock()
            with shifts.open("a", encoding="ascii") as file:
                file.write(f"{time.time() + 0.5:.6f} {hours * HOUR}\n")
            await until(lambda: clock() > before + 1)  # noqa: B023  # it is waited for
            await alice.ask("mcp/proposal", CALL, id=f"p{number}", to=["alice"])
            await bob.hear("mcp/proposal")
            await asyncio.gather(
                alice.ask("mcp/request", CALL, to=["alice"], about=[f"p{number}"]),
                bob.ask("mcp/request", CALL, to=["alice"], about=[f"p{number}"]),
            )
            assert clock() > before, "the time of the log never goes back"
            assert clock() < time.time() + CLOCK_TOLERANCE_SECONDS, "nor does it run ahead"
        await bob.fence()
        await alice.fence()
        ran = executions_of(_envelopes(alice, "mcp/request"))
        assert ran == {"p0": 1, "p1": 1, "p2": 1}
        states = [each.gateway.directory.hosts["lab"].space for each in (a, b)]
        await until(lambda: hash_state(states[0].save()) == hash_state(states[1].save()))


async def test_a_clock_of_nats_that_is_far_ahead_for_a_while_ends_nothing(
    start: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was granted for an hour and proposed a moment ago is still there, and the log's time is right."""
    monkeypatch.setattr(log_reader, "_place_of", log_reader._place_of)
    shifts = tmp_path / "shifts"
    shifts.touch()
    shifted_log.shift_log(shifts)
    people = participants(alice=["*"], bob=["mcp/proposal"])
    async with start("a", people, cluster=QUICK) as a, start("b", people, cluster=QUICK) as b:
        alice, bob = await a.join("alice"), await b.join("bob")
        limited: Json = {"recipient": "bob", "capabilities": [{"kind": "chat"}], "expires_in_seconds": 3600}
        assert await alice.refused("capability/grant", limited) is None
        assert await bob.refused("mcp/proposal", CALL, id="p", to=["alice"]) is None
        space = b.gateway.directory.hosts["lab"]
        before = space.journaled.clock()
        shifts.write_text(f"{time.time():.6f} {240 * HOUR}\n", "ascii")
        await until(lambda: space.journaled.clock() > before + 3)
        with shifts.open("a", encoding="ascii") as file:
            file.write(f"{time.time() + 0.5:.6f} 0\n")
        assert await bob.refused("chat", {"text": "still"}) is None
        assert [each.id for each in space.space.state.ledger.all_open()] == ["p"]
        assert space.journaled.clock() < time.time() + CLOCK_TOLERANCE_SECONDS


async def test_a_reader_that_missed_a_message_reads_it_again_before_it_applies_the_next(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What NATS' client drops when a gateway is slow is told to nobody."""
    take, lost = LogReader._take, list[bytes]()

    def lossy(self: LogReader, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        if b"drop me" in data and len(lost) < 2:
            lost.append(data)
            return
        take(self, subject, reply, data, headers)

    monkeypatch.setattr(LogReader, "_take", lossy)
    async with start("a", cluster=QUICK) as a, start("b", cluster=QUICK) as b:
        alice, bob = await a.join("alice"), await b.join("bob")
        texts = ["one", "drop me", "two", "drop me too", "three"]
        for text in texts:
            await alice.say("chat", {"text": text})
        for client in (alice, bob):
            await until(lambda: len(_envelopes(client, "chat")) == 5)  # noqa: B023  # it is waited for
            assert [each["payload"]["text"] for each in _envelopes(client, "chat")] == texts
    assert len(lost) == 2


async def _executions(
    a: LocalGateway, b: LocalGateway, before: Callable[[], None], after: Callable[[], None]
) -> dict[str, int]:
    """How often carol got the call that people on two gateways carry out at once."""
    alice, bob, carol = await a.join("alice"), await b.join("bob"), await a.join("carol")
    await alice.ask("mcp/proposal", CALL, id="p", to=["carol"])
    await bob.hear("mcp/proposal")
    before()
    id = await bob.say("mcp/request", CALL, to=["carol"], about=["p"])
    await alice.ask("mcp/request", CALL, to=["carol"], about=["p"])
    after()
    await bob.hear(lambda message: message["id"] == id or id in about_of(message))
    await carol.fence()
    return executions_of(_envelopes(carol, "mcp/request"))


def _envelopes(client: Client, kind: str) -> list[dict[str, Any]]:
    return [each for each in client.received if isinstance(each, dict) and each["kind"] == kind]


def _nothing() -> None:
    """No partition."""
