"""An MCP server as a member: what it offers is there for everyone, as it is, and only when it is named."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moot.errors import McpError
from moot.mcp.eras import LOG_LEVEL_KEY
from moot.mcp.upstream import UpstreamOptions
from moot.participant import JoinedSpace, Progress
from moot.protocol.envelope import Envelope
from tests.bridges.bridged_space import BridgedSpace, bridged_space, call
from tests.mcp.upstreams import PATIENT, QUICK, script, text_of, value_of
from tests.waiting import HANG_SECONDS, until, until_told


def hearing(space: JoinedSpace, method: str) -> list[Envelope]:
    """Every notification of this method that a member hears from now on."""
    received: list[Envelope] = []

    @space.on("mcp/request")
    def _note(envelope: Envelope) -> None:
        if envelope.payload.get("method") == method:
            received.append(envelope)

    return received


@pytest.mark.requirement("MEW-2.1-4", "MEW-3.1.2-5")
async def test_an_unmodified_server_serves_its_tools_and_its_results_arrive_unaltered(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"))
        alice = await space.join("alice")
        tools = await alice.list_all("host", "tools")
        assert {"echo", "progress", "told"} <= {tool["name"] for tool in tools}
        assert all(tool["vendor"] == 1 for tool in tools)
        result = await call(alice, "echo", {"a": [1, {"b": None}], "big": 2**65})
    assert result["structuredContent"] == {"a": [1, {"b": None}], "big": 2**65}
    assert result["vendor/field"] == {"kept": [1, 2.5, None, "ü"]}
    assert result["big"] == 2**70


@pytest.mark.requirement("MCPX-3.1.2-6")
async def test_in_mcpx_the_kind_is_extended_and_the_body_stays_what_it_is(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"), dialect="mcpx")
        watcher = await space.gateway.join("bob", "&dialect=mcpx")
        alice = await space.join("alice", dialect="mcpx")
        result = await call(alice, "echo", {"n": 1})
        response = await watcher.hear("mcp/response:tools/call:echo")
    assert response["payload"]["result"] == result
    assert result["vendor/field"] == {"kept": [1, 2.5, None, "ü"]}


async def test_it_acts_only_when_it_is_named_and_lists_for_everybody(tmp_path: Path) -> None:
    """D-81: one call, one execution."""
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"))
        await space.bridge(script("odd"), "host2")
        alice = await space.join("alice")
        answers = await alice.request_all("tools/list", timeout_seconds=HANG_SECONDS)
        assert sorted(answers) == ["host", "host2"]
        await alice.send(
            "mcp/request", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}}
        )
        both = ["host", "host2"]
        answer = [value_of(await call(alice, "told", to=name)) for name in both]
        assert [each["calls"] for each in answer] == [1, 1]
        # Nobody offers prompts, so nobody answers; asked by name, a host has none.
        assert await alice.request_all("prompts/list", timeout_seconds=0.3) == {}
        assert await alice.list_all("host", "prompts") == []


@pytest.mark.requirement("MEW-7.1-4")
async def test_a_proposal_runs_only_once_somebody_fulfils_it(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"))
        alice, carl = await space.join("alice"), await space.join("carl")
        proposal = await carl.propose("host", "tools/call", {"name": "echo", "arguments": {"n": 1}})
        await until(lambda: alice.proposals.get(proposal.id) is not None)
        assert value_of(await call(alice, "told"))["calls"] == 1
        await alice.approve(proposal.id)
        outcome = await proposal.outcome(HANG_SECONDS)
        assert outcome.structured == {"n": 1}
        # What the server does not have is declined at once.
        other = await carl.propose("host", "tools/call", {"name": "no-such-tool", "arguments": {}})
        await until(lambda: other.state == "rejected")
        assert value_of(await call(alice, "told"))["calls"] == 3


async def test_progress_and_logs_come_to_the_caller_before_the_answer(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"))
        alice = await space.join("alice")
        progress: list[Progress] = []
        logs: list[Any] = []
        await call(alice, "progress", {"steps": 15}, progress=progress.append)
        assert [each.progress for each in progress] == list(range(1, 16))
        # A longer burst is told by its beginning and its last word.
        progress.clear()
        await call(alice, "progress", {"steps": 300}, progress=progress.append)
        assert progress[-1].progress == 300
        assert len(progress) < 60
        await call(alice, "log", also={"_meta": {LOG_LEVEL_KEY: "warning"}}, log=logs.append)
        assert [each["level"] for each in logs] == ["warning", "error"]
        logs.clear()
        await alice.request("host", "logging/setLevel", {"level": "error"})
        await call(alice, "log", log=logs.append)
        assert [each["level"] for each in logs] == ["error"]


async def test_cancelling_reaches_the_server(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        bridge = await space.bridge(script("odd"))
        alice = await space.join("alice")
        hanging = asyncio.create_task(call(alice, "hang", {"seconds": 30}))
        await until(lambda: bridge.upstream.counts.calls >= 3)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        for _ in range(100):
            answer = value_of(await call(alice, "told"))
            if answer["cancelled"]:
                break
        assert [each["reason"] for each in answer["cancelled"]] == ["cancelled by the caller"]


async def test_a_question_of_the_server_is_asked_by_the_answer(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"))
        alice, bob = await space.join("alice"), await space.join("bob")
        asked = await call(alice, "ask_name")
        assert asked["resultType"] == "input_required"
        ((key, request),) = asked["inputRequests"].items()
        assert request["params"]["message"] == "Who are you? (1)"
        also = {
            "inputResponses": {key: {"action": "accept", "content": {"name": "a"}}},
            "requestState": asked["requestState"],
        }
        # Everybody saw the state; nobody else can answer with it.
        with pytest.raises(McpError, match="is another caller's"):
            await call(bob, "ask_name", also=also)
        assert value_of(await call(alice, "ask_name", also=also)) == [also["inputResponses"][key]]


async def test_a_caller_that_leaves_is_not_waited_for(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        bridge = await space.bridge(script("odd"))
        alice, bob = await space.join("alice"), await space.join("bob")
        await bob.request("host", "resources/subscribe", {"uri": "odd://a"})
        assert (await call(bob, "ask_name"))["resultType"] == "input_required"
        await bob.close()
        await until(lambda: "bob" not in bridge.upstream.owners)

        answer: Any = None

        async def has_heard() -> bool:
            nonlocal answer
            answer = value_of(await call(alice, "told"))
            return bool(answer["cancelled"]) and not answer["subscribed"]

        await until_told(has_heard)
        assert [each["reason"] for each in answer["cancelled"]] == ["the caller is gone"]
        assert answer["subscribed"] == []


async def test_subscribers_and_only_they_hear_of_a_changed_resource(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"))
        alice, bob = await space.join("alice"), await space.join("bob")
        received = hearing(alice, "notifications/resources/updated")
        await bob.request("host", "resources/subscribe", {"uri": "odd://a"})
        await call(alice, "update", {"uri": "odd://a"})
        await call(alice, "update", {"uri": "odd://b"})
        await until(lambda: bool(received))
        await bob.request("host", "resources/unsubscribe", {"uri": "odd://a"})
        await call(alice, "update", {"uri": "odd://a"})
        # What is told of after it comes after it.
        await bob.request("host", "resources/subscribe", {"uri": "odd://c"})
        await call(alice, "update", {"uri": "odd://c"})
        await until(lambda: len(received) > 1)
        with pytest.raises(McpError, match=r"needs params\.uri"):
            await bob.request("host", "resources/subscribe", {})
    assert [(list(each.to), each.payload["params"]) for each in received] == [
        (["bob"], {"uri": "odd://a", "vendor": 1}),
        (["bob"], {"uri": "odd://c", "vendor": 1}),
    ]


async def test_sessions_end_at_the_bridge_and_are_answered_politely(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"))
        alice = await space.join("alice")
        assert await alice.request("host", "ping") == {}
        found = await alice.request("host", "server/discover")
        assert found["supportedVersions"] == ["2026-07-28"]
        assert found["instructions"] == "be careful"
        greeted = await alice.request("host", "initialize", {"protocolVersion": "2025-03-26"})
        assert greeted["protocolVersion"] == "2025-03-26"
        assert greeted["serverInfo"]["name"] == "odd"
        for method in ("subscriptions/listen", "elicitation/create", "sampling/createMessage"):
            with pytest.raises(McpError) as caught:
                await alice.request("host", method, {})
            assert caught.value.code == -32601
        with pytest.raises(McpError, match="Method not found: vendor/unheard"):
            await alice.request("host", "vendor/unheard", {})
        with pytest.raises(McpError, match=r"params\.level is one of"):
            await alice.request("host", "logging/setLevel", {"level": "loud"})
        await alice.notify("notifications/vendor/hello", {}, to="host")
        await alice.notify("notifications/initialized", {}, to="host")
        await alice.request("host", "ping")

        answer: Any = None

        async def has_heard() -> bool:
            nonlocal answer
            answer = value_of(await call(alice, "told"))
            return len(answer["notified"]) > 1

        await until_told(has_heard)
        assert answer["notified"] == ["notifications/initialized", "notifications/vendor/hello"]


async def test_a_restart_of_the_member_restarts_the_server(tmp_path: Path) -> None:
    """MEW 3.9.9."""
    async with bridged_space(tmp_path) as space:
        bridge = await space.bridge(script("odd"))
        alice = await space.join("alice")
        before = value_of(await call(alice, "told"))["pid"]
        await alice.send("participant/restart", {}, to="host")
        await until(lambda: bridge.upstream.counts.starts == 2)
        assert value_of(await call(alice, "told"))["pid"] != before


async def test_many_bridges_in_one_process_do_not_disturb_each_other(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        good = await space.bridge(script("odd"))
        dying = script("odd", "--die-at-start", "9")
        bad = await space.bridge(
            dying, "host2", upstream=UpstreamOptions(limits=replace(QUICK, reconnect_wait_seconds=0.3))
        )
        alice = await space.join("alice")
        assert good.upstream.state == "up"
        assert bad.upstream.state == "down"
        assert bad.upstream.down_reason == "ended with exit code 9"
        assert text_of(await call(alice, "sleep")) == "slept"
        with pytest.raises(McpError, match="ended with exit code 9; it is being restarted"):
            await call(alice, "sleep", to="host2")
        # Host2 never answers, so the time is always used up: again until host was in it.
        assert list(await until_told(lambda: alice.request_all("tools/list", timeout_seconds=0.3))) == [
            "host"
        ]


async def test_a_server_that_declares_nothing_is_asked_all_the_same(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd", "--no-features"))
        alice = await space.join("alice")
        assert "echo" in [tool["name"] for tool in await alice.list_all("host", "tools")]
        assert await alice.list_all("host", "prompts") == []
        with pytest.raises(McpError, match="does not support subscriptions"):
            await alice.request("host", "resources/subscribe", {"uri": "odd://a"})


async def _workshop(space: BridgedSpace) -> JoinedSpace:
    options = UpstreamOptions(limits=PATIENT, era="stateless")
    await space.bridge(script("workshop", "stdio"), upstream=options)
    return await space.join("alice")


async def test_a_stateless_server_is_bridged_with_all_it_has(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        alice = await _workshop(space)
        changes = hearing(alice, "notifications/tools/list_changed")
        assert (await alice.call("host", "add", {"a": 2, "b": 3})).structured == {"result": 5}
        read = await alice.request("host", "resources/read", {"uri": "note://one"})
        assert read["contents"][0]["text"] == "the first note"
        assert await alice.list_all("host", "resourceTemplates")
        prompt = await alice.request("host", "prompts/get", {"name": "review", "arguments": {"code": "x"}})
        assert "Review this" in prompt["messages"][0]["content"]["text"]
        wanted = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "code", "value": "p"}}
        completed = await alice.request("host", "completion/complete", wanted)
        assert completed["completion"]["values"] == ["python", "pascal"]
        # Input required passes through; its state is the server's own.
        asked = await call(alice, "greet")
        ((key, _),) = asked["inputRequests"].items()
        answer = {"action": "accept", "content": {"name": "alice"}}
        also = {"inputResponses": {key: answer}, "requestState": asked["requestState"]}
        assert text_of(await call(alice, "greet", also=also)) == "hello alice"
        updates = hearing(alice, "notifications/resources/updated")
        await alice.request("host", "resources/subscribe", {"uri": "note://one"})
        await call(alice, "touch", {"uri": "note://one"})
        await until(lambda: bool(updates))
        await until(lambda: bool(changes))
        changes.clear()
        await call(alice, "grow")
        await until(lambda: bool(changes))
        assert changes[0].to == ()
        assert "grown" in [tool["name"] for tool in await alice.list_all("host", "tools")]
