"""The older dialects: MCPx v0.1 with D002, and m3p; alone and mixed with MEW (dialects.md)."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from moot.errors import CapabilityViolation, NotAllowed, UsageError
from moot.participant import (
    Chunk,
    IncomingRequest,
    JoinedSpace,
    ProtocolViolation,
    SeenProposal,
    connect,
    format_of,
)
from moot.protocol.dialects import DIALECTS, M3P, MCPX
from moot.protocol.operation import Json, Operation
from tests.gateway.running_gateway import Client, participants
from tests.participant.gateway_with_members import (
    QUICK,
    GatewayWithMembers,
    ReceivedEnvelopes,
    gateway_with,
    settled,
)
from tests.participant.rogue_gateway import rogue_gateway
from tests.rows import for_each_row
from tests.waiting import HANG_SECONDS, until

ALL = ["*"]


async def trio(
    gateway: GatewayWithMembers, dialect: str
) -> tuple[JoinedSpace, JoinedSpace, JoinedSpace, Client]:
    """An agent that may only propose, a human, a host with tools, and a bystander on the wire."""
    watcher = await gateway.raw("watch", f"&dialect={dialect}")
    agent, human, host = [await gateway.join(name, dialect=dialect) for name in ("agent", "human", "host")]

    @host.tool
    def read_file(path: str) -> str:
        return f"contents of {path}"

    @host.resource("config.json")
    def config() -> str:
        return "{}"

    @host.prompt
    def debug_prompt() -> str:
        return "debug!"

    return agent, human, host, watcher


PEOPLE: dict[str, Any] = {
    "agent": ["mcp/proposal", "mcp/withdraw", "chat"],
    "human": ALL,
    "host": [],
    "watch": ALL,
}


@pytest.mark.requirement(
    "MCPX-3-14",
    "MCPX-3-15",
    "MCPX-3.1.1-1",
    "MCPX-3.1.2-1",
    "MCPX-3.1.2-3",
    "MCPX-3.2-2",
    "MCPX-3.2-3",
    "MCPX-3.2.1-1",
    "MCPX-3.2.1-2",
    "MCPX-3.2.1-3",
    "MCPX-3.2.1-6",
    "MCPX-3.2.1-7",
    "MCPX-6.2-2",
    "MCPX-8.2-7",
    "MCPX-8.2-8",
    "MCPX-8.2-9",
    "MCPX-8.2-10",
    "MCPX-8.2-11",
    "MCPX-8.2-12",
    "MCPX-8.2-13",
    "MCPX-2.1-6",
    "MCPX-8.2-6",
    "D002-14",
    "D002-22",
    "D002-24",
    "D002-25",
    "D002-26",
    "D002-40",
)
async def test_a_proposal_in_mcpx_from_end_to_end(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host, watcher = await trio(gateway, "mcpx")
        assert (agent.me, agent.dialect) == ("agent", "mcpx")
        assert [each["name"] for each in await human.list_all("host", "tools")] == ["read_file"]
        assert await human.list_all("agent", "tools") == []
        shown: list[SeenProposal] = []
        human.on_proposal(shown.append)
        ran: list[str] = []

        async def handler(request: IncomingRequest) -> dict[str, Json]:
            ran.append(request.method)
            return {"content": [{"type": "text", "text": "x"}], "x-vendor": 1}

        host.server.use_handler(handler)
        call = asyncio.create_task(agent.call("host", "read_file", {"path": "a"}))
        await until(lambda: bool(shown))
        await settled(human)
        assert ran == []
        await human.approve(shown[0])
        outcome = await call
        assert (outcome.how, outcome.by) == ("fulfilled", "human")
        await watcher.fence()
        answer = [
            each
            for each in watcher.received
            if each["kind"].startswith("mcp/") and "read_file" in each["kind"]
        ]
        proposal, request, response = answer
        assert [each["kind"] for each in answer] == [
            "mcp/proposal:tools/call:read_file",
            "mcp/request:tools/call:read_file",
            "mcp/response:tools/call:read_file",
        ]
        assert {each["protocol"] for each in answer} == {"mcpx/v0.1"}
        assert "correlation_id" not in proposal
        assert proposal["payload"] == {
            "method": "tools/call",
            "params": {"name": "read_file", "arguments": {"path": "a"}},
        }
        assert request["from"] == "human"
        assert request["correlation_id"] == proposal["id"]
        assert response["correlation_id"] == request["id"]
        assert response["to"] == ["human", "agent"]
        assert response["payload"] == {
            "jsonrpc": "2.0",
            "id": request["payload"]["id"],
            "result": {"content": [{"type": "text", "text": "x"}], "x-vendor": 1},
        }


@pytest.mark.requirement("D002-15", "D002-16", "MCPX-3.1.2-2", "MCPX-3.2.1-4")
async def test_answers_name_what_they_answer(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        _, human, _, watcher = await trio(gateway, "mcpx")
        bystander = await gateway.join("watch", dialect="mcpx")
        received = ReceivedEnvelopes(bystander)
        await human.request("host", "resources/read", {"uri": "config.json"})
        await human.request("host", "prompts/get", {"name": "debug_prompt"})
        await human.request("host", "tools/list")
        await watcher.fence()
        kinds = [each["kind"] for each in watcher.received if each["kind"].startswith("mcp/response")]
        assert kinds == [
            "mcp/response:resources/read:config.json",
            "mcp/response:prompts/get:debug_prompt",
            "mcp/response:tools/list",
        ]
        await received.wait("mcp/response", 3)
        for request, response in zip(received.of("mcp/request"), received.of("mcp/response"), strict=True):
            assert [id for id, _ in bystander.correlations.requests_of(response)] == [request.id]


@pytest.mark.requirement("D002-1", "D002-2", "D002-8", "D002-9", "D002-35")
async def test_a_response_alone_tells_its_operation_and_a_short_one_by_its_request(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=ALL, late=ALL) as gateway:
        alice, bob = await gateway.join("alice", dialect="mcpx"), await gateway.raw("bob", "&dialect=mcpx")
        calls = [
            asyncio.create_task(alice.request("bob", "tools/call", {"name": name, "arguments": {}}))
            for name in ("one", "two")
        ]
        requests = [await bob.hear(lambda each: each["kind"].startswith("mcp/request")) for _ in calls]
        late = await gateway.join("late", dialect="mcpx")
        hears, late_hears = ReceivedEnvelopes(alice), ReceivedEnvelopes(late)
        for request, kind in zip(
            requests, ("mcp/response:tools/call:one", "mcp/response:tools/call"), strict=True
        ):
            body = {
                "jsonrpc": "2.0",
                "id": request["payload"]["id"],
                "result": {},
                "method": "tools/call",
                "params": {"name": "ignored"},
            }
            await bob.say(kind, body, to=["alice"], correlation_id=request["id"])
        assert await asyncio.gather(*calls) == [{}, {}]
        long, short = hears.of("mcp/response")
        assert alice.correlations.operation_of(long) == Operation("tools/call", "one")
        assert alice.correlations.operation_of(short) == Operation("tools/call", None)
        (known,) = [known for _, known in alice.correlations.requests_of(short)]
        assert known.operation == Operation("tools/call", "two")
        # Somebody who never saw the request reads it off the kind.
        await late_hears.wait("mcp/response", 2)
        assert late.correlations.operation_of(late_hears.of("mcp/response")[0]) == Operation(
            "tools/call", "one"
        )
        # And we never write such extras ourselves: see the whole payload in the end-to-end test.


@pytest.mark.requirement("MCPX-3.3-1", "MCPX-3.3-2", "MCPX-3.3-3", "MCPX-3.3-4", "MCPX-3.3-5", "MCPX-6.2-4")
@pytest.mark.requirement("MCPX-3-3", "MCPX-3-4", "MCPX-3-17")
async def test_chat_in_mcpx(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=ALL) as gateway:
        alice = await gateway.join("alice", dialect="mcpx")
        watcher = await gateway.raw("bob", "&dialect=mcpx")
        first = await alice.chat("hello")
        await alice.chat("*hi*", format="markdown", about=first.id, to="bob")
        plain, marked = await watcher.hear("chat"), await watcher.hear("chat")
        assert plain["kind"] == "chat"
        assert plain["payload"] == {"text": "hello"}
        assert "to" not in plain
        assert (marked["correlation_id"], marked["to"]) == (first.id, ["bob"])
        assert datetime.fromisoformat(plain["ts"]).tzinfo is not None
        with pytest.raises(UsageError):
            await alice.chat("")
        bob = await gateway.join("bob", dialect="mcpx")
        received = ReceivedEnvelopes(bob)
        await alice.chat("plain")
        await alice.chat("marked", format="markdown")
        await received.wait("chat", 2)
        assert [format_of(each) for each in received.of("chat")] == ["plain", "markdown"]
        await watcher.fence()
        assert not [each for each in watcher.received if "notifications" in each["kind"]]
        sent = [await alice.send("x-many/ids", {}) for _ in range(500)]
        assert len({each.id for each in sent}) == 500


@pytest.mark.requirement(
    "MCPX-4.2-8",
    "MCPX-4.3-1",
    "MCPX-4.3-2",
    "MCPX-4.3-3",
    "MCPX-4.3-4",
    "MCPX-4.3-5",
    "MCPX-4.3-6",
    "MCPX-4.3-7",
    "MCPX-4.3-9",
    "MCPX-7.1-2",
    "MCPX-7.1-5",
    "MCPX-8.2-1",
    "MCPX-8.2-2",
    "MCPX-8.2-3",
    "MCPX-8.2-4",
    "MCPX-8.2-5",
)
async def test_a_kind_that_lies_reaches_no_tool(tmp_path: Path) -> None:
    """MCPx 4.3 under a gateway that only looks at kinds (`kind_validation: lazy`)."""
    people = {"host": ALL, "mallory": ["mcp/request:tools/call:safe_tool", "mcp/*", "chat"]}
    settings = participants(host=ALL) | {
        "mallory": {
            "tokens": ["t-mallory"],
            "notation": "mcpx",
            "capabilities": people["mallory"],
        }
    }
    async with gateway_with(tmp_path, people=settings, rules={"kind_validation": "lazy"}) as gateway:
        host = await gateway.join("host", dialect="mcpx")
        mallory = await gateway.raw("mallory", "&dialect=mcpx")
        reports: list[ProtocolViolation] = []
        host.violations.on_report = reports.append
        received = ReceivedEnvelopes(host)
        ran: list[str] = []
        host.tool(lambda: ran.append("danger"), name="dangerous_tool", input_schema={"type": "object"})
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "dangerous_tool"}}
        await mallory.say("mcp/request:tools/call:safe_tool", body, to=["host"])
        await mallory.say("mcp/request:tools/list", body, to=["host"])
        await mallory.say("mcp/proposal:tools/call:safe_tool", body, to=["host"])
        await mallory.say("mcp/request:tools/call:dangerous_tool", {"id": 1}, to=["host"])
        await mallory.say(
            "mcp/response:tools/call:x", {"jsonrpc": "2.0", "id": 1, "result": {}}, correlation_id="never"
        )
        await mallory.fence()
        await settled(host)
        assert ran == []
        assert [report.fault for report in reports] == ["kind_payload_mismatch"] * 4
        assert reports[0].kind == "mcp/request:tools/call:safe_tool"
        assert "safe_tool" in reports[0].message
        assert host.violations.count("mallory") == 4
        # Nothing of it was seen by any handler; the stray response went no further than the gateway.
        assert [each.kind for each in received.envelopes if each.sender == "mallory"] == []
        assert host.proposals.open() == []


@pytest.mark.requirement("MCPX-4.3-11", "MCPX-4.3-10", "M3P-62")
async def test_fuzzed_kinds_meet_the_check_before_anything_else(tmp_path: Path) -> None:
    draw = random.Random(7)
    for dialect, right in {"mcpx": "mcp/*", "m3p": "mcp.*"}.items():
        folder = tmp_path / dialect
        folder.mkdir()
        people = participants(host=ALL) | {
            "mallory": {"tokens": ["t-mallory"], "notation": dialect, "capabilities": [right]}
        }
        async with gateway_with(folder, people=people, rules={"kind_validation": "lazy"}) as gateway:
            host = await gateway.join("host", dialect=dialect)
            mallory = await gateway.raw("mallory", f"&dialect={dialect}")
            called: list[str] = []

            async def handler(request: IncomingRequest, called: list[str] = called) -> dict[str, Json]:
                called.append(request.params["name"])
                return {}

            host.server.use_handler(handler)
            names = ["a", "b", "c:d", "e/f", "g.h"]
            honest = 0
            for n in range(200):
                claimed, real = draw.choice(names), draw.choice(names)
                kind = MCPX.spelling if dialect == "mcpx" else M3P.spelling
                spelled = kind("mcp/request", Operation("tools/call", claimed))
                assert spelled is not None
                honest += claimed == real
                body = {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": real, "n": n}}
                await mallory.say(spelled, body, to=["host"])
            await mallory.fence()
            await until(lambda host=host: host.server.running == 0)  # type: ignore[misc]
            assert len(called) == honest
            assert host.violations.count("mallory") == 200 - honest


@pytest.mark.requirement("MCPX-5.2-8", "MCPX-5.2-9", "MCPX-8.2-15", "M3P-55")
async def test_rights_in_strings_are_kept_to_before_anything_is_sent(tmp_path: Path) -> None:
    for dialect, strings in {
        "mcpx": ["mcp/request:tools/call:read_*", "mcp/proposal:*", "chat"],
        "m3p": ["mcp.request.tools/call:read_*", "mcp.proposal.*", "chat.*"],
    }.items():
        folder = tmp_path / dialect
        folder.mkdir()
        people = {
            "bob": {"tokens": ["t-bob"], "notation": dialect, "capabilities": strings},
            "alice": {"tokens": ["t-alice"], "capabilities": [{"kind": "*"}]},
        }
        async with gateway_with(folder, people=people) as gateway:
            bob, alice = await gateway.join("bob", dialect=dialect), await gateway.join("alice")
            received = ReceivedEnvelopes(alice)
            assert [each.original for each in bob.rights.capabilities] == strings
            assert bob.may_request("alice", "tools/call", {"name": "read_file"})
            assert not bob.may_request("alice", "tools/call", {"name": "write_file"})
            assert bob.may_propose("alice", "tools/call", {"name": "write_file"})
            assert bob.may("chat", {"text": "x"})
            assert not bob.may("reasoning/start", {"message": "x"})
            with pytest.raises(NotAllowed):
                await bob.request("alice", "tools/call", {"name": "write_file"})
            with pytest.raises(NotAllowed):
                await bob.admin.kick("alice")
            await bob.chat("only this")
            await received.wait("chat")
            assert [each.kind for each in received.envelopes if each.sender == "bob"] == ["chat"]


@pytest.mark.requirement("MCPX-8.2-14")
async def test_the_roster_in_mcpx(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=ALL, bob=["chat"]) as gateway:
        alice = await gateway.join("alice", dialect="mcpx")
        bob = await gateway.join("bob", dialect="mcpx")
        await alice.roster.wait_for("bob", timeout_seconds=HANG_SECONDS)
        assert alice.roster["bob"].may("chat", {"text": "x"})
        assert list(bob.roster) == ["alice"]
        await bob.close()
        await until(lambda: "bob" not in alice.roster)


async def test_three_dialects_in_one_space_call_propose_and_stream(tmp_path: Path) -> None:
    """dialects.md: whoever asks, whoever answers, whoever decides."""
    people: dict[str, Any] = {f"{role}-{dialect}": ALL for role in ("host", "human") for dialect in DIALECTS}
    people |= {f"agent-{dialect}": ["mcp/proposal", "mcp/withdraw"] for dialect in DIALECTS}
    async with gateway_with(tmp_path, **people) as gateway:
        members = {name: await gateway.join(name, dialect=name.split("-")[1]) for name in people}
        for name, member in members.items():
            if name.startswith("host"):
                member.tool(lambda text: text.upper(), name="shout", input_schema={"type": "object"})

                async def handler(request: IncomingRequest) -> dict[str, Json]:
                    await request.progress(1, 1)
                    return {"structuredContent": request.params, "x-vendor": {"n": 2**70}}

                member.server.use_handler(handler)
        for asking in DIALECTS:
            for hosting in DIALECTS:
                answer: list[Any] = []
                human = members[f"human-{asking}"]
                result = await human.request(
                    f"host-{hosting}", "tools/call", {"name": "a:b", "arguments": {}}, progress=answer.append
                )
                assert result["x-vendor"] == {"n": 2**70}
                assert result["structuredContent"]["name"] == "a:b"
                assert len(answer) == 1, (asking, hosting)
        for proposing in DIALECTS:
            for deciding in DIALECTS:
                agent, human = members[f"agent-{proposing}"], members[f"human-{deciding}"]
                call = asyncio.create_task(agent.call("host-mew", "t", timeout_seconds=HANG_SECONDS))
                await until(lambda human=human: bool(human.proposals.open()))  # type: ignore[misc]
                await human.approve(human.proposals.open()[0])
                assert (await call).by == human.me, (proposing, deciding)
        assert all(member.violations.total == 0 for member in members.values())


async def test_streams_cross_dialects_when_asked_for(tmp_path: Path) -> None:
    """D-57: the SDK asks for frames in every dialect."""
    async with gateway_with(tmp_path, new=ALL, old=ALL) as gateway:
        new, old = await gateway.join("new"), await gateway.join("old", dialect="m3p")
        async with new.streams.open("old", content_type="text/plain") as stream:
            await stream.write("hello")
        await until(lambda: stream.id in old.streams._readers)
        assert [chunk async for chunk in old.streams.read(stream.id)] == [Chunk(b"hello", False)]
        async with old.streams.open("new") as back:
            await back.write(b"\x00")
        await until(lambda: back.id in new.streams._readers)
        assert [chunk async for chunk in new.streams.read(back.id)] == [Chunk(b"\x00", True)]


@pytest.mark.requirement("M3P-29", "M3P-30")
async def test_third_levels_of_the_gateways_kinds_are_understood() -> None:
    """D-50: a gateway that writes three levels, as the ADR's side table has them."""
    async with rogue_gateway() as gateway:
        gateway.protocol, gateway.welcome = "mcpx/v0.1", "system.welcome.participant"
        gateway.capabilities = ["*"]
        async with connect(gateway.url, "lab", "t", dialect="m3p", limits=QUICK) as me:
            assert me.me == "me"
            carol = {"id": "carol", "capabilities": ["chat.*"]}
            await gateway.emit("system.presence.join", {"event": "join", "participant": carol})
            await me.roster.wait_for("carol", timeout_seconds=HANG_SECONDS)
            await gateway.emit("system.presence.leave", {"event": "leave", "participant": {"id": "carol"}})
            await until(lambda: "carol" not in me.roster)
            gateway.kept.add("chat.message")
            chat = asyncio.create_task(me.chat("hello"))
            sent = await gateway.wait_for("chat.message")
            refused = {"error": "capability_violation", "message": "no"}
            await gateway.emit("system.error.capability", refused, to=["me"], correlation_id=sent["id"])
            with pytest.raises(CapabilityViolation):
                await chat


@pytest.mark.requirement(
    "MCPX-3.1-2", "MCPX-3.1-3", "D002-10", "D002-11", "D002-12", "D002-13", "D002-37", "M3P-54", "M3P-62"
)
@for_each_row("legacy", [MCPX, M3P], ids=["mcpx", "m3p"])
@for_each_row("kind", ["mcp/request", "mcp/response", "mcp/proposal"])
@for_each_row(
    ("method", "context"),
    [
        ("tools/call", "read_file"),
        ("tools/call", None),
        ("tools/list", None),
        ("tools/list", "named"),
        ("resources/read", "file:///a:b"),
        ("resources/read", "config.json"),
        ("resources/list", None),
        ("resources/subscribe", "note://1"),
        ("prompts/get", "debug_prompt"),
        ("prompts/list", None),
        ("completion/complete", "ref/name"),
        ("completion/complete", None),
    ],
)
def test_kinds_parse_and_format_back(legacy: Any, kind: str, method: str, context: str | None) -> None:
    operation = Operation(method, context)
    spelled = legacy.spelling(kind, operation)
    assert spelled is not None
    reading = legacy.read_kind(spelled)
    assert (reading.kind, reading.claim) == (kind, operation)


async def test_m3p_speaks_in_dots(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, _, watcher = await trio(gateway, "m3p")
        call = asyncio.create_task(agent.call("host", "read_file", {"path": "a"}))
        await until(lambda: bool(human.proposals.open()))
        await human.approve(human.proposals.open()[0])
        assert (await call).text == "contents of a"
        await agent.chat("dotted")
        call = asyncio.create_task(agent.call("host", "read_file", {"path": "b"}))
        await until(lambda: bool(human.proposals.open()))
        await human.reject(human.proposals.open()[0], "busy")
        with pytest.raises(Exception, match="busy"):
            await call
        await watcher.fence()
        kinds = [each["kind"] for each in watcher.received if not each["kind"].startswith("system")]
        assert kinds[:4] == [
            "mcp.proposal.tools/call:read_file",
            "mcp.request.tools/call:read_file",
            "mcp.response.tools/call:read_file",
            "chat.message",
        ]
        assert "mcpx.reject.proposal" in kinds
        assert "mcpx.withdraw.proposal" in kinds
