"""Who comes to a gateway that does not serve the space is passed on to one that does, and sees none of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import websockets

from moot.gateway import access_limiter
from moot.gateway.cluster import gateway_relay
from moot.gateway.cluster.gateway_relay import GatewayRelay
from moot.net import relay_connection
from moot.net.http_protocol import RELAYED_HEADER
from moot.participant import connect
from moot.protocol.close_codes import MOVED, REMOVED
from moot.protocol.operation import Json
from moot.up.mcp_endpoint import serve_mcp
from tests.authority import Authority
from tests.bridges.served_space import offer_files
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.test_shards import LAB, SHARDS, SPACES, get, node
from tests.gateway.cluster.test_start_together import die
from tests.gateway.raw import raw_client
from tests.gateway.running_gateway import LocalGateway, fresh_id
from tests.gateway.running_gateway import fields as envelope
from tests.waiting import bounded, until, until_told

RELAYED = RELAYED_HEADER.decode()


def relay(gateway: LocalGateway) -> GatewayRelay:
    found = node(gateway).relay
    assert found is not None
    return found


def is_told(gateway: LocalGateway) -> bool:
    """Whether it knows how another one is reached that serves the space."""
    return bool(node(gateway).relay_addresses(LAB))


@asynccontextmanager
async def two(start: StartGateway, **more: Json) -> AsyncIterator[tuple[LocalGateway, LocalGateway]]:
    """The first one does not serve `lab`, and knows that the second one does."""
    cluster = SHARDS | more.pop("cluster", {})
    async with (
        bounded(),
        start("a", cluster=cluster, **more) as a,
        start("b", cluster=cluster, **more) as b,
    ):
        await node(a).leave(LAB)
        await until(lambda: is_told(a))
        yield a, b


async def test_a_member_at_the_wrong_gateway_joins_speaks_hears_proposes_and_approves(
    start: StartGateway,
) -> None:
    async with two(start, spaces=SPACES) as (a, b):
        alice, bob = await a.join("alice"), await b.join("bob")
        # With a join frame, as the console comes.
        carol = await a.open("/ws?space=lab")
        await carol.send({"type": "join", "space": "lab", "token": "t-carol"})
        await carol.hear("system/welcome")
        assert relay(a).connections == 2
        await alice.say("chat", {"text": "x" * 500_000}, id="long")
        assert len((await bob.hear("chat"))["payload"]["text"]) == 500_000
        await bob.say("mcp/proposal", {"method": "tools/call", "params": {"name": "t"}}, id="p", to=["carol"])
        assert (await alice.hear("mcp/proposal"))["id"] == "p"
        await alice.ask("mcp/approve", {}, about=["p"], to=["bob"])
        assert (await bob.hear("mcp/approve"))["from"] == "alice"
        # None of them is at the gateway that they came to.
        assert "lab" not in a.gateway.directory.hosts
        assert len(b.gateway.directory.hosts["lab"].delivery.sessions) == 3
        await alice.leave()
        await until(lambda: relay(a).connections == 1)
        assert (await bob.hear("system/presence"))["payload"]["event"] == "leave"


async def test_what_is_asked_by_http_is_answered_by_who_serves(start: StartGateway) -> None:
    async with two(start) as (a, b):
        bob = await b.join("bob")
        for number in range(3):
            # One connection to the first gateway for all of them.
            posted = await a.post("alice", envelope("chat", {"text": f"{number}"}), space="lab")
            assert posted.status_code == 200, posted.text
            assert (await bob.hear("chat"))["payload"]["text"] == f"{number}"
        await bob.say("chat", {"text": "to alice"}, to=["alice"])
        await bob.fence()
        heard = await a.poll("alice", space="lab")
        assert "to alice" in [each["payload"].get("text") for each in heard["messages"]]
        history, direct = [await get(each, "/spaces/lab/history") for each in (a, b)]
        assert (history.status_code, history.json()) == (200, direct.json())
        # Headers are those of who serves; one that is each connection's own is there once.
        assert history.headers.get_list("date", split_commas=False) == [history.headers["date"]]
        assert (await get(a, "/spaces/lab/history", nonsense="1")).status_code == 400
        large = b"0123456789" * 100_000

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(large), 100_000):
                yield large[start : start + 100_000]

        # With its length, and in chunks.
        for content in (large, pieces()):
            headers = {"Authorization": "Bearer t-alice", "Content-Type": "application/octet-stream"}
            added = await a.http.post("/spaces/lab/content", content=content, headers=headers)
            assert added.status_code in (200, 201), added.text
            found = await get(a, f"/spaces/lab/content/{added.json()['sha256']}")
            assert found.content == large
        head = await a.http.head("/spaces/lab/history", headers={"Authorization": "Bearer t-alice"})
        assert (head.status_code, head.content) == (200, b"")
        minted = await a.admin("POST", "participants/bob/tokens", {"seconds": 60}, space="lab")
        assert minted.status_code in (200, 201), minted.text
        await until(lambda: relay(a).connections == 0)


async def test_members_who_know_one_address_alone_are_served(start: StartGateway) -> None:
    async with two(start) as (a, b), connect(a.url, "lab", "t-alice") as alice:
        bob = await b.join("bob")
        await alice.chat("here")
        assert (await bob.hear("chat"))["payload"]["text"] == "here"


async def test_mcp_at_any_gateway_reaches_the_space(start: StartGateway) -> None:
    async with two(start, mcp={"server": "carol"}) as (a, b), AsyncExitStack() as stack:
        offer_files(await stack.enter_async_context(connect(b.url, "lab", "t-bob")))
        for each in (a, b):
            await stack.enter_async_context(serve_mcp(each.gateway))
        listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        headers = {
            "Authorization": "Bearer t-alice",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }

        async def call(method: str, params: Json, **more: str) -> Any:
            body = listed | {"method": method, "params": params}
            return await a.http.post("/mcp", json=body, headers=headers | more)

        version = "2025-06-18"
        begin: Json = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }

        async def begins() -> Any:
            answer = await call("initialize", begin)
            return answer if answer.status_code == 200 else None

        session = (await until_told(begins)).headers["mcp-session-id"]
        more = {"mcp-session-id": session, "mcp-protocol-version": version}

        async def lists() -> bool:
            return "write_file" in (await call("tools/list", {}, **more)).text

        await until_told(lists)


async def test_what_no_gateway_knows_is_refused_as_by_who_serves(start: StartGateway) -> None:
    async with two(start) as (a, b):
        for each in (a, b):
            # Everybody's token, nobody's, none, and somebody else's.
            assert await each.status("/ws?space=lab", token="t-nobody") == 401
            assert (await get(each, "/spaces/lab/history", "t-nobody")).status_code == 401
            wrong = await get(each, "/participants/alice/messages", "t-bob", space="lab")
            assert wrong.status_code == 403
        unknown = "/ws?space=" + next(
            name for name in map("none{}".format, range(99)) if node(a).shard_of(name).index == LAB
        )
        assert [await each.status(unknown, token="t-alice") for each in (a, b)] == [404, 404]


async def test_who_is_revoked_is_out_through_the_relay_too(start: StartGateway) -> None:
    async with two(start) as (a, b):
        alice, bob = await b.join("alice"), await a.join("bob")
        await alice.ask("space/kick", {"participant_id": "bob"}, id="kick")
        assert (await bob.closed())[0] == REMOVED
        await until(lambda: relay(a).connections == 0)
        assert await a.status("/ws?space=lab", token="t-bob") in (401, 403)
        said = await a.post("bob", envelope("chat", {"text": "still here"}), space="lab")
        assert said.status_code == 403
        assert [each for each in await alice.fence() if each["kind"] == "chat"] == []


async def test_guesses_count_for_the_address_that_they_came_from(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "/spaces/lab/history"
    # However slow the machine, none is forgiven meanwhile.
    monkeypatch.setattr(access_limiter, "WRONG_TOKENS_PER_MINUTE", 3.0)
    monkeypatch.setattr(access_limiter, "_SECONDS_PER_MINUTE", 1_000_000.0)

    async def guess(gateway: LocalGateway, claim: str = "") -> int:
        headers = {"Authorization": "Bearer t-nobody"} | ({RELAYED: claim} if claim else {})
        return (await gateway.http.get(where, headers=headers)).status_code

    async with two(start) as (a, b):
        limiters = [each.gateway._upgrade_handler.access_limiter for each in (a, b)]  # type: ignore[union-attr]
        sign = relay(a).claims.sign
        # What nobody signed, or for another request, is no address: this one's own counts.
        for forged in ("1.0 192.0.2.7 00", sign("192.0.2.7", "GET", b"/elsewhere").decode(), "192.0.2.7"):
            assert await guess(b, forged) == 401
        assert await guess(b, "1.0 192.0.2.7 00") == 429
        assert await b.status("/ws?space=lab", token="t-nobody", headers={RELAYED: "192.0.2.7"}) == 429
        assert [limiters[1].has_guessed(each) for each in ("127.0.0.1", "192.0.2.7")] == [True, False]
        # Who came through the first gateway has the same address, and is counted where the space is.
        assert await guess(a) == 429
        assert not limiters[0].has_guessed("127.0.0.1")
        # Signed by one of the cluster for this very request it is believed.
        for _ in range(3):
            assert await guess(b, sign("192.0.2.9", "GET", where.encode()).decode()) == 401
        assert limiters[1].has_guessed("192.0.2.9")


async def test_connections_count_for_the_address_that_they_came_from(start: StartGateway) -> None:
    async with two(start, max_connections_per_address=3) as (a, b):
        # Through the first one, and not more than any address has there.
        members = [await a.join(name) for name in ("alice", "bob")]
        assert await b.status("/ws?space=lab", token="t-carol") == 101
        # Three have this address at the second gateway, whichever way they came.
        assert not await _joins(b)
        for each in members:
            await each.leave()
        await until_told(lambda: _joins(b))


async def _joins(gateway: LocalGateway) -> bool:
    try:
        await gateway.join("carol")
    except (OSError, websockets.WebSocketException):
        return False
    return True


async def test_what_was_relayed_is_never_relayed_again(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(start) as (a, b):
        for signed in ("nonsense", relay(b).claims.sign("192.0.2.9", "GET", b"/ws?space=lab").decode()):
            assert await a.status("/ws?space=lab", token="t-alice", headers={RELAYED: signed}) == 503
            headers = {"Authorization": "Bearer t-alice", RELAYED: signed}
            refused = await a.http.get("/spaces/lab/history", headers=headers)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        # A gateway whose address leads back to this one.
        monkeypatch.setattr(node(a)._exchange, "address_of", lambda *_: relay(a).own_address)
        assert await a.status("/ws?space=lab", token="t-alice") == 503
        assert (await get(a, "/spaces/lab/history")).status_code == 503
        await until(lambda: relay(a).connections == 0)


async def test_a_shard_whose_gateway_cannot_be_reached_is_served_at_once(
    start: StartGateway,
) -> None:
    """It is not waited for until the log says that it is gone, and nobody who asks meanwhile is refused."""
    async with two(start, cluster={"gone_seconds": 10_000}) as (a, b):
        die(b)
        await b.gateway._listener.stop()  # type: ignore[union-attr]  # it runs
        said = a.post("alice", envelope("chat", {"text": "here"}), space="lab")
        asked = await asyncio.gather(a.join("bob"), get(a, "/spaces/lab/history"), said)
        assert [each.status_code for each in asked[1:]] == [200, 200]
        assert node(a).serves("lab")
        await until(lambda: relay(a).connections == 0)


async def test_who_waits_for_a_gateway_that_serves_is_refused_in_the_end_and_when_this_one_stops(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(start) as (a, _):
        monkeypatch.setattr(node(a), "relay_addresses", lambda _: {})
        asking = asyncio.create_task(get(a, "/spaces/lab/history"))
        await until(lambda: relay(a).connections == 1)
        with monkeypatch.context() as short:
            short.setattr(GatewayRelay, "wait_seconds", 0.1)
            refused = await get(a, "/spaces/lab/history")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert "try again" in refused.json()["message"]
        assert relay(a).connections == 1
        relay(a).close()
        assert "this gateway is stopping" in (await asking).text


async def test_the_relay_ends_with_either_side_and_members_come_back(start: StartGateway) -> None:
    async with two(start) as (a, b):
        alice = await a.join("alice")
        await node(a).serve(LAB)
        # Who is relayed stays so until the other one leaves.
        await alice.fence()
        await node(b).leave(LAB)
        assert (await alice.closed())[0] == MOVED
        await a.join("alice")
        await until(lambda: relay(a).connections == 0)
        await node(b).serve(LAB)
        await node(a).leave(LAB)
        await until(lambda: is_told(a))
        bob = await a.join("bob")
        relay(a).close()
        await bob.closed()
        await until(lambda: not b.gateway.directory.hosts["lab"].delivery.sessions)


async def test_no_more_are_relayed_than_there_may_be(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_relay, "MAX_RELAYS", 2)
    async with two(start) as (a, _):
        for name in ("alice", "bob"):
            await a.join(name)
        assert await a.status("/ws?space=lab", token="t-carol") == 503
        refused = await get(a, "/spaces/lab/history")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


async def test_a_reader_that_takes_nothing_fills_no_memory(start: StartGateway) -> None:
    """Both sides wait for it, and who serves closes it as it closes any that is too slow."""
    async with two(start) as (a, b):
        bob = await b.join("bob")
        reader, writer = await asyncio.open_connection("127.0.0.1", a.port, limit=1024)
        writer.write(
            f"GET /ws?space=lab HTTP/1.1\r\nHost: 127.0.0.1:{a.port}\r\nAuthorization: Bearer t-alice\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n".encode()
        )
        assert (await reader.readline()).split()[1] == b"101"
        sessions = b.gateway.directory.hosts["lab"].delivery.sessions
        await until(lambda: len(sessions) == 2)
        text = "x" * 500_000
        while len(sessions) == 2:
            await bob.ask("chat", {"text": text}, id=fresh_id())
            for each in relay(a)._open:
                far = each.get_protocol()
                assert isinstance(far, relay_connection.RelayEnd)
                assert far._other is not None
                waiting = far._other.transport.get_write_buffer_size()
                # What is read at a time is passed on whole.
                assert waiting <= relay_connection.BUFFER_BYTES + (512 << 10)
        writer.close()


async def test_the_page_of_the_console_at_the_wrong_gateway_is_believed(start: StartGateway) -> None:
    async with two(start) as (a, b):
        own, foreign = f"http://127.0.0.1:{a.port}", "http://evil.example"
        carol = await a.open("/ws?space=lab", headers={"Origin": own})
        await carol.send({"type": "join", "space": "lab", "token": "t-carol"})
        await carol.hear("system/welcome")
        assert await a.status("/ws?space=lab", token="t-alice", headers={"Origin": foreign}) == 403
        headers = {"Authorization": "Bearer t-alice", "Origin": own}
        assert (await a.http.get("/spaces/lab/history", headers=headers)).status_code == 200
        assert (
            await a.http.get("/spaces/lab/history", headers=headers | {"Origin": foreign})
        ).status_code == 403
        # Its own names, and no others.
        assert (await b.http.get("/spaces/lab/history", headers=headers)).status_code == 403


async def test_what_tells_of_this_gateway_is_its_own(start: StartGateway) -> None:
    async with two(start) as (a, _):
        ready = await a.http.get("/readyz", params={"space": "lab"})
        assert (ready.status_code, ready.json()["status"]) == (503, "not_served")
        assert (await a.admin("GET", "cluster")).json()["answered_by"] == "a"
        assert json.loads((await a.admin("DELETE", "cluster/shards/4")).text)["changed"] is False


async def test_between_gateways_is_tls_where_they_have_it_and_each_shows_the_certificate_it_tells_of(
    start: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever signed it: their addresses are nobody's name."""

    def tls(name: str) -> Json:
        folder = tmp_path / f"keys-{name}"
        folder.mkdir()
        authority = Authority(folder, "ca")
        certificate, key = authority.issue(name, address="192.0.2.1")
        key.chmod(0o600)
        return {"certificate": str(certificate), "key": str(key)}

    async with (
        bounded(),
        start("a", cluster=SHARDS, tls=tls("a")) as a,
        start("b", cluster=SHARDS, tls=tls("b"), max_connections_per_address=3) as b,
        AsyncExitStack() as stack,
    ):
        await node(a).leave(LAB)
        await until(lambda: is_told(a) and relay(b).is_gateway("127.0.0.1"))
        # Whose handshake is not over says nothing yet, and takes no gateway's place.
        for _ in range(3):
            await stack.enter_async_context(raw_client(b.port))
        url = a.gateway.addresses.local_url
        assert url is not None
        headers = {"Authorization": "Bearer t-alice"}
        async with connect(url, "lab", "t-alice") as alice, httpx.AsyncClient(headers=headers) as http:
            await alice.chat("x" * 300_000)
            history = await http.get(f"{url}/spaces/lab/history")
            assert (history.status_code, "x" * 300_000 in history.text) == (200, True)
            (told,) = node(a).relay_addresses(LAB).values()
            assert told.port == b.gateway.port
            other = msgspec.structs.replace(told, certificate="00" * 32)
            monkeypatch.setattr(node(a), "relay_addresses", lambda _: {"b": other})
            monkeypatch.setattr(node(a), "note_unreachable", lambda *_: None)
            monkeypatch.setattr(GatewayRelay, "wait_seconds", 0.1)
            assert (await http.get(f"{url}/spaces/lab/history")).status_code == 503
