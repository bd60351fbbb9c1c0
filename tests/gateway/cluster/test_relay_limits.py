"""What a relay bears: storms, large heads and bodies, gateways that are frozen, gone or stopping."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from moot.gateway.cluster import gateway_relay
from moot.gateway.cluster.gateway_relay import GatewayRelay
from moot.gateway.gateway_addresses import GatewayAddresses
from moot.gateway.http.mounted_apps import MountedApps
from moot.net import relay_connection
from moot.net.http_protocol import MAX_HEADER_BYTES, MAX_HEADERS
from moot.net.relay_connection import NotTried, RelayAddress, RelayEnd
from moot.protocol.large_content import MAX_CONTENT_BYTES
from moot.resilience import refused_body
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.test_relay import RELAYED, relay, two
from tests.gateway.cluster.test_shards import LAB, get, node
from tests.gateway.raw import raw_client, upgrade
from tests.gateway.running_gateway import LocalGateway
from tests.gateway.test_strangers import client_from
from tests.waiting import HANG_SECONDS, until

WHERE: Final = "/spaces/lab/history"


def asked(port: int, *lines: str, method: str = "GET", where: str = WHERE) -> bytes:
    usual = [f"{method} {where} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Authorization: Bearer t-alice"]
    return "\r\n".join([*usual, *lines, "", ""]).encode()


async def test_relayed_connections_never_count_for_the_gateway_that_relays(start: StartGateway) -> None:
    async with two(start, max_connections_per_address=3) as (a, b), AsyncExitStack() as stack:
        await until(lambda: relay(b).is_gateway("127.0.0.1"))
        # All at once, before the first of them tells whom it is for.
        relayed = [await stack.enter_async_context(raw_client(b.port)) for _ in range(8)]
        for number, each in enumerate(relayed):
            claim = relay(a).claims.sign(f"192.0.2.{number}", "GET", WHERE.encode()).decode()
            each.send(asked(b.port, f"{RELAYED}: {claim}"))
            assert (await each.answer())[0] == 200
        # At a gateway's address, and nobody's relay.
        strangers = [await stack.enter_async_context(raw_client(b.port)) for _ in range(5)]
        for number, each in enumerate(strangers):
            each.send(asked(b.port, f"{RELAYED}: nonsense"))
            if number < 3:
                assert (await each.answer())[0] == 200
            else:
                assert await each.ended() == b""
        # At any other address it needs no head to be one too many.
        for number in range(4):
            other = await stack.enter_async_context(client_from("127.0.0.2", b.port))
            if number < 3:
                other.send(asked(b.port))
                assert (await other.answer())[0] == 200
        assert await other.ended() == b""


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system cannot")
async def test_a_machine_that_is_gone_is_noticed_while_bytes_wait_for_it(start: StartGateway) -> None:
    async with two(start) as (a, b):
        await a.join("alice")
        (far,) = relay(a)._open
        end = far.get_protocol()
        assert isinstance(end, RelayEnd)
        assert end._other is not None
        assert b.gateway._websockets is not None
        (served,) = b.gateway._websockets.sockets
        assert served._transport is not None
        for each in (far, end._other.transport, served._transport):
            connected = each.get_extra_info("socket")
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 40_000
            assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


@asynccontextmanager
async def frozen(a: LocalGateway, monkeypatch: pytest.MonkeyPatch, says: bytes) -> AsyncIterator[None]:
    """The only one that `a` knows for the space says this, and then nothing."""
    writers = []

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(says)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    address = RelayAddress("127.0.0.1", server.sockets[0].getsockname()[1], "http://frozen")
    monkeypatch.setattr(node(a), "relay_addresses", lambda _: {"frozen": address})
    try:
        yield
    finally:
        for each in writers:
            each.transport.abort()
        server.close()


async def test_a_frozen_gateway_is_not_waited_for_for_ever(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(start) as (a, _):
        assert relay(a).silence_seconds == gateway_relay.SILENCE_SECONDS + HANG_SECONDS
        monkeypatch.setattr(GatewayRelay, "silence_seconds", 0.2)
        async with frozen(a, monkeypatch, b""):
            read = await get(a, WHERE)
            assert (read.status_code, read.json()["error"]) == (504, "unavailable")
            for content, error in ((b"{}", "outcome_unknown"), (b"x" * 100_000, "unavailable")):
                headers = {"Authorization": "Bearer t-alice"}
                sent = await a.http.post("/spaces/lab/content", content=content, headers=headers)
                assert (sent.status_code, sent.json()["error"]) == (504, error)
        async with frozen(a, monkeypatch, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"):
            with pytest.raises(httpx.RemoteProtocolError):
                await get(a, WHERE)
        await until(lambda: relay(a).connections == 0)


async def test_a_body_that_is_too_large_is_refused_before_it_is_sent(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever waits for the body waits too long.
    monkeypatch.setattr(refused_body, "MAX_SECONDS", HANG_SECONDS)
    more, where = MAX_CONTENT_BYTES + 1, "/spaces/lab/content"
    async with two(start) as (a, b):
        for port, *lines in ((a.port,), (a.port, "Expect: 100-continue"), (b.port, "Expect: 100-continue")):
            async with raw_client(port) as client:
                client.send(asked(port, f"Content-Length: {more}", *lines, method="POST", where=where))
                assert (await client.answer())[0] == 413
        async with raw_client(a.port) as client:
            lines = ["Content-Length: 100000", "Expect: 100-continue"]
            client.send(asked(a.port, *lines, method="POST", where=where))
            assert (await client.answer())[0] == 100
            client.send(b"x" * 100_000)
            assert (await client.answer())[0] == 201


def full(head: bytes) -> bytes:
    """With as many headers as there may be, and as many bytes."""
    lines = head.rstrip().split(b"\r\n")
    lines += [b"X-%d: a" % number for number in range(MAX_HEADERS + 1 - len(lines))]
    lines[-1] += b"a" * (MAX_HEADER_BYTES - len(b"\r\n".join(lines)))
    return b"\r\n".join([*lines, b"", b""])


async def test_the_largest_head_passes_both_gateways(start: StartGateway) -> None:
    alice = {"Authorization": "Bearer t-alice"}
    async with two(start) as (a, b):
        for head, status in (
            (full(asked(a.port)), 200),
            (full(asked(a.port)).replace(b"\r\n\r\n", b"a\r\n\r\n"), 400),
            (full(asked(a.port)).replace(b"\r\n\r\n", b"\r\nX: a\r\n\r\n"), 400),
            (full(upgrade(a.port, "/ws?space=lab", alice)), 101),
        ):
            async with raw_client(a.port) as client:
                client.send(head)
                assert (await client.answer())[0] == status
        # There is no more room for who only says that it relays.
        async with raw_client(b.port) as client:
            client.send(full(asked(b.port)).replace(b"X-1: ", b"%b: a" % RELAYED.encode()))
            assert (await client.answer())[0] == 400


async def test_an_answer_that_is_there_at_once_waits_for_its_reader(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = GatewayRelay._upgrade
    async with two(start) as (a, b):

        async def decide_late(*given: Any) -> Any:
            decision = await decide(*given)
            await until(lambda: b.gateway.directory.hosts["lab"].delivery.sessions)
            return decision

        monkeypatch.setattr(GatewayRelay, "_upgrade", decide_late)
        alice = await a.join("alice")
        await alice.fence()


async def test_a_relay_that_fails_is_answered(start: StartGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    async with two(start) as (a, _):
        monkeypatch.setattr(GatewayRelay, "open", fail)
        assert await a.status("/ws?space=lab", token="t-alice") == 500
        assert (await get(a, WHERE)).status_code == 500


async def test_a_relay_that_is_closed_opens_nothing(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting, closed = asyncio.Event(), asyncio.Event()

    async def connect(*given: Any) -> Any:
        connecting.set()
        await closed.wait()
        return await relay_connection.open_connection(*given)

    async with two(start) as (a, _):
        monkeypatch.setattr(gateway_relay, "open_connection", connect)
        asking = asyncio.create_task(get(a, WHERE))
        await connecting.wait()
        relay(a).close()
        closed.set()
        assert (await asking).status_code == 503
        assert await a.status("/ws?space=lab", token="t-alice") == 503
        assert (await get(a, WHERE)).status_code == 503
        assert relay(a).connections == 0


async def test_what_a_gateway_lacks_itself_is_no_fault_of_those_that_it_would_relay_to(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of files or ports, or in the middle of a renewal of its certificate."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    plain = RelayAddress("127.0.0.1", 1, "http://nobody")
    with monkeypatch.context() as none_left:
        loop = SimpleNamespace(create_connection=full)
        known = SimpleNamespace(get_running_loop=lambda: loop, timeout=asyncio.timeout)
        none_left.setattr(relay_connection, "asyncio", known)
        with pytest.raises(NotTried, match="too many open files"):
            await relay_connection.open_connection(plain, asyncio.Protocol)
    encrypted = RelayAddress("127.0.0.1", 1, "https://nobody", "00" * 32)
    with pytest.raises(NotTried, match="certificate"):
        await relay_connection.open_connection(encrypted, asyncio.Protocol, (Path("none"), Path("none")))
    with pytest.raises(ConnectionRefusedError):
        await relay_connection.open_connection(plain, asyncio.Protocol)

    async def not_tried(*_: object) -> None:
        raise NotTried

    async with two(start) as (a, _):
        monkeypatch.setattr(gateway_relay, "open_connection", not_tried)
        monkeypatch.setattr(GatewayRelay, "wait_seconds", 0.1)
        monkeypatch.setattr(node(a), "note_unreachable", lambda *_: pytest.fail("nobody is unreachable"))
        assert (await get(a, WHERE)).status_code == 503


async def test_what_is_taken_over_while_one_that_is_gone_is_tried_is_served_at_once(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(start) as (a, _):

        async def connect(*_: object) -> None:
            await node(a).serve(LAB)
            # Nothing else is told any more.
            monkeypatch.setattr(node(a)._exchange, "note_news", lambda: None)
            raise ConnectionRefusedError

        monkeypatch.setattr(gateway_relay, "open_connection", connect)
        monkeypatch.setattr(node(a), "note_unreachable", lambda *_: None)
        assert (await get(a, WHERE)).status_code == 200


def test_gateways_call_one_with_tls_the_same_after_each_start() -> None:
    """Its port for programs of its own machine is another one each time: members were told 421."""
    config: Any = SimpleNamespace(
        port=8443,
        hosts=lambda port: frozenset({f"127.0.0.1:{port}"}),
        origins=lambda port: frozenset({f"https://127.0.0.1:{port}"}),
    )
    addresses = GatewayAddresses(config)
    for local_port in (None, 40_001, 40_002):
        addresses.local_port = local_port
        assert addresses.own_origin == "https://127.0.0.1:8443"


async def test_who_waited_is_answered_by_whoever_serves_the_path_by_then() -> None:
    def relayed(_scope: Scope, _space: str, local: ASGIApp) -> ASGIApp:
        async def taken_over(scope: Scope, receive: Receive, send: Send) -> None:
            apps.mount(["/mcp"], PlainTextResponse("here"))
            await local(scope, receive, send)

        return taken_over

    apps = MountedApps(PlainTextResponse("own"), {"/mcp": "lab"}, relayed)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(apps), base_url="http://a") as client:
        assert (await client.get("/mcp")).text == "here"
