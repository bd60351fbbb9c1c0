"""A space that is in no file any more: operators are told what it costs, and can drop it; nobody else can."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moot.cli import main
from moot.errors import InvalidOperation, UsageError
from moot.gateway.cluster import cluster_status
from moot.gateway.cluster.cluster_metrics import UNKNOWN_SPACES
from moot.gateway.cluster.cluster_node import ClusterNode
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import PEOPLE, StartGateway
from tests.gateway.cluster.nats_proxy import proxied
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.cluster.test_shared_content import has_parts, send
from tests.gateway.running_gateway import ROOT, LocalGateway, space_settings
from tests.gateway.test_figures import value
from tests.waiting import HANG_SECONDS, until

LAB: dict[str, Json] = {"lab": space_settings(PEOPLE)}
BOTH: dict[str, Json] = LAB | {"old": space_settings(PEOPLE)}
SNAPSHOT_INPUTS = 40


@pytest.fixture
def often(settings: dict[str, Json]) -> None:
    settings["snapshot_inputs"] = SNAPSHOT_INPUTS


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_status, "_ANSWER_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(cluster_status, "_COMPARE_SECONDS", HANG_SECONDS)


@pytest.mark.usefixtures("often", "patient")
async def test_a_space_that_is_in_no_file_is_told_and_dropped_by_a_command(
    start: StartGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with start("a", spaces=BOTH) as a:
        alice = await a.join("alice", space="old")
        await alice.ask("chat", {"text": "once"})
    async with start("a", spaces=LAB) as a, start("b", spaces=LAB) as b:
        stored = _shard_position(a)
        alice = await b.join("alice", space="lab")
        for number in range(SNAPSHOT_INPUTS + 1):
            await alice.ask("chat", {"text": f"{number}"})
        (problem,) = (await _report(b))["problems"]
        assert problem.startswith("space old is in the log and in no gateway's file")
        assert problem.endswith("(moot cluster drop-space old)")
        assert await value(a, UNKNOWN_SPACES.name) == 1
        # That is the cost of it.
        assert _shard_position(a) == stored
        assert await _drop(b, tmp_path) == 2
        assert "call again with --yes" in capsys.readouterr().err
        assert await _drop(b, tmp_path, "--yes") == 0
        assert "old is dropped" in capsys.readouterr().out
        await until(lambda: not any(_node(each).shards[0].unknown for each in (a, b)))
        await until(lambda: _shard_position(a) > stored)
        assert (await _report(a, compare="true"))["problems"] == []
        assert await _drop(b, tmp_path, "--yes", space="never") == 3
        assert "has no space 'never'" in capsys.readouterr().err
        async with start("c", spaces=LAB) as c:
            assert not _node(c).shards[0].unknown
            await c.join("bob", space="lab")


@pytest.mark.usefixtures("patient")
async def test_a_second_try_removes_the_large_values_that_the_first_could_not(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start("a", spaces=BOTH) as a:
        assert (await send(a, b"kept", space="old")).status_code == 201
    async with start("a", spaces=LAB) as a:
        with monkeypatch.context() as patch:
            # The log is reached, and they are not.
            patch.setattr(_node(a), "connection", None)
            assert (await a.admin("DELETE", "cluster/spaces/old")).status_code == 503
        await until(lambda: not _node(a).shards[0].unknown)
        assert await has_parts(a, 1)
        assert (await a.admin("DELETE", "cluster/spaces/old")).status_code == 200
        assert not await has_parts(a, 1)


@pytest.mark.usefixtures("patient")
async def test_no_space_is_dropped_that_a_gateway_has(start: StartGateway) -> None:
    async with start("a", spaces=LAB) as a, start("b", spaces=BOTH) as b:
        await until(lambda: "old" in _node(a).shards[0].unknown)
        (problem,) = (await _report(a))["problems"]
        assert problem.startswith("gateway a has no space old in its file, and others have")
        for asked in (a, b):
            refused = await asked.admin("DELETE", "cluster/spaces/old")
            assert (refused.status_code, refused.json()["error"]) == (400, "invalid_operation")
            assert "gateway b has space 'old' in its file" in refused.json()["message"]
        for headers in ({}, {"Authorization": "Bearer t-alice"}):
            assert (await a.http.delete("/admin/cluster/spaces/old", headers=headers)).status_code == 403
        # As if b had started after all others were asked.
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        shard = _node(a).shard_of("old")
        _node(a).submit(shard, "old", "drop", {"by": "root", "keys": ["a.1"]}, done.set_result)
        outcome = await done
        assert isinstance(outcome, InvalidOperation)
        assert "gateway b has come meanwhile" in outcome.message
        assert "old" in _node(a).shards[0].unknown
        alice = await b.join("alice", space="old")
        assert await alice.refused("chat", {"text": "still here"}) is None


async def test_who_does_not_answer_may_have_it(start: StartGateway, nats: NatsServers) -> None:
    async with (
        start("c", spaces=BOTH),
        proxied(nats) as (proxy, address),
        start("a", spaces=LAB) as a,
        start("b", spaces=LAB, cluster={"servers": [address]}),
    ):
        proxy.part()
        refused = await a.admin("DELETE", "cluster/spaces/old")
        assert refused.status_code == 400
        assert "b did not answer, and may have space 'old' in its file" in refused.json()["message"]
        proxy.heal()


@pytest.mark.usefixtures("patient")
async def test_who_was_away_says_that_its_space_was_dropped_and_keeps_its_files(
    start: StartGateway, tmp_path: Path
) -> None:
    async with start("a", spaces=BOTH) as a, start("b", spaces=BOTH):
        alice = await a.join("alice", space="old")
        await alice.ask("space/kick", {"participant_id": "bob"})
    async with start("a", spaces=LAB) as a:
        answer = await a.admin("DELETE", "cluster/spaces/old")
        assert (answer.status_code, answer.json()["not_asked"]) == (200, ["b"])
        folder = tmp_path / "b" / "data" / "spaces" / "old"
        assert folder.exists()
        with pytest.raises(UsageError, match="an operator has dropped it"):
            async with start("b", spaces=BOTH):
                pass
        assert folder.exists()
        folder.rename(tmp_path / "aside")
        async with start("b", spaces=BOTH) as b:
            await b.join("bob", space="old")
            assert _node(a).shards[0].unknown == {"old"}


@pytest.mark.usefixtures("patient")
async def test_a_new_space_of_that_name_is_not_taken_for_the_one_that_was_dropped(
    start: StartGateway, settings: dict[str, Json], tmp_path: Path
) -> None:
    """Also where the whole log is kept, and read by a gateway that comes later."""
    settings["keep_log"] = True
    async with start("a", spaces=BOTH) as a:
        alice = await a.join("alice", space="old")
        await alice.ask("space/kick", {"participant_id": "bob"})
    async with start("a", spaces=LAB) as a:
        assert (await a.admin("DELETE", "cluster/spaces/old")).status_code == 200
        await until(lambda: _shard_position(a) > 0)
    (tmp_path / "a" / "data" / "spaces" / "old").rename(tmp_path / "aside")
    async with start("a", spaces=BOTH) as a, start("c", spaces=BOTH) as c:
        for gateway in (a, c):
            await gateway.join("bob", space="old")
        assert (await _report(c, compare="true"))["problems"] == []


async def _drop(gateway: LocalGateway, tmp_path: Path, *more: str, space: str = "old") -> int:
    file = tmp_path / "root.token"
    file.write_text(ROOT)
    file.chmod(0o600)
    given = ["--gateway", gateway.url, "--admin-token-file", str(file)]
    return await asyncio.to_thread(main, ["cluster", "drop-space", space, *given, *more])


async def _report(gateway: LocalGateway, **params: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = (await gateway.admin("GET", "cluster", **params)).json()
    return found


def _node(gateway: LocalGateway) -> ClusterNode:
    assert gateway.gateway.node is not None
    return gateway.gateway.node


def _shard_position(gateway: LocalGateway) -> int:
    """Up to where there is a snapshot."""
    return _node(gateway).shards[0].purgeable


@pytest.mark.usefixtures("patient")
async def test_a_space_is_dropped_though_not_every_gateway_serves_its_shard(start: StartGateway) -> None:
    """Who has it is asked of the files."""
    # Of five shards, `lab` is in the last one.
    cluster: dict[str, Json] = {"shards": 5}
    others: dict[str, Json] = {"other": space_settings(PEOPLE)}
    async with start("a", spaces=LAB | others, cluster=cluster) as a:
        await a.join("alice")
    async with start("a", spaces=others, cluster=cluster) as a:
        async with start("b", spaces=LAB | others, cluster=cluster) as b:
            await _node(b).leave(4)
            refused = await a.admin("DELETE", "cluster/spaces/lab")
            assert "gateway b has space 'lab' in its file" in refused.json()["message"]
        async with start("b", spaces=others, cluster=cluster) as b:
            await _node(b).leave(4)
            assert (await a.admin("DELETE", "cluster/spaces/lab")).status_code == 200
            assert not _node(a).shards[4].unknown
            # It is not known to whoever comes later.
            await _node(b).serve(4)
            assert not _node(b).shards[4].unknown
