"""Functions as tools: what is shown of them, and what reaches them (MEW 4.3, 8.2)."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema_rs
import msgspec
import pytest

from moot.errors import McpError, ToolFailed, UsageError
from moot.participant import IncomingRequest, RawResult, tool_of
from moot.protocol.operation import Json
from tests.participant.gateway_with_members import ReceivedEnvelopes, gateway_with
from tests.waiting import bounded


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


def draw(
    at: Point,
    colour: Colour,
    size: Annotated[int, msgspec.Meta(ge=1, le=9)],
    mode: Literal["fill", "line"] = "fill",
    tags: list[str] | None = None,
    note: Annotated[str, "what to write beside it"] = "",
) -> dict[str, int]:
    """Draw a point.

    Longer words about it.

    Args:
        at: where it goes,
            in pixels
        colour (Colour): which one

    Returns:
        Counts.
    """
    return {"x": at.x, "size": size, "tags": len(tags or [])}


def test_a_schema_comes_from_annotations_and_docstring() -> None:
    definition = tool_of(draw).definition
    assert definition["name"] == "draw"
    assert definition["description"] == "Draw a point.\n\nLonger words about it."
    schema = definition["inputSchema"]
    assert schema["type"] == "object"
    assert schema["required"] == ["at", "colour", "size"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["at"]["description"] == "where it goes, in pixels"
    assert schema["properties"]["note"]["description"] == "what to write beside it"
    assert schema["properties"]["mode"] == {"enum": ["fill", "line"], "default": "fill"}
    assert definition["outputSchema"]["type"] == "object"
    # What we advertise is what we accept.
    validator = jsonschema_rs.Draft202012Validator(schema)
    assert validator.is_valid({"at": {"x": 1}, "colour": "red", "size": 3})
    assert not validator.is_valid({"at": {"x": "1"}, "colour": "red", "size": 3})
    assert not validator.is_valid({"at": {"x": 1}, "colour": "green", "size": 3})
    assert not validator.is_valid({"at": {"x": 1}, "colour": "red", "size": 3, "more": 1})


@pytest.mark.parametrize(
    ("returns", "schema"),
    [
        (int, {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}),
        (str, None),
        (None, None),
        (Any, None),
    ],
)
def test_an_output_schema_is_an_object_or_absent(returns: Any, schema: Json) -> None:
    def tool() -> Any: ...

    tool.__annotations__["return"] = returns
    assert tool_of(tool).definition.get("outputSchema") == schema


def test_what_cannot_be_a_tool_is_said_when_it_is_offered() -> None:
    with pytest.raises(UsageError, match="give name="):
        tool_of(lambda: None)

    with pytest.raises(UsageError, match="does not tell its parameters"):
        tool_of(str)

    def starred(*numbers: int) -> None: ...

    with pytest.raises(UsageError, match="cannot be given by name"):
        tool_of(starred)

    def shared(items: list[int] = [1]) -> None: ...  # noqa: B006

    with pytest.raises(UsageError, match="calls would share"):
        tool_of(shared)

    def untold(what: asyncio.Queue[int]) -> None: ...

    with pytest.raises(UsageError, match="no JSON Schema"):
        tool_of(untold)


@pytest.mark.requirement("MEW-4.3-5", "MCPX-4.3-8")
async def test_arguments_off_the_schema_never_reach_the_function(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        bob.tool(draw)
        good: Json = {"at": {"x": 1}, "colour": "red", "size": 3}
        assert (await alice.call("bob", "draw", good)).structured == {"x": 1, "size": 3, "tags": 0}
        for bad, words in [
            ({"size": 3, "colour": "red"}, "missing required field `at`"),
            (good | {"size": 99}, "<= 9"),
            (good | {"size": "3"}, "Expected `int`"),
            (good | {"colour": "green"}, "Invalid enum value"),
            (good | {"x-more": 1}, "unknown field `x-more`"),
            (good | {"at": [1]}, "Expected `object`"),
        ]:
            with pytest.raises(ToolFailed, match=words):
                await alice.call("bob", "draw", bad)
        for params in ({"name": "nope"}, {}, {"name": 5}, {"name": "draw", "arguments": [1]}):
            with pytest.raises(McpError) as error:
                await alice.request("bob", "tools/call", params)
            assert error.value.code == -32602


async def test_functions_of_every_sort_can_be_tools(tmp_path: Path) -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        async def __call__(self, by: int = 1) -> int:
            self.count += by
            return self.count

        def method(self) -> str:
            return f"at {self.count}"

    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        counter = Counter()
        bob.tool(counter, name="count", title="Counter", annotations={"readOnlyHint": False})
        bob.tool(counter.method)

        @bob.tool(thread=True, description="slow")
        def blocking(n: int) -> int:
            return n * 2

        @bob.tool(output_schema={"type": "object", "properties": {"a": {"type": "integer"}}})
        def shaped() -> dict[str, Any]:
            return {"a": 1}

        @bob.tool
        async def raw(request: IncomingRequest) -> RawResult:
            return RawResult(content=[], resultType="input_required", requestState="s", inputRequests={})

        @bob.tool
        def nothing() -> None: ...

        @bob.tool
        def listed() -> list[Point]:
            return [Point(1, 2)]

        assert (await alice.call("bob", "count", {"by": 4})).structured == {"result": 4}
        assert (await alice.call("bob", "method")).text == "at 4"
        assert (await alice.call("bob", "blocking", {"n": 4})).structured == {"result": 8}
        assert (await alice.call("bob", "shaped")).structured == {"a": 1}
        assert (await alice.call("bob", "raw")).input_required
        assert (await alice.call("bob", "nothing")).content == []
        outcome = await alice.call("bob", "listed")
        assert outcome.structured == {"result": [{"x": 1, "y": 2}]}
        tools = {tool["name"]: tool for tool in await alice.list_all("bob", "tools")}
        assert list(tools) == ["count", "method", "blocking", "shaped", "raw", "nothing", "listed"]
        assert tools["count"]["title"] == "Counter"
        assert tools["count"]["annotations"] == {"readOnlyHint": False}
        # Results keep to the schema that was shown.
        jsonschema_rs.validate(tools["listed"]["outputSchema"], outcome.structured)


@pytest.mark.requirement("MEW-8.2-6")
async def test_a_member_is_an_mcp_server(tmp_path: Path) -> None:
    """MEW 8.2: listing and using of tools and resources; prompts beside them."""
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")

        @bob.tool
        def hello() -> str:
            return "hi"

        @bob.resource("config://app", mime_type="application/json", title="Settings")
        def settings() -> str:
            """What is set."""
            return "{}"

        @bob.resource("blob://{name}/raw")
        async def blob(name: str) -> bytes:
            return name.encode()

        @bob.prompt
        def review(file: str, tone: str = "kind") -> str:
            """Ask for a review."""
            return f"Review {file}, be {tone}."

        assert [each["name"] for each in await alice.list_all("bob", "tools")] == ["hello"]
        assert await alice.list_all("bob", "resources") == [
            {
                "uri": "config://app",
                "name": "settings",
                "title": "Settings",
                "description": "What is set.",
                "mimeType": "application/json",
            }
        ]
        (template,) = await alice.list_all("bob", "resourceTemplates")
        assert template["uriTemplate"] == "blob://{name}/raw"
        read = await alice.request("bob", "resources/read", {"uri": "config://app"})
        assert read == {"contents": [{"uri": "config://app", "mimeType": "application/json", "text": "{}"}]}
        read = await alice.request("bob", "resources/read", {"uri": "blob://ab/raw"})
        assert read == {"contents": [{"uri": "blob://ab/raw", "blob": "YWI="}]}
        for uri in ("blob://a/b/raw", "config://other", None):
            with pytest.raises(McpError) as error:
                await alice.request("bob", "resources/read", {"uri": uri})
            assert error.value.code == -32002
        (prompt,) = await alice.list_all("bob", "prompts")
        assert prompt["arguments"] == [
            {"name": "file", "required": True},
            {"name": "tone", "required": False},
        ]
        got = await alice.request("bob", "prompts/get", {"name": "review", "arguments": {"file": "a.py"}})
        text = got["messages"][0]["content"]["text"]
        assert text == "Review a.py, be kind."
        for arguments in ({}, {"file": "x", "extra": "y"}):
            with pytest.raises(McpError, match="takes file, tone"):
                await alice.request("bob", "prompts/get", {"name": "review", "arguments": arguments})
        assert await alice.request("bob", "completion/complete", {}) == {"completion": {"values": []}}
        assert await alice.request("bob", "ping") == {}


async def test_an_older_client_may_shake_hands_first(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=[]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        asked: Json = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x"}}
        answer = await alice.request("bob", "initialize", asked)
        assert answer["protocolVersion"] == "2025-06-18"
        assert answer["serverInfo"]["name"] == bob.me
        unknown = await alice.request("bob", "initialize", asked | {"protocolVersion": "1999-01-01"})
        assert unknown["protocolVersion"] == "2025-06-18"
        discovered = await alice.request("bob", "server/discover")
        assert "2026-07-28" in discovered["supportedVersions"]
        with pytest.raises(McpError) as error:
            await alice.request("bob", "no/such/method")
        assert error.value.code == -32601


async def test_those_who_subscribe_hear_of_a_change_and_no_others(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"], carol=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        received = ReceivedEnvelopes(alice)

        @bob.resource("note://1")
        def note() -> str:
            return "x"

        assert not bob.offers.notify_updated("note://1")
        await alice.request("bob", "resources/subscribe", {"uri": "note://1"})
        assert bob.offers.notify_updated("note://1")
        answer = await received.wait(
            lambda each: each.payload.get("method") == "notifications/resources/updated"
        )
        assert answer.to == ["alice"]
        assert answer.payload["params"] == {"uri": "note://1"}
        await alice.request("bob", "resources/unsubscribe", {"uri": "note://1"})
        assert not bob.offers.notify_updated("note://1")
        with pytest.raises(McpError):
            await alice.request("bob", "resources/subscribe", {"uri": "note://2"})


async def test_a_bridge_hears_notifications_and_may_stay_silent(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        answer: list[str] = []
        came = asyncio.Event()

        async def handler(request: IncomingRequest) -> dict[str, Json] | None:
            return None if request.is_broadcast else {"echo": request.method}

        async def notification(request: IncomingRequest) -> None:
            answer.append(request.method)
            came.set()

        bob.server.use_handler(handler, notifications=notification)
        assert await alice.request_all("tools/list", timeout_seconds=0.1) == {}
        assert await alice.request("bob", "roots/list") == {"echo": "roots/list"}
        assert await alice.notify("notifications/roots/list_changed", to="bob")
        async with bounded():
            await came.wait()
        assert answer == ["notifications/roots/list_changed"]
