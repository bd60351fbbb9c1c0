"""A server that hangs, dies, floods, answers garbage, changes its tools or prints: the space does not notice.

The caller gets an error that says what happened, the member stays, and others go on talking meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moot.bridges.server.server_messages import CALL_BURST, CALL_PER_SECOND, CHANGE_SECONDS, TICK_SECONDS
from moot.errors import CallOutcomeUnknown, HostDoesNotKnow, McpError
from moot.mcp.upstream import UpstreamOptions
from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from tests.bridges.bridged_space import BridgedSpace, bridged_space, call
from tests.bridges.served_space import serve_member
from tests.mcp.upstreams import QUICK, script, text_of, value_of, wait_until_gone
from tests.waiting import HANG_SECONDS, until, until_told

HASTY = replace(QUICK, call_seconds=0.3, health_seconds=0.3)
LATE = "did not answer tools/call within 0.3 s"


async def _others_talk(space: BridgedSpace, meanwhile: Awaitable[Any]) -> Any:
    """Two members chat while something goes wrong elsewhere; what became of that."""
    bob = space.members["bob"]
    received = 0

    @space.members["alice"].on("chat")
    def _note(envelope: Envelope) -> None:
        nonlocal received
        received += envelope.sender == "bob"

    trouble = asyncio.ensure_future(meanwhile)
    answer = 0
    while not trouble.done() or answer < 5:
        await bob.chat("still here")
        answer += 1
        await until(lambda wanted=answer: received == wanted)  # type: ignore[misc]
        await asyncio.wait([trouble], timeout=0.02)
    return await trouble


async def _stays(alice: JoinedSpace) -> None:
    """The member never left, and its server is back."""
    assert "host" in alice.roster

    async def answers() -> bool:
        # Where calls have a third of a second, a busy machine may need several.
        with contextlib.suppress(McpError):
            return text_of(await call(alice, "sleep", {"seconds": 0})) == "slept"
        return False

    await until_told(answers)


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("hang", {}, LATE),
        ("freeze", {}, LATE),
        ("die", {"code": 4}, "ended with exit code 4 before it answered"),
        ("garbage", {}, "cannot be read"),
        ("deep", {}, "nested deeper"),
        ("nothing", {}, "neither a result object nor an error"),
        ("flood_lines", {}, LATE),
        ("flood_one_line", {}, LATE),
        ("flood", {}, LATE),
    ],
)
async def test_the_caller_is_told_and_nobody_else_notices(
    tmp_path: Path, tool: str, arguments: dict[str, Any], says: str
) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"), upstream=UpstreamOptions(limits=HASTY if says == LATE else QUICK))
        alice, _ = await space.join("alice"), await space.join("bob")
        left: list[Envelope] = []
        alice.on("system/presence")(left.append)

        async def trouble() -> str:
            with pytest.raises(McpError) as caught:
                await call(alice, tool, arguments)
            # D-99: it was sent, so it may have been done.
            assert isinstance(caught.value, CallOutcomeUnknown)
            return caught.value.message

        assert says in await _others_talk(space, trouble())
        await _stays(alice)
        assert [each.payload["event"] for each in left] == []


async def test_a_person_settles_an_approved_call_whose_server_died(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"))
        alice, carl = await space.join("alice"), await space.join("carl")
        proposal = await carl.propose("host", "tools/call", {"name": "die", "arguments": {"code": 4}})
        await until(lambda: alice.proposals.get(proposal.id) is not None)
        for waiting in (alice.approve(proposal.id), proposal.outcome()):
            with pytest.raises(HostDoesNotKnow, match="ended with exit code 4 before it answered"):
                await waiting
        assert proposal.state == "unknown"
        # The gateway's word for it comes behind the answer.
        known = await alice.look_up_proposal(proposal.id)
        assert known is not None
        assert (known.outcome, known.reason) == ("unknown", "host_does_not_know")
        await alice.settle(proposal.id, "done", note="the file is there")
        known = await alice.look_up_proposal(proposal.id)
        assert known is not None
        assert (known.outcome, known.note) == ("done", "the file is there")


async def test_a_flood_of_notifications_arrives_as_a_trickle(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"))
        alice, bob = await space.join("alice"), await space.join("bob")
        await bob.request("host", "resources/subscribe", {"uri": "odd://a"})
        received: list[Envelope] = []

        @bob.on("mcp/request")
        def _note(envelope: Envelope) -> None:
            received.append(envelope)

        progress: list[Any] = []
        logs: list[Any] = []
        meta = {"io.modelcontextprotocol/logLevel": "debug"}
        work = call(
            alice,
            "flood",
            {"count": 2_500},
            also={"_meta": meta},
            progress=progress.append,
            log=logs.append,
            timeout=HANG_SECONDS,
        )
        begun = time.monotonic()
        result = await _others_talk(space, work)
        assert text_of(result) == "done"
        # As many as the time allows that it took here.
        seconds = time.monotonic() - begun
        assert 1 <= len(progress) <= 2 * CALL_BURST + 1 + CALL_PER_SECOND * seconds
        # Five hundred came; the ones that were too many are counted, in words.
        assert 1 <= len(logs) <= 501
        methods = [each.payload["method"] for each in received if each.sender == "host"]
        assert methods.count("notifications/tools/list_changed") <= 2 + seconds / CHANGE_SECONDS
        updates = methods.count("notifications/resources/updated")
        assert 1 <= updates <= 2 + seconds / TICK_SECONDS
        assert "vendor/noise" not in methods


async def test_what_is_printed_to_stdout_harms_nobody(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        bridge = await space.bridge(script("odd", "--greeting", "hello from a print"))
        alice, _ = await space.join("alice"), await space.join("bob")
        assert text_of(await _others_talk(space, call(alice, "junk"))) == "after the junk"
        assert bridge.upstream.counts.invalid_messages >= 4


async def test_an_answer_too_large_for_an_envelope_comes_whole(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"))
        alice = await space.join("alice")
        assert len(text_of(await call(alice, "huge", {"size": 3_000_000}))) == 3_000_000
        await _stays(alice)


# D-87


@pytest.mark.parametrize("tell", [True, False])
async def test_a_tool_that_changes_is_shown_and_withheld_until_somebody_consents(
    tmp_path: Path, tell: bool
) -> None:
    async with bridged_space(tmp_path) as space:
        bridge = await space.bridge(script("odd"), pins_file=tmp_path / "pins.json")
        alice = await space.join("alice")
        chats: list[str] = []

        @alice.on("chat")
        def _note(envelope: Envelope) -> None:
            chats.append(envelope.payload["text"])

        assert "echo" in [tool["name"] for tool in await alice.list_all("host", "tools")]
        await call(alice, "change", {"to": "now evil \x1b[2J", "tell": tell})
        if not tell:
            # A server that does not tell is found out at the next list.
            await alice.list_all("host", "tools")
        await until(lambda: "echo" in bridge.changes)
        with pytest.raises(
            McpError, match="is withheld until the operator of this bridge accepts the change"
        ):
            await call(alice, "echo")
        assert "echo" not in [tool["name"] for tool in await alice.list_all("host", "tools")]
        await until(lambda: bool(chats))
        # Models read the chat, and the new text is not for them.
        assert "has changed since it was first seen (description)" in chats[0]
        assert "evil" not in chats[0]
        # The rest of the server goes on.
        assert text_of(await call(alice, "sleep")) == "slept"
        assert bridge.accept() == ["echo"]
        assert "echo" in [tool["name"] for tool in await alice.list_all("host", "tools")]
        await call(alice, "echo")


async def test_a_client_reads_why_a_tool_is_withheld(tmp_path: Path) -> None:
    lists = {"kind": "mcp/request", "payload": {"method": "tools/list"}}
    async with bridged_space(tmp_path, {"carl": ["mcp/proposal", lists]}) as space:
        bridge = await space.bridge(script("odd"), pins_file=tmp_path / "pins.json")
        alice = await space.join("alice")
        served = {name: await serve_member(await space.join(name), space.stack) for name in ("bob", "carl")}
        async with served["bob"].client() as bob, served["carl"].client() as carl:
            for client in (bob, carl):
                names = [tool.name for tool in (await client.list_tools()).tools]
                assert "echo" in names, names
            await call(alice, "change", {"to": "now evil", "tell": True})
            await until(lambda: "echo" in bridge.changes)
            for shown in served.values():
                table = shown.backend.offer_table
                await until(lambda table=table: table.find("tools", "echo") is None)  # type: ignore[misc]
            with pytest.raises(Exception, match="is withheld until the operator of this bridge accepts"):
                await bob.call_tool("echo", {})
            # Who may only propose asks nobody for it.
            refused = await carl.call_tool("echo", {})
            assert refused.is_error
            assert "host, which owns echo, does not offer it now" in str(refused.content)


async def test_a_change_between_two_runs_is_found_before_the_first_call(tmp_path: Path) -> None:
    pins = tmp_path / "pins.json"
    server = script("odd")
    async with bridged_space(tmp_path) as space:
        async with space.stack:
            first = await space.bridge(server, pins_file=pins)
            await until(lambda: pins.exists())
            assert not first.changes
        pins.write_text(pins.read_text().replace(_hash_of(pins, "echo"), "0" * 64))
        space.stack = type(space.stack)()
        async with space.stack:
            await space.bridge(server, pins_file=pins)
            alice = await space.join("alice")
            with pytest.raises(McpError, match="is withheld"):
                await call(alice, "echo")
        space.stack = type(space.stack)()
        async with space.stack:
            await space.bridge(server, pins_file=pins, accept_changes=True)
            alice = await space.join("alice")
            await call(alice, "echo")
        space.stack = type(space.stack)()
        async with space.stack:
            careless = await space.bridge(server, pins_file=pins, pin=False)
            alice = await space.join("alice")
            await call(alice, "change", {"to": "third"})
            await until(lambda: "echo" in careless.changes)
            await call(alice, "echo")


def _hash_of(pins: Path, tool: str) -> str:
    (server,) = json.loads(pins.read_text())["servers"].values()
    return str(server[tool]["sha256"])


async def test_nothing_of_a_server_is_left_when_its_bridge_ends(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        alice = await space.join("alice")
        async with space.stack:
            await space.bridge(script("odd"))
            pid = value_of(await call(alice, "told"))["pid"]
            grandchild = int(text_of(await call(alice, "spawn")))
        await wait_until_gone(pid)
        await wait_until_gone(grandchild)
