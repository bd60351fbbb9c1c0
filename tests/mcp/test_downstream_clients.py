"""The official SDK's client against the server: every transport, both eras, the same answers."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.sse import sse_client

from mcp import Client, MCPError, StdioServerParameters
from moot.mcp.downstream.backend import ListChanged, ResourceUpdated
from tests.mcp.example_http_server import ServedExample, serve_example
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[2]
STDIO = StdioServerParameters(command=sys.executable, args=["-m", "tests.mcp.example_backend"], cwd=ROOT)
WAYS = [
    ("stdio", "legacy"),
    ("stdio", "2026-07-28"),
    ("stdio", "auto"),
    ("http", "legacy"),
    ("http", "2026-07-28"),
    ("http", "auto"),
    ("sse", "legacy"),
]


@pytest.fixture(autouse=True)
def patient_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK takes who does not answer its first question in 10 s for an old server."""
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", HANG_SECONDS)


@asynccontextmanager
async def client(way: str, mode: str, **more: Any) -> AsyncIterator[Client]:
    if way == "stdio":
        async with Client(STDIO, mode=mode, **more) as one:
            yield one
        return
    async with serve_example() as example, at(example, way, mode, **more) as one:
        yield one


@asynccontextmanager
async def at(example: ServedExample, way: str, mode: str, **more: Any) -> AsyncIterator[Client]:
    server: Any = example.url if way == "http" else sse_client(example.url.replace("/mcp", "/sse"))
    async with Client(server, mode=mode, **more) as one:
        yield one


def text_of(result: types.CallToolResult) -> str:
    (item,) = result.content
    assert isinstance(item, types.TextContent)
    return item.text


@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_a_client_lists_and_calls_everything(way: str, mode: Any) -> None:
    async with client(way, mode) as one:
        assert one.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        names = [tool.name for tool in (await one.list_tools()).tools]
        assert names[:4] == ["echo", "shout", "ask_name", "decide"]
        assert [each.uri for each in (await one.list_resources()).resources] == ["note://one"]
        templates = (await one.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == ["note://{name}"]
        assert [each.name for each in (await one.list_prompts()).prompts] == ["greet"]
        echoed = await one.call_tool("echo", {"text": "hi", "deep": {"a": [1, None]}})
        assert text_of(echoed) == "hi"
        assert echoed.structured_content == {"text": "hi", "deep": {"a": [1, None]}}
        (content,) = (await one.read_resource("note://one")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "abc"
        prompt = await one.get_prompt("greet", {"who": "Ada"})
        assert isinstance(prompt.messages[0].content, types.TextContent)
        assert prompt.messages[0].content.text == "Hello Ada"
        reference = types.PromptReference(type="ref/prompt", name="greet")
        completed = await one.complete(reference, {"name": "who", "value": "A"})
        assert completed.completion.values == ["A!"]


@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_an_error_of_the_tools_server_keeps_code_message_and_data(way: str, mode: Any) -> None:
    async with client(way, mode) as one:
        with pytest.raises(MCPError) as caught:
            await one.call_tool("fail", {})
        error = caught.value.error
        assert (error.code, error.message, error.data) == (-32050, "the shop is closed", {"opens": "09:00"})


@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_a_resource_that_is_not_there_is_the_eras_own_error(way: str, mode: Any) -> None:
    async with client(way, mode) as one:
        with pytest.raises(MCPError) as caught:
            await one.read_resource("gone://away")
        assert caught.value.error.code == (-32002 if mode == "legacy" else -32602)


@pytest.mark.parametrize("way", ["stdio", "http", "sse"])
async def test_progress_and_logs_of_a_call_reach_a_handshake_client(way: str) -> None:
    logged: list[types.LoggingMessageNotificationParams] = []
    received: list[tuple[float, float | None]] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params)

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, total))

    async with client(way, "legacy", logging_callback=log) as one:
        await one.call_tool("shout", {}, progress_callback=progress)
        assert received == [(1, 2), (2, 2)]
        assert [(each.level, each.data, each.logger) for each in logged] == [("warning", "loud", "shop")]


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_a_stateless_client_hears_logs_only_when_it_asks_for_them(way: str) -> None:
    logged: list[str] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params.level)

    for level, expected in ((None, []), ("error", []), ("debug", ["debug", "warning"])):
        logged.clear()
        async with client(way, "2026-07-28", logging_callback=log, log_level=level) as one:
            await one.call_tool("shout", {})
            assert logged == expected


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_a_handshake_client_sets_its_level_of_logs() -> None:
    logged: list[str] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params.level)

    async with client("http", "legacy", logging_callback=log) as one:
        await one.set_logging_level("debug")
        await one.call_tool("shout", {})
        await one.set_logging_level("error")
        await one.call_tool("shout", {})
        assert logged == ["debug", "warning"]


@pytest.mark.parametrize(("way", "mode"), [w for w in WAYS if w[1] != "auto"])
async def test_a_tools_question_reaches_the_person_and_the_answer_the_tool(way: str, mode: Any) -> None:
    async def answer(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert params.message == "What is your name?"
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with client(way, mode, elicitation_callback=answer) as one:
        assert text_of(await one.call_tool("ask_name", {})) == "Hello Ada, accept"


@pytest.mark.parametrize("way", ["stdio", "http", "sse"])
async def test_a_tool_whose_dialog_a_handshake_client_cannot_show_is_told_and_goes_on(way: str) -> None:
    async with client(way, "legacy") as one:
        assert text_of(await one.call_tool("ask_name", {})) == "Hello None, cancel"


async def test_a_refusal_of_the_client_reaches_the_tool_which_answers_itself() -> None:
    async def refuse(*_: Any) -> types.ErrorData:
        return types.ErrorData(code=-1, message="User rejected sampling request")

    async with client("http", "legacy", sampling_callback=refuse, elicitation_callback=refuse) as one:
        assert text_of(await one.call_tool("ask_name", {})) == "Hello None, cancel"
        assert text_of(await one.call_tool("ask_model", {})) == "went on with {'m': None}"
        # Tools that know no refusals: one says so, one takes it for no answer.
        for tool in ("ask_model_strictly", "ask_model_anew"):
            result = await one.call_tool(tool, {})
            assert result.is_error
            assert "did not get it: User rejected sampling request" in text_of(result)


async def test_a_handshake_client_that_cannot_be_asked_gets_a_result_that_says_so() -> None:
    async with client("http", "legacy") as one:
        result = await one.call_tool("ask_model_strictly", {})
        assert result.is_error
        assert "did not declare sampling" in text_of(result)


async def test_a_stateless_client_that_cannot_be_asked_is_told_what_to_declare() -> None:
    async with client("http", "2026-07-28") as one:
        with pytest.raises(MCPError) as caught:
            await one.call_tool("ask_name", {})
        assert caught.value.error.code == -32021
        assert caught.value.error.data == {"requiredCapabilities": {"elicitation": {}}}


async def test_a_number_as_structured_content_is_shown_where_it_is_known() -> None:
    """Any JSON value since 2026-07-28, an object before it."""
    async with client("http", "2026-07-28") as one:
        assert (await one.call_tool("number", {})).structured_content == 7
        assert (await one.list_tools()).tools[7].output_schema == {"type": "number"}
    async with client("http", "legacy") as one:
        result = await one.call_tool("number", {})
        assert (text_of(result), result.structured_content) == ("7", None)
        assert (await one.list_tools()).tools[7].output_schema is None


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
@pytest.mark.parametrize("way", ["http", "sse"])
async def test_a_handshake_client_hears_of_changes_and_of_resources_it_subscribed_to(way: str) -> None:
    received: list[str] = []
    enough = anyio.Event()

    async def hear(message: Any) -> None:
        received.append(message.method + getattr(message.params, "uri", ""))
        if len(received) == 4:
            enough.set()

    async with serve_example() as example, at(example, way, "legacy", message_handler=hear) as one:
        await one.subscribe_resource("note://one")
        with pytest.raises(MCPError, match="nothing to subscribe to"):
            await one.subscribe_resource("gone://away")
        await example.backend.until(lambda: example.backend.listeners == 1)
        for change in (
            ListChanged("tools"),
            ListChanged("prompts"),
            ResourceUpdated("note://two"),
            ResourceUpdated("note://one"),
        ):
            example.backend.tell(change)
        example.backend.tell(ListChanged("resources"))
        with anyio.fail_after(HANG_SECONDS):
            await enough.wait()
        assert received == [
            "notifications/tools/list_changed",
            "notifications/prompts/list_changed",
            "notifications/resources/updatednote://one",
            "notifications/resources/list_changed",
        ]
        await one.unsubscribe_resource("note://one")
        assert example.backend.subscribed == []
        await one.subscribe_resource("note://two")
        assert example.backend.subscribed == ["note://two"]
    await example.backend.until(lambda: not example.backend.subscribed)


async def test_a_stateless_client_listens_for_what_it_asked_for_and_nothing_else() -> None:
    async with serve_example() as example, at(example, "http", "2026-07-28") as one:
        async with one.listen(
            tools_list_changed=True, resource_subscriptions=["note://one", "gone://x"]
        ) as news:
            assert example.backend.subscribed == ["note://one"]
            example.backend.tell(ListChanged("prompts"))
            example.backend.tell(ResourceUpdated("note://two"))
            example.backend.tell(ResourceUpdated("note://one"))
            example.backend.tell(ListChanged("tools"))
            first = await anext(aiter(news))
            second = await anext(aiter(news))
            assert [type(first).__name__, type(second).__name__] == ["ResourceUpdated", "ToolsListChanged"]
        await example.backend.until(lambda: not example.backend.subscribed and not example.backend.listeners)
        assert example.server.open_subscriptions == 0


@pytest.mark.parametrize(("way", "mode"), [("http", "legacy"), ("http", "2026-07-28"), ("sse", "legacy")])
async def test_a_call_that_the_client_gives_up_is_given_up_behind_the_face_too(way: str, mode: Any) -> None:
    async with serve_example() as example, at(example, way, mode) as one:
        async with anyio.create_task_group() as group:
            group.start_soon(one.call_tool, "hang", {})
            await example.backend.until(lambda: len(example.backend.calls) == 1)
            group.cancel_scope.cancel()
        await example.backend.until(lambda: example.backend.given_up == 1)
        assert text_of(await one.call_tool("echo", {"text": "still here"})) == "still here"
