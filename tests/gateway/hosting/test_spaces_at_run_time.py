"""Spaces that operators make, archive and delete while the gateway runs, without editing its file."""

from __future__ import annotations

import asyncio
import errno
import io
import sys
from pathlib import Path

import pytest

from moot.cli import main
from moot.config import load
from moot.errors import InvalidOperation, UsageError
from moot.gateway import created_spaces
from moot.protocol.close_codes import REMOVED
from moot.protocol.operation import Json
from moot.space.members.member import Options
from moot.store.database import covered_position
from tests.gateway.running_gateway import (
    ROOT,
    LocalGateway,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.waiting import until

PEOPLE = participants(alice=["*"], bob=["chat"])
OTHERS = participants(carol=["*"])
BOTH: dict[str, Json] = {"lab": space_settings(PEOPLE), "vault": space_settings(OTHERS)}


def configured(folder: Path, spaces: dict[str, Json] | None = None, **gateway: Json) -> Path:
    return write_config(folder, gateway_settings(BOTH if spaces is None else spaces, **gateway))


async def create(gateway: LocalGateway, name: str, like: str | None = "lab") -> int:
    body = {"name": name} | ({} if like is None else {"like": like})
    return (await gateway.admin("POST", "spaces", body)).status_code


async def spaces(gateway: LocalGateway) -> dict[str, str]:
    found = (await gateway.admin("GET", "spaces")).json()["spaces"]
    return {each["name"]: each["state"] for each in found}


async def test_a_space_is_made_and_is_there_after_a_restart(tmp_path: Path) -> None:
    file = configured(tmp_path)
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await create(gateway, "garden") == 201
        alice = await gateway.join("alice", space="garden")
        grant = {"recipient": "bob", "capabilities": [{"kind": "mcp/request"}]}
        assert await alice.refused("capability/grant", grant) is None
        assert await gateway.status("/ws?space=garden", token="t-carol") == 403
        assert 'moot_sessions{space="garden"} 1' in (await gateway.http.get("/metrics")).text
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await spaces(gateway) == {"garden": "open", "lab": "open", "vault": "open"}
        await gateway.join("alice", space="garden")
        bob = await gateway.join("bob", space="garden")
        assert await bob.refused("mcp/request", {"method": "tools/list"}, to=["alice"]) is None


async def test_only_an_administrator_of_the_gateway_may(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, file=configured(tmp_path)) as gateway:
        assert await create(gateway, "garden") == 201
        for headers in ({}, {"Authorization": "Bearer t-alice"}):
            asked = [
                await gateway.http.post("/admin/spaces", json={"name": "x"}, headers=headers),
                await gateway.http.get("/admin/spaces", headers=headers),
                await gateway.http.post("/admin/spaces/garden/archive", headers=headers),
                await gateway.http.delete("/admin/spaces/garden", headers=headers),
            ]
            assert {each.status_code for each in asked} == {403}
        assert await spaces(gateway) == {"garden": "open", "lab": "open", "vault": "open"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"name": "lab", "like": "lab"}, "there is one"),
        ({"name": "../x", "like": "lab"}, "a name has up to 64"),
        ({"name": "garden", "like": "nowhere"}, "lab, vault"),
        ({"name": "garden"}, "lab, vault"),
        ({"name": 3}, "the body is"),
        ({"name": "garden", "like": "lab", "more": 1}, "the body is"),
    ],
)
async def test_what_cannot_be_made_is_told(tmp_path: Path, body: Json, told: str) -> None:
    async with running_gateway(tmp_path, file=configured(tmp_path)) as gateway:
        answer = await gateway.admin("POST", "spaces", body)
        assert answer.status_code == 400
        assert told in answer.json()["message"]
        assert set(await spaces(gateway)) == {"lab", "vault"}


async def test_who_was_removed_from_the_model_is_not_let_into_a_new_space(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, file=configured(tmp_path)) as gateway:
        alice = await gateway.join("alice")
        assert await alice.refused("space/kick", {"participant_id": "bob"}) is None
        rotated = (await gateway.admin("POST", "participants/alice/token", {}, space="lab")).json()["token"]
        assert await create(gateway, "garden") == 201
        assert await gateway.status("/ws?space=garden", token="t-bob") in (401, 403)
        assert await gateway.status("/ws?space=garden", token="t-alice") in (401, 403)
        # It is a space of its own: the new token of the model is the model's.
        assert await gateway.status("/ws?space=garden", token=rotated) == 403
        restored = (await gateway.admin("POST", "participants/bob/restore", {}, space="garden")).json()
        assert await gateway.status("/ws?space=garden", token=restored["token"]) == 101


async def test_a_reload_removes_no_space_that_was_made_and_brings_its_new_people(tmp_path: Path) -> None:
    file = configured(tmp_path)
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await create(gateway, "garden") == 201
        alice = await gateway.join("alice", space="garden")
        more = {"lab": space_settings(PEOPLE | participants(dora=["chat"])), "vault": BOTH["vault"]}
        configured(tmp_path, more)
        assert gateway.gateway.reload(load(file, environ={})) == []
        await gateway.join("dora", space="garden")
        # Made now, it has the people of now.
        assert await create(gateway, "meadow") == 201
        await gateway.join("dora", space="meadow")
        configured(tmp_path, {"vault": BOTH["vault"]})
        notes = gateway.gateway.reload(load(file, environ={}))
        assert any("space garden was made after lab" in each for each in notes)
        await alice.fence()
    configured(tmp_path, {"vault": BOTH["vault"]})
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await spaces(gateway) == {"vault": "open"}
        assert gateway.journal("garden").exists()


async def test_an_archived_space_keeps_its_journal_and_lets_nobody_in(tmp_path: Path) -> None:
    file = configured(tmp_path, auto_create_spaces="lab")
    async with running_gateway(tmp_path, file=file) as gateway:
        alice = await gateway.join("alice", space="garden")
        await alice.ask("chat", {"text": "kept"})
        host = gateway.gateway.directory.hosts["garden"]
        assert (await gateway.admin("POST", "spaces/garden/archive")).status_code == 200
        assert (await alice.closed())[0] == REMOVED
        assert await gateway.status("/ws?space=garden", token="t-alice") == 404
        said = await gateway.post("alice", {"kind": "chat", "payload": {}}, space="garden")
        assert said.status_code == 404
        # Who was on the way there comes too late.
        with pytest.raises(InvalidOperation, match="archived or deleted"):
            await host.post("alice", "mew", b'{"kind":"chat","payload":{}}', Options())
        assert 'space="garden"' not in (await gateway.http.get("/metrics")).text
        again = await gateway.admin("POST", "spaces/garden/archive")
        assert (again.status_code, "was archived" in again.json()["message"]) == (400, True)
        assert await create(gateway, "garden") == 400
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await gateway.status("/ws?space=garden", token="t-alice") == 404
        assert (await spaces(gateway))["garden"] == "archived"
        journal = b"".join(each.read_bytes() for each in gateway.journal("garden").glob("*"))
        assert b'"kept"' in journal
    with pytest.raises(UsageError, match=r"was archived by root.*take it out of the file"):
        async with running_gateway(
            tmp_path, file=configured(tmp_path, BOTH | {"garden": space_settings(PEOPLE)})
        ):
            pass


async def test_a_deleted_space_leaves_nothing_but_its_name(tmp_path: Path) -> None:
    file = configured(tmp_path)
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await create(gateway, "garden") == 201
        alice = await gateway.join("alice", space="garden")
        invited = {"participant_id": "eve", "initial_capabilities": [{"kind": "chat"}]}
        token = (await alice.ask("space/invite", invited))["payload"]["token"]
        await gateway.admin("POST", "spaces/garden/archive")
        assert (await gateway.admin("DELETE", "spaces/garden")).status_code == 200
        folder = gateway.journal("garden").parent
        assert {each.name for each in folder.iterdir()} == {"ended"}
        database = gateway.gateway.config.data / "moot.sqlite"
        assert covered_position(database, "garden") is None
        assert covered_position(database, "lab") is not None
        for space in ("garden", "lab"):
            assert await gateway.status(f"/ws?space={space}", token=token) in (401, 404)
        assert await create(gateway, "garden") == 400
        # Again, it removes what may be left; it does not become one whose journal is kept.
        assert (await gateway.admin("DELETE", "spaces/garden")).status_code == 200
        assert (await gateway.admin("POST", "spaces/garden/archive")).status_code == 400
        # A power cut before all was removed.
        (folder / "journal").mkdir()
        (folder / "journal" / "1.jsonl").write_bytes(b"{}\n")
    async with running_gateway(tmp_path, file=file) as gateway:
        assert {each.name for each in folder.iterdir()} == {"ended"}
        assert await spaces(gateway) == {"garden": "deleted", "lab": "open", "vault": "open"}


async def test_a_space_of_the_file_is_neither_archived_nor_deleted(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, file=configured(tmp_path)) as gateway:
        for answer in (
            await gateway.admin("POST", "spaces/lab/archive"),
            await gateway.admin("DELETE", "spaces/lab"),
            await gateway.admin("DELETE", "spaces/nowhere"),
        ):
            assert answer.status_code == 400
        await gateway.join("alice")


async def test_a_space_that_came_into_the_file_is_not_handed_to_the_people_of_its_model(
    tmp_path: Path,
) -> None:
    file = configured(tmp_path)
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await create(gateway, "garden") == 201
    configured(tmp_path, BOTH | {"garden": space_settings(OTHERS)})
    async with running_gateway(tmp_path, file=file) as gateway:
        await gateway.join("carol", space="garden")
    configured(tmp_path)
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await gateway.status("/ws?space=garden", token="t-alice") == 404


async def test_the_command_makes_lists_and_deletes_when_the_name_is_typed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "root.token"
    token.write_text(ROOT)
    token.chmod(0o600)

    class Typed(io.StringIO):
        def isatty(self) -> bool:
            return True

    async with running_gateway(tmp_path, file=configured(tmp_path)) as gateway:

        async def run(*words: str) -> tuple[int, str]:
            given = ["--gateway", gateway.url, "--admin-token-file", str(token)]
            code = await asyncio.to_thread(main, ["space", *words, *given])
            captured = capsys.readouterr()
            return code, captured.out + captured.err

        assert await run("create", "garden", "--like", "lab") == (
            0,
            "garden is made, with the participants and tokens that lab has in the file\n",
        )
        assert (await run("create", "garden", "--like", "lab"))[0] == 3
        code, listed = await run("list")
        assert code == 0
        assert "like lab" in listed
        code, told = await run("delete", "garden")
        assert (code, "call again with --yes" in told) == (2, True)
        monkeypatch.setattr(sys, "stdin", Typed("gardn\n"))
        code, told = await run("delete", "garden")
        assert (code, "nothing was changed" in told) == (1, True)
        await gateway.join("alice", space="garden")
        code, told = await run("archive", "garden")
        assert (code, "kept in spaces/garden/journal of the gateway's data folder" in told) == (0, True)
        monkeypatch.setattr(sys, "stdin", Typed("garden\n"))
        code, told = await run("delete", "garden")
        assert (code, "garden is deleted" in told) == (0, True)
        await until(lambda: not gateway.journal("garden").exists())


async def test_after_a_power_cut_before_its_journal_a_new_space_lets_in_nobody_who_was_removed(
    tmp_path: Path,
) -> None:
    file = configured(tmp_path)
    async with running_gateway(tmp_path, file=file) as gateway:
        alice = await gateway.join("alice")
        assert await alice.refused("space/kick", {"participant_id": "bob"}) is None
        folder = gateway.journal("garden").parent
    folder.mkdir()
    (folder / "like").write_text("lab")
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await gateway.status("/ws?space=garden", token="t-bob") in (401, 403)
        await gateway.join("alice", space="garden")


async def test_what_was_told_to_be_unchanged_is_there_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = configured(tmp_path)
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await create(gateway, "garden") == 201
        assert await create(gateway, "meadow") == 201
        assert (await gateway.admin("POST", "spaces/meadow/archive")).status_code == 200
        with monkeypatch.context() as disk:
            disk.setattr(created_spaces, "sync_folder", fail)
            for name in ("garden", "meadow"):
                answer = await gateway.admin("DELETE", f"spaces/{name}")
                assert (answer.status_code, "nothing was changed" in answer.json()["message"]) == (503, True)
    async with running_gateway(tmp_path, file=file) as gateway:
        assert await spaces(gateway) == {
            "garden": "open",
            "lab": "open",
            "meadow": "archived",
            "vault": "open",
        }
        assert gateway.journal("meadow").exists()


async def test_who_deletes_is_told_what_could_not_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_gateway(tmp_path, file=configured(tmp_path)) as gateway:
        assert await create(gateway, "garden") == 201
        with monkeypatch.context() as disk:
            disk.setattr(created_spaces.CreatedSpaces, "remove_files", fail)
            answer = await gateway.admin("DELETE", "spaces/garden")
        assert answer.status_code == 503
        assert "not all of it is removed yet" in answer.json()["message"]
        assert await gateway.status("/ws?space=garden", token="t-alice") == 404
        assert gateway.journal("garden").exists()
        assert (await gateway.admin("DELETE", "spaces/garden")).status_code == 200
        assert not gateway.journal("garden").exists()


def fail(*_: object) -> None:
    raise OSError(errno.EIO, "disk failed")
