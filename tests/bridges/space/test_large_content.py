"""Arguments and results that no envelope holds: kept by the gateway, seen by people, run as approved."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest

from moot.errors import NotAllowed
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer
from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.large_content import CONTENT_KEY
from tests.bridges.bridged_space import bridged_space
from tests.bridges.served_space import serve_member
from tests.gateway.running_gateway import participants, running_gateway
from tests.participant.gateway_with_members import GatewayWithMembers, gateway_with
from tests.waiting import HANG_SECONDS, until

FIVE_MB = "0123456789" * 500_000
LISTS = {"kind": "mcp/request", "payload": {"method": "tools/list"}}

SERVER = '''
from mcp.server import MCPServer

server = MCPServer("large", version="1")


@server.tool(structured_output=False)
def give(size: int) -> str:
    """A text of this size."""
    return "x" * size


@server.tool(structured_output=False)
def count(text: str) -> str:
    """How long a text is."""
    return str(len(text))


server.run("stdio")
'''


def large_server(folder: Path) -> StdioServer:
    file = folder / "large.py"
    file.write_text(SERVER)
    return StdioServer(command=Command(argv=(sys.executable, str(file))))


def listening(space: JoinedSpace, kind: str) -> list[Envelope]:
    received: list[Envelope] = []
    space.on(kind)(received.append)
    return received


def offer(space: JoinedSpace) -> list[int]:
    """Tools that give and take large texts; what they were called with."""
    taken: list[int] = []

    @space.tool
    def give(size: int) -> str:
        taken.append(size)
        return "x" * size

    @space.tool
    def count(text: str) -> str:
        taken.append(len(text))
        return str(len(text))

    return taken


async def test_large_arguments_and_results_pass_and_others_hear_only_their_beginning(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"], carol=["*"]) as gateway:
        alice, bob, carol = [await gateway.join(name) for name in ("alice", "bob", "carol")]
        taken = offer(alice)
        responses, requests = listening(carol, "mcp/response"), listening(carol, "mcp/request")
        assert (await bob.call("alice", "give", {"size": 5_000_000})).text == "x" * 5_000_000
        assert (await bob.call("alice", "count", {"text": FIVE_MB})).text == "5000000"
        assert taken == [5_000_000, 5_000_000]
        await until(lambda: len(responses) == 2)
        assert len(responses[0].raw) < 32_000
        assert "5,000,000 bytes in all" in responses[0].payload["result"]["content"][0]["text"]
        shown = requests[-1].payload["params"]["arguments"]["text"][CONTENT_KEY]
        assert shown["sha256"] == sha256(FIVE_MB.encode()).hexdigest()
        assert not alice.violations.count("bob")


async def test_what_was_approved_is_what_runs(tmp_path: Path) -> None:
    """The approver sees the beginning, the size and the hash, and approves these."""
    async with gateway_with(tmp_path, alice=["*"], bob=["*"], guest=["mcp/proposal", LISTS]) as gateway:
        alice, bob, guest = [await gateway.join(name) for name in ("alice", "bob", "guest")]
        taken = offer(alice)
        proposal = await guest.propose(
            "alice", "tools/call", {"name": "count", "arguments": {"text": FIVE_MB}}
        )
        seen = await until(lambda: bob.proposals.get(proposal.id))
        assert seen is not None
        shown = seen.params["arguments"]["text"][CONTENT_KEY]
        assert shown == {
            "sha256": sha256(FIVE_MB.encode()).hexdigest(),
            "bytes": 5_000_000,
            "begins_with": FIVE_MB[:2_000],
        }
        assert (await bob.approve(proposal.id)).text == "5000000"
        assert (await proposal.outcome()).text == "5000000"
        assert taken == [5_000_000]
        # A result of that size reaches the one who asked, too.
        large = await guest.propose("alice", "tools/call", {"name": "give", "arguments": {"size": 2_000_000}})
        await until(lambda: bob.proposals.get(large.id))
        await bob.approve(large.id)
        assert (await large.outcome()).text == "x" * 2_000_000


async def test_a_text_that_is_not_shown_matches_no_pattern(tmp_path: Path) -> None:
    short = {
        "kind": "mcp/request",
        "payload": {"method": "tools/call", "params": {"arguments": {"text": "0*"}}},
    }
    async with gateway_with(tmp_path, alice=["*"], narrow=[short, LISTS]) as gateway:
        alice, narrow = await gateway.join("alice"), await gateway.join("narrow")
        taken = offer(alice)
        assert (await narrow.call("alice", "count", {"text": "012"})).text == "3"
        with pytest.raises(NotAllowed):
            await narrow.request("alice", "tools/call", {"name": "count", "arguments": {"text": FIVE_MB}})
        assert taken == [3]


async def test_a_value_that_is_gone_runs_nothing(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], caller=["*"]) as gateway:
        alice, caller = await gateway.join("alice"), await gateway.raw("caller")
        taken = offer(alice)
        part = {"at": ["arguments", "text"], "sha256": "0" * 64, "bytes": 5}
        params = {"name": "count", "arguments": {"text": {}}, "_meta": {CONTENT_KEY: [part]}}
        await caller.say(
            "mcp/request", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, to=["alice"]
        )
        answer = (await caller.hear("mcp/response"))["payload"]
        assert answer["error"]["message"].startswith("nothing was done: ")
        assert taken == []


async def test_a_result_above_the_limit_says_that_the_tool_ran(tmp_path: Path) -> None:
    people = participants(alice=["*"], bob=["*"])
    async with (
        running_gateway(tmp_path, people, max_content_bytes=100_000) as running,
        AsyncExitStack() as stack,
    ):
        gateway = GatewayWithMembers(running, stack)
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        taken = offer(alice)
        outcome = await bob.call("alice", "give", {"size": 3_000_000})
        assert "isError" not in outcome.result
        assert outcome.text.startswith("The tool ran. Its result of 3,000,000 bytes is larger than 100,000")
        assert taken == [3_000_000]
        address = f"{running.url.replace('ws', 'http', 1)}/spaces/lab/content"
        headers = {"Authorization": "Bearer t-bob"}
        async with httpx2.AsyncClient() as http:
            refused = await http.post(address, content=b"x" * 100_001, headers=headers)
            assert refused.status_code == 413
            assert "at most 100000 bytes" in refused.text


async def test_values_are_for_members_and_make_room_for_newer_ones(tmp_path: Path) -> None:
    people = participants(alice=["*"], bob=["*"])
    settings: dict[str, Any] = {"max_content_bytes": 1_000, "max_space_content_bytes": 2_500}
    async with running_gateway(tmp_path, people, **settings) as running, httpx2.AsyncClient() as http:
        address = f"{running.url.replace('ws', 'http', 1)}/spaces/lab/content"
        bob = {"Authorization": "Bearer t-bob"}
        kept = []
        for letter in b"abc":
            made = await http.post(address, content=bytes([letter]) * 1_000, headers=bob)
            assert made.status_code == 201
            kept.append(made.json()["sha256"])
        found = [await http.get(f"{address}/{each}", headers=bob) for each in kept]
        assert [each.status_code for each in found] == [404, 200, 200]
        assert found[1].content == b"b" * 1_000
        assert found[1].headers["content-type"] == "application/octet-stream"
        assert (await http.get(f"{address}/{kept[1]}")).status_code == 401
        for name in ("..", "%2e%2e%2fjournal", "A" * 64):
            assert (await http.get(f"{address}/{name}", headers=bob)).status_code == 404
    async with running_gateway(tmp_path, people, **settings) as again, httpx2.AsyncClient() as http:
        address = f"{again.url.replace('ws', 'http', 1)}/spaces/lab/content"
        assert (await http.get(f"{address}/{kept[2]}", headers=bob)).content == b"c" * 1_000


async def test_the_limit_of_a_space_reaches_its_members(tmp_path: Path) -> None:
    rules = {"limits": {"max_bytes": 65_536}}
    people = participants(alice=["*"], bob=["*"])
    async with running_gateway(tmp_path, people, rules=rules) as running, AsyncExitStack() as stack:
        gateway = GatewayWithMembers(running, stack)
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        offer(alice)
        assert (await bob.call("alice", "give", {"size": 200_000})).text == "x" * 200_000
        assert (await bob.call("alice", "count", {"text": "x" * 200_000})).text == "200000"


async def test_a_bridged_process_and_an_mcp_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 MB through the whole chain, in both directions."""
    size = 32_000_000
    async with bridged_space(tmp_path) as space:
        await space.bridge(large_server(tmp_path))
        # However slow the machine is, an answer is a plain one: the SDK's client takes no event of that size.
        monkeypatch.setattr("moot.mcp.downstream.response_streams.SILENCE_SECONDS", HANG_SECONDS)
        limits = McpServerLimits()
        shown = await serve_member(await space.join("bob"), space.stack, limits)
        async with shown.client() as client:
            given = await client.call_tool("give", {"size": size})
            assert given.content[0].text == "x" * size  # type: ignore[union-attr]
            counted = await client.call_tool("count", {"text": "y" * size})
            assert counted.content[0].text == str(size)  # type: ignore[union-attr]
            # More than a line of a process may have: it ran all the same.
            ran = await client.call_tool("give", {"size": 60_000_000})
            assert ran.content[0].text.startswith("The tool ran. Its result of")  # type: ignore[union-attr]
            assert not ran.is_error


async def test_the_gateway_says_413_to_a_message_that_is_too_large(tmp_path: Path) -> None:
    """A client that still sends must not lose the answer."""
    people = participants(alice=["*"])
    async with running_gateway(tmp_path, people) as running, httpx2.AsyncClient() as http:
        address = f"{running.url.replace('ws', 'http', 1)}/participants/alice/messages?space=lab"
        headers = {"Authorization": "Bearer t-alice", "Content-Type": "application/json"}
        refused = await http.post(address, content=b"x" * (30 << 20), headers=headers)
        assert refused.status_code == 413


async def test_http_says_413(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space, httpx2.AsyncClient() as http:
        shown = await serve_member(await space.join("bob"), space.stack)
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        refused = await http.post(shown.url, content=b"x" * (49 << 20), headers=headers)
        assert refused.status_code == 413
