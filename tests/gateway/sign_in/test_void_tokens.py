"""Tokens that are replaced, removed or narrowed: that means now, for connections too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from moot.config import load
from moot.protocol.operation import Json
from tests.gateway.disk import file_mode
from tests.gateway.raw import raw_client
from tests.gateway.running_gateway import (
    ROOT,
    Client,
    LocalGateway,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import command, served

VOID = (4003, "the token of this connection is no longer valid")
PHONE: Json = {"token": "t-phone", "capabilities": [{"kind": "chat"}]}


def people(*tokens: Json, rights: Json = ("*",)) -> Json:
    found = participants(alice=["*"], bob=list(rights))
    found["bob"]["tokens"] = list(tokens)
    return found


def reload(running: LocalGateway, people: Json, **gateway: Json) -> None:
    file = write_config(running.folder, gateway_settings({"lab": space_settings(people)}, **gateway))
    running.gateway.reload(load(file, environ={}))


async def come(gateway: LocalGateway, token: str, query: str = "") -> Client:
    client = await gateway.open(f"/ws?space=lab{query}", token=token)
    await client.fence()
    return client


async def rotate(gateway: LocalGateway, name: str, **body: Json) -> str:
    answer = await gateway.admin("POST", f"participants/{name}/token", body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["token"])


async def poll_status(gateway: LocalGateway, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return (await gateway.http.get("/participants/bob/messages", headers=headers)).status_code


async def test_a_rotation_ends_every_connection_of_the_old_tokens(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, people("t-bob", PHONE)) as gateway:
        alice = await gateway.join("alice")
        bobs = [
            await come(gateway, "t-bob"),
            await come(gateway, "t-phone"),
            await come(gateway, "t-bob", "&dialect=mcpx"),
        ]
        fresh = await rotate(gateway, "bob")
        for bob in bobs:
            assert await bob.closed() == VOID
        await alice.hear(lambda each: each["payload"].get("event") == "leave")
        for token in ("t-bob", "t-phone"):
            assert await gateway.status("/ws?space=lab", token=token) == 401
            assert (await gateway.post("bob", {"kind": "chat"}, token=token)).status_code == 403
            assert await poll_status(gateway, token) == 403
        bob = await come(gateway, fresh)
        assert await bob.refused("chat") is None
        assert await alice.refused("chat") is None


async def test_a_rotation_that_keeps_the_others_ends_nothing(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, people("t-bob", PHONE)) as gateway:
        bob, phone = await come(gateway, "t-bob"), await come(gateway, "t-phone")
        fresh = await come(gateway, await rotate(gateway, "bob", keep=True))
        for client in (bob, phone, fresh):
            assert await client.refused("chat") is None


async def test_a_token_that_is_removed_takes_its_own_connections_along_and_no_others(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, people("t-bob", "t-second", PHONE)) as gateway:
        alice = await gateway.join("alice")
        bob, second, phone = [await come(gateway, token) for token in ("t-bob", "t-second", "t-phone")]
        reload(gateway, people("t-bob", PHONE))
        assert await second.closed() == VOID
        for client in (bob, phone):
            assert await client.refused("chat") is None
        assert not [each for each in await alice.fence() if each["payload"].get("event") == "leave"]
        # With the last one the participant is gone, and told to be.
        reload(gateway, people(PHONE))
        assert await bob.closed() == VOID
        reload(gateway, people())
        assert await phone.closed() == VOID
        await alice.hear(lambda each: each["payload"].get("event") == "leave")


async def test_short_lived_tokens_end_when_one_that_may_have_made_them_is_replaced_or_narrowed(
    tmp_path: Path,
) -> None:
    """Else a thief would go on for a day after the configuration has named another token."""

    async def mint(gateway: LocalGateway, token: str) -> tuple[str, Client]:
        headers = {"Authorization": f"Bearer {token}"}
        answer = await gateway.http.post("/participants/bob/tokens", json={"seconds": 600}, headers=headers)
        made = str(answer.json()["token"])
        return made, await come(gateway, made)

    async with running_gateway(tmp_path, people("t-bob")) as gateway:
        made, client = await mint(gateway, "t-bob")
        # Nothing that was there is less: it stays.
        reload(gateway, people("t-bob", {"token": "t-phone"}, rights=("chat",)))
        assert await client.refused("chat") is None
        reload(gateway, people("t-bob", PHONE))
        assert await client.closed() == VOID
        assert await gateway.status("/ws?space=lab", token=made) == 401
        made, client = await mint(gateway, "t-bob")
        reload(gateway, people("t-new", PHONE))
        assert await client.closed() == VOID
        assert await gateway.status("/ws?space=lab", token=made) == 401


async def test_a_token_that_is_narrowed_narrows_its_connections_and_tells_them(tmp_path: Path) -> None:
    """Also where the fast path had its verdict on the kind."""
    full: Json = {"token": "t-phone"}
    async with running_gateway(tmp_path, people("t-bob", full)) as gateway:
        bob, phone = await come(gateway, "t-bob"), await come(gateway, "t-phone")
        for number in range(4):
            for client, name in ((bob, "b"), (phone, "p")):
                await client.send(envelope(f"{name}-{number}"))
        await bob.fence()
        await phone.fence()
        taken = gateway.gateway.directory.hosts["lab"].fast_paths.accepted
        reload(gateway, people("t-bob", full | {"capabilities": [{"kind": "reasoning/*"}]}))
        welcome = await phone.hear("system/welcome")
        assert welcome["payload"]["you"]["capabilities"] == [{"kind": "reasoning/*"}]
        await phone.send(envelope("after"))
        error = await phone.hear("system/error")
        assert error["payload"]["error"] == "capability_violation"
        assert await bob.refused("chat") is None
        assert "system/welcome" not in bob.kinds()[1:]
        assert gateway.gateway.directory.hosts["lab"].fast_paths.accepted == taken
        # And back.
        reload(gateway, people("t-bob", full))
        await phone.hear("system/welcome")
        assert await phone.refused("chat") is None


def envelope(id: str) -> str:
    fields = {"protocol": "mew/v0.4", "id": id, "ts": "2026-01-31T12:00:00Z", "from": "bob", "kind": "chat"}
    return json.dumps(fields | {"payload": {"text": "hi"}}, separators=(",", ":"))


async def test_a_post_whose_token_falls_while_its_body_is_on_the_way_is_refused(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, people("t-bob")) as gateway, raw_client(gateway.port) as slow:
        alice = await gateway.join("alice")
        body = json.dumps({"kind": "chat", "id": "late", "payload": {"text": "late"}}).encode()
        head = (
            f"POST /participants/bob/messages HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n"
            f"Authorization: Bearer t-bob\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        slow.send(head.encode() + body[:5])
        await alice.fence()
        await rotate(gateway, "bob")
        slow.send(body[5:])
        status, _ = await slow.answer()
        assert status == 403
        assert "late" not in [each.get("id") for each in await alice.fence()]


async def test_an_administrator_whose_token_falls_while_the_body_is_on_the_way_is_refused(
    tmp_path: Path,
) -> None:
    async with running_gateway(tmp_path, people("t-bob")) as gateway, raw_client(gateway.port) as slow:
        bob = await come(gateway, "t-bob")
        head = (
            f"POST /admin/participants/bob/token HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n"
            f"Authorization: Bearer {ROOT}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
        )
        slow.send(head.encode() + b"{")
        await bob.fence()
        reload(gateway, people("t-bob"), admin_tokens={"root": {"token": "t-other-root"}})
        slow.send(b"}")
        status, _ = await slow.answer()
        assert status == 403
        assert await bob.refused("chat") is None


async def test_a_void_token_stays_void_over_restarts_and_reloads(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, people("t-bob")) as gateway:
        bob = await come(gateway, "t-bob")
        fresh = await rotate(gateway, "bob")
        kept = await rotate(gateway, "bob", keep=True)
        assert await bob.closed() == VOID
    for _ in range(2):
        async with running_gateway(tmp_path, people("t-bob")) as gateway:
            assert await gateway.status("/ws?space=lab", token="t-bob") == 401
            for token in (fresh, kept):
                assert await gateway.status("/ws?space=lab", token=token) == 101
            reload(gateway, people("t-bob"))
            assert await gateway.status("/ws?space=lab", token="t-bob") == 401


async def test_a_generated_token_is_replaced_in_its_file(tmp_path: Path) -> None:
    generated: Json = {"alice": {"capabilities": ["*"]}, "bob": {"capabilities": ["*"]}}
    async with running_gateway(tmp_path, generated) as gateway:
        file = gateway.gateway.configuration.spaces["lab"].token_files["bob"]
        old = file.read_text().strip()
        bob = await come(gateway, old)
        fresh = await rotate(gateway, "bob")
        assert await bob.closed() == VOID
        assert file.read_text() == fresh + "\n"
        assert file_mode(file) == 0o600
        assert [each.name for each in file.parent.iterdir() if each.name.startswith(".b")] == []
        bob, kept = await come(gateway, fresh), await rotate(gateway, "bob", keep=True)
        assert file.read_text() == fresh + "\n"
        # The file has caught up with what was done here: reading it again ends nobody, and voids nothing.
        reload(gateway, generated)
        assert await bob.refused("chat") is None
        assert await gateway.status("/ws?space=lab", token=kept) == 101
    async with running_gateway(tmp_path, generated) as gateway:
        for token, status in ((fresh, 101), (kept, 101), (old, 401)):
            assert await gateway.status("/ws?space=lab", token=token) == status


async def test_a_file_that_cannot_be_replaced_is_removed(tmp_path: Path, monkeypatch: Any) -> None:
    generated: Json = {"alice": {"capabilities": ["*"]}, "bob": {"capabilities": ["*"]}}
    async with running_gateway(tmp_path, generated) as gateway:
        file = gateway.gateway.configuration.spaces["lab"].token_files["bob"]
        bob = await come(gateway, file.read_text().strip())

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("moot.resilience.atomic_file.os.replace", fail)
            fresh = await rotate(gateway, "bob")
        assert await bob.closed() == VOID
        assert not file.exists()
        assert await gateway.status("/ws?space=lab", token=fresh) == 101


async def test_commands_use_and_announce_the_new_token_only(tmp_path: Path) -> None:
    """Real processes: `moot serve`, a rotation, the daily commands, another start."""
    spaces = {"lab": space_settings({"you": {"capabilities": ["*"]}})}
    file = write_config(tmp_path, gateway_settings(spaces))
    async with served(file) as gateway:
        reply = next(line for line in gateway.lines if line.startswith("token of you in lab: "))
        tokens = Path(reply.removeprefix("token of you in lab: "))
        old = tokens.read_text().strip()
        you = await gateway.open("/ws?space=lab", token=old)
        answer = await gateway.admin("POST", "participants/you/token", {})
        assert answer.status_code == 200
        assert (await you.closed())[0] == 4003
        code, output = await command(
            "send", "hello", "--gateway", gateway.url, "--token-file", str(tokens), cwd=tmp_path
        )
        assert code == 0, output
    # A file as 0.1 left it behind: its token is void, and nobody is sent to it.
    tokens.write_text(old + "\n")
    async with served(file) as gateway:
        reply = next(line for line in gateway.lines if line.startswith("token of you in lab: "))
        assert reply == "token of you in lab: void, it was replaced or removed"


GUESTS: Json = [{"kind": "chat"}, {"kind": "mcp/request"}]


async def test_guests_are_out_at_once_when_a_space_is_public_no_more(tmp_path: Path) -> None:
    settings = {"lab": space_settings(participants(alice=["*"]), access="public", anonymous=GUESTS)}
    async with running_gateway(tmp_path, spaces=settings) as gateway:
        alice = await gateway.join("alice")
        guests = [await come_as_guest(gateway), await come_as_guest(gateway)]
        assert await guests[0].refused("chat") is None
        reload(gateway, participants(alice=["*"]))
        for guest in guests:
            assert await guest.closed() == (1008, "this space takes no guests any more")
        await alice.hear(lambda each: each["payload"].get("event") == "leave")
        assert [each.name for each in gateway.gateway.directory.hosts["lab"].space.state.roster] == ["alice"]


async def test_guests_have_what_guests_may_do_now(tmp_path: Path) -> None:
    """Less and more, and they are told."""
    alice = participants(alice=["*"])
    settings = {"lab": space_settings(alice, access="public", anonymous=GUESTS)}
    async with running_gateway(tmp_path, spaces=settings) as gateway:
        guest = await come_as_guest(gateway)
        await gateway.join("alice")
        call: Json = {"method": "tools/list"}
        assert await guest.refused("mcp/request", call, to=["alice"]) is None
        fewer = {"lab": space_settings(alice, access="public", anonymous=[{"kind": "chat"}])}
        gateway.gateway.reload(load(write_config(gateway.folder, gateway_settings(fewer)), environ={}))
        assert await guest.refused("mcp/request", call, to=["alice"]) == "capability_violation"
        assert await guest.refused("chat") is None
        gateway.gateway.reload(load(write_config(gateway.folder, gateway_settings(settings)), environ={}))
        assert await guest.refused("mcp/request", call, to=["alice"]) is None


async def test_who_was_invited_is_out_at_once_when_a_space_admits_only_whom_it_lists(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, participants(alice=["*"])) as gateway:
        alice = await gateway.join("alice")
        token = (await alice.ask("space/invite", {"participant_id": "carol"}))["payload"]["token"]
        carol, eager = await come(gateway, token), await come(gateway, token)
        restricted = {"lab": space_settings(participants(alice=["*"]), access="restricted")}
        gateway.gateway.reload(load(write_config(gateway.folder, gateway_settings(restricted)), environ={}))
        await eager.say("chat", {"text": "still here"})
        for each in (carol, eager):
            assert await each.closed() == (4003, "this space admits only the participants that it lists")
        await alice.hear(lambda each: each["payload"].get("event") == "leave")
        assert await alice.refused("chat") is None
        assert not any(each["kind"] == "chat" and each["from"] == "carol" for each in alice.received)
        assert await gateway.status("/ws?space=lab", token=token) == 403


async def come_as_guest(gateway: LocalGateway) -> Client:
    guest = await gateway.open("/")
    await guest.send({"type": "join", "space": "lab"})
    await guest.fence()
    return guest
