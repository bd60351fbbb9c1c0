"""Calls to a handshake server that behaves: nothing is lost on the way, and everyone hears what is theirs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moot.errors import McpError
from moot.mcp.eras import LOG_LEVEL_KEY, JsonObject
from moot.protocol.rpc_codes import INVALID_PARAMS
from tests.mcp.upstreams import QUICK, RecordedEvents, call, open_ready, script, text_of, value_of


async def test_no_field_of_a_result_is_lost_and_numbers_keep_their_digits() -> None:
    async with open_ready(script("odd")) as server:
        arguments = {"big": 2**65, "float": 0.1, "none": None, "text": "grüße", "deep": [{"a": [1]}]}
        result = await call(server, "echo", arguments, meta={"vendor/trace": "t1"})
    assert result["structuredContent"] == arguments
    assert result["vendor/field"] == {"kept": [1, 2.5, None, "ü"]}
    assert result["big"] == 2**70
    assert result["_meta"] == {"seen": {"vendor/trace": "t1"}, "also": True}


async def test_a_list_comes_with_its_vendor_fields_and_all_its_pages() -> None:
    async with open_ready(script("odd")) as server:
        first = await server.request("tools/list")
        tools = await server.list_all("tools/list")
    assert len(first["tools"]) == 20
    assert first["nextCursor"] == "1"
    assert len(tools) > 20
    assert all(tool["vendor"] == 1 for tool in tools)


async def test_an_error_of_the_server_comes_with_code_message_and_data() -> None:
    async with open_ready(script("odd")) as server:
        with pytest.raises(McpError) as caught:
            await call(server, "refuse")
        with pytest.raises(McpError) as unknown:
            await server.request("vendor/unheard", {})
    assert (caught.value.code, caught.value.message) == (-32050, "no")
    assert caught.value.data == {"why": ["because"]}
    assert unknown.value.code == -32601


async def test_progress_reaches_only_its_caller_under_the_callers_own_token() -> None:
    received: dict[str, list[Any]] = {"a": [], "b": []}
    async with open_ready(script("odd")) as server:

        async def one(name: str) -> None:
            await call(
                server,
                "progress",
                {"steps": 3},
                meta={"progressToken": "same"},
                listener=lambda method, params: received[name].append((method, params)),
            )

        await asyncio.gather(one("a"), one("b"))
        await call(server, "progress", {"steps": 3})
    for name in "ab":
        assert [(method, params["progress"]) for method, params in received[name]] == [
            ("notifications/progress", step) for step in (1, 2, 3)
        ]
        assert {params["progressToken"] for _, params in received[name]} == {"same"}
        assert [params["vendor"] for _, params in received[name]] == [1, 2, 3]


async def test_cancelling_a_call_is_told_to_the_server_and_to_nobody_else() -> None:
    async with open_ready(script("odd")) as server:
        hanging = asyncio.create_task(call(server, "hang", {"seconds": 5}))
        other = asyncio.create_task(call(server, "sleep", {"seconds": 0.2}))
        await call(server, "echo")
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert text_of(await other) == "slept"
        answer = value_of(await call(server, "told"))
    assert [each["reason"] for each in answer["cancelled"]] == ["cancelled by the caller"]


async def test_a_log_message_reaches_who_asked_for_its_level() -> None:
    """Stateless logging is asked for call by call; a handshake server is set to the most talkative level."""
    received: list[Any] = []
    async with open_ready(script("odd")) as server:
        await call(
            server, "log", meta={LOG_LEVEL_KEY: "warning"}, listener=lambda *reply: received.append(reply)
        )
        await call(server, "log", listener=lambda *reply: received.append(reply))
        answer = value_of(await call(server, "told"))
    assert [params["level"] for _, params in received] == ["warning", "error"]
    assert answer["levels"] == ["warning"]
    assert server.counts.log_messages_dropped == 6


async def test_a_question_of_the_server_becomes_an_answer_that_asks_for_input() -> None:
    """The call stays pending at the server and goes on when it is repeated with the answer."""
    async with open_ready(script("odd")) as server:
        first = await call(server, "ask_name", owner="alice")
        assert first["resultType"] == "input_required"
        ((key, request),) = first["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        assert request["params"]["message"] == "Who are you? (1)"
        answer = {"action": "accept", "content": {"name": "alice", "extra": 1}}
        also = {"inputResponses": {key: answer}, "requestState": first["requestState"]}
        second = await call(server, "ask_name", also=also, owner="alice")
        reply = value_of(await call(server, "told"))
    assert value_of(second) == [answer]
    # The repetition was no second call.
    assert reply["calls"] == 2


async def test_several_questions_of_one_call_are_asked_until_all_are_answered() -> None:
    async with open_ready(script("odd")) as server:
        result = await call(server, "ask_name", {"count": 3}, owner="alice")
        rounds = 0
        while result.get("resultType") == "input_required":
            rounds += 1
            key = next(iter(result["inputRequests"]))
            also = {
                "inputResponses": {key: {"action": "decline", "key": key}},
                "requestState": result["requestState"],
            }
            result = await call(server, "ask_name", {"count": 3}, also=also, owner="alice")
    assert sorted(each["key"] for each in value_of(result)) == [
        "elicitation-1",
        "elicitation-2",
        "elicitation-3",
    ]
    assert rounds == 3


@pytest.mark.parametrize("change", ["owner", "arguments", "state", "again"])
async def test_an_answer_counts_only_from_the_one_who_was_asked_and_for_that_call(change: str) -> None:
    async with open_ready(script("odd")) as server:
        first = await call(server, "ask_name", {"count": 1}, owner="alice")
        also = {
            "inputResponses": {key: {"action": "accept"} for key in first["inputRequests"]},
            "requestState": "x" if change == "state" else first["requestState"],
        }
        arguments = {"count": 1} if change != "arguments" else {"count": 2}
        owner = "alice" if change != "owner" else "mallory"
        if change == "again":
            await call(server, "ask_name", arguments, also=also, owner=owner)
        with pytest.raises(McpError) as caught:
            await call(server, "ask_name", arguments, also=also, owner=owner)
    assert caught.value.code == INVALID_PARAMS
    assert "call again" in caught.value.message


async def test_a_question_that_nobody_answers_is_cancelled_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.upstream.suspended_calls.INPUT_SECONDS", 0.1)
    async with open_ready(script("odd"), limits=QUICK) as server:
        first = await call(server, "ask_name", owner="alice")
        # Timers of one loop run in their order, however late.
        await asyncio.sleep(0.2)
        also = {"inputResponses": {}, "requestState": first["requestState"]}
        with pytest.raises(McpError):
            await call(server, "ask_name", also=also, owner="alice")
        answer = value_of(await call(server, "told"))
    assert [each["reason"] for each in answer["cancelled"]] == ["no answer within 0 s"]


async def test_a_caller_that_takes_no_questions_is_not_asked() -> None:
    key = "io.modelcontextprotocol/clientCapabilities"
    async with open_ready(script("odd")) as server:
        (answer,) = value_of(await call(server, "ask_name", meta={key: {"sampling": {}}}))
    assert answer["code"] == -32600
    assert "does not support elicitation" in answer["message"]


async def test_with_two_calls_running_no_caller_is_asked_for_the_other_and_then_calls_take_turns() -> None:
    """Asking the wrong one would let one person confirm what another one started."""
    async with open_ready(script("odd")) as server:
        sleeping = asyncio.create_task(call(server, "sleep", {"seconds": 0.3}, owner="bob"))
        (refused,) = value_of(await call(server, "ask_name", owner="alice"))
        assert "several calls are running" in refused["message"]
        await sleeping
        # From now on one at a time: both get their own question, whoever comes first.
        results = await asyncio.gather(
            call(server, "ask_name", {"who": "alice"}, owner="alice"),
            call(server, "sleep", {"seconds": 0.1}, owner="bob"),
            call(server, "ask_name", {"who": "carol"}, owner="carol"),
        )
        for name, result in (("alice", results[0]), ("carol", results[2])):
            answer = {"action": "accept", "content": {"name": name}}
            answers = dict.fromkeys(result["inputRequests"], answer)
            also = {"inputResponses": answers, "requestState": result["requestState"]}
            done = await call(server, "ask_name", {"who": name}, also=also, owner=name)
            assert value_of(done)[0]["content"] == {"name": name}
    assert text_of(results[1]) == "slept"


async def test_roots_are_told_to_a_server_that_looks_around() -> None:
    roots = ({"uri": "file:///srv", "name": "srv"},)
    async with open_ready(script("odd"), roots=roots) as server:
        (answer,) = value_of(await call(server, "ask_name", {"method": "roots/list"}))
        (unknown,) = value_of(await call(server, "ask_name", {"method": "vendor/ask"}))
    assert answer == {"roots": list(roots)}
    assert unknown["code"] == -32601


async def test_watchers_of_a_resource_hear_of_its_changes_and_the_server_is_asked_once() -> None:
    received = RecordedEvents()
    async with open_ready(script("odd"), received=received) as server:
        await server.watch("odd://a", "alice")
        await server.watch("odd://a", "bob")
        await server.watch("odd://b", "bob")
        assert value_of(await call(server, "told"))["subscribed"] == ["odd://a", "odd://b"]
        for uri in ("odd://a", "odd://b", "odd://a/part", "odd://c"):
            await call(server, "update", {"uri": uri})
        await server.unwatch("odd://a", "alice")
        await call(server, "update", {"uri": "odd://a"})
        await server.forget("bob")
        assert value_of(await call(server, "told"))["subscribed"] == []
    assert [(params["uri"], who) for params, who in received.updated] == [
        ("odd://a", ("alice", "bob")),
        ("odd://b", ("bob",)),
        ("odd://a/part", ("alice", "bob")),
        ("odd://c", ()),
        ("odd://a", ("bob",)),
    ]
    assert received.updated[0][0]["vendor"] == 1


async def test_a_question_that_is_taken_back_is_not_asked() -> None:
    async with open_ready(script("odd")) as server:
        asked = await call(server, "withdraw", owner="alice")
        assert [each["params"]["message"] for each in asked["inputRequests"].values()] == ["Who are you? (1)"]


async def test_answers_of_the_wrong_shape_are_refused_or_handed_on_as_a_refusal() -> None:
    async with open_ready(script("odd")) as server:
        asked = await call(server, "ask_name", owner="alice")
        state = asked["requestState"]
        with pytest.raises(McpError, match="inputResponses must be an object"):
            await call(server, "ask_name", also={"inputResponses": [], "requestState": state}, owner="alice")
        answers: JsonObject = {"stranger": {}} | dict.fromkeys(asked["inputRequests"], "no object")
        also = {"inputResponses": answers, "requestState": state}
        (answer,) = value_of(await call(server, "ask_name", also=also, owner="alice"))
        assert answer == {"code": INVALID_PARAMS, "message": "the caller's answer is not an object"}
        asked = await call(server, "ask_name", owner="alice")
        also = {
            "inputResponses": dict.fromkeys(asked["inputRequests"]),
            "requestState": asked["requestState"],
        }
        (answer,) = value_of(await call(server, "ask_name", also=also, owner="alice"))
        assert answer["message"] == "the caller refused it, or cannot be asked"


async def test_questions_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.upstream.suspended_calls.MAX_REQUESTS_PER_CALL", 2)
    async with open_ready(script("odd"), limits=QUICK) as server:
        asked = await call(server, "ask_name", {"count": 3}, owner="alice")
        answers = {f"elicitation-{number}": {"action": "decline"} for number in (1, 2)}
        for _ in range(3):
            if asked.get("resultType") != "input_required":
                break
            also = {"inputResponses": answers, "requestState": asked["requestState"]}
            asked = await call(server, "ask_name", {"count": 3}, also=also, owner="alice")
        refused = [each for each in value_of(asked) if "code" in each]
        assert [each["message"] for each in refused] == ["too many requests for input wait for an answer"]


async def test_resources_watched_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.upstream.change_watch.MAX_WATCHED_RESOURCES", 1)
    async with open_ready(script("odd")) as server:
        await server.watch("odd://a", "alice")
        await server.watch("odd://a", "bob")
        with pytest.raises(McpError, match="1 resources are watched already"):
            await server.watch("odd://b", "alice")
        assert server.owners == {"alice", "bob"}
        await server.unwatch("odd://never", "alice")


async def test_a_restart_that_is_asked_for_is_one() -> None:
    received = RecordedEvents()
    async with open_ready(script("odd"), received=received) as server:
        hanging = asyncio.create_task(call(server, "hang"))
        await call(server, "echo")
        server.restart()
        with pytest.raises(McpError, match="was restarted before it answered"):
            await hanging
        assert text_of(await call(server, "sleep")) == "slept"
    assert received.downs == ["was restarted"]
