"""`/metrics` of a gateway, read by Prometheus' own parser: what is there, and that the figures are right."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from moot import __version__
from moot.gateway.gateway_metrics import GATEWAY_METRICS
from moot.gateway.hosting.fast_path import COMPILED
from moot.store.file_journal import TIMED_WRITES
from tests.gateway.running_gateway import (
    CALL,
    GatewayUnderTest,
    gateway_settings,
    healthy,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import served
from tests.waiting import HANG_SECONDS, until_told

PEOPLE = participants(
    alice=["*"], agent=["mcp/proposal", "mcp/withdraw", "chat"], files=["mcp/response", "chat"]
)


async def families(gateway: GatewayUnderTest) -> Mapping[str, Metric]:
    """By the name that stands in the text: the parser takes `_total` away."""
    answer = await gateway.http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = list(text_string_to_metric_families(answer.text))
    return {each.name + ("_total" if each.type == "counter" else ""): each for each in found}


async def value(gateway: GatewayUnderTest, name: str, **labels: str) -> float:
    """One sample; a histogram's by `_count`, `_sum` or `_bucket` behind its name."""
    values = [
        sample.value
        for family in (await families(gateway)).values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(values) == 1, (name, labels, values)
    return values[0]


async def test_everything_that_is_described_is_exposed_and_nothing_else(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        agent = await gateway.join("agent")
        assert await agent.refused("mcp/request", CALL) == "capability_violation"
        found = await families(gateway)
        described = {each.name: each for each in GATEWAY_METRICS}
        assert found.keys() == described.keys()
        for name, family in found.items():
            assert (family.type, family.documentation) == (described[name].type, described[name].help)
            own = {label for sample in family.samples for label in sample.labels} - {"le"}
            assert own == set(described[name].labels), name
        build = {"version": __version__, "python": platform.python_version()}
        build["compiled"] = "true" if COMPILED else "false"
        assert await value(gateway, "moot_build_info", **build) == 1


async def test_proposals_are_counted_while_open_and_timed_when_decided(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, rules={"limits": {"proposal_seconds": 1_000}}) as gateway:
        host = gateway.gateway.directory.hosts["lab"]
        now = host.journaled.clock()
        host.journaled.clock = lambda: now
        alice, agent, _ = (
            await gateway.join("alice"),
            await gateway.join("agent"),
            await gateway.join("files"),
        )

        async def seconds(outcome: str) -> tuple[float, float]:
            labels = {"space": "lab", "outcome": outcome}
            count = await value(gateway, "moot_proposal_decision_seconds_count", **labels)
            return count, round(await value(gateway, "moot_proposal_decision_seconds_sum", **labels), 3)

        for id in ("p1", "p2", "p3", "p4"):
            assert await agent.refused("mcp/proposal", CALL, id=id, to=["files"]) is None
        assert await value(gateway, "moot_open_proposals", space="lab") == 4
        now += 7
        assert await alice.refused("mcp/request", CALL, to=["files"], about=["p1"]) is None
        assert await seconds("fulfilled") == (1, 7)
        labels = {"space": "lab", "outcome": "fulfilled"}
        assert await value(gateway, "moot_proposal_decision_seconds_bucket", le="5.0", **labels) == 0
        assert await value(gateway, "moot_proposal_decision_seconds_bucket", le="15.0", **labels) == 1
        now += 3
        for _ in range(2):
            # Who says no twice has said it once.
            assert await alice.refused("mcp/reject", about=["p2"]) is None
        assert await seconds("rejected") == (1, 10)
        # A rejection is feedback: it stays open.
        assert await value(gateway, "moot_open_proposals", space="lab") == 3
        assert await agent.refused("mcp/withdraw", about=["p3"]) is None
        assert await seconds("withdrawn") == (1, 10)
        now += 1_000
        host.journaled.expire_due()
        assert await seconds("expired") == (2, 2_020)
        assert await value(gateway, "moot_open_proposals", space="lab") == 0


async def test_what_was_decided_before_a_restart_is_not_counted_again_and_what_was_open_keeps_its_time(
    tmp_path: Path,
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, agent, _ = (
            await gateway.join("alice"),
            await gateway.join("agent"),
            await gateway.join("files"),
        )
        for id in ("p1", "p2"):
            assert await agent.refused("mcp/proposal", CALL, id=id, to=["files"]) is None
        assert await alice.refused("mcp/request", CALL, to=["files"], about=["p1"]) is None
        await alice.fence()
    async with running_gateway(tmp_path, file=tmp_path / "moot.yaml") as gateway:
        labels = {"space": "lab", "outcome": "fulfilled"}
        assert await value(gateway, "moot_proposal_decision_seconds_count", **labels) == 0
        assert await value(gateway, "moot_open_proposals", space="lab") == 1
        host = gateway.gateway.directory.hosts["lab"]
        proposal = host.space.state.ledger.get("p2")
        assert proposal is not None
        later = proposal.proposed_at + 100
        host.journaled.clock = lambda: later
        alice, _ = await gateway.join("alice"), await gateway.join("files")
        assert await alice.refused("mcp/request", CALL, to=["files"], about=["p2"]) is None
        assert round(await value(gateway, "moot_proposal_decision_seconds_sum", **labels), 3) == 100


async def test_the_journal_is_timed_by_write_and_by_fsync(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        before = await value(gateway, "moot_journal_write_seconds_count", space="lab")
        for _ in range(TIMED_WRITES):
            # HTTP 200 is said when it is on disk, so that each of them was written by itself.
            assert (await gateway.post("alice", {"kind": "chat"})).status_code == 200
        assert await value(gateway, "moot_journal_write_seconds_count", space="lab") > before
        assert await value(gateway, "moot_journal_sync_seconds_count", space="lab") > 0
        assert 0 < await value(gateway, "moot_journal_sync_seconds_sum", space="lab") < HANG_SECONDS
        assert await value(gateway, "moot_journal_writable", space="lab") == 1


async def test_an_fsync_is_counted_though_nobody_waited_for_it(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        agent = await gateway.join("agent")

        async def count() -> float:
            return await value(gateway, "moot_journal_sync_seconds_count", space="lab")

        await until_told(lambda: _more_than(count, 0))
        before = await count()
        assert await agent.refused("chat", {"text": "hello"}) is None
        await until_told(lambda: _more_than(count, before))


async def _more_than(count: Callable[[], Awaitable[float]], before: float) -> bool:
    return await count() > before


async def test_a_journal_that_cannot_be_written_is_zero(tmp_path: Path) -> None:
    file = write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}))
    async with served(file) as gateway:
        segment = max((tmp_path / "data" / "spaces" / "lab" / "journal").glob("*.jsonl"))
        gateway.limit_file_size(segment.stat().st_size)
        await gateway.post("alice", {"kind": "chat"})
        await healthy(gateway, "degraded")
        assert await value(gateway, "moot_journal_writable", space="lab") == 0


async def test_refusals_are_counted_by_code_and_connections_by_what_became_of_them(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, max_connections_per_address=3) as gateway:
        agent = await gateway.join("agent")
        # What `join` asked to be sure that it is in was refused, too.
        before = await value(gateway, "moot_refusals_total", code="capability_violation", space="lab")
        assert await agent.refused("mcp/request", CALL) == "capability_violation"
        assert await agent.refused("chat", id="e1") is None
        assert await agent.refused("chat", id="e1") == "duplicate_id"
        after = await value(gateway, "moot_refusals_total", code="capability_violation", space="lab")
        assert after == before + 1
        assert await value(gateway, "moot_refusals_total", code="duplicate_id", space="lab") == 1
        open_now = await value(gateway, "moot_connections")
        assert open_now == 2
        writers = []
        while await value(gateway, "moot_connections_refused_total") == 0:
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writers.append(writer)
            assert len(writers) < 100
        for writer in writers:
            writer.close()
