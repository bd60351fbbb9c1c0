"""How one gets in: with a header, or with a first frame that says who and where (D-20, D-21, D-22)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import websockets

from moot.protocol.operation import Json
from tests.gateway.disk import everything_under
from tests.gateway.running_gateway import (
    Client,
    LocalGateway,
    SharedGateway,
    participants,
    refusal_in,
    running_gateway,
    space_settings,
)

PLACES = ["/", "/ws", "/participants/alice/ws", "/ws?space=lab"]
FRAMES: dict[str, Json] = {
    "type, participantId": {"type": "join", "participantId": "alice", "space": "lab", "token": "t-alice"},
    "type, no id": {"type": "join", "space": "lab", "token": "t-alice"},
    "type, no space": {"type": "join", "token": "t-alice"},
    "kind, participantId": {
        "kind": "system/join",
        "payload": {"participantId": "alice", "space": "lab", "token": "t-alice"},
    },
    "kind, participant": {
        "kind": "system/join",
        "payload": {"participant": "alice", "space": "lab", "token": "t-alice"},
    },
    "a whole envelope": {
        "protocol": "mew/v0.4",
        "id": "j1",
        "ts": "2026-01-01T00:00:00Z",
        "from": "alice",
        "kind": "system/join",
        "payload": {"participant_id": "alice", "space": "lab", "token": "t-alice"},
    },
}


LIMITS: Json = {"max_sessions_per_member": 8}


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    people = participants(
        alice=["*"], bob=["chat"], carol={"capabilities": [{"kind": "chat"}], "exclusive": True}
    )
    people |= {"mew": {"tokens": ["t-mew"], "capabilities": [{"kind": "mcp/proposal"}]}}
    spaces = {
        "default": space_settings(people, limits=LIMITS),
        "lab": space_settings(people, limits=LIMITS),
        "other": space_settings(participants(zoe=["chat"])),
    }
    # Longer than any machine needs: whoever is late is a test of its own.
    shared_gateway = SharedGateway(
        tmp_path_factory.mktemp("joining"), spaces, max_connections_per_address=0, join_seconds=600
    )
    yield shared_gateway
    shared_gateway.close()


async def welcomed(client: Client) -> dict[str, Any]:
    """The payload of the first message, which is the welcome (D-02)."""
    first: dict[str, Any] = await client.next()
    assert first["kind"] in ("system/welcome", "system.welcome"), first
    payload: dict[str, Any] = first["payload"]
    return payload


async def turned_away(client: Client) -> str:
    """D-21: one error in words, then 1008; returns the error's code."""
    (answer,) = [message async for message in rest_of(client)]
    code = refusal_in(answer)
    assert code is not None
    assert answer["payload"]["message"]
    assert await client.closed() == (1008, answer["payload"]["message"])
    return code


async def rest_of(client: Client) -> Any:
    await client.closed()
    for message in client.received:
        yield message


@pytest.mark.requirement(
    "MEW-5.2-1", "MEW-5.2-3", "MEW-5.2-4", "MEW-5.2-7", "MEW-8.1-1", "MEW-8.1-2", "MEW-8.1-3"
)
@pytest.mark.requirement("MEW-5.1-4", "MCPX-5.1-3", "MEW-R-2")
async def test_a_token_in_the_header_decides_who_one_is(shared_gateway: SharedGateway) -> None:
    gateway = shared_gateway.gateway
    for name, rights in (("alice", [{"kind": "*"}]), ("bob", [{"kind": "chat"}])):
        client = await gateway.open("/ws?space=lab", token=f"t-{name}")
        payload = await welcomed(client)
        assert payload["you"] == {"id": name, "capabilities": rights}
        presence = await client.next()
        assert presence["kind"] == "system/presence"
        assert presence["payload"] == {"event": "join", "participant": payload["you"]}
        await client.leave()


@pytest.mark.requirement("MCPX-5.2-1", "MCPX-5.2-3", "MCPX-5.2-4", "MCPX-5.2-7", "MCPX-8.1-1", "MCPX-8.1-3")
async def test_a_topic_is_joined_with_a_bearer_token_and_no_id(shared_gateway: SharedGateway) -> None:
    client = await shared_gateway.gateway.open("/ws?topic=lab", token="t-bob")
    payload = await welcomed(client)
    assert payload["you"] == {"id": "bob", "capabilities": ["chat"]}
    assert client.received[0]["protocol"] == "mcpx/v0.1"


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("where", PLACES)
async def test_every_form_of_join_frame_works_at_every_place(
    shared_gateway: SharedGateway, where: str, frame: Json
) -> None:
    """reference-facts.md: the SDK, the terminal and the template each send another."""
    client = await shared_gateway.gateway.open(where)
    await client.send(frame)
    assert (await welcomed(client))["you"]["id"] == "alice"
    assert (await client.ask("chat", {"text": "hi"}))["from"] == "alice"


@pytest.mark.requirement("MEW-5.1-1")
async def test_capabilities_that_a_client_claims_have_no_effect(shared_gateway: SharedGateway) -> None:
    client = await shared_gateway.gateway.open("/")
    claim = [{"kind": "*"}]
    await client.send({"type": "join", "space": "lab", "token": "t-bob", "capabilities": claim})
    assert (await welcomed(client))["you"]["capabilities"] == [{"kind": "chat"}]
    assert await client.refused("space/kick", {"participant_id": "alice"}) == "capability_violation"


LATE_JOINS: dict[str, Json] = {
    "type": {"type": "join", "space": "other", "token": "t-zoe", "participantId": "zoe"},
    "kind": {"kind": "system/join", "payload": {"space": "other", "token": "t-zoe"}},
    "empty": {"kind": "system/join"},
    "with a long list": {"type": "join", "token": "t-zoe", "capabilities": [{"kind": "x" * 200}] * 100},
}


@pytest.mark.parametrize("frame", LATE_JOINS.values(), ids=LATE_JOINS)
async def test_a_join_after_a_header_handshake_changes_nothing_and_says_nothing(
    shared_gateway: SharedGateway, frame: Json
) -> None:
    """One template of the reference implementation sends both."""
    for dialect in ("mew", "mcpx", "m3p"):
        client = await shared_gateway.gateway.open(f"/ws?space=lab&dialect={dialect}", token="t-bob")
        await client.send(frame)
        kinds = [each["kind"].replace(".", "/") for each in await client.fence()]
        assert [kind for kind in kinds if kind != "system/presence"] == ["system/welcome"]
        assert (await client.ask("chat.message" if dialect == "m3p" else "chat"))["from"] == "bob"


@pytest.mark.parametrize("frame", LATE_JOINS.values(), ids=LATE_JOINS)
async def test_a_join_in_the_middle_is_refused_and_its_token_written_nowhere(
    shared_gateway: SharedGateway, frame: Json
) -> None:
    """D-10: a join is read as the first frame only. Nothing secret is ever written."""
    for dialect in ("mew", "mcpx", "m3p"):
        client = await shared_gateway.gateway.join("bob", f"&dialect={dialect}")
        dotted = frame | {"kind": "system.join"} if dialect == "m3p" and "kind" in frame else frame
        await client.send(dotted)
        (answer,) = await client.fence()
        assert refusal_in(answer) in ("capability_violation", "invalid_envelope")
    if "kind" in frame:
        answered = await shared_gateway.gateway.post("bob", frame, space="lab")
        assert answered.status_code == 400
    # HTTP 200 comes only when all that was journaled before is on disk.
    assert (await shared_gateway.gateway.post("bob", {"kind": "chat"}, space="lab")).status_code == 200
    assert b"t-zoe" not in everything_under(shared_gateway.gateway.journal())


@pytest.mark.requirement("MEW-5.2-2", "MCPX-5.2-2", "MCPX-8.1-2")
@pytest.mark.parametrize("where", ["/ws?space=lab", "/ws?topic=lab", "/", "/participants/alice/ws?space=lab"])
async def test_a_token_that_nobody_has_is_401(shared_gateway: SharedGateway, where: str) -> None:
    for token in ("wrong", "t-alic", "t-alicee", "T-alice", "x" * 2000):
        assert await shared_gateway.gateway.status(where, token=token) == 401
    for header in ("Bearer", "Bearer ", "Basic t-alice", "t-alice", "Token t-alice", ""):
        assert await shared_gateway.gateway.status(where, headers={"Authorization": header}) == 401


async def test_a_token_of_another_space_is_403_and_an_unknown_space_404(
    shared_gateway: SharedGateway,
) -> None:
    gateway = shared_gateway.gateway
    assert await gateway.status("/ws?space=lab", token="t-zoe") == 403
    assert await gateway.status("/ws?space=nowhere", token="t-zoe") == 404
    assert await gateway.status("/ws?space=..%2Flab", token="t-zoe") == 404
    # Without a name the one called `default` is meant (D-22); zoe is not in it.
    assert await gateway.status("/ws", token="t-zoe") == 403


@pytest.mark.parametrize(
    "where", ["/nowhere", "/ws/", "/participants/ws", "/participants//ws", "/health", "//ws"]
)
async def test_there_are_no_sockets_elsewhere(shared_gateway: SharedGateway, where: str) -> None:
    assert await shared_gateway.gateway.status(where, token="t-alice") == 404


BAD_JOINS: dict[str, tuple[Json, str]] = {
    "wrong token": ({"type": "join", "space": "lab", "token": "wrong"}, "unauthorized"),
    "no token": ({"type": "join", "space": "lab"}, "unauthorized"),
    "token is a number": ({"type": "join", "space": "lab", "token": 7}, "unauthorized"),
    "another space's token": ({"type": "join", "space": "lab", "token": "t-zoe"}, "unauthorized"),
    "unknown space": ({"type": "join", "space": "nowhere", "token": "t-alice"}, "unauthorized"),
    "a chat": ({"kind": "chat", "payload": {"text": "hi"}}, "invalid_envelope"),
    "not JSON": ("{", "invalid_json"),
    "a list": ([], "invalid_envelope"),
    "a stream frame": ("#stream-1#x", "invalid_json"),
    "a key twice": ('{"type":"join","token":"x","token":"t-alice"}', "invalid_json"),
    "the gateway's name": (
        {"type": "join", "space": "lab", "token": "t-bob", "participantId": "system:gateway"},
        "invalid_request",
    ),
    "somebody else's name": (
        {"type": "join", "space": "lab", "token": "t-bob", "participantId": "alice"},
        "invalid_request",
    ),
}


@pytest.mark.parametrize(("frame", "code"), BAD_JOINS.values(), ids=BAD_JOINS)
async def test_a_bad_join_is_told_so_and_closed_1008(
    shared_gateway: SharedGateway, frame: Json, code: str
) -> None:
    witness = await shared_gateway.gateway.join("alice")
    client = await shared_gateway.gateway.open("/ws")
    await client.send(frame)
    assert await turned_away(client) == code
    # Nobody hears of somebody who did not get in.
    assert await witness.fence() == []


async def test_who_does_not_join_in_time_is_turned_away_having_heard_nothing(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, join_seconds=0.5) as gateway:
        alice = await gateway.join("alice")
        started = asyncio.get_running_loop().time()
        silent = await gateway.open("/ws?space=lab")
        await alice.ask("chat", {"text": "not for the silent one"})
        assert await turned_away(silent) == "unauthorized"
        # Timers may be a bit early.
        assert asyncio.get_running_loop().time() - started >= 0.48


@pytest.mark.requirement("MEW-7.2-1")
async def test_several_sockets_share_one_identity_and_closing_one_harms_no_other(
    shared_gateway: SharedGateway,
) -> None:
    """D-22: presence only on the first and the last."""
    alice = await shared_gateway.gateway.join("alice")
    first, second = await shared_gateway.gateway.join("bob"), await shared_gateway.gateway.join("bob")
    await first.say("chat", {"text": "to both"})
    for client in (first, second):
        assert (await client.hear("chat"))["from"] == "bob"
    await first.leave()
    await second.fence()
    assert (await second.ask("chat", {"text": "still here"}))["from"] == "bob"
    await second.leave()
    await alice.hear(lambda each: each["payload"].get("event") == "leave")
    again = await shared_gateway.gateway.join("bob")
    await again.leave()
    await alice.hear(lambda each: each["payload"].get("event") == "leave")
    events = [each["payload"]["event"] for each in alice.received if each["kind"] == "system/presence"]
    assert events == ["join", "join", "leave", "join", "leave"]


async def test_one_socket_too_many_is_told_so_and_may_come_back_later(shared_gateway: SharedGateway) -> None:
    sockets = [await shared_gateway.gateway.join("bob") for _ in range(8)]
    ninth = await shared_gateway.gateway.open("/ws?space=lab", token="t-bob")
    refusal = (await ninth.hear("system/error"))["payload"]
    assert (refusal["error"], refusal["limit"]) == ("resource_limit", "max_sessions_per_member")
    assert (await ninth.closed())[0] == 1013
    assert [refusal_in(each) for each in ninth.received] == ["resource_limit"]
    # Those who are in can still post, and the others are untouched.
    answer = await shared_gateway.gateway.post("bob", {"kind": "chat"}, space="lab")
    assert answer.status_code == 200, answer.text
    for client in sockets:
        await client.hear("chat")
        await client.leave()


async def test_the_newest_socket_of_an_exclusive_participant_wins(shared_gateway: SharedGateway) -> None:
    alice = await shared_gateway.gateway.join("alice")
    old = await shared_gateway.gateway.join("carol")
    new = await shared_gateway.gateway.join("carol")
    assert (await old.closed())[0] == 4001
    assert (await new.ask("chat"))["from"] == "carol"
    await alice.hear("chat")
    presence = [each["payload"]["event"] for each in alice.received if each["kind"] == "system/presence"]
    assert presence == ["join", "join"]


async def test_who_is_shut_down_is_closed_4002_after_its_last_words_and_may_rejoin_at_once(
    tmp_path: Path,
) -> None:
    """D-26; its last words take as long as they take, then the grace is over."""
    people = participants(alice=["*"], bob=["chat"])
    async with running_gateway(
        tmp_path, people, rules={"limits": {"shutdown_grace_seconds": 600}}
    ) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        await alice.ask("participant/shutdown", {"reason": "night"}, id="down", to=["bob"])
        assert await bob.refused("chat") == "participant_shutdown"
        assert await bob.refused("chat/acknowledge", to=["alice"], about=["down"]) is None
        host = gateway.gateway.directory.hosts["lab"]
        host.journaled.clock = lambda: time.time() + 601
        host.journaled.expire_due()
        assert (await bob.closed())[0] == 4002
        await alice.hear(lambda each: each["payload"].get("event") == "leave")
        back = await gateway.join("bob")
        assert await back.refused("chat") is None


@pytest.mark.requirement("MEW-3.6.4-2", "MEW-3.6.4-9", "MEW-3.6.4-10")
async def test_a_shared_token_ties_a_configured_name_to_another_runtime_id(
    shared_gateway: SharedGateway,
) -> None:
    """D-19: a grant to `mew` reaches client-123; both names address it."""
    alice = await shared_gateway.gateway.join("alice")
    client = await shared_gateway.gateway.open("/")
    join = {"type": "join", "space": "lab", "token": "t-mew", "participantId": "client-123"}
    await client.send(join)
    you = (await welcomed(client))["you"]
    assert (you["id"], you["name"]) == ("client-123", "mew")
    presence = await alice.hear("system/presence")
    assert presence["payload"]["participant"]["id"] == "client-123"
    grant = {"recipient": "mew", "capabilities": [{"kind": "chat"}]}
    assert await alice.refused("capability/grant", grant) is None
    updated = await client.hear("system/welcome")
    assert {"kind": "chat"} in updated["payload"]["you"]["capabilities"]
    assert (await client.ask("chat", {"text": "granted"}))["from"] == "client-123"
    for name in ("mew", "client-123"):
        await alice.say("chat", {"text": name}, to=[name])
        assert (await client.hear(lambda each: each["from"] == "alice"))["to"] == ["client-123"]
    # All sockets of a member share one runtime id (D-88).
    other = await shared_gateway.gateway.open("/")
    await other.send(join | {"participantId": "client-456"})
    assert await turned_away(other) == "invalid_request"


async def test_a_token_in_the_url_counts_only_when_that_is_allowed(tmp_path: Path) -> None:
    people = participants(alice=["*"])
    for allowed in (False, True):
        folder = tmp_path / str(allowed)
        folder.mkdir()
        async with running_gateway(folder, people, allow_query_token=allowed, join_seconds=0.2) as gateway:
            client = await gateway.open("/ws?space=lab&token=t-alice")
            if allowed:
                assert (await welcomed(client))["you"]["id"] == "alice"
                assert await gateway.status("/ws?space=lab&token=wrong") == 401
            else:
                assert await turned_away(client) == "unauthorized"


async def test_the_only_space_need_not_be_named(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        for client in (await gateway.open("/ws", token="t-alice"), await gateway.open("/", token="t-alice")):
            assert (await welcomed(client))["you"]["id"] == "alice"
        answer = await gateway.post("alice", {"kind": "chat"})
        assert answer.status_code == 200


async def test_who_names_no_space_is_told_of_those_that_the_token_opens_and_of_no_others(
    tmp_path: Path,
) -> None:
    people = participants(alice=["*"])
    spaces = {
        "lab": space_settings(people),
        "shop": space_settings(people),
        "secret": space_settings(participants(zoe=["*"])),
        "closed": space_settings(people, access="restricted") | {"participants": participants(zoe=["*"])},
    }
    async with running_gateway(tmp_path, spaces=spaces) as gateway:
        answers = {}
        for token in ("t-alice", "t-zoe", "t-nobody"):
            with pytest.raises(websockets.InvalidStatus) as refused:
                await gateway.open("/ws", token=token)
            assert refused.value.response.status_code == 404
            answers[token] = bytes(refused.value.response.body or b"")
        assert b'name a space: this token opens lab, shop"' in answers["t-alice"]
        assert b'this token opens secret, closed"' in answers["t-zoe"]
        assert b"no space 'default' on this gateway" in answers["t-nobody"]


async def test_a_refused_upgrade_says_why_in_json(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        with pytest.raises(websockets.InvalidStatus) as refused:
            await refused_open(gateway)
        response = refused.value.response
        assert response.headers["content-type"] == "application/json"
        assert b"unknown token" in (response.body or b"")
        assert b"wrong-token" not in (response.body or b"")


async def refused_open(gateway: LocalGateway) -> None:
    await gateway.open("/ws?space=lab", token="wrong-token")
