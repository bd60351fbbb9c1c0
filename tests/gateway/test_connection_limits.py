"""What a connection may take before it has asked for anything: headers, time, numbers; half-open peers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.gateway.raw import CLOSE, PING, PONG, TEXT, RawClient, frame, raw_client, upgrade
from tests.gateway.running_gateway import (
    LocalGateway,
    SharedGateway,
    participants,
    running_gateway,
    space_settings,
)
from tests.waiting import until

HEADER_BYTES = 4_096
SPACES = {"lab": space_settings(participants(alice=["*"], bob=["chat"]))}


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    """A gateway that waits for headers longer than any machine needs."""
    folder = tmp_path_factory.mktemp("door")
    shared_gateway = SharedGateway(
        folder, SPACES, max_header_bytes=HEADER_BYTES, header_seconds=600, max_connections_per_address=0
    )
    yield shared_gateway
    shared_gateway.close()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    """One that does not."""
    folder = tmp_path_factory.mktemp("hasty")
    shared_gateway = SharedGateway(folder, SPACES, header_seconds=0.5, max_connections_per_address=0)
    yield shared_gateway
    shared_gateway.close()


def get(port: int, *lines: bytes, where: bytes = b"/health") -> bytes:
    return b"\r\n".join([b"GET %b HTTP/1.1" % where, b"Host: 127.0.0.1:%d" % port, *lines, b"", b""])


@pytest.mark.parametrize("before", [0, 1, 3], ids=["first", "second", "fourth"])
async def test_headers_that_come_one_byte_at_a_time_are_hung_up_on(hasty: SharedGateway, before: int) -> None:
    """Slow loris; a good request first is no excuse for the next one."""
    port = hasty.gateway.port
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(raw_client(port))
        # A busy machine may be too slow for good requests, too: then they are made anew.
        while not all([await is_served(hasty.gateway, client) for _ in range(before)]):
            client = await stack.enter_async_context(raw_client(port))

        async def drip() -> None:
            for byte in get(port, b"X-Slow: " + b"a" * 10_000):
                client.send(bytes([byte]))
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert await client.ended() == b""
        assert not dripping.done()
        dripping.cancel()


@pytest.mark.parametrize("token", [None, "t-alice"], ids=["without a token", "with a token"])
async def test_a_body_that_drips_is_hung_up_on(hasty: SharedGateway, token: str | None) -> None:
    """The same patience as for headers, whether or not the caller was answered already."""
    port = hasty.gateway.port
    lines = [b"Content-Length: 100000", b"Content-Type: application/json"]
    if token is not None:
        lines.append(b"Authorization: Bearer " + token.encode())
    async with raw_client(port) as client:
        request = get(port, *lines, where=b"/participants/alice/messages")
        client.send(request.replace(b"GET", b"POST", 1))

        async def drip() -> None:
            while True:
                client.send(b" ")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        await client.ended()
        dripping.cancel()


async def test_a_connection_that_says_nothing_is_hung_up_on(hasty: SharedGateway) -> None:
    async with raw_client(hasty.gateway.port) as client:
        assert await client.ended() == b""


@pytest.mark.parametrize("before", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("size", [HEADER_BYTES, 40_000, 1_000_000])
async def test_headers_beyond_the_limit_are_refused(
    shared_gateway: SharedGateway, size: int, before: int
) -> None:
    """In one packet or many, of one line or many, on a fresh connection or a used one."""
    port = shared_gateway.gateway.port
    for line in (b"X: " + b"a" * size, b"\r\n".join([b"X: " + b"a" * 90] * (size // 90))):
        async with raw_client(port) as client:
            for _ in range(before):
                client.send(get(port))
                _, headers = await client.answer()
                await client.reader.readexactly(int(headers["content-length"]))
            client.send(get(port, line))
            answer = await client.ended()
            assert not answer.startswith(b"HTTP/1.1 200"), answer[:100]
            assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431")), answer[:100]


async def test_headers_just_within_the_limit_pass(shared_gateway: SharedGateway) -> None:
    port = shared_gateway.gateway.port
    async with raw_client(port) as client:
        client.send(get(port, b"X: " + b"a" * (HEADER_BYTES - 200)))
        assert (await client.answer())[0] == 200
    async with raw_client(port) as client:
        headers = {"Authorization": "Bearer t-alice", "X": "a" * (HEADER_BYTES - 600)}
        await client.upgraded(headers=headers)


ODD_REQUESTS = {
    "not HTTP": (b"hello\r\n\r\n", {400}),
    "a TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64, {400}),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400}),
    "two lengths": (
        b"POST /participants/alice/messages HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\n"
        b"Content-Length: 6\r\n\r\nhello",
        {400},
    ),
    "length and chunks": (
        b"POST /participants/alice/messages HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        {400, 401},
    ),
    "a path that is no URL": (b"UPGRADE //[/ws", {400, 404}),
    "a path of raw bytes": (b"UPGRADE /\xff\xfe", {400, 404}),
    "an unreadable token": (b"UPGRADE /ws?space=lab\r\nAuthorization: Bearer \xff\xfe\xfd", {400, 401}),
    "a NUL in a header": (b"UPGRADE /ws?space=lab\r\nX: a\0b", {400, 101}),
    "a NUL in the query": (b"UPGRADE /ws?space=%00", {404, 101, 400}),
    "many parameters": (b"UPGRADE /ws?" + b"&".join([b"a=b"] * 800), {400, 404, 101}),
}


@pytest.mark.parametrize(("text", "expected"), ODD_REQUESTS.values(), ids=ODD_REQUESTS)
async def test_odd_requests_get_a_plain_answer(
    shared_gateway: SharedGateway, text: bytes, expected: set[int]
) -> None:
    """Never 500, and no traceback in the log (looked at after every test here)."""
    port = shared_gateway.gateway.port
    if text.startswith(b"UPGRADE "):
        target, _, more = text.removeprefix(b"UPGRADE ").partition(b"\r\n")
        rest = upgrade(port).split(b"\r\n", 1)[1]
        sent = b"GET %b HTTP/1.1\r\n%b%b" % (target, more + b"\r\n" if more else b"", rest)
    else:
        sent = text.replace(b"HOST", b"127.0.0.1:%d" % port)
    async with raw_client(port) as client:
        client.send(sent)
        assert (await client.answer())[0] in expected


UPGRADES: dict[str, tuple[dict[str, str], set[int]]] = {
    "version 8": ({"Sec-WebSocket-Version": "8"}, {400, 426}),
    "no version": ({"Sec-WebSocket-Version": ""}, {400, 426}),
    "no key": ({"Sec-WebSocket-Key": ""}, {400}),
    "short key": ({"Sec-WebSocket-Key": "c2hvcnQ="}, {400}),
    "upgrade to something else": ({"Upgrade": "h2c"}, {200, 400, 404, 426}),
}


@pytest.mark.parametrize(("headers", "expected"), UPGRADES.values(), ids=UPGRADES)
async def test_an_upgrade_that_is_none_gets_no_socket(
    shared_gateway: SharedGateway, headers: dict[str, str], expected: set[int]
) -> None:
    """RFC 6455, 4.2.1."""
    async with raw_client(shared_gateway.gateway.port) as client:
        client.send(upgrade(shared_gateway.gateway.port, "/", {"Authorization": "Bearer t-alice"} | headers))
        assert (await client.answer())[0] in expected


# The end of the head is in one piece of what is parsed at a time, or in two.
@pytest.mark.parametrize(("size", "piece"), [(600, 1), (600, 9_999), (4_093, 9_999), (4_095, 9_999)])
async def test_the_body_of_a_request_that_could_become_another_protocol_is_its_body(
    shared_gateway: SharedGateway, size: int, piece: int
) -> None:
    """Some clients of HTTP/2 ask for that at first (RFC 7540, 3.2); read as a request it would be one."""
    port = shared_gateway.gateway.port
    body = get(port, where=b"/nowhere")
    lines = [b"Upgrade: h2c", b"Connection: Upgrade", b"Authorization: Bearer t-alice"]
    lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body), b"X: "]
    head = get(port, *lines, where=b"/participants/alice/messages").replace(b"GET", b"POST", 1)
    head = head.replace(b"X: ", b"X: " + b"a" * (size + 4 - len(head)))
    async with raw_client(port) as client:
        await client.send_in_pieces(head + body + get(port), piece)
        status, headers = await client.answer()
        assert status == 400
        # It was read as what it is.
        assert b"not JSON" in await client.reader.readexactly(int(headers["content-length"]))
        assert (await client.answer())[0] == 200


async def test_header_names_and_values_are_read_as_http_says(shared_gateway: SharedGateway) -> None:
    """Any letter case, several tokens in Connection, any order of subprotocols."""
    for headers in (
        {"upgrade": "WebSocket", "connection": "keep-alive, UPGRADE", "Authorization": "Bearer t-alice"},
        {"CONNECTION": "Upgrade", "authorization": "bearer t-alice"},
        {"Authorization": "Bearer   t-alice ", "SEC-WEBSOCKET-VERSION": "13"},
    ):
        async with raw_client(shared_gateway.gateway.port) as client:
            client.send(upgrade(shared_gateway.gateway.port, "/ws?space=lab", headers))
            assert (await client.answer())[0] == 101, headers


async def is_served(gateway: LocalGateway, client: RawClient) -> bool:
    client.send(get(gateway.port))
    try:
        status, headers = await client.answer()
        await client.reader.readexactly(int(headers["content-length"]))
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return status == 200


@pytest.mark.parametrize("limit", ["max_connections_per_address", "max_connections"])
async def test_connections_beyond_the_limit_are_hung_up_on_until_one_leaves(
    tmp_path: Path, limit: str
) -> None:
    """HTTP and WebSocket count alike, and a refused upgrade gives its place back."""
    # One is the HTTP client of `lab` itself, if it is used.
    async with running_gateway(tmp_path, **{limit: 4}) as gateway, AsyncExitStack() as stack:  # type: ignore[arg-type]
        inside = [await stack.enter_async_context(raw_client(gateway.port)) for _ in range(4)]
        for client in inside[:2]:
            assert await is_served(gateway, client)
        for client in inside[2:]:
            await client.upgraded(token="t-alice")
        async with raw_client(gateway.port) as fifth:
            assert not await is_served(gateway, fifth)
        # Those inside do not notice.
        assert await is_served(gateway, inside[0])
        inside[2].send(frame(PING, b"still"))
        assert [one.payload for one in await inside[2].frames_until(PONG)][-1] == b"still"
        await inside[3].close()
        await inside[0].close()
        await until(lambda: len(gateway.gateway.connections()) == 1)
        async with raw_client(gateway.port) as next_one:
            assert await is_served(gateway, next_one)
        for headers in [{"Authorization": "Bearer wrong"}, {"Sec-WebSocket-Key": "short"}, {"Host": "x"}] * 4:
            async with raw_client(gateway.port) as refused:
                refused.send(upgrade(gateway.port, "/ws?space=lab", headers))
                assert (await refused.answer())[0] in (400, 401, 421)
                await refused.ended()


async def test_a_half_open_peer_is_noticed_and_its_leave_told(tmp_path: Path) -> None:
    """A peer that answers no ping is gone; one that does stays, however silent it is."""
    # On a machine that stands still for a moment everybody is late; a more patient gateway does not mind.
    for seconds in (0.3, 1.0, 4.0, 16.0):
        folder = tmp_path / str(seconds)
        folder.mkdir()
        if await only_the_silent_one_goes(folder, seconds):
            return
    pytest.fail("whoever answers pings is gone, too")


async def only_the_silent_one_goes(folder: Path, seconds: float) -> bool:
    people = participants(alice=["*"], bob=["chat"], carol=["chat"])
    async with (
        running_gateway(folder, people, ping_seconds=seconds, ping_timeout_seconds=seconds) as gateway,
        raw_client(gateway.port) as silent,
        raw_client(gateway.port) as polite,
    ):
        await silent.upgraded(token="t-bob")
        await polite.upgraded(token="t-carol")

        async def answer_pings() -> None:
            while (one := await polite.frame()) is not None:
                if one.opcode == PING:
                    polite.send(frame(PONG, one.payload))

        def here() -> set[str]:
            return {str(each["participant_id"]) for each in gateway.gateway.connections()}

        answering = asyncio.create_task(answer_pings())
        await until(lambda: "bob" not in here())
        stays = here() == {"carol"}
        answer = [each["payload"] for each in (await gateway.poll("alice"))["messages"]]
        assert "bob" in [each["participant"]["id"] for each in answer if each.get("event") == "leave"]
        answering.cancel()
        return stays


async def test_a_peer_that_vanishes_has_left_at_once(tmp_path: Path) -> None:
    """A reset, and an end of the stream without a close frame."""
    async with running_gateway(tmp_path, participants(alice=["*"], bob=["chat"])) as gateway:
        alice = await gateway.join("alice")
        for reset in (True, False):
            async with raw_client(gateway.port) as client:
                await client.upgraded(token="t-bob")
                await alice.hear(lambda each: each["payload"].get("event") == "join")
                if reset:
                    await client.close()
                else:
                    client.writer.write_eof()
                await alice.hear(lambda each: each["payload"].get("event") == "leave")


async def test_a_peer_that_does_not_answer_our_close_is_dropped(tmp_path: Path) -> None:
    people = participants(alice=["*"], bob=["chat"])
    async with running_gateway(tmp_path, people, close_seconds=1) as gateway:
        alice = await gateway.join("alice")
        async with raw_client(gateway.port) as stubborn:
            await stubborn.upgraded(token="t-bob")
            await alice.say("space/kick", {"participant_id": "bob"})
            frames = await stubborn.frames_until(CLOSE)
            assert frames[-1].code == 4003
            # Whatever it still says is not heard, and after `close_seconds` the line is cut.
            stubborn.send(frame(TEXT, b'{"kind":"chat","payload":{"text":"one more thing"}}'))
            assert await stubborn.ended() == b""
            await alice.fence()
            assert "chat" not in alice.kinds()
