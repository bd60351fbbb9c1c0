"""What a cluster does when a gateway or the log goes away."""

from __future__ import annotations

import asyncio
import errno
import json
import signal
from pathlib import Path

import pytest
import yaml

from moot.config import load
from moot.config.configuration import Configuration
from moot.errors import UsageError
from moot.gateway.app import Gateway
from moot.gateway.cluster import cluster_node
from moot.gateway.cluster.cluster_shard import Shard
from moot.protocol.operation import Json
from moot.space.config import Name
from moot.space.state_hash import hash_state
from moot.store.file_journal import FileJournal
from tests.gateway.cluster.conftest import PATIENT, PEOPLE, StartGateway, set_bounds
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import CALL, LocalGateway, running_gateway
from tests.gateway.served import served
from tests.waiting import HANG_SECONDS, bounded, until

GRANT: Json = {"recipient": "carol", "capabilities": [{"kind": "chat"}]}
QUICK: dict[str, Json] = {"heartbeat_seconds": 0.1, "gone_seconds": 5}


async def test_members_of_a_killed_gateway_leave_and_come_back_elsewhere(
    start: StartGateway, settings: dict[str, Json], tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    folder.mkdir()
    async with start("a", cluster=QUICK) as a:
        config = yaml.safe_load((tmp_path / "a" / "moot.yaml").read_text())
        config["gateway"]["cluster"]["gateway"] = "b"
        (folder / "moot.yaml").write_text(json.dumps(config))
        (folder / "moot.yaml").chmod(0o600)
        alice = await a.join("alice")
        async with served(folder / "moot.yaml") as b:
            bob = await b.join("bob")
            await bob.ask("chat", {"text": "I am here"})
            await b.end(signal.SIGKILL)
        # At once, and under the same name: several connections of one member are allowed.
        again = await a.join("bob")
        assert await again.refused("chat", {"text": "back"}) is None
        host = a.gateway.directory.hosts["lab"]
        await until(lambda: not [each for each in host.space.state.roster.sessions if each.startswith("b.")])
        await again.leave()
        await alice.hear(lambda m: m["kind"] == "system/presence" and m["payload"]["event"] == "leave")
        said = [m["payload"]["text"] for m in alice.received if m["kind"] == "chat"]
        assert said == ["I am here", "back"]


async def test_members_of_a_gateway_that_stops_twice_leave_by_two_messages(start: StartGateway) -> None:
    async with start("a") as a:
        alice = await a.join("alice")

        def left() -> list[str]:
            presence = [m for m in alice.received if m["kind"] == "system/presence"]
            return [m["id"] for m in presence if m["payload"]["event"] == "leave"]

        for count in (1, 2):
            async with start("b") as b:
                await b.join("bob")
            await alice.fence()
            await until(lambda count=count: len(left()) == count)  # type: ignore[misc]
        assert len(set(left())) == 2


async def test_a_gateway_without_its_log_delivers_nothing_and_lets_its_members_go(
    own_nats: NatsServers, tmp_path: Path
) -> None:
    cluster: dict[str, Json] = {
        "servers": own_nats.addresses,
        "replicas": 1,
        "shards": 1,
        "gateway": "a",
        "heartbeat_seconds": 0.1,
    } | PATIENT
    async with running_gateway(tmp_path, PEOPLE, cluster=cluster) as a:
        alice, bob = await a.join("alice"), await a.join("bob")
        await bob.say("stream/request", {"direction": "upload"})
        stream = (await bob.hear("stream/open"))["payload"]["stream_id"]
        await alice.fence()
        own_nats.send(0, signal.SIGSTOP)
        set_bounds(a, unavailable_seconds=0.5, frame_stale_seconds=0.2)
        node = a.gateway.node
        assert node is not None
        await until(lambda: node.age_seconds > 0.5)
        await bob.send(f"#{stream}#late")
        assert (await bob.hear("system/error"))["payload"]["error"] == "unavailable"
        assert await bob.refused("chat", {"text": "lost"}) == "unavailable"
        refused = await a.post("bob", {"kind": "chat", "payload": {"text": "lost"}}, space="lab")
        assert refused.status_code == 503, refused.text
        set_bounds(a, stale_seconds=2)
        assert (await alice.closed())[0] == 1013
        assert "chat" not in alice.kinds()
        assert await a.status("/ws?space=lab", token="t-alice") == 503
        assert (await a.http.get("/readyz")).status_code == 503
        own_nats.send(0, signal.SIGCONT)
        await until(lambda: not node.is_stale)
        set_bounds(a, unavailable_seconds=HANG_SECONDS, stale_seconds=2 * HANG_SECONDS)
        again = await a.join("alice")
        assert await again.refused("chat", {"text": "back"}) is None
        assert not [m for m in again.received if isinstance(m, dict) and m["payload"].get("text") == "lost"]


async def test_who_waits_when_a_gateway_stops_is_told_that_the_outcome_is_not_known(
    own_nats: NatsServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the gateway ends in time: what members did last has its share of it, counted from the beginning."""
    monkeypatch.setattr(cluster_node, "_LAST_WRITES_SECONDS", 10 * HANG_SECONDS)
    cluster: dict[str, Json] = {
        "servers": own_nats.addresses,
        "replicas": 1,
        "shards": 1,
        "unavailable_seconds": 200,
        "stale_seconds": 300,
        # What comes while one is on its way is not sent.
        "heartbeat_seconds": 100,
    }
    async with running_gateway(tmp_path, PEOPLE, cluster=cluster) as a:
        assert a.gateway.node is not None
        writer = a.gateway.node.shards[0].log.writer
        await until(lambda: writer.is_idle)
        own_nats.send(0, signal.SIGSTOP)
        posting = asyncio.ensure_future(
            a.post("bob", {"id": "m1", "kind": "chat", "payload": {"text": "perhaps"}}, space="lab")
        )
        await until(lambda: any(writer.unread.values()))
        stopping = asyncio.ensure_future(a.gateway.stop())
        async with bounded():
            answer = await posting
            await stopping
        assert (answer.status_code, answer.json()["error"]) == (503, "outcome_unknown")
        own_nats.send(0, signal.SIGCONT)


async def test_a_gateway_starts_from_a_snapshot_and_has_the_same_state(start: StartGateway) -> None:
    async with start("a", cluster={"snapshot_inputs": 20}) as a:
        alice = await a.join("alice")
        await alice.ask("capability/grant", {"recipient": "bob", "capabilities": [{"kind": "chat"}]})
        for number in range(60):
            await alice.ask("chat", {"text": str(number)})
        await alice.ask("space/kick", {"participant_id": "carol"})
        shard = _shard(a)
        await until(lambda: shard.purgeable)
        async with start("b", cluster={"snapshot_inputs": 20}) as b:
            assert _shard(b).snapshots >= 2, "it began at a snapshot"
            state = [each.gateway.directory.hosts["lab"].space for each in (a, b)]
            await alice.fence()
            await until(lambda: hash_state(state[0].save()) == hash_state(state[1].save()))
            assert await b.status("/ws?space=lab", token="t-carol") == 401
            for number in range(60):
                await alice.ask("chat", {"text": str(number)})
            # Both hashed their state since, and found the same.
            node = b.gateway.node
            assert node is not None
            await until(lambda: _shard(b).hashes == shard.hashes or node.failed.done())
            assert not node.failed.done(), node.failed.result()
    async with start("a", cluster={"snapshot_inputs": 20}) as a:
        assert await a.status("/ws?space=lab", token="t-carol") == 401


async def test_a_gateway_whose_state_differs_stops_serving_and_says_so(start: StartGateway) -> None:
    async with (
        start("a", cluster={"snapshot_inputs": 20}) as a,
        start("b", cluster={"snapshot_inputs": 20}) as b,
    ):
        alice, bob = await a.join("alice"), await b.join("bob")
        b.gateway.directory.hosts["lab"].space.state.sessions_joined += 1
        for number in range(40):
            await alice.ask("chat", {"text": str(number)})
        async with bounded():
            why = await b.gateway.wait_failed()
        assert "the state of lab differs from that of gateway a" in str(why)
        assert (await bob.closed())[0] == 1013
        assert await alice.refused("chat", {"text": "others go on"}) is None


async def test_a_second_process_of_one_name_takes_over_and_the_first_says_why(
    start: StartGateway, tmp_path: Path
) -> None:
    async with start("a") as a:
        alice = await a.join("alice")
        other = _copied(tmp_path)
        second = Gateway(other)
        await second.start()
        try:
            async with bounded():
                why = await a.gateway.wait_failed()
            assert "another process writes the log as gateway a" in str(why)
            assert (await alice.closed())[0] == 1013
        finally:
            await second.stop()


async def test_what_one_gateway_knew_alone_the_cluster_knows(
    settings: dict[str, Json], tmp_path: Path
) -> None:
    """Somebody who was removed before there was a cluster is not let in by it."""
    async with running_gateway(tmp_path, PEOPLE) as alone:
        alice = await alone.join("alice")
        await alice.ask("space/kick", {"participant_id": "bob"})
    async with running_gateway(tmp_path, PEOPLE, cluster=settings | {"gateway": "a"}) as a:
        assert await a.status("/ws?space=lab", token="t-bob") == 401
        await a.join("alice")


async def test_files_of_another_past_are_refused(
    start: StartGateway, settings: dict[str, Json], tmp_path: Path
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as alone:
        alice = await alone.join("alice")
        await alice.ask("space/kick", {"participant_id": "bob"})
    async with start("a"):
        with pytest.raises(UsageError, match="holds a space 'lab' of its own"):
            async with running_gateway(tmp_path, PEOPLE, cluster=settings | {"gateway": "b"}):
                pass


async def test_a_space_whose_disk_had_failed_is_not_held_up_in_the_cluster(
    settings: dict[str, Json], tmp_path: Path
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as alone:
        alone.gateway.directory.hosts["lab"].journaled.durability.report_health(writable=False)
        alice = await alone.join("alice")
        assert await alice.refused("mcp/proposal", CALL) == "unavailable"
    async with running_gateway(tmp_path, PEOPLE, cluster=settings | {"gateway": "a"}) as a:
        alice = await a.join("alice")
        assert await alice.refused("mcp/proposal", CALL) is None


async def test_a_gateway_whose_own_disk_fails_goes_on_by_the_log(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        journal = b.gateway.directory.hosts["lab"].journal
        assert isinstance(journal, FileJournal)
        journal._fail(OSError(errno.ENOSPC, "no space left on device"))
        assert journal._retry_timer is not None
        journal._retry_timer.cancel()
        alice, bob = await a.join("alice"), await b.join("bob")
        proposal = await bob.say("mcp/proposal", CALL, to=["alice"])
        assert (await alice.hear("mcp/proposal"))["id"] == proposal
        assert await bob.refused("capability/grant", GRANT) is None
        # Who polls there counts as present on all of them.
        await b.poll("carol", space="lab")
        members = a.gateway.directory.hosts["lab"].space.state.roster.members
        await until(lambda: members[Name("carol")].polling_until > 0)
        assert not journal.writable


async def test_the_local_journal_has_every_input_once(start: StartGateway) -> None:
    async with start("a") as a:
        async with start("b") as b:
            bob = await b.join("bob")
            await bob.ask("chat", {"text": "before"})
        alice = await a.join("alice")
        await alice.ask("chat", {"text": "between"})
        async with start("b") as b:
            bob = await b.join("bob")
            await bob.ask("chat", {"text": "after"})
            folder = b.journal()
    accepted = [each for each in map(json.loads, lines_of(folder)) if each.get("kind") == "chat"]
    texts = [each["raw"]["payload"]["text"] for each in accepted if "raw" in each]
    assert texts == ["before", "between", "after"]


async def test_journals_are_closed_whatever_leaving_the_cluster_comes_to(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="not expected"):  # noqa: PT012  # it ends with the block
        async with start("a") as a:
            node, journal = a.gateway.node, a.gateway.directory.hosts["lab"].journal
            assert node is not None
            leave = node.stop

            async def fail() -> None:
                await leave()
                raise RuntimeError("not expected")

            monkeypatch.setattr(node, "stop", fail)
    assert not journal.writable


def _shard(gateway: LocalGateway) -> Shard:
    assert gateway.gateway.node is not None
    return gateway.gateway.node.shards[0]


def lines_of(folder: Path) -> list[str]:
    files = (each for each in sorted(folder.iterdir()) if each.suffix == ".jsonl")
    return [line for each in files for line in each.read_text().splitlines()]


def _copied(tmp_path: Path) -> Configuration:
    """The configuration of gateway a, with files of its own."""
    folder = tmp_path / "second"
    folder.mkdir()
    (folder / "moot.yaml").write_text((tmp_path / "a" / "moot.yaml").read_text())
    (folder / "moot.yaml").chmod(0o600)
    return load(folder / "moot.yaml", environ={})
