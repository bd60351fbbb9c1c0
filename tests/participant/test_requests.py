"""Asking other members: answers, errors, progress, cancelling, and who may answer (MEW 3.1; D-80)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moot.errors import BadAnswer, HostLeft, McpError, MemberLeft, TimedOut, ToolFailed
from moot.participant import IncomingRequest, Progress, RawResult, ToolError, connect
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.participant.gateway_with_members import QUICK, TOOL_HOST, ReceivedEnvelopes, gateway_with, settled
from tests.waiting import HANG_SECONDS, until


@pytest.mark.requirement(
    "MEW-3.1.1-1",
    "MEW-3.1.2-1",
    "MEW-3.1.2-3",
    "MEW-3.1.2-4",
    "MEW-3-52",
    "MEW-3.1-3",
    "MEW-6.4-3",
    "MEW-6.4-5",
    "MEW-8.2-7",
    "MEW-8.2-8",
    "MEW-8.2-9",
)
async def test_a_tool_call_on_the_wire(tmp_path: Path) -> None:
    """MEW 3.1.1 and 3.1.2, as a bystander without an SDK sees it; the host holds no right at all (D-15)."""
    async with gateway_with(tmp_path, alice=["*"], bob=[], watch=["chat"]) as gateway:
        watcher = await gateway.raw("watch")
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        bob.tool(lambda text: text.upper(), name="shout", input_schema={"type": "object"})
        bob.offers.remove_tool("shout")

        @bob.tool
        def shout(text: str) -> str:
            return text.upper()

        outcome = await alice.call("bob", "shout", {"text": "hi"})
        assert outcome.text == "HI"
        request = await watcher.hear("mcp/request")
        response = await watcher.hear("mcp/response")
        assert request["kind"] == "mcp/request"
        assert request["to"] == ["bob"]
        assert request["from"] == "alice"
        assert "correlation_id" not in request
        assert request["payload"] == {
            "jsonrpc": "2.0",
            "id": request["payload"]["id"],
            "method": "tools/call",
            "params": {"name": "shout", "arguments": {"text": "hi"}},
        }
        assert response["to"] == ["alice"]
        assert response["correlation_id"] == [request["id"]]
        assert response["payload"]["id"] == request["payload"]["id"]
        assert response["payload"]["result"] == outcome.result
        assert outcome.request_id == request["id"]


async def test_raw_results_lose_no_field_either_way(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        seen: list[dict[str, Any]] = []
        vendor: dict[str, Json] = {
            "content": [{"type": "x-vendor", "deep": {"n": 123456789012345678901234567890, "f": 1.0}}],
            "x-vendor": [None, True, {"ü": "\u2028"}],
            "resultType": "complete",
        }

        async def handler(request: IncomingRequest) -> dict[str, Json]:
            seen.append(request.params)
            return vendor

        bob.server.use_handler(handler)
        sent = {"name": "t", "x-unknown": {"a": [1, 2.5, None]}, "_meta": {"io.vendor/key": 1}}
        assert await alice.request("bob", "tools/call", sent) == vendor
        assert seen == [sent]


async def test_errors_come_with_code_message_and_data(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")

        async def handler(request: IncomingRequest) -> dict[str, Json]:
            if request.method == "boom":
                raise RuntimeError("secret path /etc")
            raise McpError(-32042, "needs care", {"why": ["x"]})

        bob.server.use_handler(handler)
        with pytest.raises(McpError) as error:
            await alice.request("bob", "anything")
        assert (error.value.code, error.value.message, error.value.data) == (
            -32042,
            "needs care",
            {"why": ["x"]},
        )
        with pytest.raises(McpError) as error:
            await alice.request("bob", "boom")
        assert error.value.code == -32603
        assert "secret" not in str(error.value)


async def test_a_tool_that_fails_says_so_and_nothing_of_the_host_leaks(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")

        @bob.tool
        def fails() -> str:
            raise ToolError("no such file")

        @bob.tool
        async def crashes() -> str:
            raise ValueError("password=hunter2")

        with pytest.raises(ToolFailed, match="no such file") as failure:
            await alice.call("bob", "fails")
        assert failure.value.result["isError"] is True
        with pytest.raises(ToolFailed) as failure:
            await alice.call("bob", "crashes")
        assert "hunter2" not in str(failure.value.result)
        outcome = await alice.perform("bob", "tools/call", {"name": "fails"})
        assert outcome.is_error


@pytest.mark.requirement("MEW-3.1-2")
async def test_progress_and_log_reach_the_caller_alone_and_are_notifications(tmp_path: Path) -> None:
    """A host without any right may say how far it is (D-15)."""
    async with gateway_with(tmp_path, alice=["*"], bob=[], watch=["chat"]) as gateway:
        watcher = await gateway.raw("watch")
        alice, bob = await gateway.join("alice"), await gateway.join("bob")

        @bob.tool
        async def work(request: IncomingRequest) -> str:
            assert await request.progress(1, 2, "half")
            assert await request.log("info", {"step": 1}, "worker")
            assert await request.progress(2, 2)
            return "done"

        answer: list[Progress] = []
        logged: list[Any] = []
        outcome = await alice.call("bob", "work", progress=answer.append, log=logged.append)
        assert outcome.text == "done"
        assert [(each.progress, each.total, each.message) for each in answer] == [
            (1, 2, "half"),
            (2, 2, None),
        ]
        assert logged == [{"level": "info", "data": {"step": 1}, "logger": "worker"}]
        notification = await watcher.hear(
            lambda each: each["payload"].get("method") == "notifications/progress"
        )
        assert notification["kind"] == "mcp/request"
        assert "id" not in notification["payload"]
        assert notification["to"] == ["alice"]
        assert notification["correlation_id"] == [outcome.request_id]

        async def later(progress: Progress) -> None:
            await asyncio.sleep(0)
            answer.append(progress)

        answer.clear()
        await alice.call("bob", "work", progress=later)
        await until(lambda: len(answer) == 2)
        # Without a wish for it there is no token, and nothing is said.
        with pytest.raises(ToolFailed):
            await alice.call("bob", "work")


async def test_the_callers_own_progress_token_is_kept(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")

        @bob.tool
        async def work(request: IncomingRequest) -> str:
            await request.progress(0.5)
            return str(request.meta["progressToken"])

        answer: list[Progress] = []
        outcome = await alice.call("bob", "work", meta={"progressToken": "mine"}, progress=answer.append)
        assert outcome.text == "mine"
        assert [each.progress for each in answer] == [0.5]


async def test_cancelling_a_call_cancels_the_work(tmp_path: Path) -> None:
    """The host hears notifications/cancelled, stops, and sends no answer."""
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        received = ReceivedEnvelopes(alice)
        stopped: list[str | None] = []
        started = asyncio.Event()

        @bob.tool
        async def forever(request: IncomingRequest) -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(request.cancel_reason)
            return "never"

        call = asyncio.create_task(alice.call("bob", "forever"))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: stopped == ["no longer needed"])
        await settled(alice)
        cancelled = received.of("mcp/request")[1]
        assert cancelled.payload["method"] == "notifications/cancelled"
        assert cancelled.payload["params"]["requestId"] == received.of("mcp/request")[0].payload["id"]
        assert cancelled.correlation_id == [received.of("mcp/request")[0].id]
        assert received.of("mcp/response") == []


async def test_only_its_sender_cancels_a_request(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[], mallory=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        mallory = await gateway.raw("mallory")
        go = asyncio.Event()

        @bob.tool
        async def patient() -> str:
            await go.wait()
            return "finished"

        call = asyncio.create_task(alice.call("bob", "patient"))
        request = await mallory.hear("mcp/request")
        body = {"method": "notifications/cancelled", "params": {"requestId": request["payload"]["id"]}}
        await mallory.say("mcp/request", body, to=["bob"], about=[request["id"]])
        await mallory.say("mcp/request", body, to=["bob"])
        await mallory.fence()
        go.set()
        assert (await call).text == "finished"
        assert bob.violations.of("mallory") == {"not_requester": 1}


async def test_a_timeout_is_told_to_both_sides(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        begun, cancelled = 0, 0

        async def handler(request: IncomingRequest) -> dict[str, Json]:
            nonlocal begun, cancelled
            begun += 1
            try:
                await asyncio.Event().wait()
            finally:
                cancelled += 1
            return {}

        bob.server.use_handler(handler)
        with pytest.raises(TimedOut, match=r"bob did not answer slow within 0.05 s"):
            await alice.request("bob", "slow", timeout_seconds=0.05)
        # On a busy machine the time may be up before the host has begun: once more then, with more of it.
        seconds = 0.1
        while not begun:
            with pytest.raises(TimedOut):
                await alice.request("bob", "slow", timeout_seconds=seconds)
            seconds *= 2
        await until(lambda: cancelled == begun)
        with pytest.raises(TimeoutError):
            await alice.request("bob", "slow", timeout_seconds=0.01)


async def test_a_host_that_leaves_or_was_never_there_is_noticed(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[], carol=[], dave=["*"]) as gateway:
        alice = await gateway.join("alice")
        async with connect(gateway.url, "lab", "t-bob", limits=QUICK) as bob:

            async def handler(request: IncomingRequest) -> dict[str, Json]:
                await asyncio.Event().wait()
                return {}

            bob.server.use_handler(handler)
            call = asyncio.create_task(alice.request("bob", "slow"))
            await until(lambda: bob.server.running == 1)
        with pytest.raises(HostLeft, match="the outcome is unknown"):
            await call
        # Whoever is away when it is asked was sent nothing, also if it comes a moment later.
        patient = await gateway.join("dave", limits=msgspec.structs.replace(QUICK, host_return_seconds=3_600))
        with pytest.raises(MemberLeft, match="carol is not here, so nothing"):
            await patient.request("carol", "anything")


async def test_garbage_for_an_answer_ends_the_wait_at_once(tmp_path: Path) -> None:
    """MEW 4.3: no hang, a clear error, and the host's score."""
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.raw("bob")

        async def answered(body: Json) -> str:
            call = asyncio.create_task(alice.request("bob", "x"))
            request = await bob.hear("mcp/request")
            payload = {"jsonrpc": "2.0", "id": request["payload"]["id"]} | body
            await bob.say("mcp/response", payload, to=["alice"], about=[request["id"]])
            with pytest.raises(BadAnswer) as fault:
                await call
            return fault.value.fault

        assert "either result or error" in await answered({})
        assert "either result or error" in await answered({"result": {}, "error": {"code": 1, "message": ""}})
        assert "result must be an object" in await answered({"result": [1]})
        assert "whole number `code`" in await answered({"error": {"code": 1, "message": 5}})
        assert "not that of the request" in await answered({"id": 99, "result": {}})
        assert "must be that of the request" in await answered({"id": None, "result": {}})
        assert 'must be "2.0"' in await answered({"jsonrpc": "1.0", "result": {}})
        assert alice.violations.count("bob") == 7


async def test_only_the_asked_answer(tmp_path: Path) -> None:
    """D-80: the gateway refuses a forged answer; the SDK would not believe one either."""
    async with gateway_with(tmp_path, alice=["*"], bob=["*"], mallory=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.raw("bob")
        mallory = await gateway.raw("mallory")
        call = asyncio.create_task(alice.request("bob", "x"))
        request = await mallory.hear("mcp/request")
        forged = {"jsonrpc": "2.0", "id": request["payload"]["id"], "result": {"forged": True}}
        assert await mallory.refused("mcp/response", forged, about=[request["id"]]) == "unauthorized"
        progress = {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
        await mallory.say("mcp/request", progress, to=["alice"], about=[request["id"]])
        await mallory.fence()
        assert not call.done()
        await bob.say(
            "mcp/response", forged | {"result": {"real": True}}, to=["alice"], about=[request["id"]]
        )
        assert await call == {"real": True}


@pytest.mark.requirement("MEW-3-59")
async def test_one_response_can_answer_several_requests(tmp_path: Path) -> None:
    """MEW 3, fork and join."""
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.raw("bob")
        calls = [asyncio.create_task(alice.request("bob", "part", {"n": n})) for n in range(2)]
        first, second = await bob.hear("mcp/request"), await bob.hear("mcp/request")
        payload = {"jsonrpc": "2.0", "id": second["payload"]["id"], "result": {"both": True}}
        await bob.say("mcp/response", payload, to=["alice"], about=[first["id"], second["id"]])
        assert await asyncio.gather(*calls) == [{"both": True}, {"both": True}]


@pytest.mark.requirement("MEW-3.1.2-2", "MEW-3-60", "MEW-4.3-6")
async def test_an_observer_can_pair_answers_and_sees_all_parents(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"], watch=[], late=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.raw("bob")
        watcher = await gateway.join("watch")
        received = ReceivedEnvelopes(watcher)
        calls = [asyncio.create_task(alice.request("bob", "part", {"n": n})) for n in range(2)]
        requests = [await bob.hear("mcp/request") for _ in calls]
        late = await gateway.join("late")
        both = [request["id"] for request in requests]
        payload = {"jsonrpc": "2.0", "id": requests[0]["payload"]["id"], "result": {}}
        summary = await bob.say("mcp/response", payload, to=["alice"], about=both)
        await bob.say("chat", {"text": "that was it"}, about=[summary])
        chat = await received.wait("chat")
        await asyncio.gather(*calls)
        response = received.of("mcp/response")[0]
        assert [id for id, _ in watcher.correlations.requests_of(response)] == both
        assert watcher.correlations.parents(summary) == tuple(both)
        assert watcher.correlations.ancestors(chat.id) == [summary, *both]
        assert watcher.correlations.children(both[1]) == [summary]
        # Whoever came in the middle sees answers to what it never received, and nothing happens.
        await until(lambda: late.correlations.get(chat.id) is not None)
        assert list(late.correlations.requests_of(response)) == []
        assert late.violations.total == 0


async def test_everybody_is_asked_and_each_answers_for_itself(tmp_path: Path) -> None:
    """D-81: lists may be broadcast."""
    rights = ["mcp/response"]
    async with gateway_with(tmp_path, alice=["*"], bob=rights, carol=rights, dave=rights) as gateway:
        alice = await gateway.join("alice")
        for name in ("bob", "carol", "dave"):
            member = await gateway.join(name)
            if name != "dave":
                member.tool(_nothing, name=f"tool_of_{name}")
        for name in ("bob", "carol", "dave"):
            await alice.roster.wait_for(name, timeout_seconds=HANG_SECONDS)
        # Dave never answers, so the time is always used up: again until both others were in it.
        answers: dict[str, Any] = {}
        while len(answers) < 2:
            answers = await alice.request_all("tools/list", timeout_seconds=0.5)
        assert {
            member: [tool["name"] for tool in answer["tools"]]
            for member, answer in answers.items()
            if isinstance(answer, dict)
        } == {"bob": ["tool_of_bob"], "carol": ["tool_of_carol"]}


def _nothing() -> None: ...


async def test_a_broadcast_call_runs_nowhere(tmp_path: Path) -> None:
    """D-81: one call, one execution."""
    async with gateway_with(tmp_path, alice=["*"], bob=["*"], carol=["*"]) as gateway:
        alice = await gateway.join("alice")
        ran: list[str] = []
        for name in ("bob", "carol"):
            member = await gateway.join(name)
            member.tool(lambda name=name: ran.append(name), name="do", input_schema={"type": "object"})
        with pytest.raises(TimedOut):
            await alice.request((), "tools/call", {"name": "do", "arguments": {}}, timeout_seconds=0.2)
        assert ran == []


async def test_lists_with_cursors_are_followed_within_bounds(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")

        async def handler(request: IncomingRequest) -> dict[str, Json]:
            page = int(request.params.get("cursor", "0"))
            more = {"nextCursor": str(page + 1)} if page < 3 else {}
            return {"tools": [{"name": f"t{page}"}]} | more

        bob.server.use_handler(handler)
        assert [tool["name"] for tool in await alice.list_all("bob", "tools")] == ["t0", "t1", "t2", "t3"]


async def test_a_list_whose_last_page_repeats_its_cursor_is_listed(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")

        async def handler(request: IncomingRequest) -> dict[str, Json]:
            page = "last" if "cursor" in request.params else "first"
            return {"tools": [{"name": page}], "nextCursor": "2"}

        bob.server.use_handler(handler)
        assert [tool["name"] for tool in await alice.list_all("bob", "tools")] == ["first", "last"]


async def test_more_requests_than_a_host_takes_are_told_to_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded concurrency: some run, some wait, the rest is refused; all that run are answered."""
    monkeypatch.setattr("moot.participant.serving.request_server.MAX_QUEUED_REQUESTS", 3)
    limits = msgspec.structs.replace(QUICK, max_running_requests=2)
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob", limits=limits)
        most = running = 0
        go_on = asyncio.Event()

        async def handler(request: IncomingRequest) -> dict[str, Json]:
            nonlocal most, running
            running += 1
            most = max(most, running)
            await go_on.wait()
            running -= 1
            return {}

        bob.server.use_handler(handler)
        calls = [asyncio.create_task(alice.request("bob", "work")) for _ in range(8)]
        await until(lambda: sum(call.done() for call in calls) == 3)
        go_on.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        busy = [each for each in results if isinstance(each, McpError)]
        assert [error.code for error in busy] == [-32000] * 3
        assert most == 2
        assert results.count({}) == 5


async def test_what_is_cancelled_before_it_began_takes_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request and its cancellation come together, so its task ends before its first step."""
    monkeypatch.setattr("moot.participant.serving.request_server.MAX_QUEUED_REQUESTS", 0)
    limits = msgspec.structs.replace(QUICK, max_running_requests=1)
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob", limits=limits)
        began: list[str] = []

        async def handler(request: IncomingRequest) -> dict[str, Json]:
            began.append(request.envelope.id)
            return {}

        async def take(request: IncomingRequest) -> None:
            began.append(request.envelope.id)

        def arrive(id: str, body: dict[str, Json], about: list[str]) -> None:
            payload: dict[str, Json] = {"jsonrpc": "2.0", **body}
            envelope = Envelope("mew", "mcp/request", id, "", "alice", ["bob"], about, None, payload, b"")
            bob._session.handle_envelope(envelope)

        bob.server.use_handler(handler, notifications=take)
        assert await alice.request("bob", "work") == {}
        bodies: list[dict[str, Json]] = [{"id": 1, "method": "work"}, {"method": "notifications/work"}]
        for number, body in enumerate(bodies):
            arrive(f"request-{number}", body, [])
            task = bob.server._running[f"request-{number}"]._task
            assert task is not None
            arrive(f"cancel-{number}", {"method": "notifications/cancelled"}, [f"request-{number}"])
            await asyncio.wait({task})
            assert (task.cancelled(), bob.server.running) == (True, 0)
        assert await alice.request("bob", "work") == {}
        assert len(began) == 2


async def test_an_answer_that_is_not_json_is_an_error_not_a_silence(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")

        @bob.tool
        def odd() -> Any:
            return RawResult(content=object())

        with pytest.raises(McpError, match="not JSON"):
            await alice.call("bob", "odd")


async def test_a_member_can_call_itself(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"]) as gateway:
        alice = await gateway.join("alice")

        @alice.tool
        def me() -> str:
            return "me"

        assert (await alice.call("alice", "me")).text == "me"


async def test_a_notification_without_the_right_is_skipped_and_counted(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[], host=TOOL_HOST) as gateway:
        alice, bob, host = [await gateway.join(name) for name in ("alice", "bob", "host")]
        received = ReceivedEnvelopes(alice)
        assert not await bob.notify("notifications/tools/list_changed")
        assert bob.counts.skipped_notifications == 1
        assert await host.notify("notifications/tools/list_changed")
        changed = await received.wait("mcp/request")
        assert changed.payload == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        # Several at once are one piece of news.
        for n in range(5):
            host.tool(_nothing, name=f"fresh{n}")
        assert (await received.wait("mcp/request", 2)).payload["method"] == "notifications/tools/list_changed"
        await settled(alice)
        assert len(received.of("mcp/request")) == 2
