"""D-22: a space that nobody configured comes into being when somebody joins it, where that is allowed."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest

from moot.config import load
from moot.errors import UsageError
from moot.protocol.operation import Json
from tests.gateway.fault_shim import FaultShim
from tests.gateway.running_gateway import (
    GatewayUnderTest,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import served
from tests.waiting import until_told

PEOPLE = participants(alice=["*"], bob=["chat"])


def configured(folder: Path, **gateway: Json) -> Path:
    spaces: dict[str, Json] = {
        "lab": space_settings(PEOPLE),
        "vault": space_settings(participants(carol=["*"])),
    }
    return write_config(folder, gateway_settings(spaces, **gateway))


async def names(gateway: GatewayUnderTest, token: str) -> set[str]:
    answer = await gateway.http.get("/spaces", headers={"Authorization": f"Bearer {token}"})
    return {each["name"] for each in answer.json()["spaces"]}


async def test_without_the_setting_a_wrong_name_is_an_error_and_creates_nothing(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, file=configured(tmp_path)) as gateway:
        assert await gateway.status("/ws?space=labb", token="t-alice") == 404
        assert await names(gateway, "t-alice") == {"lab"}


async def test_a_member_of_the_model_creates_a_space_by_joining_it(tmp_path: Path) -> None:
    """The same people with the same rights, and nothing of what is said in the model."""
    async with running_gateway(tmp_path, file=configured(tmp_path, auto_create_spaces="lab")) as gateway:
        there = await gateway.join("alice")
        alice = await gateway.join("alice", space="garden")
        bob = await gateway.join("bob", space="garden")
        welcome = alice.received[0]["payload"]
        assert {each["id"] for each in welcome["participants"]} <= {"alice", "bob"}
        await bob.say("chat", {"text": "in the garden"})
        assert (await alice.hear("chat"))["payload"]["text"] == "in the garden"
        assert await bob.refused("mcp/request", {"method": "tools/list"}) == "capability_violation"
        assert "chat" not in {each["kind"] for each in await there.fence()}
        assert await names(gateway, "t-bob") == {"lab", "garden"}
        metrics = (await gateway.http.get("/metrics")).text
        assert 'moot_sessions{space="garden"} 2' in metrics


async def test_who_is_not_of_the_model_creates_nothing(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, file=configured(tmp_path, auto_create_spaces="lab")) as gateway:
        assert await gateway.status("/ws?space=garden", token="t-carol") == 404
        assert await gateway.status("/ws?space=garden", token="t-nobody") == 404
        await gateway.join("alice", space="garden")
        # It is there now, and she is no member of it.
        assert await gateway.status("/ws?space=garden", token="t-carol") == 403
        for name in ("..", "a/b", "-x", "x" * 65):
            assert await gateway.status(f"/ws?space={name}", token="t-alice") == 404
        assert await names(gateway, "t-alice") == {"lab", "garden"}
        assert await names(gateway, "t-carol") == {"vault"}


async def test_only_so_many_are_created(tmp_path: Path) -> None:
    file = configured(tmp_path, auto_create_spaces="lab", max_auto_spaces=2)
    async with running_gateway(tmp_path, file=file) as gateway:
        await gateway.join("alice", space="one")
        await gateway.join("alice", space="two")
        assert await gateway.status("/ws?space=three", token="t-alice") == 503
        await gateway.join("bob", space="two")


async def test_a_created_space_is_there_again_after_a_restart_with_all_that_was_granted(
    tmp_path: Path,
) -> None:
    file = configured(tmp_path, auto_create_spaces="lab")
    async with running_gateway(tmp_path, file=file) as gateway:
        alice = await gateway.join("alice", space="garden")
        grant = {"recipient": "bob", "capabilities": [{"kind": "mcp/request"}]}
        assert await alice.refused("capability/grant", grant) is None
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await names(gateway, "t-bob") == {"lab", "garden"}
        bob = await gateway.join("bob", space="garden")
        assert await bob.refused("mcp/request", {"method": "tools/list"}, to=["alice"]) is None
        bob = await gateway.join("bob")
        assert await bob.refused("mcp/request", {"method": "tools/list"}) == "capability_violation"


async def test_a_space_that_was_configured_once_is_not_handed_to_others(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, file=configured(tmp_path)) as gateway:
        carol = await gateway.join("carol", space="vault")
        await carol.say("chat", {"text": "secret"})
        await carol.fence()
    spaces: dict[str, Json] = {"lab": space_settings(PEOPLE)}
    file = write_config(tmp_path, gateway_settings(spaces, auto_create_spaces=True))
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await gateway.status("/ws?space=vault", token="t-alice") == 404
        assert await names(gateway, "t-alice") == {"lab"}


async def test_a_space_that_found_no_room_on_the_disk_can_be_created_later(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, file=configured(tmp_path, auto_create_spaces="lab")) as gateway:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        # Files of more than a byte cannot be written: what a full disk says, said by the kernel.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
        try:
            assert await gateway.status("/ws?space=garden", token="t-alice") == 503
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not gateway.journal("garden").parent.exists()
        assert await names(gateway, "t-alice") == {"lab"}
        await gateway.join("alice", space="garden")


async def test_a_created_space_takes_its_first_snapshot_after_as_many_records_as_configured(
    tmp_path: Path,
) -> None:
    file = configured(tmp_path, auto_create_spaces="lab", snapshot_records=12)
    async with running_gateway(tmp_path, file=file) as gateway:
        database = gateway.gateway._database
        assert database is not None
        alice = await gateway.join("alice", space="garden")
        assert await database.load_snapshot("garden") is None
        for _ in range(12):
            assert await alice.refused("chat") is None
        snapshot = await until_told(lambda: database.load_snapshot("garden"))
        assert snapshot is not None
        assert snapshot.position == 12


def test_the_model_is_a_space_of_the_configuration(tmp_path: Path) -> None:
    assert load(configured(tmp_path, auto_create_spaces="vault"), environ={}).model_space == "vault"
    for wrong in ("labb", True):
        with pytest.raises(UsageError, match=r"auto_create_spaces: names the space.*: lab, vault"):
            load(configured(tmp_path, auto_create_spaces=wrong), environ={})


async def test_a_space_whose_mark_is_not_on_disk_is_not_created(tmp_path: Path) -> None:
    """Without the mark it would be gone after a power cut, with all that was said there."""
    shim = FaultShim(tmp_path)
    async with served(configured(tmp_path, auto_create_spaces="lab"), environ=shim.environ) as gateway:
        shim.set(sync_fault=errno.EIO)
        shim.aim("like")
        assert await gateway.status("/ws?space=garden", token="t-alice") == 503
        assert not (tmp_path / "data" / "spaces" / "garden").exists()
        shim.heal()
        assert await gateway.status("/ws?space=garden", token="t-alice") == 101
