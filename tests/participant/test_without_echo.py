"""A member that hears nothing of its own, or not its requests (D-02): it asks and answers as always."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moot.errors import MemberLeft, UsageError
from moot.participant import connect
from moot.participant.connection.connect_options import Echo
from moot.protocol.envelope import Envelope
from tests.participant.gateway_with_members import QUICK, gateway_with
from tests.participant.rogue_gateway import rogue_gateway
from tests.waiting import until


async def test_it_asks_and_answers_and_hears_only_the_others(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice = await gateway.join("alice", echo=False)
        bob = await gateway.join("bob", participant="bob-7")
        received: list[tuple[str, str]] = []

        @alice.on("*", own=True)
        def note(envelope: Envelope) -> None:
            received.append((envelope.sender, envelope.kind))

        @alice.tool
        @bob.tool
        def shout(text: str) -> str:
            return text.upper()

        # By its logical name, which the answer does not carry (D-19).
        assert (await alice.call("bob", "shout", {"text": "hi"})).text == "HI"
        assert (await bob.call("alice", "shout", {"text": "ho"})).text == "HO"
        await bob.chat("done")
        await until(lambda: ("bob-7", "chat") in received)
        assert all(sender != "alice" for sender, _ in received)


async def test_whoever_is_not_here_is_not_waited_for(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice = await gateway.join("alice", echo=False)
        with pytest.raises(MemberLeft):
            await alice.call("bob", "shout", {"text": "hi"})


async def test_what_needs_the_gateways_word_says_so(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"]) as gateway:
        alice = await gateway.join("alice", echo=False)
        with pytest.raises(UsageError, match="echo=True"):
            await alice.chat("hello")


async def test_requests_need_no_echo_while_everything_else_is_confirmed(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice = await gateway.join("alice", echo="unanswered")
        bob = await gateway.join("bob", participant="bob-7")

        @bob.tool
        def shout(text: str) -> str:
            return text.upper()

        received: list[str] = []

        @alice.on("*", own=True)
        def note(envelope: Envelope) -> None:
            if envelope.sender == "alice":
                received.append(envelope.kind)

        assert (await alice.call("bob", "shout", {"text": "hi"})).text == "HI"
        await alice.chat("hello")
        assert received == ["chat"]
        proposal = await alice.propose("bob", "tools/call", {"name": "shout", "arguments": {"text": "ho"}})
        await bob.approve(proposal.id)
        assert (await proposal.outcome()).result["content"][0]["text"] == "HO"
        with pytest.raises(UsageError, match="no mcp/request can be confirmed"):
            await alice.send("mcp/request", {"method": "ping", "id": 1}, to="bob", confirm=True)


@pytest.mark.parametrize("echo", [False, "unanswered"])
async def test_somebody_who_was_not_asked_does_not_answer_for_who_was(echo: Echo) -> None:
    """D-80, with a gateway that lets it pass: a request that never came back is known all the same."""
    async with (
        rogue_gateway(echo=False) as gateway,
        connect(gateway.url, "lab", "t", limits=QUICK, echo=echo) as me,
    ):
        received: list[str] = []

        @me.on("mcp/response")
        def note(envelope: Envelope) -> None:
            received.append(envelope.sender)

        call = asyncio.create_task(me.request("bob", "x"))
        request = await gateway.wait_for("mcp/request")
        answer = {"jsonrpc": "2.0", "id": request["payload"]["id"], "result": {}}
        await gateway.emit("mcp/response", answer, sender="mallory", to=["me"], about=[request["id"]])
        await gateway.emit(
            "mcp/response",
            answer | {"result": {"real": True}},
            sender="bob",
            to=["me"],
            about=[request["id"]],
        )
        assert await call == {"real": True}
        assert received == ["bob"]
        assert me.violations.of("mallory") == {"unasked_answer": 1}
