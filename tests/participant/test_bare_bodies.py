"""What programs of the MEW reference implementation send is understood: the envelope correlates (D-95).

Their MCP bodies have no `jsonrpc` and no `id`, results may be bare values, and reasoning has no `message`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moot.errors import BadAnswer, McpError, UsageError
from moot.protocol.operation import Json
from tests.gateway.running_gateway import Client
from tests.participant.gateway_with_members import gateway_with
from tests.waiting import bounded, until

ADD: Json = {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 2, "b": 3}}}


def add(a: int, b: int) -> int:
    return a + b


async def answer_next(host: Client, **body: Json) -> None:
    """As its SDK answers: by correlation alone."""
    request = await host.hear("mcp/request")
    await host.say("mcp/response", body, to=[request["from"]], about=[request["id"]])


async def test_a_request_without_an_id_is_answered_without_one(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], caller=["*"]) as gateway:
        alice, caller = await gateway.join("alice"), await gateway.raw("caller")
        alice.tool(add)
        for body in (ADD, {"jsonrpc": "2.0"} | ADD):
            asked = await caller.say("mcp/request", body, to=["alice"])
            answer = await caller.hear("mcp/response")
            assert answer["correlation_id"] == [asked]
            assert answer["payload"]["result"]["content"][0]["text"] == "5"
            assert answer["payload"].keys() == {"jsonrpc", "result"}
        asked = await caller.say("mcp/request", {"id": 7} | ADD, to=["alice"])
        assert (await caller.hear("mcp/response"))["payload"]["id"] == 7
        missing = ADD | {"params": {"name": "nothing"}}
        await caller.say("mcp/request", missing, to=["alice"])
        refusal = (await caller.hear("mcp/response"))["payload"]
        assert refusal["error"]["code"]
        assert "id" not in refusal
        assert not alice.violations.count("caller")


@pytest.mark.parametrize("dialect", ["mew", "mcpx"])
async def test_a_request_that_is_none_of_mcps_is_refused_to_its_sender(tmp_path: Path, dialect: str) -> None:
    """JSON-RPC 2.0, 5.1: nobody waits for the answer to an id that cannot be used."""
    async with gateway_with(tmp_path, alice=["*"], caller=["*"], watcher=["*"]) as gateway:
        alice = await gateway.join("alice", dialect=dialect)
        caller, asking = await gateway.raw("caller"), await gateway.join("watcher")
        alice.tool(add)
        for more in ({"id": 1.5}, {"id": None}, {"id": True}, {"id": 7, "params": [1]}):
            asked = await caller.say("mcp/request", ADD | more, to=["alice"])
            answer = await caller.hear("mcp/response")
            assert answer["correlation_id"] == [asked]
            assert answer["payload"]["id"] is None
            assert answer["payload"]["error"]["code"] == -32600
            assert "payload." in answer["payload"]["error"]["message"]
        assert alice.violations.count("caller") == 4
        # Those who only hear it find nothing wrong with the answer.
        assert (await asking.call("alice", "add", {"a": 1, "b": 1})).text == "2"
        assert not asking.violations.count("alice")
        # A notification has no answer, whatever it is like; nor has a request to everybody.
        await caller.say("mcp/request", {"method": "notifications/x", "params": 5}, to=["alice"])
        await caller.say("mcp/request", {"method": "tools/list", "id": 1.5})
        asked = await caller.say("mcp/request", {"id": 8} | ADD, to=["alice"])
        answer = await caller.hear(
            lambda each: each["kind"] == "mcp/response" and each.get("to") == ["caller"]
        )
        assert answer["correlation_id"] == [asked]


async def test_a_request_without_an_id_that_is_interrupted_is_told_so(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], caller=["*"]) as gateway:
        alice, caller = await gateway.join("alice"), await gateway.raw("caller")
        began = asyncio.Event()

        @alice.tool
        async def wait() -> None:
            began.set()
            await asyncio.Event().wait()

        asked = await caller.say(
            "mcp/request", {"method": "tools/call", "params": {"name": "wait"}}, to=["alice"]
        )
        async with bounded():
            await began.wait()
        await caller.say("participant/restart", {}, to=["alice"])
        answer = await caller.hear("mcp/response")
        assert answer["correlation_id"] == [asked]
        assert answer["payload"].keys() == {"jsonrpc", "error"}


async def test_an_answer_without_an_id_is_taken(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], host=["*"]) as gateway:
        alice, host = await gateway.join("alice"), await gateway.raw("host")
        async with asyncio.TaskGroup() as work:
            work.create_task(answer_next(host, result={"content": [{"type": "text", "text": "5"}]}))
            outcome = await alice.call("host", "add", {"a": 2, "b": 3})
        assert outcome.text == "5"
        async with asyncio.TaskGroup() as work:
            work.create_task(answer_next(host, error={"code": -32603, "message": "kaboom"}))
            with pytest.raises(McpError, match="kaboom"):
                await alice.call("host", "boom", {})
        # Their hosts also fail with codes that are words.
        async with asyncio.TaskGroup() as work:
            work.create_task(answer_next(host, error={"code": "NOT_FOUND", "message": "Tool not found"}))
            with pytest.raises(McpError, match="Tool not found") as failed:
                await alice.call("host", "nothing", {})
        assert (failed.value.code, failed.value.data) == (-32603, {"code": "NOT_FOUND"})
        # The wrong id is still a wrong answer.
        async with asyncio.TaskGroup() as work:
            work.create_task(answer_next(host, id=99, result={}))
            with pytest.raises(BadAnswer, match="not that of the request"):
                await alice.call("host", "add", {})


@pytest.mark.parametrize(
    ("value", "text"), [(15, "15"), ("fifteen", "fifteen"), ([1], "[1]"), (None, "null")]
)
async def test_a_tool_that_returned_a_bare_value_ran(tmp_path: Path, value: Json, text: str) -> None:
    """One of its example agents answers a tool call with `{"result": 15}`."""
    async with gateway_with(tmp_path, alice=["*"], host=["*"]) as gateway:
        alice, host = await gateway.join("alice"), await gateway.raw("host")
        async with asyncio.TaskGroup() as work:
            work.create_task(answer_next(host, result=value))
            assert (await alice.call("host", "add", {})).text == text
        async with asyncio.TaskGroup() as work:
            work.create_task(answer_next(host, result=value))
            with pytest.raises(BadAnswer, match="result must be an object"):
                await alice.request("host", "tools/list")


async def test_a_proposal_of_ours_that_they_fulfil_gets_its_result(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["mcp/proposal"], human=["*"], host=["*"]) as gateway:
        alice, human, host = (
            await gateway.join("alice"),
            await gateway.raw("human"),
            await gateway.raw("host"),
        )

        async def fulfil() -> None:
            proposal = await human.hear("mcp/proposal")
            body = {name: proposal["payload"][name] for name in ("method", "params")}
            await human.say("mcp/request", body, to=["host"], about=[proposal["id"]])
            await answer_next(host, result=5)

        async with asyncio.TaskGroup() as work:
            work.create_task(fulfil())
            outcome = await alice.perform("host", "tools/call", {"name": "add", "arguments": {}})
        assert (outcome.how, outcome.by, outcome.text) == ("fulfilled", "human", "5")


async def test_their_proposal_is_fulfilled_by_us(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"], agent=["mcp/proposal"]) as gateway:
        alice, bob, agent = await gateway.join("alice"), await gateway.join("bob"), await gateway.raw("agent")
        bob.tool(add)
        proposed = await agent.say("mcp/proposal", ADD, to=["bob"])
        await until(lambda: alice.proposals.get(proposed) is not None)
        assert (await alice.approve(proposed)).text == "5"
        answer = await agent.hear("mcp/response")
        assert answer["payload"]["result"]["content"][0]["text"] == "5"
        # What we send stays complete.
        request = next(each for each in agent.received if each.get("correlation_id") == [proposed])
        assert request["payload"].keys() >= {"jsonrpc", "id", "method", "params"}


async def test_their_reasoning_is_read(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], agent=["*"]) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.raw("agent")
        start = await agent.say("reasoning/start", {"input": "please add 2 and 3"})
        await agent.say("reasoning/thought", {"reasoning": "I can add", "action": "add"}, context=start)
        await agent.say("reasoning/thought", {"reasoning": "done", "action": ""}, context=start)
        await agent.say("reasoning/conclusion", {}, context=start)
        await until(lambda: bool(alice.contexts) and alice.contexts.get(start).state == "concluded")  # type: ignore[union-attr]
        sequence = alice.contexts.get(start)
        assert sequence is not None
        assert sequence.message == "please add 2 and 3"
        assert sequence.thoughts() == ["I can add → add", "done"]
        assert sequence.conclusion == ""
        cancelled = await agent.say("reasoning/start", {"input": "again"})
        await agent.say(
            "reasoning/conclusion", {"cancelled": True, "reason": "cancelled by user"}, context=cancelled
        )
        await until(lambda: getattr(alice.contexts.get(cancelled), "conclusion", None) == "cancelled by user")
        assert not alice.violations.count("agent")


async def test_what_we_send_has_all_its_fields(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice = await gateway.join("alice")
        for kind, payload in (
            ("mcp/request", ADD),
            ("mcp/response", {"result": {}}),
            ("mcp/response", {"id": 1, "result": 15}),
            ("reasoning/start", {"input": "x"}),
            ("stream/request", {}),
        ):
            with pytest.raises(UsageError, match="cannot be sent"):
                await alice.send(kind, payload, about="x")


async def test_the_past_holds_what_a_restarted_client_says_under_the_same_id(tmp_path: Path) -> None:
    """D-94: its SDK counts from 1 in every process; nothing that it says is lost to those who come late."""
    rules = {"reference_compat": True}
    async with gateway_with(tmp_path, rules=rules, alice=["*"], agent=["*"]) as gateway:
        for text in ("first", "second"):
            agent = await gateway.raw("agent")
            assert await agent.refused("chat", {"text": text}, id="agent-1") is None
            await agent.leave()
        alice = await gateway.join("alice")
        past = [each.payload["text"] for each in await alice.recall() if each.kind == "chat"]
        assert past == ["first", "second"]
        # Once: what is known already is not told again.
        assert [each for each in await alice.recall() if each.kind == "chat"] == []
