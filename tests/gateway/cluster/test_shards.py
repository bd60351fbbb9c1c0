"""A gateway stops to serve a shard and serves it again while it runs: its members go elsewhere, nothing is
lost, and what it does not serve it never answers for."""

from __future__ import annotations

import asyncio
import itertools
import json
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from moot.cli import main
from moot.config import load
from moot.config.configuration import Configuration
from moot.errors import ConnectionLost, MootError, Unavailable, UsageError
from moot.gateway.cluster import cluster_status
from moot.gateway.cluster.cluster_node import ClusterNode
from moot.gateway.cluster.gateway_relay import GatewayRelay
from moot.gateway.cluster.nats import status_exchange
from moot.gateway.cluster.nats.shared_log import SharedLog
from moot.gateway.created_spaces import CLUSTER_FILE
from moot.participant import connect
from moot.protocol.close_codes import MOVED, REMOVED
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import PEOPLE, StartGateway
from tests.gateway.cluster.histories import faults_of
from tests.gateway.cluster.test_start_together import die
from tests.gateway.running_gateway import (
    ROOT,
    LocalGateway,
    fresh_id,
    space_settings,
    write_config,
)
from tests.gateway.running_gateway import fields as envelope
from tests.waiting import HANG_SECONDS, bounded, until, until_told

# Of five shards, `lab` is in the last one and `other` in the common one.
SHARDS: dict[str, Json] = {"shards": 5}
LAB = 4
SPACES: dict[str, Json] = {"lab": space_settings(PEOPLE), "other": space_settings(PEOPLE)}


def node(gateway: LocalGateway) -> ClusterNode:
    assert gateway.gateway.node is not None
    return gateway.gateway.node


async def get(gateway: LocalGateway, where: str, token: str = "t-alice", **params: str) -> httpx.Response:
    return await gateway.http.get(where, headers={"Authorization": f"Bearer {token}"}, params=params)


def chats(folder: Path) -> list[dict[str, Any]]:
    """What one gateway wrote down of the chats in `lab`, in its order."""
    files = sorted((folder / "data" / "spaces" / "lab" / "journal").glob("*.jsonl"))
    lines = (line for file in files for line in file.read_text("utf-8").splitlines())
    records = (json.loads(line) for line in lines if '"chat"' in line)
    return [each for each in records if each.get("out") == "accepted" and each.get("kind") == "chat"]


async def test_a_shard_is_left_and_served_again_under_load_and_nothing_is_lost_doubled_or_swapped(
    start: StartGateway, tmp_path: Path
) -> None:
    acknowledged, is_over = list[str](), asyncio.Event()
    # So few that they also begin at snapshots.
    cluster = SHARDS | {"snapshot_inputs": 100}
    async with start("a", cluster=cluster) as a, start("b", cluster=cluster) as b:

        async def talk(number: int) -> None:
            """By HTTP, at the next gateway when one does not take it."""
            while not is_over.is_set():
                id = fresh_id()
                for gateway in itertools.islice(itertools.cycle((a, b)), number, None):
                    answer = await gateway.post("alice", envelope("chat", {"text": id}, id=id), space="lab")
                    if answer.status_code == 200 or answer.json()["error"] == "duplicate_id":
                        break
                    assert answer.json()["error"] in ("denied", "unavailable", "outcome_unknown"), answer.text
                    await asyncio.sleep(0.01)
                acknowledged.append(id)

        async with (
            bounded(),
            connect(f"{a.url},{b.url}", "lab", "t-bob") as bob,
            asyncio.TaskGroup() as group,
        ):
            for number in range(3):
                group.create_task(talk(number))
            for _ in range(4):
                before = len(acknowledged)
                await until(lambda: len(acknowledged) > before + 20)  # noqa: B023  # it is waited for
                assert await node(a).leave(LAB)
                assert "lab" not in a.gateway.directory.hosts
                assert not node(a).serves("lab")
                await until(lambda: bob._session.link.url == b.url)
                await bob.ready(HANG_SECONDS)
                before = len(acknowledged)
                await until(lambda: len(acknowledged) > before + 20)  # noqa: B023  # it is waited for
                assert await node(a).serve(LAB)
                assert node(a).serves("lab")
                # It goes back when the other one leaves.
                assert await node(b).leave(LAB)
                await until(lambda: bob._session.link.url == a.url)
                await bob.ready(HANG_SECONDS)
                assert await node(b).serve(LAB)
            is_over.set()
        assert (await report(a, compare="true"))["problems"] == []
    journals = [chats(tmp_path / name) for name in ("a", "b")]
    # Each lacks what happened before the snapshots that it began at; the log's time puts them together.
    merged = sorted(itertools.chain(*journals), key=lambda each: each["t"])
    histories = {"log": list(dict.fromkeys(each["id"] for each in merged))}
    histories |= {f"journal {n}": [each["id"] for each in found] for n, found in enumerate(journals)}
    assert faults_of(histories, acknowledged, whole="log") == []


async def test_connections_end_so_that_clients_come_back_and_sessions_tell_the_start_of_their_shard(
    start: StartGateway,
) -> None:
    async with start("a", cluster=SHARDS, spaces=SPACES) as a, start("b", cluster=SHARDS, spaces=SPACES) as b:
        alice, other, bob = await a.join("alice"), await a.join("alice", space="other"), await b.join("bob")
        roster = b.gateway.directory.hosts["lab"].space.state.roster
        assert sorted(roster.sessions) == ["a.1-1", "b.1-1"]
        await node(a).leave(LAB)
        assert (await alice.closed())[0] == MOVED
        # The log says it before the leave is over.
        await until(lambda: [*roster.sessions] == ["b.1-1"])
        await bob.hear("system/presence")
        await node(a).serve(LAB)
        await a.join("alice")
        await until(lambda: any(each.startswith("a.2-") for each in roster.sessions))
        # Nobody noticed anything in a shard that was not left.
        await other.fence()
        others = a.gateway.directory.hosts["other"].space.state.roster.sessions
        assert all(each.startswith("a.1-") for each in others)


async def test_what_a_gateway_does_not_serve_it_never_answers_for(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start("a", cluster=SHARDS, spaces=SPACES) as a, start("b", cluster=SHARDS, spaces=SPACES):
        await node(a).leave(LAB)

        async def nobody(*_: object, **__: object) -> list[Json]:
            raise Unavailable("nobody answers")

        # It knows nobody to relay to, and nobody to ask.
        monkeypatch.setattr(node(a), "relay_addresses", lambda _: {})
        monkeypatch.setattr(GatewayRelay, "wait_seconds", 0.0)
        monkeypatch.setattr(a.gateway.directory.others, "ask", nobody)
        for token in ("t-bob", "t-nobody"):
            assert await a.status("/ws?space=lab", token=token) == 503
            # In a space that is served: what is not known is not said to be unknown.
            assert await a.status("/ws?space=other", token=token) == (101 if token == "t-bob" else 403)
        hidden = await get(a, "/participants/alice/messages", space="lab")
        assert (hidden.status_code, hidden.headers["retry-after"]) == (503, "1")
        assert await a.status(f"/ws?space={_in_shard(LAB)}", token="t-alice") == 503
        assert await a.status(f"/ws?space={_in_shard(0)}", token="t-alice") == 404
        # Without a name it would be the only one that is left.
        assert await a.status("/ws", token="t-alice") == 503
        assert (await get(a, "/push-subscriptions")).status_code == 503
        for name in (_in_shard(LAB), _in_shard(0)):
            assert (await a.admin("POST", "spaces", {"name": name, "like": "lab"})).status_code == 503
        assert (await a.admin("DELETE", f"spaces/{_in_shard(LAB)}")).status_code == 503
        assert (await a.admin("DELETE", "cluster/spaces/lab")).status_code == 503
        assert (await get(a, "/readyz")).status_code == 200, "others are served"
        await node(a).serve(LAB)
        assert await a.status("/ws?space=lab", token="t-nobody") == 401


async def test_who_is_revoked_while_shards_move_is_not_heard_any_more(start: StartGateway) -> None:
    async with start("a", cluster=SHARDS) as a, start("b", cluster=SHARDS) as b:
        alice = await b.join("alice")

        async def talk_on() -> None:
            async with connect(f"{a.url},{b.url}", "lab", "t-bob") as bob:
                while True:
                    with suppress(ConnectionLost):
                        await bob.chat("still here")
                    await asyncio.sleep(0)

        talking = asyncio.create_task(talk_on())
        await alice.hear("chat")
        leaving = asyncio.create_task(node(a).leave(LAB))
        await alice.ask("space/kick", {"participant_id": "bob"}, id="kick")
        assert await leaving
        assert await node(a).serve(LAB)
        await until_told(lambda: _is_refused(a, "t-bob"))
        # It was told to go away.
        with pytest.raises(MootError):
            await talking
        heard = await alice.fence()
        assert [each for each in heard if each["kind"] == "chat" and each["from"] == "bob"] == []
        assert await b.status("/ws?space=lab", token="t-bob") in (401, 403)


async def test_a_gateway_that_takes_a_shard_over_waits_for_nobody(start: StartGateway) -> None:
    """One that died without a word is known from the common shard, and nothing is waited for."""
    patient = SHARDS | {"gone_seconds": 10 * HANG_SECONDS}
    async with start("a", cluster=patient) as a:
        async with start("b", cluster=patient) as b:
            die(b)
        await node(a).leave(LAB)
        async with bounded():
            assert await node(a).serve(LAB)
            await a.join("alice")


async def test_what_cannot_be_left_or_served_is_refused_and_the_gateway_goes_on(
    start: StartGateway, tmp_path: Path
) -> None:
    async with start("a", cluster=SHARDS, spaces=SPACES) as a:
        assert "every gateway serves shard 0" in await refused(a, "DELETE", "0")
        assert "no other gateway serves shard 4" in await refused(a, "DELETE", "4")
        for wrong in ("5", "x", "-1"):
            assert "shard" in await refused(a, "DELETE", wrong)
        async with start("b", cluster=SHARDS, spaces=SPACES):
            assert "this is gateway a" in await refused(a, "DELETE", "4", gateway="b")
            assert (await a.admin("DELETE", "cluster/shards/4", gateway="a")).json()["serves"] == [0, 1, 2, 3]
            assert not (await a.admin("DELETE", "cluster/shards/4")).json()["changed"]
            # Somebody put the folder of another space there meanwhile.
            mark = tmp_path / "a" / "data" / "spaces" / "lab" / CLUSTER_FILE
            before = mark.read_bytes()
            mark.write_text("another")
            assert "move that folder away" in await refused(a, "POST", "4")
            await a.join("alice", space="other")
            mark.write_bytes(before)
            assert (await a.admin("POST", "cluster/shards/4")).json()["changed"]
            await a.join("alice")


async def test_a_try_to_serve_that_fails_half_way_leaves_nothing_behind(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log does not answer any more when its spaces are open already."""
    async with start("a", cluster=SHARDS) as a, start("b", cluster=SHARDS):
        await node(a).leave(LAB)

        async def fail(_log: SharedLog, _epoch: int) -> None:
            assert node(a).shards[LAB].orders
            raise UsageError("the log does not answer")

        with monkeypatch.context() as broken:
            broken.setattr(SharedLog, "begin", fail)
            assert "the log does not answer" in await refused(a, "POST", str(LAB))
        assert node(a).shards[LAB].state == "not served"
        assert (await a.admin("POST", f"cluster/shards/{LAB}")).json()["changed"]
        await a.join("alice")


async def test_a_file_that_is_older_than_the_cluster_does_not_come_back_with_a_shard(
    start: StartGateway, tmp_path: Path
) -> None:
    fewer = {name: settings for name, settings in PEOPLE.items() if name != "bob"}
    async with start("a", cluster=SHARDS) as a, start("b", cluster=SHARDS) as b:
        await node(a).leave(LAB)
        bob = await b.join("bob")
        b.gateway.reload(_with_people(tmp_path / "b", fewer))
        assert (await bob.closed())[0] == REMOVED
        await node(a).serve(LAB)
        assert await a.status("/ws?space=lab", token="t-bob") == 401
        assert node(a).differences == ["space lab: participants"]
        # It is told that it has to be asked elsewhere, where it does not serve.
        await node(a).leave(LAB)
        told = a.gateway.reload(_with_people(tmp_path / "a", fewer))
        assert any("space lab is not served here now" in each for each in told)
        await node(a).serve(LAB)
        assert node(a).differences == []


async def test_operators_empty_a_gateway_by_command(
    start: StartGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_status, "_ANSWER_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(status_exchange, "_GONE_SECONDS", HANG_SECONDS)
    token = tmp_path / "root.token"
    token.write_text(ROOT)
    token.chmod(0o600)
    async with start("a", cluster=SHARDS) as a, start("b", cluster=SHARDS) as b:
        asked = ["--gateway", a.url, "--admin-token-file", str(token)]

        async def said(*words: str) -> str:
            assert await asyncio.to_thread(main, ["cluster", *words, *asked]) == 0
            return capsys.readouterr().out

        assert (await said("leave", "a")).splitlines()[-1] == "a serves shard 0 of 5"
        # Where nothing changes, nothing is repeated.
        assert await said("leave", "a") == "a serves shard 0 of 5\n"
        assert "– " in await said("status")
        assert (await report(b))["problems"] == []
        assert (await b.admin("GET", "cluster", compare="true")).json()["problems"] == []
        assert (await said("serve", "a")).splitlines()[-1] == "a serves shard 0, 1, 2, 3, 4 of 5"


def _in_shard(index: int) -> str:
    """The name of a space that there is not, and that would be in this shard."""
    names = (f"none{number}" for number in itertools.count())
    return next(name for name in names if zlib.crc32(name.encode()) % 5 == index)


def _with_people(folder: Path, people: Json) -> Configuration:
    """The file of a gateway with other people in its space."""
    settings = yaml.safe_load((folder / "moot.yaml").read_text("utf-8"))
    settings["spaces"]["lab"]["participants"] = people
    return load(write_config(folder, settings), environ={})


async def _is_refused(gateway: LocalGateway, token: str) -> bool:
    return await gateway.status("/ws?space=lab", token=token) in (401, 403)


async def refused(asked: LocalGateway, method: str, shard: str, **params: str) -> str:
    answer = await asked.admin(method, f"cluster/shards/{shard}", **params)
    assert answer.status_code == 400, answer.text
    return str(answer.json()["message"])


async def report(gateway: LocalGateway, **params: str) -> dict[str, Any]:
    found: dict[str, Any] = (await gateway.admin("GET", "cluster", **params)).json()
    return found
