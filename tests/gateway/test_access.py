"""Who gets in, with which rights: access, guests, tokens, profiles, and spaces side by side (MEW 5.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from moot.mcp.eras import LISTS
from moot.protocol.operation import Json
from tests.gateway.running_gateway import (
    CALL,
    LocalGateway,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)

CHAT = {"kind": "chat"}


async def guest(gateway: LocalGateway, space: str = "lab") -> tuple[int | None, list[Json]]:
    """Somebody without a token: how their connection stands after joining, and what they hold."""
    client = await gateway.open("/")
    await client.send({"type": "join", "space": space})
    first = await client.next()
    if first["kind"] == "system/error":
        return (await client.closed())[0], []
    rights: list[Json] = first["payload"]["you"]["capabilities"]
    return None, rights


@pytest.mark.requirement("MEW-5.1-5", "MCPX-5.1-4")
async def test_guests_come_into_public_spaces_and_nowhere_else(tmp_path: Path) -> None:
    people = participants(alice=["*"])
    spaces = {
        "open": space_settings(people, access="public", anonymous=["chat"]),
        "closed": space_settings(people),
        "listed": space_settings(people, access="restricted"),
    }
    async with running_gateway(tmp_path, spaces=spaces) as gateway:
        assert await guest(gateway, "open") == (None, [CHAT])
        for space in ("closed", "listed", "nowhere"):
            assert await guest(gateway, space) == (1008, [])
        for space in spaces:
            # A wrong token is no guest, and HTTP always wants one.
            assert await gateway.status(f"/ws?space={space}", token="wrong") == 401
            answer = await gateway.http.get("/participants/guest-1/messages", params={"space": space})
            assert answer.status_code == 401


async def test_guests_have_names_of_their_own_the_rights_of_guests_and_lose_grants(tmp_path: Path) -> None:
    """D-17: what was granted to a guest ends with its connection."""
    people = participants(alice=["*"])
    rules: Json = {"access": "public", "anonymous": ["chat", "mcp/proposal"]}
    async with running_gateway(tmp_path, people, rules=rules) as gateway:
        alice = await gateway.join("alice")
        one, two = await gateway.open("/"), await gateway.open("/")
        names = []
        for client in (one, two):
            await client.send({"type": "join", "space": "lab"})
            names.append((await client.hear("system/welcome"))["payload"]["you"]["id"])
        assert len({*names, "alice"}) == 3
        assert await one.refused("mcp/request", CALL, to=["alice"]) == "capability_violation"
        assert (await one.ask("chat"))["from"] == names[0]
        grant = {"recipient": names[0], "capabilities": [{"kind": "mcp/request"}]}
        assert await alice.refused("capability/grant", grant) is None
        assert await one.refused("mcp/request", CALL, to=["alice"]) is None
        await one.leave()
        await alice.hear(lambda each: each["payload"].get("event") == "leave")
        again = await gateway.open("/")
        await again.send({"type": "join", "space": "lab"})
        assert (await again.hear("system/welcome"))["payload"]["you"]["capabilities"] == [
            CHAT,
            {"kind": "mcp/proposal"},
        ]


async def test_a_restricted_space_admits_only_whom_it_lists(tmp_path: Path) -> None:
    """An invitation alone opens a private space; here the name must stand in `admit` as well."""
    people = participants(alice=["*"])
    for access, admit, status in (
        ("private", None, 101),
        ("restricted", ["nobody"], 403),
        ("restricted", ["zoe"], 101),
    ):
        folder = tmp_path / f"{access}-{status}"
        folder.mkdir()
        rules: dict[str, Json] = {"access": access} | ({} if admit is None else {"admit": admit})
        async with running_gateway(folder, people, rules=rules) as gateway:
            alice = await gateway.join("alice")
            token = (await alice.ask("space/invite", {"participant_id": "zoe"}))["payload"]["token"]
            assert await gateway.status("/ws?space=lab", token=token) == status
            answer = await gateway.post("zoe", {"kind": "chat"}, token=token)
            # zoe holds no capability, so nobody lets her chat; but who is admitted is told so by the ladder.
            assert answer.status_code == 403
            assert (answer.json()["error"] == "capability_violation") == (status == 101)


@pytest.mark.requirement("MEW-5.1-2", "MEW-5.1-3", "MCPX-5.1-2")
async def test_a_token_can_stand_for_rights_or_a_profile_of_its_own(tmp_path: Path) -> None:
    people: Json = {
        "bot": {
            "capabilities": [CHAT, {"kind": "mcp/*"}],
            "tokens": [
                "t-all",
                {"token": "t-less", "capabilities": [CHAT]},
                {"token": "t-profile", "profile": "proposal-only"},
            ],
        }
    }
    async with running_gateway(tmp_path, people) as gateway:
        for token, may_request, may_chat in (("t-all", True, True), ("t-less", False, True)):
            client = await gateway.open("/ws?space=lab", token=token)
            await client.hear("system/welcome")
            assert (await client.refused("mcp/request", CALL) is None) == may_request
            assert (await client.refused("chat") is None) == may_chat
            answer = await gateway.post("bot", {"kind": "mcp/request", "payload": CALL}, token=token)
            assert answer.status_code == (200 if may_request else 403)
        client = await gateway.open("/ws?space=lab", token="t-profile")
        await client.hear("system/welcome")
        assert await client.refused("mcp/request", CALL) == "capability_violation"
        assert await client.refused("mcp/proposal", CALL, id="p1") is None
        assert await client.refused("mcp/withdraw", {}, correlation_id=["p1"]) is None


@pytest.mark.requirement("MEW-4.1-19", "MCPX-4.1-13", "MCPX-7.1-1", "MEW-7.3-1")
async def test_the_welcome_lists_the_patterns_behind_a_profile(tmp_path: Path) -> None:
    """A new agent starts with proposing and without requesting anything but lists."""
    settings = gateway_settings(
        {
            "lab": {
                "dialects": ["mew", "mcpx"],
                "participants": {
                    "agent": {"tokens": ["t-agent"], "profile": "proposal-only"},
                    "clerk": {"tokens": ["t-clerk"], "profile": "clerk"},
                },
            }
        }
    ) | {"profiles": {"clerk": [CHAT, {"kind": "participant/*"}]}}
    async with running_gateway(tmp_path, file=write_config(tmp_path, settings)) as gateway:
        clerk = await gateway.open("/ws?space=lab", token="t-clerk")
        assert (await clerk.next())["payload"]["you"]["capabilities"] == [CHAT, {"kind": "participant/*"}]
        agent = await gateway.open("/ws?topic=lab", token="t-agent")
        rights = (await agent.next())["payload"]["you"]["capabilities"]
        assert "mcp/proposal:*" in rights
        requests = sorted(right for right in rights if right.startswith(("mcp/request", "*", "mcp/*")))
        assert requests == [f"mcp/request:{method}" for method in sorted(LISTS)]
        body: Json = {"method": "tools/call", "params": {"name": "add"}}
        assert await agent.refused("mcp/request:tools/call:add", body) == "capability_violation"
        assert await agent.refused("mcp/proposal:tools/call:add", body) is None
        # It sees what it can propose.
        assert await agent.refused("mcp/request:tools/list", {"method": "tools/list"}) is None


@pytest.mark.requirement("MEW-6.5-2", "MCPX-6.3-2")
async def test_the_accepted_protocol_versions_can_be_pinned(tmp_path: Path) -> None:
    """D-06: `dialects` pins what is spoken, `accept_protocols` may add an older version."""
    spaces: Json = {
        "now": {"dialects": ["mew"], "participants": participants(alice=["*"])},
        "then": {
            "dialects": ["mew"],
            "accept_protocols": ["mew/v0.3"],
            "participants": participants(alice=["*"]),
        },
    }
    async with running_gateway(tmp_path, spaces=spaces) as gateway:
        now, then = await gateway.join("alice", space="now"), await gateway.join("alice", space="then")
        assert await now.refused("chat", protocol="mew/v0.3") == "protocol_mismatch"
        assert await then.refused("chat", protocol="mew/v0.3") is None
        assert await then.refused("chat", protocol="mcpx/v0.1") == "protocol_mismatch"


@pytest.mark.requirement("MEW-2.2-3", "MEW-2.2-4", "MEW-3.6-1", "MEW-3.6-2", "MEW-3.6-3", "MEW-3.6-4")
@pytest.mark.requirement("MEW-3.6-5", "MEW-3.6-6", "MCPX-2.2-4")
async def test_two_spaces_on_one_port_know_nothing_of_each_other(tmp_path: Path) -> None:
    """Names, rights, envelopes, frames, presence, history and journal; the same identity has other rights."""
    spaces: Json = {
        "red": space_settings(participants(alice=["*"], ray=["chat"])),
        "blue": space_settings(participants(alice=["chat"], bea=["chat"])),
    }
    async with running_gateway(tmp_path, spaces=spaces) as gateway:
        red, blue = await gateway.join("alice", space="red"), await gateway.join("alice", space="blue")
        ray, bea = await gateway.join("ray", space="red"), await gateway.join("bea", space="blue")
        await red.fence()
        await blue.fence()
        # The same id in both: each space has its own window.
        assert await ray.refused("chat", {"text": "said in red"}, id="c1") is None
        assert await bea.refused("chat", {"text": "said in blue"}, id="c1") is None
        await red.say("stream/request", {"direction": "upload"})
        stream = (await red.hear("stream/open"))["payload"]["stream_id"]
        await red.send(f"#{stream}#red data")
        assert await ray.hear_frame() == f"#{stream}#red data"
        await blue.send(f"#{stream}#stolen")
        assert (await blue.hear("system/error"))["payload"]["error"] == "stream_not_found"
        assert await red.refused("space/kick", {"participant_id": "bea"}) == "participant_not_found"
        assert await blue.refused("space/kick", {"participant_id": "bea"}) == "capability_violation"
        assert await blue.refused("mcp/request", CALL) == "capability_violation"
        assert await ray.refused("mcp/request", CALL) == "capability_violation"
        for client in (red, blue, ray, bea):
            await client.fence()
        for client, foreign in ((blue, "ray"), (blue, "red"), (bea, "ray"), (bea, "red"), (ray, "blue")):
            assert foreign not in " ".join(
                each if isinstance(each, str) else str(each) for each in client.received
            )
        polled = await gateway.poll("alice", space="blue")
        assert "red" not in str(polled)
        assert (await gateway.post("bea", {"kind": "chat"}, space="red")).status_code == 403
        assert (await gateway.post("alice", {"kind": "chat"}, space="blue")).status_code == 200
    red_text, blue_text = ((tmp_path / "data" / "spaces" / name) for name in ("red", "blue"))
    assert b"said in red" in b"".join(path.read_bytes() for path in red_text.rglob("*.jsonl"))
    assert b"said in red" not in b"".join(path.read_bytes() for path in blue_text.rglob("*.jsonl"))
