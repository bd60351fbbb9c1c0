"""Both eras over every transport: which one a server speaks is found out, and callers need not know."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from moot.errors import McpError, UsageError
from moot.mcp.eras import (
    CLIENT_CAPABILITIES_KEY,
    LOG_LEVEL_KEY,
    SERVER_INFO_KEY,
    Era,
    JsonObject,
)
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import HttpServer, StartFailed, StdioServer, Upstream, UpstreamOptions, open_upstream
from tests.mcp.upstreams import (
    NODE,
    PATIENT,
    QUICK,
    RecordedEvents,
    call,
    open_ready,
    script,
    serve_workshop,
    text_of,
    value_of,
)
from tests.waiting import until_told

# Finding out


@pytest.mark.requirement("MEW-R-1", "MCPX-R-1")
@pytest.mark.parametrize("on_probe", ["error", "silence", "exit"])
async def test_a_handshake_server_is_found_whatever_it_does_to_a_question_it_does_not_know(
    on_probe: str,
) -> None:
    """Some refuse `server/discover`, some say nothing, some end. The handshake settles on 2025-06-18."""
    received = RecordedEvents()
    async with open_upstream(
        script("odd", "--on-probe", on_probe), UpstreamOptions(limits=QUICK), received.callbacks()
    ) as server:
        await received.until(lambda: received.ups)
        info = received.ups[0]
        assert (info.era, info.version) == ("handshake", "2025-06-18")
        assert info.implementation == {"name": "odd", "version": "1", "vendor": True}
        assert info.discover_result["instructions"] == "be careful"
        assert info.declares("tools", "listChanged")
        assert not info.offers("prompts")
        answer = value_of(await call(server, "told"))
        assert answer["notified"] == ["notifications/initialized"]
        # What was found out is remembered.
        with pytest.raises(McpError):
            await call(server, "die")
        starts = server.counts.starts
        await call(server, "sleep")
        assert server.counts.starts == starts + 1


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_handshake_version_is_taken(version: str) -> None:
    async with open_ready(script("odd", "--version", version)) as server:
        assert server.server_info is not None
        assert server.server_info.version == version


async def test_a_version_that_nobody_knows_is_refused_with_the_ones_that_are_known() -> None:
    async with open_upstream(
        script("odd", "--version", "1999-01-01"), UpstreamOptions(limits=QUICK)
    ) as server:
        with pytest.raises(StartFailed, match=r"1999-01-01.*2025-11-25, 2026-07-28"):
            await server.wait_until_ready()


async def test_a_server_that_never_greets_is_given_up_in_time() -> None:
    deaf = (sys.executable, "-c", "import time; time.sleep(3600)")
    limits = replace(QUICK, start_seconds=0.3, probe_seconds=0.1)
    async with open_upstream(
        StdioServer(command=Command(argv=deaf)), UpstreamOptions(limits=limits)
    ) as server:
        with pytest.raises(StartFailed, match="did not finish the handshake within 0 s"):
            await server.wait_until_ready()


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_server_that_is_slow_to_start_is_asked_both_ways_and_answers_one(era: str) -> None:
    """After a silence `initialize` is sent as well; a stateless server refuses it and answers the other."""
    arguments = ("--stateless", "2026-07-28") if era == "stateless" else ()
    limits = replace(QUICK, probe_seconds=0.1)
    async with open_ready(script("odd", "--slow", "0.6", *arguments), limits=limits) as server:
        assert server.server_info is not None
        assert server.server_info.era == era
        assert text_of(await call(server, "sleep")) == "slept"
        assert server.counts.starts == 1


@pytest.mark.parametrize(
    ("versions", "says"),
    [("2031-01-01", "refused to initialize"), ("2025-06-18", "refused to initialize")],
)
async def test_a_server_whose_versions_nobody_here_speaks_is_not_used(versions: str, says: str) -> None:
    async with open_upstream(script("odd", "--stateless", versions), UpstreamOptions(limits=QUICK)) as server:
        with pytest.raises(StartFailed, match=says):
            await server.wait_until_ready()


# Streams of a stateless server


async def _streams(server: Upstream, count: int) -> JsonObject:
    """Wait until the server has so many open streams; what it was told so far."""

    async def report() -> JsonObject | None:
        answer: JsonObject = value_of(await call(server, "told"))
        return answer if answer["streams"] == count else None

    found = await until_told(report)
    assert found is not None
    return found


@pytest.mark.parametrize("how", ["result", "cancel"])
async def test_a_stream_that_ends_is_opened_again_and_what_was_missed_counts_as_changed(how: str) -> None:
    received = RecordedEvents()
    async with open_ready(script("odd", "--stateless", "2026-07-28"), received=received) as server:
        await _streams(server, 1)
        await server.watch("odd://a", "alice")
        await call(server, "end_stream", {"how": how})
        await received.until(lambda: received.updated and received.changed)
        assert received.updated == [({"uri": "odd://a"}, ("alice",))]
        answer = await _streams(server, 1)
    assert answer["listened"] == [
        {"toolsListChanged": True},
        {"toolsListChanged": True, "resourceSubscriptions": ["odd://a"]},
        {"toolsListChanged": True, "resourceSubscriptions": ["odd://a"]},
    ]


@pytest.mark.parametrize(
    ("listen", "says"),
    [
        ("lists-only", "does not accept a subscription to odd://a"),
        ("refuse", "does not accept a subscription to odd://a"),
    ],
)
async def test_what_a_stateless_server_does_not_watch_is_told(listen: str, says: str) -> None:
    async with open_ready(script("odd", "--stateless", "2026-07-28", "--listen", listen)) as server:
        with pytest.raises(McpError, match=says):
            await server.watch("odd://a", "alice")
        assert server.owners == frozenset()
        assert text_of(await call(server, "sleep")) == "slept"


async def test_a_stateless_server_that_sends_requests_is_refused_them() -> None:
    async with open_ready(script("odd", "--stateless", "2026-07-28")) as server:
        (answer,) = value_of(await call(server, "ask_name"))
        assert answer["code"] == -32601


# The same over every way


async def _everything(server: Upstream, received: RecordedEvents) -> None:
    """What the workshop offers, asked for in the stateless shape whatever the era."""
    info = await server.wait_until_ready()
    assert info.implementation["name"] == "workshop"
    # Before any list: which headers it needs has to be found out first.
    assert text_of(await call(server, "where", {"region": "eu grün"})) == "in eu grün"
    stateless = info.era == "stateless"
    names = [tool["name"] for tool in await server.list_all("tools/list")]
    assert names == ["add", "greet", "count", "tell", "grow", "touch", "where", "long"]
    added = await call(server, "add", {"a": 2, "b": 3})
    assert added["structuredContent"] == {"result": 5}

    progress: list[Any] = []
    meta = {"progressToken": "p", LOG_LEVEL_KEY: "info"}
    await call(server, "count", {"steps": 3}, meta=meta, listener=lambda *reply: progress.append(reply))
    assert [(method, reply["progressToken"], reply["progress"]) for method, reply in progress] == [
        ("notifications/progress", "p", step) for step in (1, 2, 3)
    ]
    logged: list[JsonObject] = []
    await call(server, "tell", meta={LOG_LEVEL_KEY: "info"}, listener=lambda _, reply: logged.append(reply))
    # A handshake server of this SDK leaves the choice of level to its application, so ours is made here.
    assert [reply["level"] for reply in logged] == ["warning"]

    asked = await call(server, "greet", owner="alice")
    assert asked["resultType"] == "input_required"
    ((key, request),) = asked["inputRequests"].items()
    assert request["params"]["message"] == "Who are you?"
    answer = {"action": "accept", "content": {"name": "alice"}}
    also = {"inputResponses": {key: answer}, "requestState": asked["requestState"]}
    assert text_of(await call(server, "greet", also=also, owner="alice")) == "hello alice"
    if stateless:
        # Who takes no elicitation is not asked, and the server says what is missing.
        with pytest.raises(McpError) as caught:
            await call(server, "greet", meta={CLIENT_CAPABILITIES_KEY: {}})
        assert caught.value.code == -32021

    assert [each["uri"] for each in await server.list_all("resources/list")] == ["note://one"]
    templates = await server.list_all("resources/templates/list")
    assert [each["uriTemplate"] for each in templates] == ["note://{id}/text"]
    read = await server.request("resources/read", {"uri": "note://7/text"})
    assert read["contents"][0]["text"] == "note 7"
    assert [each["name"] for each in await server.list_all("prompts/list")] == ["review"]
    prompt = await server.request("prompts/get", {"name": "review", "arguments": {"code": "x=1"}})
    assert "x=1" in prompt["messages"][0]["content"]["text"]
    wanted = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "code", "value": "p"}}
    completed = await server.request("completion/complete", wanted)
    assert completed["completion"]["values"] == ["python", "pascal"]
    if stateless:
        await _changes(server, received)


async def _changes(server: Upstream, received: RecordedEvents) -> None:
    await server.watch("note://one", "alice")
    await call(server, "touch", {"uri": "note://one"})
    await received.until(lambda: received.updated)
    assert [(answer["uri"], who) for answer, who in received.updated] == [("note://one", ("alice",))]
    await server.watch("note://two", "bob")
    await call(server, "grow")
    await received.until(lambda: "tools" in received.changed)
    assert "grown" in [tool["name"] for tool in await server.list_all("tools/list")]
    await server.unwatch("note://one", "alice")


async def test_a_stateless_server_over_stdio() -> None:
    received = RecordedEvents()
    server_script = script("workshop", "stdio")
    async with open_ready(server_script, limits=PATIENT, received=received, era="stateless") as server:
        assert server.server_info is not None
        assert (server.server_info.era, server.server_info.version) == ("stateless", "2026-07-28")
        assert SERVER_INFO_KEY in server.server_info.discover_result["_meta"]
        await _everything(server, received)


@pytest.mark.parametrize(
    ("era", "works", "fails", "says"),
    [
        (None, "confirm", "inquire", "seems to need the stateless era of MCP"),
        ("handshake", "confirm", "inquire", "`moot bridge --era stateless` uses that"),
        ("stateless", "inquire", "confirm", "`moot bridge --era handshake` uses that"),
    ],
)
async def test_a_process_of_both_eras_asks_its_callers_in_the_handshake_era_unless_told_otherwise(
    era: Era | None, works: str, fails: str, says: str
) -> None:
    """Tools that ask their client are the usual ones; what the SDK translates works in either era."""
    async with open_ready(script("two_eras", "stdio"), limits=PATIENT, era=era) as server:
        for tool in ("greet", works):
            asked = await call(server, tool)
            assert asked["resultType"] == "input_required"
            (key,) = asked["inputRequests"]
            more: JsonObject = {"inputResponses": {key: {"action": "accept", "content": {"name": "Ana"}}}}
            if "requestState" in asked:
                more["requestState"] = asked["requestState"]
            assert "Ana" in text_of(await call(server, tool, also=more))
        try:
            refused = json.dumps(await call(server, fails))
        except McpError as fault:
            refused = fault.message
        assert says in refused


async def test_a_process_that_does_not_speak_the_era_that_was_asked_for_is_not_used() -> None:
    options = UpstreamOptions(limits=QUICK, era="stateless")
    async with open_upstream(script("odd"), options) as server:
        with pytest.raises(StartFailed, match="does not speak the stateless era"):
            await server.wait_until_ready()


async def test_a_stateless_server_over_streamable_http() -> None:
    received = RecordedEvents()
    async with (
        serve_workshop("streamable-http") as url,
        open_ready(HttpServer(url=url), limits=PATIENT, received=received) as server,
    ):
        assert server.server_info is not None
        assert server.server_info.era == "stateless"
        await _everything(server, received)


async def test_a_handshake_server_over_sse_found_by_its_path() -> None:
    received = RecordedEvents()
    async with (
        serve_workshop("sse") as url,
        open_ready(HttpServer(url=url), limits=PATIENT, received=received) as server,
    ):
        assert server.server_info is not None
        assert server.server_info.era == "handshake"
        await _everything(server, received)


async def test_a_server_over_http_that_goes_away_is_told_of_and_found_again() -> None:
    received = RecordedEvents()
    limits = replace(PATIENT, reconnect_wait_seconds=0.3)
    async with AsyncExitStack() as running:
        url = await running.enter_async_context(serve_workshop("streamable-http"))
        async with open_ready(HttpServer(url=url), limits=limits, received=received) as server:
            assert value_of(await call(server, "add", {"a": 1, "b": 1})) == 2
            await running.aclose()
            with pytest.raises(McpError):
                await call(server, "add", {"a": 1, "b": 1})
            await received.until(lambda: received.downs)
            with pytest.raises(McpError, match=r"cannot be reached.*it is being restarted, try later"):
                await call(server, "add", {"a": 1, "b": 1})
            port = int(url.rpartition(":")[2].partition("/")[0])
            async with serve_workshop("streamable-http", port):
                await received.until(lambda: len(received.ups) == 2)
                assert value_of(await call(server, "add", {"a": 1, "b": 2})) == 3


async def test_an_answer_over_http_that_is_too_long_costs_only_that_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.mcp.stdio_child.LINE_BYTES", 100_000)
    async with (
        serve_workshop("streamable-http") as url,
        open_ready(HttpServer(url=url), limits=PATIENT) as server,
    ):
        with pytest.raises(McpError, match="more than 100000 bytes"):
            await call(server, "long", {"size": 200_000})
        assert len(text_of(await call(server, "long", {"size": 50_000}))) == 50_000
        assert server.counts.starts == 1


async def test_an_address_where_nobody_listens_is_told_as_such() -> None:
    async with open_upstream(
        HttpServer(url="http://127.0.0.1:9/mcp"), UpstreamOptions(limits=QUICK)
    ) as server:
        with pytest.raises(StartFailed, match="cannot be reached"):
            await server.wait_until_ready()


@pytest.mark.parametrize(("transport", "path"), [("streamableHttp", "mcp"), ("sse", "sse")])
async def test_a_handshake_server_over_http(transport: str, path: str, port: int) -> None:
    process = await asyncio.create_subprocess_exec(
        str(NODE / "mcp-server-everything"),
        transport,
        env=os.environ | {"PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        received = RecordedEvents()
        server_at = HttpServer(url=f"http://127.0.0.1:{port}/{path}")
        async with open_upstream(server_at, UpstreamOptions(limits=PATIENT), received.callbacks()) as server:
            await received.until(lambda: received.ups)
            assert received.ups[0].era == "handshake"
            assert "echo" in [tool["name"] for tool in await server.list_all("tools/list")]
            assert text_of(await call(server, "echo", {"message": "hi"})) == "Echo: hi"
            steps: list[Any] = []
            arguments = {"duration": 0.2, "steps": 2}
            await call(
                server,
                "trigger-long-running-operation",
                arguments,
                meta={"progressToken": "t"},
                listener=lambda _, answer: steps.append(answer["progress"]),
            )
            assert steps == [1, 2]
            asked = await call(server, "trigger-elicitation-request", owner="alice")
            ((key, _),) = asked["inputRequests"].items()
            also = {"inputResponses": {key: {"action": "decline"}}, "requestState": asked["requestState"]}
            done = await call(server, "trigger-elicitation-request", also=also, owner="alice")
            assert "declined" in text_of(done)
    finally:
        process.kill()
        await process.wait()


async def test_a_refusal_of_the_http_server_is_told_with_its_status() -> None:
    async with serve_workshop("streamable-http") as url:
        elsewhere = HttpServer(url=url.replace("/mcp", "/nothing-here"))
        async with open_upstream(elsewhere, UpstreamOptions(limits=PATIENT)) as server:
            with pytest.raises(StartFailed, match="HTTP 404"):
                await server.wait_until_ready()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="has to start with http"):
        HttpServer(url="ftp://example.org")


def test_labels_and_representations_hold_no_secrets() -> None:
    url = HttpServer(url="https://user:pw@example.org/mcp?key=k", headers={"Authorization": "Bearer s3cret"})
    assert url.label == "https://example.org/mcp"
    assert "s3cret" not in repr(url)
    assert "key=k" not in repr(url)
    child = StdioServer(command=Command(argv=("/usr/bin/serve", "--key", "s3cret"), env={"KEY": "s3cret"}))
    assert "s3cret" not in repr(child)
    assert child.label.startswith("serve#")


# Servers that others wrote


@pytest.mark.parametrize(
    ("argv", "era", "tool", "arguments", "says"),
    [
        (("mcp-server-everything",), "handshake", "echo", {"message": "hi"}, "Echo: hi"),
        (("mcp-server-filesystem", "/usr"), "handshake", "list_allowed_directories", {}, "/usr"),
        (("mcp-server-memory",), "handshake", "read_graph", {}, "entities"),
        (("mcp-server-time",), "handshake", "get_current_time", {"timezone": "UTC"}, "UTC"),
    ],
)
async def test_real_servers(
    argv: tuple[str, ...], era: str, tool: str, arguments: JsonObject, says: str
) -> None:
    path = f"{NODE}{os.pathsep}{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    command = Command(argv=argv, env={"PATH": path, "MEMORY_FILE_PATH": "/dev/null"})
    async with open_ready(StdioServer(command=command, inherited=os.environ), limits=PATIENT) as server:
        assert server.server_info is not None
        assert server.server_info.era == era
        assert tool in [each["name"] for each in await server.list_all("tools/list")]
        assert says in text_of(await call(server, tool, arguments))


async def test_many_calls_at_once_over_one_connection() -> None:
    async with open_ready(script("odd")) as server:
        results = await asyncio.gather(*(call(server, "echo", {"number": number}) for number in range(200)))
    assert [each["structuredContent"]["number"] for each in results] == list(range(200))
