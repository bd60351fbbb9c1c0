"""Nobody is locked out by what others put into the welcome (0068): over real sockets, and by our SDK."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect as connect_websocket

from moot.participant import connect
from moot.protocol.operation import Json
from tests.gateway.running_gateway import GatewayUnderTest, LocalGateway, participants, running_gateway
from tests.waiting import bounded, until

MEMBERS = 200
LONG = "x" * 900
FREELY: Json = {"messages_per_second": 0, "bytes_per_second": 0}


def crowd() -> Json:
    rights: list[Json] = ["stream/*", *[f"v/{number}-{LONG}" for number in range(19)]]
    # Some with much, many with little: what counts is that both are too much.
    people = {f"m{number:03d}": rights if number < 30 else rights[:2] for number in range(MEMBERS)}
    return participants(alice=["*"], bob=["*"], **people)


async def first_message(gateway: GatewayUnderTest, name: str, max_size: int) -> Any:
    """As a foreign client gets it that takes no more than this as one message."""
    socket = connect_websocket(
        f"{gateway.ws}/ws?space=lab",
        additional_headers={"Authorization": f"Bearer t-{name}"},
        proxy=None,
        compression=None,
        max_size=max_size,
    )
    async with bounded(), socket as opened:
        return json.loads(await opened.recv())


async def open_streams(gateway: LocalGateway, name: str, count: int, size: int) -> int:
    """How many streams with long descriptions this member may open."""
    client = await gateway.join(name)
    accepted = 0
    for _ in range(count):
        described: Json = {"direction": "upload", "description": "d" * size}
        accepted += (await client.refused("stream/request", described)) is None
    return accepted


async def fetch_pages(gateway: GatewayUnderTest, name: str) -> list[Any]:
    found: list[Any] = []
    params: dict[str, str] = {"space": "lab"}
    while True:
        answer = await gateway.http.get(
            f"/participants/{name}/roster", params=params, headers={"Authorization": f"Bearer t-{name}"}
        )
        assert answer.status_code == 200, answer.text
        assert len(answer.content) <= 262_144
        found.append(answer.json())
        if "next" not in found[-1]:
            return found
        params["after"] = found[-1]["next"]


async def test_64_streams_with_long_descriptions_lock_nobody_out(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, participants(alice=["*"], bob=["*"])) as gateway:
        accepted = await open_streams(gateway, "alice", 64, 15_000)
        assert 1 <= accepted < 8, "one member has a bounded share of everybody's welcome"
        welcome = await first_message(gateway, "bob", 1 << 20)
        assert len(welcome["payload"]["active_streams"]) == accepted


async def test_hundreds_of_members_with_maximal_everything_lock_nobody_out(tmp_path: Path) -> None:
    async with running_gateway(
        tmp_path, crowd(), rules={"limits": FREELY}, max_connections_per_address=0, outbox_bytes=64 << 20
    ) as gateway:
        names = [f"m{number:03d}" for number in range(MEMBERS)]
        opened = [await gateway.open("/ws?space=lab", token=f"t-{name}") for name in names[:20]]
        ids = {await stream_id(client, "d" * 14_000) for client in opened for _ in range(3)}
        opened += [await gateway.open("/ws?space=lab", token=f"t-{name}") for name in names[20:]]
        welcome = await first_message(gateway, "bob", 262_144)
        payload = welcome["payload"]
        assert {each["id"] for each in payload["participants"]} == {*names}
        assert payload["more"]["active_streams"] > 0
        # Everything, by HTTP and by the SDK.
        pages = await fetch_pages(gateway, "bob")
        assert len(pages) > 5
        listed = [each for page in pages for each in page["participants"]]
        assert [each["id"] for each in listed] == names
        assert [len(each["capabilities"]) for each in listed] == [20] * 30 + [2] * (MEMBERS - 30)
        assert [each["stream_id"] for page in pages for each in page["active_streams"]] == sorted(ids)
        async with connect(gateway.url, "lab", "t-bob") as bob:
            await until(lambda: bob.roster.is_complete)
            assert set(bob.roster) == {*names}
            assert [len(bob.roster[name].capabilities) for name in names] == [20] * 30 + [2] * (MEMBERS - 30)
            assert {stream.id for stream in bob.streams} == ids
            await opened[0].leave()
            await until(lambda: "m000" not in bob.roster)


async def stream_id(client: Any, description: str) -> str:
    id = await client.say("stream/request", {"direction": "upload", "description": description})
    opened = await client.hear(lambda each: each["kind"] == "stream/open" and id in each["correlation_id"])
    return str(opened["payload"]["stream_id"])


async def test_the_sdk_keeps_what_it_knows_while_it_fetches_after_a_gap(tmp_path: Path) -> None:
    """Who left meanwhile is gone after the last page, and not before; the same for streams."""
    limits = FREELY | {"max_welcome_bytes": 8_192}
    people = participants(bob=["*"], **{f"m{number:03d}": ["*", f"v/{LONG}"] for number in range(30)})
    async with running_gateway(
        tmp_path, people, rules={"limits": limits}, max_connections_per_address=0
    ) as gateway:
        clients = [await gateway.open("/ws?space=lab", token=f"t-m{number:03d}") for number in range(30)]
        kept, gone = await stream_id(clients[0], "d" * 3_000), await stream_id(clients[1], "d" * 3_000)
        async with connect(gateway.url, "lab", "t-bob") as bob:
            await until(lambda: bob.roster.is_complete)
            assert len(bob.roster) == 30
            assert {stream.id for stream in bob.streams} == {kept, gone}
            host = gateway.gateway.directory.hosts["lab"]
            # The connection breaks; while it is gone, somebody leaves and a stream ends.
            (session,) = [s for s in host.space.state.roster.sessions.values() if s.member.name == "bob"]
            await clients[1].ask("stream/close", {"stream_id": gone})
            host.delivery.sessions[session.id].close(1011, "a fault")
            await clients[2].leave()
            await until(lambda: bob.roster.is_complete and "m002" not in bob.roster)
            await until(lambda: {stream.id for stream in bob.streams} == {kept})
            assert len(bob.roster) == 29


async def test_the_sdk_waits_where_pages_come_too_fast(tmp_path: Path) -> None:
    limits: Json = {"max_welcome_bytes": 8_192, "bytes_per_second": 20_000}
    people = participants(bob=["*"], **{f"m{number:03d}": [f"v/{LONG}"] for number in range(30)})
    async with running_gateway(
        tmp_path, people, rules={"limits": limits}, max_connections_per_address=0
    ) as gateway:
        for number in range(30):
            await gateway.open("/ws?space=lab", token=f"t-m{number:03d}")
        async with connect(gateway.url, "lab", "t-bob") as bob:
            await until(lambda: bob.roster.is_complete)
            assert len(bob.roster) == 30


async def test_pages_over_http_are_for_members_and_at_a_rate(tmp_path: Path) -> None:
    limits: Json = {"bytes_per_second": 30_000}
    people = participants(alice=["*", *[f"v/{number}-{LONG}" for number in range(20)]], bob=["*"])
    async with running_gateway(tmp_path, people, rules={"limits": limits}) as gateway:
        await gateway.join("alice")
        assert (await gateway.http.get("/participants/bob/roster?space=lab")).status_code == 401
        wrong = {"Authorization": "Bearer t-nobody"}
        assert (
            await gateway.http.get("/participants/bob/roster?space=lab", headers=wrong)
        ).status_code == 403
        own = {"Authorization": "Bearer t-bob"}
        assert (
            await gateway.http.get("/participants/alice/roster?space=lab", headers=own)
        ).status_code == 403
        bad = await gateway.http.get("/participants/bob/roster?space=lab&after=x", headers=own)
        assert (bad.status_code, bad.json()["error"]) == (400, "invalid_request")
        answers = await asyncio.gather(
            *(gateway.http.get("/participants/bob/roster?space=lab", headers=own) for _ in range(8))
        )
        assert {answer.status_code for answer in answers} == {200, 429}
        posted = await gateway.post("alice", {"kind": "moot/roster", "payload": {}}, space="lab")
        assert posted.json()["participants"] == []


async def test_pages_do_not_push_messages_out_of_the_history(tmp_path: Path) -> None:
    people = participants(alice=["*", *[f"v/{number}-{LONG}" for number in range(20)]], bob=["*"])
    async with running_gateway(tmp_path, people, poll_bytes=20_000, rules={"limits": FREELY}) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        await alice.ask("chat", {"text": "remember me"})
        for _ in range(20):
            await bob.ask("moot/roster", {})
        received = (await gateway.poll("bob", space="lab"))["messages"]
        assert [each for each in received if each["payload"].get("text") == "remember me"]
        assert not [each for each in received if each["kind"] == "moot/roster-page"]
