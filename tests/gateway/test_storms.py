"""Connections that come, go and break off at any moment leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import random
import re
from pathlib import Path

import orjson
import pytest

from moot.protocol.operation import Json
from tests.gateway.raw import BINARY, TEXT, closing, frame, raw_client, upgrade
from tests.gateway.running_gateway import (
    GatewayUnderTest,
    fields,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import Served, served
from tests.waiting import until, until_told

PEOPLE = participants(alice=["*"], bob=["*"], storm=["*"])
RULES: Json = {
    "limits": {
        "max_sessions_per_member": 500,
        "max_streams_per_member": 500,
        "stream_owner_grace_seconds": 0.2,
    }
}


def settings(**gateway: Json) -> Json:
    return gateway_settings(
        {"lab": space_settings(PEOPLE, **RULES)}, max_connections_per_address=0, **gateway
    )


async def figure(gateway: GatewayUnderTest, name: str) -> float:
    text = (await gateway.http.get("/metrics")).text
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    return sum(float(number) for number in found)


def open_files(gateway: Served) -> int:
    return len(os.listdir(f"/proc/{gateway.process.pid}/fd"))


async def test_connections_that_break_off_at_any_byte_leave_nothing_behind(tmp_path: Path) -> None:
    """Cut in the headers, the handshake, the join, a frame, a fragmented message, a stream, and the close."""
    conversation = [
        frame(TEXT, b'{"type":"join","space":"lab","token":"t-storm"}'),
        frame(TEXT, b'{"kind":"chat","payload":{"text":"hi"}}'),
        frame(TEXT, b'{"kind":"stream/request","payload":{"direction":"upload"}}'),
        frame(BINARY, b'{"kind":"chat",', final=False),
        frame(0, b'"payload":{}}'),
        frame(TEXT, b'{"kind":"mcp/request","to":["alice"],"payload":{"method":"x"}}'),
        closing(1000, b"bye"),
    ]
    chance = random.Random(4711)
    async with served(write_config(tmp_path, settings())) as gateway:
        alice = await gateway.join("alice")
        connections, files = await figure(gateway, "moot_connections"), open_files(gateway)
        whole = [upgrade(gateway.port, "/"), *conversation]

        async def break_off(cut: int) -> None:
            async with raw_client(gateway.port) as client:
                left = cut
                for part in whole:
                    client.send(part[:left])
                    if left <= len(part):
                        break
                    left -= len(part)
                    # Upgrades want an answer before anything else is sent.
                    if part is whole[0]:
                        await client.answer()
                if chance.random() < 0.5:
                    await client.writer.drain()

        length = sum(map(len, whole))
        cuts = [chance.randrange(1, length) for _ in range(300)]
        for start in range(0, len(cuts), 30):
            await asyncio.gather(*(break_off(cut) for cut in cuts[start : start + 30]))
            assert await alice.refused("chat", {"text": "calm"}) is None
        # Orphaned streams live for a moment longer.

        async def all_gone() -> bool:
            return (
                await figure(gateway, "moot_sessions") <= 1
                and open_files(gateway) <= files
                and await figure(gateway, "moot_connections") == connections
            )

        await until_told(all_gone)
        rows = (await gateway.admin("GET", "connections")).json()["connections"]
        assert [row["participant_id"] for row in rows] == ["alice"]
        newcomer = await gateway.join("bob")
        await until(lambda: alice.kinds().count("stream/close") == alice.kinds().count("stream/open"))
        assert [each["id"] for each in newcomer.received[0]["payload"]["participants"]] == ["alice"]


@pytest.mark.parametrize("journal", ["on", "strict"])
async def test_what_follows_a_join_in_the_same_packet_is_heard(tmp_path: Path, journal: str) -> None:
    async with (
        running_gateway(tmp_path, PEOPLE, journal=journal) as gateway,
        raw_client(gateway.port) as client,
    ):
        await client.upgraded("/")
        join = frame(TEXT, b'{"type":"join","space":"lab","token":"t-bob"}')
        chats = [frame(TEXT, b'{"kind":"chat","id":"c%d"}' % number) for number in range(5)]
        client.send(join + b"".join(chats))
        received: list[str] = []
        while len(received) < 7:
            one = await client.frame()
            assert one is not None
            message = orjson.loads(one.payload)
            received.append(message["kind"] if message["from"] == "system:gateway" else message["id"])
        assert received == ["system/welcome", "system/presence", "c0", "c1", "c2", "c3", "c4"]


async def test_callers_that_hang_up_before_the_answer_are_no_news(tmp_path: Path) -> None:
    """What they posted whole counts, once; the log stays clean (looked at after every test here)."""
    async with running_gateway(tmp_path, PEOPLE, max_connections_per_address=0) as gateway:
        alice = await gateway.join("alice")
        body = [
            orjson.dumps(fields("chat", {"text": "x" * 200}, id=f"gone-{number}")) for number in range(40)
        ]

        async def post(number: int) -> None:
            text = (
                f"POST /participants/bob/messages HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n"
                "Authorization: Bearer t-bob\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body[number])}\r\n\r\n"
            ).encode() + body[number]
            async with raw_client(gateway.port) as client:
                client.send(text if number % 2 else text[: len(text) - 50])
                await client.writer.drain()
                await asyncio.sleep(0.001 * (number % 5))

        await asyncio.gather(*(post(number) for number in range(40)))
        assert (await gateway.post("bob", fields("chat", id="stays"))).status_code == 200
        await alice.hear(lambda each: each["id"] == "stays")
        received = [each["id"] for each in alice.received if each["kind"] == "chat"]
        assert len(received) == len(set(received))
        assert not [id for id in received if id.startswith("gone-") and int(id[5:]) % 2 == 0]


async def test_requests_in_one_packet_are_answered_in_their_order(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as client:
        alice = await gateway.join("alice")
        posts = []
        for number in range(5):
            body = b'{"kind":"chat","id":"piped-%d"}' % number
            posts.append(
                b"POST /participants/bob/messages HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
                b"Authorization: Bearer t-bob\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (gateway.port, len(body), body)
            )
        client.send(b"".join(posts))
        for number in range(5):
            status, headers = await client.answer()
            answer = orjson.loads(await client.reader.readexactly(int(headers["content-length"])))
            assert (status, answer["id"]) == (200, f"piped-{number}")
        for number in range(5):
            assert (await alice.hear("chat"))["id"] == f"piped-{number}"


async def test_an_extension_that_is_offered_is_not_taken(tmp_path: Path) -> None:
    """Browsers offer compression; frames are shared between readers, so it is off."""
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as client:
        offer = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
        answer = await client.upgraded(token="t-bob", headers=offer)
        assert "sec-websocket-extensions" not in answer
        client.send(frame(TEXT, b'{"kind":"chat"}', reserved=4))
        assert await client.closed() == 1002


async def test_a_gateway_on_ipv6_is_reached_by_its_own_names(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, host="::1") as gateway:
        assert gateway.url == f"http://[::1]:{gateway.port}"
        alice = await gateway.join("alice")
        ack = await alice.ask("space/invite", {"participant_id": "zoe"})
        assert ack["payload"]["connection_url"].startswith(f"ws://[::1]:{gateway.port}/")
        assert (await gateway.post("alice", {"kind": "chat"})).status_code == 200
        named = {"Host": f"[::1]:{gateway.port}", "Origin": f"http://[::1]:{gateway.port}"}
        assert (await gateway.http.get("/health", headers=named)).status_code == 200


async def test_reloads_in_a_row_under_load_lose_no_message(tmp_path: Path) -> None:
    file = write_config(tmp_path, settings())
    async with served(file) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        answer: list[str] = []

        async def talk() -> None:
            for _ in range(600):
                answer.append(await alice.say("chat", {"text": "word"}))
                await asyncio.sleep(0.001)

        talking = asyncio.create_task(talk())
        for number in range(5):
            people = PEOPLE | participants(storm=["chat"] if number % 2 else ["*"])
            write_config(tmp_path, gateway_settings({"lab": space_settings(people, **RULES)}))
            assert await gateway.reload() == "reloaded"
        await talking
        await alice.fence()
        await bob.fence()
        assert [each["id"] for each in bob.received if each["kind"] == "chat"] == answer
        # What needs a restart is said, and nobody is harmed by it.
        spaces = {"other": space_settings(PEOPLE), "lab": space_settings(PEOPLE, **RULES)}
        write_config(tmp_path, gateway_settings(spaces))
        start = len(gateway.lines)
        await gateway.reload()
        assert "other" in await gateway.wait_for_line("restart", start)
        assert await gateway.status("/ws?space=other", token="t-alice") == 404
