"""What somebody costs who has no token: few bytes, few answers, and no way to lock anybody out."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
import websockets

from tests.gateway.raw import CLOSE, PING, TEXT, RawClient, frame, raw_client, upgrade
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.waiting import bounded

PEOPLE: Final = participants(alice=["*"], bob=["chat"])
JOIN: Final = {"type": "join", "space": "lab", "token": "t-alice"}
MIB: Final = 1 << 20


def join_frame(**more: object) -> bytes:
    return frame(TEXT, json.dumps(JOIN | more).encode())


@asynccontextmanager
async def client_from(address: str, port: int) -> AsyncIterator[RawClient]:
    """A connection from another address of this machine."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    client = RawClient(reader, writer)
    try:
        yield client
    finally:
        await client.close()


# Before a join


async def test_a_frame_larger_than_a_join_is_refused_when_its_head_has_come(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as stranger:
        await stranger.upgraded()
        # The head alone, and none of the megabyte that it announces.
        stranger.send(frame(TEXT, size=MIB))
        closing = (await stranger.frames_until(CLOSE))[-1]
        assert closing.code == 1009
        assert closing.reason == "the first message has at most 8192 bytes"


async def test_before_a_join_no_more_is_read_than_a_join_has(tmp_path: Path) -> None:
    """Also of what no single frame announces: fragments, pings, bytes of nothing."""
    floods = {
        "fragments": frame(TEXT, b"x" * 100, final=False) + frame(0, b"x" * 100, final=False) * 40,
        "pings": frame(PING, b"x" * 100) * 40,
    }
    async with running_gateway(tmp_path, PEOPLE, max_join_bytes=4_000) as gateway:
        for name, data in floods.items():
            async with raw_client(gateway.port) as stranger:
                await stranger.upgraded()
                stranger.send(data)
                closing = (await stranger.frames_until(CLOSE))[-1]
                assert (closing.code, closing.reason) == (1009, "no join within the first 4000 bytes"), name


async def test_the_gateway_stops_reading_a_stranger_who_goes_on(tmp_path: Path) -> None:
    """It stays in the stranger's own buffers: 64 MiB never go through."""
    async with (
        running_gateway(tmp_path, PEOPLE, close_seconds=0.5) as gateway,
        raw_client(gateway.port) as stranger,
    ):
        await stranger.upgraded()
        stranger.send(frame(TEXT, size=64 * MIB))
        sent = 0
        with suppress(ConnectionError):
            async with bounded():
                while sent < 64 * MIB:
                    stranger.send(bytes(MIB))
                    await stranger.writer.drain()
                    sent += MIB
        assert sent < 32 * MIB


@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_a_join_is_read_in_any_pieces_and_large_messages_right_behind_it(
    tmp_path: Path, step: int
) -> None:
    answer = json.dumps({"id": "m-1", "kind": "chat", "payload": {"text": "x" * 500_000}}).encode()
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as alice:
        await alice.upgraded()
        await alice.send_in_pieces(join_frame(), step)
        alice.send(frame(TEXT, answer, mask=bytes(4)))
        while (received := await alice.frame()) is not None:
            if b'"m-1"' in received.payload[:200]:
                break
        assert received is not None
        assert len(received.payload) > 500_000


async def test_who_came_with_a_token_in_the_header_is_not_limited_as_strangers_are(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, max_join_bytes=512) as gateway:
        alice = await gateway.join("alice")
        assert await alice.refused("chat", {"text": "x" * 100_000}) is None


async def test_a_closing_stranger_that_keeps_sending_gets_its_reason_and_no_more(tmp_path: Path) -> None:
    """A bad join, and behind it more than fits."""
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as stranger:
        await stranger.upgraded()
        stranger.send(join_frame(token="wrong") + frame(TEXT, b"x" * 5_000, mask=bytes(4)) * 5)
        frames = await stranger.frames_until(CLOSE)
        assert json.loads(frames[0].payload)["payload"]["error"] == "unauthorized"
        assert frames[-1].code == 1008


# Bodies


async def send_body(client: RawClient, gateway: LocalGateway, token: str, size: int) -> tuple[int, int]:
    """POST so many bytes; the status, and how many the kernel took before the connection ended."""
    client.send(
        f"POST /participants/alice/messages?space=lab HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {size}\r\n\r\n".encode()
    )
    status, _ = await client.answer()
    sent = 0
    with suppress(ConnectionError):
        async with bounded():
            while sent < size:
                client.send(bytes(MIB))
                await client.writer.drain()
                sent += MIB
    return status, sent


async def test_the_body_of_a_stranger_is_not_read(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as stranger:
        status, sent = await send_body(stranger, gateway, "wrong", 64 * MIB)
        assert status == 403
        assert sent < 32 * MIB


async def test_a_refused_request_with_a_short_body_keeps_its_connection(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as client:
        where = "/participants/alice/messages?space=lab"
        body = json.dumps({"kind": "chat", "payload": {"text": "hi"}}).encode()
        assert (await client.post(where, "wrong", body))[0] == 403
        assert (await client.post(where, "t-alice", body))[0] == 200


async def test_a_body_that_is_too_large_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The rest of it, which is thrown away, does not come.
    monkeypatch.setattr("moot.resilience.refused_body.MAX_SECONDS", 0.1)
    async with (
        running_gateway(tmp_path, PEOPLE, rules={"limits": {"max_bytes": 5_000}}) as gateway,
        raw_client(gateway.port) as client,
    ):
        client.send(
            f"POST /participants/alice/messages?space=lab HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n"
            f"Authorization: Bearer t-alice\r\nContent-Type: application/json\r\n"
            f"Content-Length: {64 * MIB}\r\n\r\n".encode()
            + bytes(20_000)
        )
        status, _ = await client.answer()
        assert status == 413
        client.send(bytes(MIB))
        assert b"HTTP/1.1" not in await client.ended()


# Headers


@pytest.mark.parametrize(
    "line", ["Authorization: Bearer t-alice", "Host: 127.0.0.1:{port}", "Origin: http://127.0.0.1:{port}"]
)
@pytest.mark.parametrize("second", ["same", "other"])
@pytest.mark.parametrize("socket", [True, False])
async def test_what_decides_who_asks_is_given_once(
    tmp_path: Path, line: str, second: str, socket: bool
) -> None:
    """A proxy in front could believe the first one, and the gateway the last."""
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as client:
        line = line.format(port=gateway.port)
        name, _, _ = line.partition(":")
        repeated = line if second == "same" else f"{name.upper()}: elsewhere"
        usual = "" if name == "Host" else f"Host: 127.0.0.1:{gateway.port}\r\n"
        if socket:
            usual += (
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            )
        path = "/ws?space=lab" if socket else "/participants/alice/messages?space=lab"
        client.send(f"GET {path} HTTP/1.1\r\n{usual}{line}\r\n{repeated}\r\n\r\n".encode())
        status, headers = await client.answer()
        body = await client.ended()
        assert status == 400
        assert headers["connection"] == "close"
        assert body == f"the header {name.lower()} is given more than once: send it once".encode()


async def test_nothing_behind_a_refused_request_is_processed(tmp_path: Path) -> None:
    """A second request in the same packet: its answer would never come, so it must not happen."""
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as client:
        bob = await gateway.join("bob")
        body = json.dumps({"kind": "chat", "payload": {"text": "smuggled"}}).encode()
        head = (
            f"POST /participants/alice/messages?space=lab HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n"
            f"Authorization: Bearer t-alice\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
        )
        twice = head + "Authorization: Bearer t-bob\r\n\r\n"
        client.send(twice.encode() + body + head.encode() + b"\r\n" + body)
        status, _ = await client.answer()
        assert status == 400
        assert b"HTTP/1.1" not in await client.ended()
        assert not [each for each in await bob.fence() if each["kind"] == "chat"]


async def test_a_trailer_behind_a_body_in_chunks_is_no_header(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway, raw_client(gateway.port) as client:
        client.send(
            f"POST /participants/alice/messages?space=lab HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: authorization\r\n\r\n"
            "2\r\n{}\r\n0\r\nAuthorization: Bearer t-alice\r\n\r\n".encode()
        )
        status, _ = await client.answer()
        assert status == 401


# Wrong tokens


@pytest.mark.usefixtures("no_refill")
async def test_after_too_many_wrong_tokens_an_address_gets_429_and_the_right_token_still_gets_in(
    tmp_path: Path,
) -> None:
    async with running_gateway(tmp_path, PEOPLE, wrong_tokens_per_minute=3) as gateway:
        wrong = [await gateway.post("alice", {"kind": "chat"}, token=f"wrong-{n}") for n in range(5)]
        assert [answer.status_code for answer in wrong] == [403, 403, 403, 429, 429]
        assert 1 <= int(wrong[-1].headers["Retry-After"]) <= 20
        assert wrong[-1].json()["retry_after"] > 0
        # The same address: by socket, by the first frame, as an administrator.
        with pytest.raises(websockets.InvalidStatus) as refused:
            await gateway.open("/ws?space=lab", token="wrong")
        assert refused.value.response.status_code == 429
        assert int(refused.value.response.headers["Retry-After"]) >= 1
        stranger = await gateway.open("/ws")
        await stranger.send(JOIN | {"token": "wrong"})
        error = await stranger.hear("system/error")
        assert error["payload"]["error"] == "rate_limited"
        assert error["payload"]["retry_after"] > 0
        code, reason = await stranger.closed()
        assert code == 1013
        assert reason is not None
        assert "retry after" in reason
        headers = {"Authorization": "Bearer wrong"}
        admin = await gateway.http.get("/admin/connections", headers=headers)
        assert admin.status_code == 429
        elsewhere = ["proposals", "proposals/p1", "history"]
        for path in ("/spaces", "/push-subscriptions", *(f"/spaces/lab/{each}" for each in elsewhere)):
            # No way in tells without a limit whether a token is a right one.
            assert (await gateway.http.get(path, headers=headers)).status_code == 429, path
        for path in ("/sign-in-links", "/participants/bob/tokens"):
            assert (await gateway.http.post(path, json={}, headers=headers)).status_code == 429, path
        # Whoever has the token is not locked out, whichever way it comes.
        alice = await gateway.join("alice")
        assert await alice.refused("chat", {"text": "here"}) is None
        by_frame = await gateway.open("/ws")
        await by_frame.send(JOIN)
        assert (await by_frame.hear("system/welcome"))["payload"]["you"]["id"] == "alice"
        reply = await gateway.post("bob", {"kind": "chat", "payload": {"text": "too"}})
        assert reply.status_code == 200
        assert (await gateway.admin("GET", "connections")).status_code == 200
        text = (await gateway.http.get("/metrics")).text
        assert "moot_wrong_tokens_total 15" in text


@pytest.mark.usefixtures("no_refill")
async def test_wrong_tokens_for_one_name_are_counted_from_all_addresses_together(tmp_path: Path) -> None:
    async with running_gateway(
        tmp_path, PEOPLE, wrong_tokens_per_minute=2, allowed_hosts=["127.0.0.1"]
    ) as gateway:
        statuses = []
        for number in range(4):
            async with client_from(f"127.0.0.{number + 10}", gateway.port) as client:
                where = "/participants/alice/messages?space=lab"
                statuses.append((await client.post(where, f"wrong-{number}", b"{}"))[0])
        assert statuses == [403, 403, 429, 429]
        async with client_from("127.0.0.20", gateway.port) as client:
            # Another name is another count, and so is the path of a WebSocket with the first one.
            assert (await client.post("/participants/bob/messages?space=lab", "wrong", b"{}"))[0] == 403
        async with client_from("127.0.0.21", gateway.port) as client:
            client.send(
                upgrade(gateway.port, "/participants/alice/ws?space=lab", {"Authorization": "Bearer wrong"})
            )
            assert (await client.answer())[0] == 429
        answer = await gateway.post("alice", {"kind": "chat", "payload": {"text": "here"}})
        assert answer.status_code == 200


async def test_wrong_tokens_are_told_as_before_when_the_limit_is_off(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, wrong_tokens_per_minute=0) as gateway:
        answers = {(await gateway.post("alice", {}, token="wrong")).status_code for _ in range(100)}
        assert answers == {403}


# Reconnects


async def test_a_member_that_joins_in_a_loop_is_slowed_down_and_others_are_not(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, joins_per_second=0.1) as gateway:
        first = await gateway.join("bob")
        await first.leave()
        with pytest.raises(websockets.InvalidStatus) as refused:
            await gateway.open("/ws?space=lab", token="t-bob")
        assert refused.value.response.status_code == 429
        assert 1 <= int(refused.value.response.headers["Retry-After"]) <= 10
        by_frame = await gateway.open("/ws")
        await by_frame.send(JOIN | {"token": "t-bob"})
        assert (await by_frame.hear("system/error"))["payload"]["error"] == "rate_limited"
        assert (await by_frame.closed())[0] == 1013
        # Nobody else, and not bob's own requests over HTTP.
        alice = await gateway.join("alice")
        assert await alice.refused("chat", {"text": "here"}) is None
        answer = await gateway.post("bob", {"kind": "chat", "payload": {"text": "too"}})
        assert answer.status_code == 200
        assert "moot_joins_refused_total 2" in (await gateway.http.get("/metrics")).text


async def test_a_connection_that_resets_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        for _ in range(20):
            link = socket.create_connection(("127.0.0.1", gateway.port))
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            link.sendall(upgrade(gateway.port, "/ws?space=lab"))
            await asyncio.sleep(0)
            link.close()
        alice = await gateway.join("alice")
        assert await alice.refused("chat", {"text": "here"}) is None
