"""Spaces that are made, archived and deleted while several gateways run: on all, in the log's order."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from moot.gateway.cluster import cluster_status
from moot.gateway.cluster.cluster_node import ClusterNode
from moot.protocol.close_codes import REMOVED
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import PEOPLE, StartGateway
from tests.gateway.cluster.test_shared_content import has_parts, send
from tests.gateway.running_gateway import LocalGateway, running_gateway, space_settings
from tests.waiting import HANG_SECONDS, until

LAB: dict[str, Json] = {"lab": space_settings(PEOPLE)}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_status, "_ANSWER_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(cluster_status, "_COMPARE_SECONDS", HANG_SECONDS)


async def test_a_space_is_made_at_one_gateway_and_served_by_all(start: StartGateway) -> None:
    async with start("a", spaces=LAB) as a, start("b", spaces=LAB) as b, start("c", spaces=LAB) as c:
        assert (await a.admin("POST", "spaces", {"name": "garden"})).status_code == 201
        await until(lambda: all("garden" in hosts(each) for each in (b, c)))
        alice, bob = await a.join("alice", space="garden"), await b.join("bob", space="garden")
        await bob.say("chat", {"text": "in the garden"})
        assert (await alice.hear("chat"))["payload"]["text"] == "in the garden"
        assert await alice.refused("space/kick", {"participant_id": "carol"}) is None
        for each in (b, c):
            assert await refusal(each, "garden") == 400
        assert (await report(c, compare="true"))["problems"] == []
    # All end, and one comes again: from the log, with what was taken away.
    async with start("b", spaces=LAB) as b:
        await b.join("alice", space="garden")
        assert await b.status("/ws?space=garden", token="t-carol") in (401, 403)


@pytest.mark.parametrize("how", ["archived", "deleted"])
async def test_a_space_ends_on_all_gateways_and_on_one_that_was_away(
    start: StartGateway, settings: dict[str, Json], tmp_path: Path, how: str
) -> None:
    settings["snapshot_inputs"] = 40

    def folder(name: str) -> Path:
        return tmp_path / name / "data" / "spaces" / "garden"

    async with start("a", spaces=LAB) as a, start("b", spaces=LAB) as b:
        async with start("c", spaces=LAB) as c:
            await a.admin("POST", "spaces", {"name": "garden"})
            await until(lambda: all("garden" in hosts(each) for each in (b, c)))
            assert (await send(c, b"kept", space="garden")).status_code == 201
        bob = await b.join("bob", space="garden")
        await bob.ask("chat", {"text": "said"})
        method, where = ("DELETE", "spaces/garden") if how == "deleted" else ("POST", "spaces/garden/archive")
        assert (await a.admin(method, where)).status_code == 200
        assert (await bob.closed())[0] == REMOVED
        await until(lambda: "garden" not in hosts(a) | hosts(b))
        await until(lambda: all((folder(each) / "journal").exists() == (how == "archived") for each in "ab"))
        for each in (a, b):
            assert await each.status("/ws?space=garden", token="t-bob") == 404
            assert await refusal(each, "garden") == 400
        assert await has_parts(a, 1) == (how == "archived")
        # It comes back from a snapshot that does not have the space any more.
        await until(lambda: node(a).shards[0].purgeable > 0)
        async with start("c", spaces=LAB) as c:
            assert await c.status("/ws?space=garden", token="t-bob") == 404
            await until(lambda: (folder("c") / "journal").exists() == (how == "archived"))
            found = (await c.admin("GET", "spaces")).json()["spaces"]
            assert [each["state"] for each in found if each["name"] == "garden"] == [how]
            assert (await report(c, compare="true"))["problems"] == []
    # The mark is in the folder of each, also for a gateway that goes on alone.
    assert all((folder(name) / "ended").exists() for name in "abc")


async def test_whoever_joins_makes_a_space_on_all_gateways_at_once(start: StartGateway) -> None:
    async with (
        start("a", spaces=LAB, auto_create_spaces="lab", max_auto_spaces=2) as a,
        start("b", spaces=LAB, auto_create_spaces="lab", max_auto_spaces=2) as b,
    ):
        alice, bob = await asyncio.gather(a.join("alice", space="garden"), b.join("bob", space="garden"))
        await bob.say("chat", {"text": "here too"})
        assert (await alice.hear("chat"))["payload"]["text"] == "here too"
        assert await a.status("/ws?space=shed", token="t-nobody") == 404
        answer = await b.http.get(
            "/participants/alice/messages",
            params={"space": "meadow"},
            headers={"Authorization": "Bearer t-alice"},
        )
        assert answer.status_code == 200
        await until(lambda: "meadow" in hosts(a))
        assert await a.status("/ws?space=third", token="t-alice") == 503
        assert (await report(a, compare="true"))["problems"] == []


async def test_a_gateway_that_was_alone_brings_the_spaces_that_it_made(
    start: StartGateway, tmp_path: Path, settings: dict[str, Json]
) -> None:
    (tmp_path / "a").mkdir()
    async with running_gateway(tmp_path / "a", spaces=LAB) as alone:
        assert (await alone.admin("POST", "spaces", {"name": "garden"})).status_code == 201
        alice = await alone.join("alice", space="garden")
        assert await alice.refused("space/kick", {"participant_id": "carol"}) is None
    async with start("a", spaces=LAB), start("b", spaces=LAB) as b:
        await b.join("alice", space="garden")
        assert await b.status("/ws?space=garden", token="t-carol") in (401, 403)


async def test_a_folder_of_that_name_ends_no_gateway(start: StartGateway, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    async with running_gateway(tmp_path / "b", spaces=LAB | {"garden": space_settings(PEOPLE)}) as alone:
        await alone.join("carol", space="garden")
    shutil.rmtree(tmp_path / "b" / "data" / "spaces" / "lab")
    async with start("a", spaces=LAB) as a, start("b", spaces=LAB) as b:
        assert (await a.admin("POST", "spaces", {"name": "garden"})).status_code == 201
        await a.join("alice", space="garden")
        await until(lambda: "garden" in node(b).shards[0].unknown)
        assert "garden" not in hosts(b)
        await b.join("alice")


def hosts(gateway: LocalGateway) -> set[str]:
    return set(gateway.gateway.directory.hosts)


def node(gateway: LocalGateway) -> ClusterNode:
    assert gateway.gateway.node is not None
    return gateway.gateway.node


async def refusal(gateway: LocalGateway, name: str) -> int:
    return (await gateway.admin("POST", "spaces", {"name": name})).status_code


async def report(gateway: LocalGateway, **params: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = (await gateway.admin("GET", "cluster", **params)).json()
    return found
