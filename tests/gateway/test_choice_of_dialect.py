"""Which dialect a connection speaks, and what else it may ask for (dialects.md 1; D-02, D-54, D-57)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moot.protocol.operation import Json
from tests.gateway.running_gateway import (
    CALL,
    Client,
    SharedGateway,
    participants,
    running_gateway,
    space_settings,
)

PEOPLE = participants(alice=["*"], bob=["*"], carol=["*"])
PROTOCOLS = {"mew": "mew/v0.4", "mcpx": "mcpx/v0.1", "m3p": "mcpx/v0.1"}


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    spaces = {"lab": space_settings(PEOPLE)}
    shared_gateway = SharedGateway(tmp_path_factory.mktemp("dialects"), spaces, max_connections_per_address=0)
    yield shared_gateway
    shared_gateway.close()


async def spoken(client: Client) -> str:
    """The dialect of the welcome."""
    first = await client.next()
    if first["kind"] == "system.welcome":
        assert first["protocol"] == "mcpx/v0.1"
        return "m3p"
    assert first["kind"] == "system/welcome", first
    return {"mew/v0.4": "mew", "mcpx/v0.1": "mcpx"}[first["protocol"]]


HEADERS: list[tuple[str, list[str], str]] = [
    # `dialect=` before the subprotocol before ?space= and ?topic=
    ("/ws", [], "mew"),
    ("/ws?space=lab", [], "mew"),
    ("/ws?topic=lab", [], "mcpx"),
    ("/ws?space=lab&dialect=mcpx", [], "mcpx"),
    ("/ws?topic=lab&dialect=mew", [], "mew"),
    ("/ws?topic=lab&dialect=m3p", [], "m3p"),
    ("/ws?space=lab", ["mcpx.v0.1"], "mcpx"),
    ("/ws?topic=lab", ["mew.v0.4"], "mew"),
    ("/ws?topic=lab", ["mcpx.m3p"], "m3p"),
    ("/ws?space=lab&dialect=mew", ["mcpx.m3p"], "mew"),
    ("/ws?topic=lab", ["unknown", "mew.v0.4"], "mew"),
    ("/ws?topic=lab", ["unknown"], "mcpx"),
]


@pytest.mark.requirement("M3P-56")
@pytest.mark.parametrize(("where", "offered", "dialect"), HEADERS)
async def test_the_first_that_applies_decides(
    shared_gateway: SharedGateway, where: str, offered: list[str], dialect: str
) -> None:
    """m3p is never guessed: only `dialect=m3p` and its subprotocol choose it."""
    client = await shared_gateway.gateway.open(where, token="t-alice", subprotocols=offered)
    assert await spoken(client) == dialect
    chosen = client.socket.subprotocol
    assert chosen == next((name for name in offered if name != "unknown"), None)


JOINS: list[tuple[str, Json, str]] = [
    ("/", {"type": "join", "space": "lab"}, "mew"),
    ("/", {"type": "join", "topic": "lab"}, "mcpx"),
    ("/", {"type": "join", "space": "lab", "dialect": "m3p"}, "m3p"),
    ("/", {"type": "join", "space": "lab", "protocol": "mcpx/v0.1"}, "mcpx"),
    ("/", {"kind": "system/join", "protocol": "mew/v0.4", "payload": {"space": "lab"}}, "mew"),
    ("/", {"kind": "system/join", "protocol": "mcpx/v0.1", "payload": {"topic": "lab"}}, "mcpx"),
    ("/ws?space=lab", {"type": "join", "protocol": "mcpx/v0.1"}, "mew"),
    ("/ws?topic=lab", {"type": "join", "protocol": "mew/v0.4"}, "mcpx"),
    ("/ws?dialect=m3p", {"type": "join", "space": "lab", "dialect": "mew"}, "m3p"),
]


@pytest.mark.parametrize(("where", "join", "dialect"), JOINS)
async def test_a_join_frame_chooses_where_the_url_left_it_open(
    shared_gateway: SharedGateway, where: str, join: Json, dialect: str
) -> None:
    client = await shared_gateway.gateway.open(where)
    sent: dict[str, Any] = dict(join)
    place = sent.setdefault("payload", {}) if "kind" in sent else sent
    place["token"] = "t-alice"
    await client.send(sent)
    assert await spoken(client) == dialect


@pytest.mark.parametrize("query", ["dialect=latin", "dialect=", "routing=some", "hears=some", "dialect=MEW"])
async def test_an_unknown_wish_is_a_bad_request(shared_gateway: SharedGateway, query: str) -> None:
    assert await shared_gateway.gateway.status(f"/ws?space=lab&{query}", token="t-alice") == 400


async def test_a_space_turns_away_a_dialect_that_it_does_not_speak(tmp_path: Path) -> None:
    """The default is MEW alone."""
    spaces: Json = {"lab": {"participants": PEOPLE}}
    async with running_gateway(tmp_path, spaces=spaces) as gateway:
        for where in ("/ws?topic=lab", "/ws?space=lab&dialect=m3p"):
            client = await gateway.open(where, token="t-alice")
            assert (await client.closed())[0] == 1008
            assert client.received[0]["payload"]["error"] == "invalid_request"
        answer = await gateway.post("alice", {"protocol": "mcpx/v0.1", "kind": "chat"})
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


async def test_an_envelope_of_another_dialect_is_a_mismatch(shared_gateway: SharedGateway) -> None:
    mew = await shared_gateway.gateway.join("alice")
    mcpx = await shared_gateway.gateway.join("bob", "&dialect=mcpx")
    assert await mew.refused("chat", protocol="mcpx/v0.1") == "protocol_mismatch"
    assert await mcpx.refused("chat", protocol="mew/v0.4") == "protocol_mismatch"


async def test_three_dialects_in_one_space_talk_to_each_other(shared_gateway: SharedGateway) -> None:
    """Section 8: one request, three spellings; the sender's own dialect gets its very bytes."""
    gateway = shared_gateway.gateway
    mew = await gateway.join("alice")
    mcpx = await gateway.join("bob", "&dialect=mcpx")
    m3p = await gateway.join("carol", "&dialect=m3p")
    await mew.say("mcp/request", CALL, id="r1", to=["bob"])
    kinds = ["mcp/request", "mcp/request:tools/call:read_file", "mcp.request.tools/call:read_file"]
    for client, kind in zip((mew, mcpx, m3p), kinds, strict=True):
        received = await client.hear(kind)
        assert (received["id"], received["from"], received["payload"]) == ("r1", "alice", CALL)
    answer: Json = {"result": {"content": []}}
    kind = "mcp/response:tools/call:read_file"
    await mcpx.send({"id": "a1", "kind": kind, "to": ["alice"], "correlation_id": "r1", "payload": answer})
    assert (await mew.hear("mcp/response"))["correlation_id"] == ["r1"]
    assert (await m3p.hear("mcp.response.tools/call:read_file"))["correlation_id"] == "r1"
    await m3p.send({"id": "c1", "kind": "chat.message", "payload": {"text": "Grüße"}})
    assert (await mew.hear("chat"))["payload"] == {"text": "Grüße"}
    assert (await mcpx.hear("chat"))["x_origin"]["kind"] == "chat.message"


async def test_echo_0_keeps_one_s_own_words_away_and_nothing_else(shared_gateway: SharedGateway) -> None:
    """D-02: per socket; another socket of the same member still hears them."""
    quiet = await shared_gateway.gateway.open("/ws?space=lab&echo=0", token="t-alice")
    assert (await quiet.next())["kind"] == "system/welcome"
    assert await quiet.fence() == [], "its own presence is an echo too"
    loud, bob = await shared_gateway.gateway.join("alice"), await shared_gateway.gateway.join("bob")
    await quiet.fence()
    await quiet.say("chat", {"text": "mine"})
    for client in (loud, bob):
        assert (await client.hear("chat"))["payload"] == {"text": "mine"}
    await bob.say("chat", {"text": "his"})
    assert [each["payload"] for each in await heard_after(bob, quiet)] == [{"text": "his"}]
    await loud.say("chat", {"text": "mine too"})
    assert [each["payload"] for each in await heard_after(loud, quiet)] == [{"text": "mine too"}]


async def heard_after(speaker: Client, listener: Client) -> list[Any]:
    await speaker.fence()
    return await listener.fence()


async def test_directed_hears_what_is_addressed_to_it_or_to_all(shared_gateway: SharedGateway) -> None:
    """D-54: MCPx and m3p only; MEW connections always hear everything."""
    gateway = shared_gateway.gateway
    alice = await gateway.join("alice")
    directed = await gateway.join("bob", "&dialect=mcpx&routing=directed")
    by_frame = await gateway.open("/")
    join = {"type": "join", "topic": "lab", "token": "t-bob", "routing": "directed"}
    await by_frame.send(join)
    await by_frame.fence()
    mew = await gateway.join("bob", "&routing=directed")
    everything = await gateway.join("carol", "&dialect=m3p")
    for client in (directed, by_frame, mew, everything):
        await client.fence()
    for to in ([], ["bob"], ["carol"], ["carol", "bob"]):
        await alice.say("chat", {"text": ",".join(to)}, to=to)
    await alice.fence()
    for client in (directed, by_frame):
        assert [each["payload"]["text"] for each in await client.fence()] == ["", "bob", "carol,bob"]
    for client in (mew, everything):
        texts = [each["payload"]["text"] for each in await client.fence()]
        assert texts == ["", "bob", "carol", "carol,bob"]
    # Its own errors and everybody's presence still come.
    assert await directed.refused("system/x") == "capability_violation"
    await everything.leave()
    await directed.hear("system/presence")


async def test_frames_reach_legacy_connections_only_with_streams_1(shared_gateway: SharedGateway) -> None:
    """D-57."""
    gateway = shared_gateway.gateway
    alice = await gateway.join("alice")
    without = await gateway.join("bob", "&dialect=mcpx")
    with_streams = await gateway.join("carol", "&dialect=m3p&streams=1")
    assert await without.refused("stream/request", {"direction": "upload"}) == "invalid_request"
    await alice.say("stream/request", {"direction": "upload"})
    stream = (await alice.hear("stream/open"))["payload"]["stream_id"]
    await alice.send(f"#{stream}#data")
    assert await with_streams.hear_frame() == f"#{stream}#data"
    await alice.fence()
    assert not any(isinstance(each, str | bytes) for each in [*await without.fence(), *without.received])
