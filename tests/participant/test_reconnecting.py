"""Losing the connection and coming back (D-26, D-41): what is kept, what fails, and what is told."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moot.errors import ConnectionClosed, ConnectionLost, Rejected, Unreachable
from moot.participant import IncomingRequest, JoinedSpace, MissedMessages, connect
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.gateway.running_gateway import gateway_settings, participants, space_settings, write_config
from tests.gateway.served import started
from tests.participant.gateway_with_members import PROPOSER, QUICK, ReceivedEnvelopes, away, gateway_with
from tests.participant.rogue_gateway import rogue_gateway
from tests.waiting import HANG_SECONDS, bounded, until


async def back(space: JoinedSpace, times: int = 1) -> None:
    await until(lambda: space.counts.reconnects >= times and space.state == "joined")


async def test_a_member_comes_back_and_is_told_what_it_may_have_missed(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"], carol=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        items: list[Envelope | MissedMessages] = []

        async def read() -> None:
            async for item in alice.envelopes():
                items.append(item)

        reading = asyncio.create_task(read())
        rejoined = asyncio.Event()
        alice.on_reconnected(rejoined.set)
        await gateway.raw("carol")
        waiting = asyncio.create_task(alice.request("carol", "x/never"))
        await until(lambda: len(alice._parts.requests) == 1)
        alice._sender.socket._drop()
        with pytest.raises(ConnectionLost, match="whether it was done is not known"):
            await waiting
        async with bounded():
            await rejoined.wait()
        assert alice.state == "joined"
        assert alice.me == "alice"
        assert "bob" in alice.roster
        await bob.chat("are you back?")
        await until(lambda: any(isinstance(item, Envelope) and item.kind == "chat" for item in items))
        gaps = [item for item in items if isinstance(item, MissedMessages)]
        assert [gap.why for gap in gaps] == ["reconnected"]
        assert alice.counts.reconnects == 1
        reading.cancel()


async def test_who_waits_to_be_connected_while_the_connection_closes_lets_it_close(tmp_path: Path) -> None:
    """Or whoever sends again when ready would go round for ever, and nothing else would happen."""
    async with gateway_with(tmp_path, alice=["*"]) as gateway:
        alice = await gateway.join("alice")
        alice._sender.socket.close(1001, "going away")
        with pytest.raises(ConnectionLost):
            alice._sender.send("chat", {"text": "x"})
        ready = asyncio.create_task(alice.ready())
        await asyncio.sleep(0)
        assert not ready.done()
        async with bounded():
            await ready
        assert alice.counts.reconnects == 1
        await alice.chat("x")


async def test_while_away_sending_fails_at_once_and_nothing_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Comes back after an hour: closing does not wait for that.
    monkeypatch.setattr("moot.participant.connection.link.BACKOFF_FIRST_SECONDS", 7_200.0)
    monkeypatch.setattr("moot.participant.connection.link.BACKOFF_MAX_SECONDS", 7_200.0)
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice = await gateway.join("alice")
        await gateway.join("bob")
        alice._sender.socket._drop()
        await until(lambda: alice.state == "reconnecting")
        for act in (
            alice.chat("x"),
            alice.request("bob", "ping"),
            alice.call("bob", "t"),
            alice.propose("bob", "x/y"),
            alice.streams.open(),
            alice.admin.grant("bob", ["chat"]),
            alice.admin.request_status("bob"),
        ):
            with pytest.raises(ConnectionLost):
                await act
        assert not await alice.notify("notifications/x")
        async with bounded():
            await alice.close()
        assert alice.state == "closed"


async def test_the_roster_is_fresh_after_a_reconnect(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"], carol=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        await alice.roster.wait_for("bob", timeout_seconds=HANG_SECONDS)
        events: list[str] = []
        alice.roster.on_change(lambda event: events.append(event.event))
        async with away(alice):
            await bob.close()
            carol = await gateway.join("carol")
            # The gateway has noticed both: that one left, and that this one is there.
            await until(lambda: set(carol.roster) == set())
        await back(alice)
        assert set(alice.roster) == {"carol"}
        assert events == ["refreshed"]
        assert "alice" in carol.roster or await carol.roster.wait_for("alice", timeout_seconds=HANG_SECONDS)


async def test_an_answer_that_is_ready_while_the_host_is_away_is_given_later(tmp_path: Path) -> None:
    """A blip on the host's side does not fail the calls that it works on."""
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        patient = msgspec.structs.replace(QUICK, host_return_seconds=HANG_SECONDS)
        alice, bob = await gateway.join("alice", limits=patient), await gateway.join("bob")
        go = asyncio.Event()

        async def handler(request: IncomingRequest) -> dict[str, Json]:
            await go.wait()
            return {"answered": True}

        bob.server.use_handler(handler)
        call = asyncio.create_task(alice.request("bob", "x/slow"))
        await until(lambda: bob.server.running == 1)
        async with away(bob):
            go.set()
            # The handler has returned when others had their turn: its answer waits for a connection.
            await until(lambda: "bob" not in alice.roster)
            assert not call.done()
        assert await call == {"answered": True}
        assert bob.counts.reconnects == 1


async def test_an_answer_that_cannot_be_given_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.participant.serving.request_server.HELD_ANSWER_SECONDS", 0.05)
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice = await gateway.join("alice")
        bob = await gateway.join("bob")
        go = asyncio.Event()

        async def handler(request: IncomingRequest) -> dict[str, Json]:
            await go.wait()
            return {}

        bob.server.use_handler(handler)
        call = asyncio.create_task(alice.request("bob", "x/slow"))
        await until(lambda: bob.server.running == 1)
        async with away(bob):
            go.set()
            await until(lambda: bob.server.running == 0)
            call.cancel()
        await back(bob)
        assert await alice.request("bob", "x/again") == {}
        await bob.close()
        with pytest.raises(ConnectionClosed):
            await bob.ready(HANG_SECONDS)


async def test_a_proposal_that_was_decided_while_its_proposer_was_away(tmp_path: Path) -> None:
    """The gateway's memory is asked; the outcome is the true one (D-40)."""
    people: dict[str, Any] = {"agent": PROPOSER, "human": ["*"], "host": []}
    async with gateway_with(tmp_path, **people) as gateway:
        human, host = await gateway.join("human"), await gateway.join("host")

        @host.tool
        def write(path: str) -> str:
            return f"wrote {path}"

        for dialect in ("mew", "mcpx"):
            agent = await gateway.join("agent", dialect=dialect)
            fulfilled = asyncio.create_task(agent.call("host", "write", {"path": "a"}))
            await until(lambda: len(human.proposals.open()) == 1)
            rejected = asyncio.create_task(agent.call("host", "write", {"path": "b"}))
            await until(lambda: len(human.proposals.open()) == 2)
            kept = await agent.propose("host", "tools/call", {"name": "write", "arguments": {"path": "c"}})
            await until(lambda: len(human.proposals.open()) == 3)
            async with away(agent):
                first, second, third = human.proposals.open()
                await human.approve(first)
                await human.reject(second, "unsafe")
            await back(agent)
            outcome = await fulfilled
            assert (outcome.text, outcome.by) == ("wrote a", "human")
            with pytest.raises(Rejected, match="unsafe"):
                await rejected
            await until(lambda kept=kept: not kept.seen.uncertain)  # type: ignore[misc]
            assert kept.state == "pending"
            await human.approve(third)
            assert (await kept.outcome(timeout_seconds=HANG_SECONDS)).text == "wrote c"
            await agent.close()
            await until(lambda: human.proposals.open() == [])


async def test_a_gateway_that_restarts(tmp_path: Path) -> None:
    """As people run it: the process ends and another one comes; open proposals survive (D-41)."""
    people = participants(agent=PROPOSER, human=["*"], host=[])
    settings = gateway_settings({"lab": space_settings(people)})
    file = write_config(tmp_path, settings)
    gateway = await started(file)
    port = str(gateway.port)
    try:
        async with (
            connect(gateway.url, "lab", "t-agent", limits=QUICK) as agent,
            connect(gateway.url, "lab", "t-human", limits=QUICK) as human,
            connect(gateway.url, "lab", "t-host", limits=QUICK) as host,
        ):

            @host.tool
            def write(path: str) -> str:
                return f"wrote {path}"

            proposal = await agent.propose(
                "host", "tools/call", {"name": "write", "arguments": {"path": "a"}}
            )
            await until(lambda: bool(human.proposals.open()))
            agent.server.use_handler(_never)
            slow = asyncio.create_task(human.request("agent", "x/never"))
            await until(lambda: agent.server.running == 1)
            await gateway.close()
            await gateway.end(signal.SIGTERM)
            with pytest.raises(ConnectionLost, match="1001"):
                await slow
            gateway = await started(file, "--port", port)
            for member in (agent, human, host):
                await back(member)
            assert proposal.state == "pending"
            # The new process remembers what the old one said, so nothing can have been missed.
            await until(lambda: not proposal.seen.uncertain)
            await human.roster.wait_for("host", timeout_seconds=HANG_SECONDS)
            outcome = await human.approve(human.proposals.open()[0])
            assert outcome.text == "wrote a"
            assert (await proposal.outcome(timeout_seconds=HANG_SECONDS)).by == "human"
            assert (await human.call("host", "write", {"path": "b"})).text == "wrote b"
    finally:
        await gateway.close()
        await gateway.end()


async def test_what_cannot_be_looked_up_stays_uncertain_and_is_told_as_lost() -> None:
    """Behind this gateway nothing can be polled: the member knows that it does not know."""
    limits = msgspec.structs.replace(QUICK, request_seconds=0.3)
    async with rogue_gateway() as gateway, connect(gateway.url, "lab", "t", limits=limits) as me:
        open_one = await me.propose("bob", "tools/call", {"name": "a"})
        fulfilled = await me.propose("bob", "tools/call", {"name": "b"})
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "b"}}
        await gateway.emit("mcp/request", body, sender="human", to=["bob"], about=[fulfilled.id])
        await until(lambda: fulfilled.state == "fulfilled")
        gateway.sockets[0].transport.abort()
        await back(me)
        with pytest.raises(ConnectionLost, match="its result was missed while we were away"):
            await fulfilled.outcome(timeout_seconds=HANG_SECONDS)
        assert fulfilled.state == "lost"
        assert open_one.state == "pending"
        assert open_one.seen.uncertain
        await open_one.withdraw()
        # Somebody has fulfilled it meanwhile, says the gateway when it is withdrawn at its time.
        gateway.kept.add("mcp/withdraw")
        third = await me.propose("bob", "tools/call", {"name": "c"}, timeout_seconds=0.1)
        withdraw = await gateway.wait_for("mcp/withdraw")
        while withdraw["correlation_id"] != [third.id]:
            withdraw = await gateway.wait_for("mcp/withdraw")
        settled = {"error": "proposal_settled", "message": "fulfilled already", "state": "fulfilled"}
        await gateway.emit("system/error", settled, to=["me"], about=[withdraw["id"]])
        with pytest.raises(ConnectionLost, match="fulfilled while we were away"):
            await third.outcome(timeout_seconds=HANG_SECONDS)


async def test_it_gives_up_after_its_time_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = msgspec.structs.replace(QUICK, reconnect_seconds=0.3)
    async with rogue_gateway() as gateway, connect(gateway.url, "lab", "t", limits=limits) as me:
        gateway.welcomes = False
        me._sender.socket._drop()
        await until(lambda: me.state == "reconnecting")
        gateway.url = ""
        for socket in gateway.sockets:
            socket.transport.abort()
        # Nobody welcomes us any more, so it never is in again.
        monkeypatch.setattr("moot.participant.connection.link.WELCOME_SECONDS", 0.1)
        ending = await me.stay()
        assert ending.code == 1006


async def test_codes_say_who_may_come_back() -> None:
    """moot.protocol.close_codes."""
    for code, returns in (
        (1001, True),
        (1011, True),
        (1013, True),
        (1000, False),
        (1008, False),
        (4001, False),
    ):
        async with rogue_gateway() as gateway, connect(gateway.url, "lab", "t", limits=QUICK) as me:
            await gateway.sockets[0].close(code, "because")
            if returns:
                await back(me)
            else:
                ending = await me.stay()
                assert (ending.code, ending.reason) == (code, "because")


async def test_reconnecting_can_be_left_to_the_caller(tmp_path: Path) -> None:
    async with (
        rogue_gateway() as gateway,
        connect(gateway.url, "lab", "t", limits=QUICK, reconnect=False) as me,
    ):
        await gateway.sockets[0].close(1001, "stopping")
        assert (await me.stay()).code == 1001


async def test_a_gateway_that_does_not_welcome_or_speaks_another_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.participant.connection.link.WELCOME_SECONDS", 0.1)
    limits = msgspec.structs.replace(QUICK, connect_seconds=0.3)
    async with rogue_gateway() as gateway:
        gateway.welcomes = False
        with pytest.raises(Unreachable, match="no welcome"):
            async with connect(gateway.url, "lab", "t", limits=limits):
                pass
    monkeypatch.setattr("moot.participant.connection.link.WELCOME_SECONDS", HANG_SECONDS)
    limits = msgspec.structs.replace(QUICK, connect_seconds=0.0)
    async with rogue_gateway() as gateway:
        gateway.participants = [{"no": "id"}]
        with pytest.raises(Unreachable, match="welcome cannot be read"):
            async with connect(gateway.url, "lab", "t", limits=limits):
                pass


async def test_silence_is_asked_about_and_then_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead network is noticed by pings: the other side does not answer them."""
    dead = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import base64
        import hashlib

        head = await reader.readuntil(b"\r\n\r\n")
        key = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
        guid = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.split(b": ")[1] + guid).digest())  # noqa: S324  # RFC 6455
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        welcome = (
            b'{"protocol":"mew/v0.4","id":"w","ts":"2026-01-01T00:00:00Z","from":"system:gateway",'
            b'"to":["me"],"kind":"system/welcome","payload":{"you":{"id":"me","capabilities":[]}}}'
        )
        writer.write(bytes([0x81, 126]) + len(welcome).to_bytes(2, "big") + welcome)
        await writer.drain()
        await dead.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr("moot.net.websocket_client.PING_SECONDS", 0.1)
    async with connect(f"ws://127.0.0.1:{port}", "lab", "t", limits=QUICK, reconnect=False) as me:
        ending = await me.stay()
        assert ending.code == 1006
    dead.set()
    server.close()
    await server.wait_closed()


async def test_leaving_in_the_middle_of_everything_leaves_nothing_behind(tmp_path: Path) -> None:
    """No task, no warning: the block ends whatever was going on."""
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        bob = await gateway.join("bob")
        received = ReceivedEnvelopes(bob)

        @bob.tool
        async def forever() -> str:
            await asyncio.Event().wait()
            return ""

        before = asyncio.all_tasks()
        async with connect(gateway.url, "lab", "t-alice", limits=QUICK) as alice:
            alice.on("chat")(_slow)

            async def handler(request: IncomingRequest) -> dict[str, Json]:
                await asyncio.Event().wait()
                return {}

            alice.server.use_handler(handler)
            calls = [asyncio.create_task(alice.call("bob", "forever")) for _ in range(3)]
            proposal = await alice.propose("bob", "tools/call", {"name": "forever"})
            theirs = asyncio.create_task(bob.request("alice", "x/slow"))
            await bob.chat("hi")
            await until(lambda: alice.server.running == 1)
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each).__name__ for each in results] == ["ClosedWhileWaiting"] * 3
        assert proposal.state in ("withdrawn", "lost")
        assert (await received.wait("mcp/withdraw")).correlation_id == [proposal.id]
        theirs.cancel()
        await asyncio.gather(theirs, return_exceptions=True)
        await until(
            lambda: asyncio.all_tasks() - before == set() or _only_servers(asyncio.all_tasks() - before)
        )


async def _never(request: IncomingRequest) -> dict[str, Json]:
    await asyncio.Event().wait()
    return {}


async def _slow(envelope: Envelope) -> None:
    await asyncio.Event().wait()


def _only_servers(tasks: set[asyncio.Task[Any]]) -> bool:
    """Whether none of these is the SDK's: the gateway of the test runs on the same loop."""
    return not any("moot.participant" in str(task.get_coro()) for task in tasks)
