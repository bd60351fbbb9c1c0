"""A call that somebody has to decide on: the client learns of it the best way it can, never by an error."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Literal

import anyio
import httpx
import mcp_types as types
import pytest
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from pydantic import Field

from mcp import MCPError
from moot.errors import McpError
from moot.mcp.downstream.client_requests import MAX_DIALOGS, MAX_INPUT_ROUNDS
from moot.mcp.downstream.handshake import HandshakeRequest, HandshakeSession
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.rpc import RpcNotification, RpcRequest
from moot.mcp.downstream.running_requests import RunningRequests
from moot.mcp.downstream.stateless import StatelessRequest, StatelessSubscription
from tests.mcp.example_backend import QUESTION
from tests.mcp.example_http_server import ServedExample, serve_example
from tests.mcp.test_downstream_clients import at, text_of
from tests.mcp.test_downstream_http import stateless
from tests.waiting import HANG_SECONDS, until

# Nothing is decided within this by itself, so that every way beyond waiting is taken.
HASTY = McpServerLimits(decision_seconds=0.05, answer_seconds=5)
ERAS = ["legacy", "2026-07-28"]
TASKS = "io.modelcontextprotocol/tasks"


class TaskMade(types.Result):
    result_type: Literal["task"] = Field(alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str
    status_message: str = Field(alias="statusMessage")
    ttl_ms: int | None = Field(alias="ttlMs")
    poll_interval_ms: int = Field(alias="pollIntervalMs")
    created_at: str = Field(alias="createdAt")


class TasksParams(types.RequestParams):
    task_id: str = Field(alias="taskId", serialization_alias="taskId")
    input_responses: dict[str, Any] | None = Field(
        default=None, alias="inputResponses", serialization_alias="inputResponses"
    )


class TasksRequest(types.Request[TasksParams, str]):
    name_param = "taskId"


class AnyResult(types.Result):
    model_config = types.Result.model_config | {"extra": "allow"}


async def ask(session: Any, method: str, id: str, responses: dict[str, Any] | None = None) -> dict[str, Any]:
    params = TasksParams(taskId=id, inputResponses=responses)
    answer = await session.send_request(TasksRequest(method=method, params=params), AnyResult)
    made: dict[str, Any] = answer.model_dump(by_alias=True)
    return made


async def raw(example: ServedExample, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request as it came, whatever the SDK would make of it; from a client with tasks."""
    post = stateless(method, params)
    can: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}
    post["json"]["params"]["_meta"] |= can
    async with httpx.AsyncClient(timeout=HANG_SECONDS) as client:
        made: dict[str, Any] = (await client.post(example.url, **post)).json()["result"]
    return made


class Tasks(ClientExtension):
    """A client that follows tasks as the extension says, and shows the test what it saw."""

    identifier = TASKS

    def __init__(
        self, example: ServedExample, *, cancel: bool = False, first: dict[str, Any] | None = None
    ) -> None:
        self.example = example
        self.cancel = cancel
        self.first = first
        self.made: list[TaskMade] = []
        self.seen: list[str] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskMade, resolve=self.follow)]

    async def follow(self, made: TaskMade, context: ClaimContext) -> types.CallToolResult:
        self.made.append(made)
        while True:
            task = await ask(context.session, "tasks/get", made.task_id)
            self.seen.append(task["status"])
            match task["status"]:
                case "completed":
                    return types.CallToolResult.model_validate(task["result"])
                case "failed":
                    raise MCPError(task["error"]["code"], task["error"]["message"])
                case "cancelled":
                    return types.CallToolResult(content=[], is_error=True)
                case "input_required":
                    (key,) = task["inputRequests"]
                    answer = {"action": "accept", "content": {"name": "Ada"}}
                    await ask(context.session, "tasks/update", made.task_id, {key: answer, "unknown": {}})
            if self.cancel:
                await ask(context.session, "tasks/cancel", made.task_id)
            elif task["status"] == "working":
                decision = self.example.backend.decisions[-1]
                decision.approve(self.first if len(self.example.backend.decisions) == 1 else None)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_decision_that_comes_soon_is_all_that_the_client_notices(mode: Any) -> None:
    async with serve_example() as example, at(example, "http", mode) as one:
        async with anyio.create_task_group() as group:

            async def call() -> None:
                assert text_of(await one.call_tool("decide", {})) == "done as agreed"

            group.start_soon(call)
            await example.backend.until(lambda: example.backend.decisions)
            example.backend.decisions[0].approve()
        assert example.server.counts.channels == {}


@pytest.mark.parametrize("mode", ERAS)
async def test_who_asked_for_progress_hears_what_is_waited_for(
    mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[tuple[float, str | None]] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, message))

    monkeypatch.setattr("moot.mcp.downstream.client_requests.PROGRESS_SECONDS", 0.02)
    limits = McpServerLimits(decision_seconds=HANG_SECONDS)
    async with serve_example(limits) as example, at(example, "http", mode) as one:
        async with anyio.create_task_group() as group:

            async def call() -> None:
                await one.call_tool("decide", {}, progress_callback=progress)

            group.start_soon(call)
            await example.backend.until(lambda: example.backend.decisions)
            await until(lambda: len(received) >= 3)
            example.backend.decisions[0].reject()
        amounts = [done for done, _ in received]
        assert amounts == sorted(set(amounts))
        assert amounts[-1] < 1
        assert received[0][1] == "waiting for a decision"


@pytest.mark.parametrize(("way", "mode"), [("http", "legacy"), ("sse", "legacy"), ("http", "2026-07-28")])
async def test_a_client_that_can_be_told_by_no_means_gets_a_pending_result(way: str, mode: Any) -> None:
    async with serve_example(HASTY) as example, at(example, way, mode) as one:
        result = await one.call_tool("decide", {})
        assert (text_of(result), result.is_error) == ("pending under p-1", False)
        assert example.server.counts.channels == {"pending": 1}
        assert example.backend.decisions[0].withdrawn is None


async def test_a_client_with_tasks_follows_the_decision_as_a_task() -> None:
    async with serve_example(HASTY) as example:
        extension = Tasks(example)
        async with at(example, "http", "2026-07-28", extensions=[extension]) as one:
            assert text_of(await one.call_tool("decide", {})) == "done as agreed"
        made = extension.made[0]
        assert (made.task_id, made.status, made.ttl_ms, made.poll_interval_ms) == (
            "p-1",
            "working",
            60_000,
            50,
        )
        assert extension.seen == ["working", "completed"]
        assert example.server.counts.channels == {"tasks": 1}


async def test_a_task_that_is_cancelled_is_withdrawn() -> None:
    async with serve_example(HASTY) as example:
        extension = Tasks(example, cancel=True)
        async with at(example, "http", "2026-07-28", extensions=[extension]) as one:
            assert (await one.call_tool("decide", {})).is_error
        assert extension.seen == ["working", "cancelled"]
        assert example.backend.decisions[0].withdrawn == "cancelled by the client"


async def test_a_task_takes_the_input_that_its_tool_wants_and_decides_again() -> None:
    wants = {"resultType": "input_required", "inputRequests": {"who": QUESTION}, "requestState": "s1"}
    async with serve_example(HASTY) as example:
        extension = Tasks(example, first=wants)
        async with at(example, "http", "2026-07-28", extensions=[extension]) as one:
            assert text_of(await one.call_tool("decide", {"text": "x"})) == "done as agreed"
        again = example.backend.decisions[1].pending.call.params
        assert again["inputResponses"] == {"who": {"action": "accept", "content": {"name": "Ada"}}}
        assert (again["requestState"], again["arguments"]) == ("s1", {"text": "x"})
        assert extension.seen[:2] == ["working", "input_required"]
        assert extension.seen[-1] == "completed"


async def test_a_task_whose_call_fails_says_with_which_error() -> None:
    async with (
        serve_example(HASTY) as example,
        at(example, "http", "2026-07-28", extensions=[Tasks(example)]) as one,
    ):
        made = await raw(example, "tools/call", {"name": "decide", "arguments": {}})
        assert (made["resultType"], made["taskId"]) == ("task", "p-1")
        example.backend.decisions[0].pending.settle(McpError(-32077, "out of paper", {"tray": 2}), "no paper")
        task = await ask(one.session, "tasks/get", "p-1")
        assert (task["status"], task["statusMessage"]) == ("failed", "no paper")
        assert task["error"] == {"code": -32077, "message": "out of paper", "data": {"tray": 2}}
        # Too late and not asked for: both are no mistake.
        assert (await ask(one.session, "tasks/update", "p-1", {"x": {}}))["resultType"] == "complete"
        assert (await ask(one.session, "tasks/cancel", "p-1"))["resultType"] == "complete"


async def test_a_task_that_is_cancelled_right_after_its_input_came_has_ended() -> None:
    """Both come together, so the repeated call is cancelled before its first step."""
    wants = {"resultType": "input_required", "inputRequests": {"who": QUESTION}}
    async with serve_example(HASTY) as example:
        await raw(example, "tools/call", {"name": "decide", "arguments": {}})
        example.backend.decisions[0].approve(wants)
        tasks, told = example.server.tasks, []
        task = tasks.get("p-1")
        assert task is not None
        task.watchers.append(lambda task: told.append(tasks.to_json(task)["status"]))
        (key,) = tasks.to_json(task)["inputRequests"]
        responses = {key: {"action": "accept", "content": {"name": "Ada"}}}
        update = tasks.answer("tasks/update", {"taskId": "p-1", "inputResponses": responses})
        await asyncio.gather(update, tasks.answer("tasks/cancel", {"taskId": "p-1"}))
        if task.repetition is not None:
            await asyncio.wait({task.repetition})
        assert tasks.to_json(task)["status"] == "failed"
        assert (told, len(example.backend.decisions)) == (["failed"], 1)


async def test_who_listens_to_a_task_is_told_when_it_changes() -> None:
    async with serve_example(HASTY) as example:
        await raw(example, "tools/call", {"name": "decide", "arguments": {}})
        received: list[tuple[str, Any]] = []
        request = RpcRequest(7, "subscriptions/listen", {"notifications": {"taskIds": ["p-1", "p-9", 3]}})
        client = StatelessRequest({"extensions": {TASKS: {}}}, None, lambda *answer: received.append(answer))
        subscription = StatelessSubscription(example.server, request, client)
        await subscription.start(request.params["notifications"])
        telling = asyncio.create_task(subscription.run())
        example.backend.decisions[0].approve()
        await until(lambda: len(received) >= 2)
        telling.cancel()
        await subscription.close()
        (acknowledged, about), (method, task) = received
        assert (acknowledged, about["notifications"]) == (
            "notifications/subscriptions/acknowledged",
            {"taskIds": ["p-1"]},
        )
        assert (method, task["status"], task["result"]["content"][0]["text"]) == (
            "notifications/tasks",
            "completed",
            "done as agreed",
        )
        assert task["_meta"] == {"io.modelcontextprotocol/subscriptionId": 7}


async def test_a_task_that_a_tool_server_made_is_asked_for_behind_the_face() -> None:
    async with (
        serve_example(HASTY) as example,
        at(example, "http", "2026-07-28", extensions=[Tasks(example)]) as one,
    ):
        assert (await raw(example, "tools/call", {"name": "work_long"}))["taskId"] == "theirs"
        assert (await ask(one.session, "tasks/get", "theirs"))["status"] == "working"


async def test_a_tool_that_never_stops_asking_is_given_up_on() -> None:
    """Handshake era: the loop is ours there."""
    asked: list[str] = []

    async def answer(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with (
        serve_example(HASTY) as example,
        at(example, "http", "legacy", elicitation_callback=answer) as one,
    ):
        with pytest.raises(MCPError, match="requested input 10 times"):
            await one.call_tool("ask_for_ever", {})
    assert len(asked) == MAX_INPUT_ROUNDS


async def test_an_unknown_task_and_a_client_without_tasks_are_told_so() -> None:
    async with serve_example(HASTY) as example:
        async with at(example, "http", "2026-07-28", extensions=[Tasks(example)]) as one:
            with pytest.raises(MCPError, match="no such task"):
                await ask(one.session, "tasks/get", "p-9")
        async with at(example, "http", "2026-07-28") as one:
            with pytest.raises(MCPError) as caught:
                await ask(one.session, "tasks/get", "p-1")
            assert caught.value.error.code == -32021


class Person:
    """Who sits at a client and answers "wait or withdraw?"."""

    def __init__(self, *choices: str) -> None:
        self.choices = list(choices)
        self.asked: list[str] = []
        self.reading = asyncio.Event()

    async def __call__(self, _: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.message)
        self.reading.set()
        choice = self.choices.pop(0)
        if choice == "think":
            await asyncio.Event().wait()
        if choice in ("decline", "cancel"):
            return types.ElicitResult(action=choice)  # type: ignore[arg-type]
        return types.ElicitResult(action="accept", content={"decision": choice})


@pytest.mark.parametrize("mode", ERAS)
async def test_a_person_who_withdraws_ends_it(mode: Any) -> None:
    person = Person("withdraw")
    async with serve_example(HASTY) as example, at(example, "http", mode, elicitation_callback=person) as one:
        result = await one.call_tool("decide", {"text": "x"})
        assert (result.is_error, text_of(result)) == (True, "withdrawn")
        assert example.backend.decisions[0].withdrawn == "withdrawn by the person at the client"
        assert person.asked == ["Somebody has to agree to decide.\nWaiting for a decision."]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_person_who_waits_gets_the_answer_when_it_comes(mode: Any) -> None:
    person = Person("wait", "wait", "wait", "wait", "wait")
    async with serve_example(HASTY) as example, at(example, "http", mode, elicitation_callback=person) as one:
        async with anyio.create_task_group() as group:

            async def call() -> None:
                assert text_of(await one.call_tool("decide", {"text": "x"})) == "done as agreed"

            group.start_soon(call)
            await person.reading.wait()
            example.backend.decisions[0].approve()
        assert len(example.backend.decisions) == 1


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("choice", ["decline", "cancel"])
async def test_a_person_who_closes_the_dialog_gets_the_pending_result(mode: Any, choice: str) -> None:
    person = Person(choice)
    async with serve_example(HASTY) as example, at(example, "http", mode, elicitation_callback=person) as one:
        assert text_of(await one.call_tool("decide", {})) == "pending under p-1"
        assert example.backend.decisions[0].withdrawn is None


async def test_a_stateless_client_is_asked_a_few_times_and_then_told_that_it_is_pending() -> None:
    person = Person(*["wait"] * 10)
    async with serve_example(HASTY) as example:
        async with at(example, "http", "2026-07-28", elicitation_callback=person) as one:
            assert text_of(await one.call_tool("decide", {})) == "pending under p-1"
        assert len(person.asked) == MAX_DIALOGS
        assert len(example.backend.decisions) == 1


async def test_the_dialog_goes_away_when_somebody_decides_meanwhile() -> None:
    """Handshake era: the question is cancelled at the client."""
    person = Person("think")
    async with (
        serve_example(HASTY) as example,
        at(example, "http", "legacy", elicitation_callback=person) as one,
    ):

        async def call() -> None:
            assert text_of(await one.call_tool("decide", {})) == "rejected by bob: unsafe"

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await person.reading.wait()
            example.backend.decisions[0].reject()
        assert example.server.counts.channels == {"elicitation": 1}


async def test_a_client_that_cancels_its_call_withdraws_it() -> None:
    async with serve_example() as example, at(example, "http", "legacy") as one:
        async with anyio.create_task_group() as group:
            group.start_soon(one.call_tool, "decide", {})
            await example.backend.until(lambda: example.backend.decisions)
            group.cancel_scope.cancel()
        decision = example.backend.decisions[0]
        with anyio.fail_after(HANG_SECONDS):
            await decision.pending.finished.wait()
        assert decision.withdrawn == "cancelled by the client"
        # The SDK's client fails when it is closed while an answer comes in, so let it take that first.
        await one.call_tool("echo", {})


async def test_a_client_whose_time_is_up_withdraws_nothing() -> None:
    """The SDK cancels its request by itself then, and says why."""
    async with serve_example() as example, at(example, "http", "legacy") as one:
        # On a busy machine its time may be up before the call was seen.
        while not example.backend.decisions:
            with pytest.raises(MCPError, match="imed out"):
                await one.call_tool("decide", {}, read_timeout_seconds=0.2)
        pending = example.backend.decisions[0].pending
        await until(lambda: pending.waiting == 0)
        # A later request is answered after the cancellation has been processed.
        await one.call_tool("echo", {})
        assert (example.backend.decisions[0].withdrawn, pending.decided.is_set()) == (None, False)


async def test_a_client_that_disconnects_withdraws_nothing() -> None:
    """In the stateless era nothing tells a lost connection from a person who cancels."""
    async with serve_example() as example, at(example, "http", "2026-07-28") as one:
        async with anyio.create_task_group() as group:
            group.start_soon(one.call_tool, "decide", {})
            await example.backend.until(lambda: example.backend.decisions)
            group.cancel_scope.cancel()
        pending = example.backend.decisions[0].pending
        await until(lambda: pending.waiting == 0)
        assert (example.backend.decisions[0].withdrawn, pending.decided.is_set()) == (None, False)


@pytest.mark.parametrize(
    ("reason", "withdraws"),
    [
        ("McpError: MCP error -32001: Request timed out", False),
        ("Maximum total timeout exceeded", False),
        ("timed out after 60s", False),
        ("context deadline exceeded", False),
        ("AbortError: This operation was aborted", True),
        ("caller cancelled", True),
        (None, True),
    ],
)
async def test_a_cancellation_withdraws_unless_it_is_a_timeout(
    reason: str | None, withdraws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.mcp.downstream.client_requests.CANCEL_SECONDS", 0)
    async with serve_example() as example:
        running = RunningRequests(example.server.spawn, example.server.counts, max_requests=8)
        session = HandshakeSession(example.server, running, lambda *_: None)
        session.receive_message(
            RpcRequest(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        )
        session.receive_message(RpcRequest(2, "tools/call", {"name": "decide", "arguments": {}}))
        await example.backend.until(lambda: example.backend.decisions)
        decision = example.backend.decisions[0]
        await until(lambda: decision.pending.waiting == 1)
        params = {"requestId": 2} | ({} if reason is None else {"reason": reason})
        session.receive_message(RpcNotification("notifications/cancelled", params))
        await until(lambda: decision.pending.waiting == 0)
        if withdraws:
            await until(lambda: decision.withdrawn is not None)
        else:
            # Nothing but the server itself runs: nobody is about to withdraw it.
            assert (decision.withdrawn, example.server._spawned) == (None, set())


async def test_a_cancellation_withdraws_where_a_time_limit_ends_in_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.mcp.downstream.client_requests.CANCEL_SECONDS", 0)
    async with serve_example() as example:
        tasks: list[asyncio.Task[None]] = []

        def spawn(answer: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            tasks.append(example.server.spawn(answer))
            return tasks[-1]

        running = RunningRequests(spawn, example.server.counts)
        client = HandshakeRequest(HandshakeSession(example.server, running, lambda *_: None), 1)
        request = RpcRequest(1, "tools/call", {"name": "decide", "arguments": {}})
        running.start(request, example.server.answer(request, client), lambda _: None)
        await example.backend.until(lambda: example.backend.decisions)
        decision = example.backend.decisions[0]
        await until(lambda: decision.pending.waiting == 1)
        # As the limit does, with which the progress of a wait is told.
        tasks[0].cancel()
        running.cancel(1, "call unwanted")
        await until(lambda: decision.withdrawn is not None)


async def test_a_dialog_that_nobody_answers_does_not_delay_the_pending_result() -> None:
    """Clients give up after a minute, and the time that a dialog is open counts."""
    limits = McpServerLimits(decision_seconds=0.05, answer_seconds=0.2)
    person = Person("think")
    async with (
        serve_example(limits) as example,
        at(example, "http", "legacy", elicitation_callback=person) as one,
    ):
        result = await one.call_tool("decide", {})
        assert text_of(result) == "pending under p-1"
        assert person.reading.is_set()
        assert example.backend.decisions[0].withdrawn is None


@pytest.mark.parametrize("mode", ERAS)
async def test_an_approved_call_that_runs_long_answers_pending_in_time(mode: Any) -> None:
    limits = McpServerLimits(decision_seconds=0.1, answer_seconds=0.1)
    async with (
        serve_example(limits) as example,
        at(example, "http", mode) as one,
        anyio.create_task_group() as group,
    ):

        async def call() -> None:
            assert text_of(await one.call_tool("decide", {})) == "pending under p-1"

        group.start_soon(call)
        await example.backend.until(lambda: example.backend.decisions)
        example.backend.decisions[0].pending.mark_approved("approved, being done")


async def test_a_call_of_an_earlier_run_is_found_as_a_task() -> None:
    async with (
        serve_example(HASTY) as example,
        at(example, "http", "2026-07-28", extensions=[Tasks(example)]) as one,
    ):
        await raw(example, "tools/call", {"name": "decide", "arguments": {}})
        # As after a restart: the backend knows the call, and the server no task.
        example.server.tasks._tasks.clear()
        assert (await ask(one.session, "tasks/get", "p-1"))["status"] == "working"
        example.backend.decisions[0].approve()
        assert (await ask(one.session, "tasks/get", "p-1"))["status"] == "completed"


async def test_a_request_state_gets_no_other_calls_answer() -> None:
    async with serve_example(HASTY) as example:
        person = Person("wait")
        async with at(example, "http", "2026-07-28", elicitation_callback=person) as one:
            first = await one.session.call_tool("decide", {"text": "mine"}, allow_input_required=True)
            assert isinstance(first, types.InputRequiredResult)
            example.backend.decisions[0].approve()
            for name, arguments, state in (
                ("decide", {"text": "other"}, first.request_state),
                ("echo", {"text": "mine"}, first.request_state),
                ("decide", {"text": "mine"}, f"{first.request_state}0x"),
            ):
                with pytest.raises(MCPError, match="request state"):
                    await one.session.call_tool(name, arguments, request_state=state)
            answer = await one.session.call_tool(
                "decide", {"text": "mine"}, request_state=first.request_state
            )
            assert text_of(answer) == "done as agreed"
