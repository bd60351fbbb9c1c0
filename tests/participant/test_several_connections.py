"""Several connections of one member: the one that has what is asked for answers (D-22, D-88, D-99)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from moot.errors import McpError, Rejected
from moot.participant import JoinedSpace
from moot.trust.history.ledger_reader import read_ledger
from tests.participant.gateway_with_members import (
    GatewayWithMembers,
    ReceivedEnvelopes,
    gateway_with,
    settled,
)
from tests.waiting import bounded, until

PEOPLE: dict[str, Any] = {
    "alice": ["*"],
    "agent": ["mcp/proposal", "mcp/withdraw", "x-test/*"],
    "host": ["mcp/reject", "x-test/*"],
}


class SlowHost:
    """A connection whose tool `count` runs until it may end."""

    def __init__(self, space: JoinedSpace) -> None:
        self.started, self.may_end = asyncio.Event(), asyncio.Event()
        self.runs = 0
        space.tool(self.count)

    async def count(self) -> str:
        self.runs += 1
        self.started.set()
        await self.may_end.wait()
        return "1"


async def has_answered(space: JoinedSpace, heard: ReceivedEnvelopes, kind: str = "mcp/request") -> None:
    """This connection has heard the request, and the gateway whatever it says to that."""
    await heard.wait(kind)
    await until(lambda: space.server.running == 0)
    await settled(space)


async def two_hosts(gateway: GatewayWithMembers) -> tuple[JoinedSpace, JoinedSpace]:
    return await gateway.join("host"), await gateway.join("host")


@pytest.mark.parametrize("host_first", [True, False])
async def test_who_offers_nothing_does_not_speak_for_who_runs_the_tool(
    tmp_path: Path, host_first: bool
) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        alice = await gateway.join("alice")
        host, other = (await two_hosts(gateway))[:: 1 if host_first else -1]
        slow, heard = SlowHost(host), ReceivedEnvelopes(other)
        call = asyncio.create_task(alice.call("host", "count"))
        async with bounded():
            await slow.started.wait()
        await has_answered(other, heard)
        assert not call.done()
        slow.may_end.set()
        assert (await call).text == "1"
        assert slow.runs == 1
        assert [tool["name"] for tool in await alice.list_all("host", "tools")] == ["count"]
        await settled(other)
        # No refusal, which a person would see in a terminal.
        assert other.counts.unasked_refusals == host.counts.unasked_refusals == 0


async def test_an_approved_call_is_done_when_its_tool_has_run(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        host, other = await two_hosts(gateway)
        slow, heard = SlowHost(host), ReceivedEnvelopes(other)
        proposal = await agent.propose("host", "tools/call", {"name": "count", "arguments": {}})
        # It could never run there, which is no rejection by the member.
        await has_answered(other, heard, "mcp/proposal")
        await settled(agent)
        assert proposal.state == "pending"
        approval = asyncio.create_task(alice.approve(proposal.id))
        async with bounded():
            await slow.started.wait()
        await has_answered(other, heard)
        slow.may_end.set()
        assert (await approval).text == "1"
        assert (await proposal.outcome()).text == "1"
        journal = gateway.gateway.journal()
    # Whoever was not here reads the same: the words that were left to the other connection are nobody's.
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        alice = await gateway.join("alice")
        answers = [each for each in await alice.history(0) if each.kind in ("mcp/response", "mcp/reject")]
        assert [each.payload.get("result", {}).get("isError", False) for each in answers] == [False]
        headers = {"Authorization": "Bearer t-alice"}
        page = (await gateway.gateway.http.get("/spaces/lab/history", headers=headers)).json()["messages"]
        assert [each["kind"] for each in page if each["kind"] in ("mcp/response", "mcp/reject")] == [
            "mcp/response"
        ]
    (decision,) = read_ledger(journal, now=time.time())
    assert (decision.status, decision.outcome, decision.lesson) == ("fulfilled", "done", "approve")


async def test_what_no_connection_offers_is_answered_at_once(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        for _ in range(3):
            await gateway.join("host")
            with pytest.raises(McpError, match="unknown tool") as error:
                await alice.call("host", "count")
            assert error.value.code == -32602
            with pytest.raises(McpError) as error:
                await alice.request("host", "x/none")
            assert error.value.code == -32601
            assert await alice.list_all("host", "tools") == []
            assert (await alice.request("host", "ping"))["_meta"]
            with pytest.raises(Rejected):
                await agent.call("host", "count")


async def test_a_connection_that_answers_nothing_is_not_waited_for(tmp_path: Path) -> None:
    """A passive one, and a page of the console."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        alice = await gateway.join("alice")
        await gateway.join("host", passive=True)
        page = await gateway.gateway.open("/ws")
        await page.send({"type": "join", "space": "lab", "token": "t-host", "answers": False})
        await page.hear("system/welcome")
        await gateway.join("host")
        with pytest.raises(McpError, match="unknown tool"):
            await alice.call("host", "count")


async def test_each_connection_answers_for_what_it_offers(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        alice = await gateway.join("alice")
        one, two = await two_hosts(gateway)
        one.tool(lambda: "one", name="first", description="")
        two.tool(lambda: "two", name="second", description="")
        two.resource("note://a")(lambda: "text")
        two.prompt(name="greet")(lambda: "hello")
        for tool, says in (("first", "one"), ("second", "two")):
            assert (await alice.call("host", tool)).text == says
        read = await alice.request("host", "resources/read", {"uri": "note://a"})
        assert read["contents"][0]["text"] == "text"
        assert (await alice.request("host", "prompts/get", {"name": "greet"}))["messages"]
        for what in ("resources", "prompts"):
            assert len(await alice.list_all("host", what)) == 1
        with pytest.raises(McpError, match="unknown tool"):
            await alice.call("host", "third")
        with pytest.raises(McpError, match="no such resource"):
            await alice.request("host", "resources/read", {"uri": "note://b"})
