"""A server that speaks both eras over HTTP: every tool works for callers of both, over two connections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from moot.errors import McpError
from moot.mcp.eras import CLIENT_CAPABILITIES_KEY, CLIENT_ERA_KEY, JsonObject, is_input_required
from moot.mcp.upstream import HttpServer, Upstream
from tests.mcp.upstreams import (
    PATIENT,
    RecordedEvents,
    call,
    open_ready,
    running_two_eras,
    serve_two_eras,
    text_of,
)
from tests.waiting import HANG_SECONDS, until_told

# Nothing here depends on how soon the second connection is there.
LIMITS = replace(PATIENT, reconnect_wait_seconds=HANG_SECONDS)
ASKABLE: JsonObject = {"elicitation": {"form": {}}, "roots": {}}
# What the callers of the two eras carry.
HANDSHAKE: JsonObject = {CLIENT_ERA_KEY: "handshake", CLIENT_CAPABILITIES_KEY: ASKABLE}
STATELESS: JsonObject = {CLIENT_CAPABILITIES_KEY: ASKABLE}
NAME: JsonObject = {"action": "accept", "content": {"name": "Ada"}}


@pytest.fixture(scope="module")
def both_eras() -> Iterator[str]:
    """One server for all: what it takes to start is mostly the SDK. It keeps no state but what was called."""
    with running_two_eras() as url:
        yield url


async def calls_of(server: Upstream) -> list[str]:
    """What was called since the server started, by whichever test."""
    result: list[str] = (await call(server, "called"))["structuredContent"]["result"]
    return result


async def answered(server: Upstream, tool: str, meta: JsonObject, answer: JsonObject = NAME) -> str:
    """The text of a call whose one request for input is answered."""
    first = await call(server, tool, meta=meta)
    assert is_input_required(first), first
    (key,) = first["inputRequests"]
    also: JsonObject = {"inputResponses": {key: answer}}
    if "requestState" in first:
        also["requestState"] = first["requestState"]
    return text_of(await call(server, tool, meta=meta, also=also))


async def test_a_caller_of_each_era_uses_the_tools_of_its_era(both_eras: str) -> None:
    async with open_ready(HttpServer(url=both_eras), limits=LIMITS) as server:
        assert server.server_info is not None
        assert server.server_info.era == "stateless"
        assert await answered(server, "confirm", HANDSHAKE) == "confirmed by Ada"
        assert await answered(server, "inquire", STATELESS) == "told Ada"
        # Written for both.
        assert await answered(server, "greet", HANDSHAKE) == "hello Ada"
        assert await answered(server, "greet", STATELESS) == "hello Ada"


async def test_roots_are_those_of_the_client(both_eras: str) -> None:
    roots = {"roots": [{"uri": "file:///home/ada", "name": "home"}]}
    async with open_ready(HttpServer(url=both_eras), limits=LIMITS) as server:

        async def asks() -> bool:
            return is_input_required(await call(server, "look", meta=HANDSHAKE))

        # Right after the handshake a request for roots may belong to no call: servers ask then.
        await until_told(asks)
        assert await answered(server, "look", HANDSHAKE, roots) == "file:///home/ada"


async def test_a_tool_of_the_handshake_era_works_for_others_once_it_has_shown_that_it_is_one(
    both_eras: str,
) -> None:
    """The call that fails is not repeated by itself: it may have done half of its work."""
    async with open_ready(HttpServer(url=both_eras), limits=LIMITS) as server:
        before = await calls_of(server)
        with pytest.raises(McpError, match="no back-channel"):
            await call(server, "confirm", meta=STATELESS)
        assert (await calls_of(server))[len(before) :] == ["confirm"]
        assert await answered(server, "confirm", STATELESS) == "confirmed by Ada"


@pytest.mark.parametrize("seen_before", [False, True])
async def test_a_tool_of_the_stateless_era_works_for_others_once_it_has_shown_that_it_is_one(
    seen_before: bool, both_eras: str
) -> None:
    async with open_ready(HttpServer(url=both_eras), limits=LIMITS) as server:
        before = await calls_of(server)
        if seen_before:
            assert is_input_required(await call(server, "inquire", meta=STATELESS))
        else:
            with pytest.raises(McpError, match="invalid result"):
                await call(server, "inquire", meta=HANDSHAKE)
        assert (await calls_of(server))[len(before) :] == ["inquire"]
        assert await answered(server, "inquire", HANDSHAKE) == "told Ada"


async def test_the_answer_to_a_call_reaches_the_connection_that_it_runs_on(both_eras: str) -> None:
    """Two suspended calls of one caller, one in each era, answered crosswise in time."""
    async with open_ready(HttpServer(url=both_eras), limits=LIMITS) as server:
        one = await call(server, "confirm", meta=HANDSHAKE, owner="ada")
        two = await call(server, "greet", meta=STATELESS, owner="ada")
        for tool, asked, meta, text in (
            ("greet", two, STATELESS, "hello Ada"),
            # Whatever its caller says of itself this time: the state tells where the call runs.
            ("confirm", one, STATELESS, "confirmed by Ada"),
        ):
            (key,) = asked["inputRequests"]
            also: JsonObject = {"inputResponses": {key: NAME}, "requestState": asked["requestState"]}
            assert text_of(await call(server, tool, meta=meta, also=also, owner="ada")) == text


async def test_nobody_resumes_the_call_of_another(both_eras: str) -> None:
    async with open_ready(HttpServer(url=both_eras), limits=LIMITS) as server:
        asked = await call(server, "confirm", meta=HANDSHAKE, owner="ada")
        (key,) = asked["inputRequests"]
        also: JsonObject = {"inputResponses": {key: NAME}, "requestState": asked["requestState"]}
        with pytest.raises(McpError, match="another caller's"):
            await call(server, "confirm", meta=HANDSHAKE, also=also, owner="eve")
        assert server.owners == {"ada"}
        await server.forget("ada")
        assert server.owners == frozenset()


async def test_a_server_of_the_stateless_era_alone_is_asked_for_the_other_once_and_serves_everybody() -> None:
    async with (
        serve_two_eras("stateless-only") as url,
        open_ready(HttpServer(url=url), limits=LIMITS) as server,
    ):
        assert await answered(server, "inquire", HANDSHAKE) == "told Ada"
        assert await answered(server, "greet", HANDSHAKE) == "hello Ada"
        assert (await calls_of(server)).count("initialize") == 1


async def test_both_connections_come_back_with_the_server(both_eras: str) -> None:
    received = RecordedEvents()
    async with open_ready(HttpServer(url=both_eras), limits=LIMITS, received=received) as server:
        assert await answered(server, "confirm", HANDSHAKE) == "confirmed by Ada"
        server.restart()
        await received.until(lambda: len(received.ups) == 2)
        assert await answered(server, "inquire", STATELESS) == "told Ada"
        # It waits for the second connection.
        assert await answered(server, "confirm", HANDSHAKE) == "confirmed by Ada"
