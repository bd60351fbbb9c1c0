"""Stock MCP clients at the adapter's listener: every transport, both eras; and who is not let in."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx
import mcp_types as types
import orjson
import pytest
import yaml
from mcp.client.sse import sse_client

from mcp import Client, MCPError, StdioServerParameters
from moot.config.secrets.secret import Secret
from moot.errors import MootError
from moot.mcp.eras import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from moot.xprotocol.adapter.config.adapter_settings import McpServerSettings
from moot.xprotocol.adapter.outbound.mcp_listener import McpListener
from tests.ports import held_port
from tests.waiting import HANG_SECONDS, until, until_told
from tests.xprotocol.adapter.command_runner import program
from tests.xprotocol.adapter.outbound_environment import (
    OutboundEnvironment,
    open_outbound,
    outbound_environment,
    source,
)
from tests.xprotocol.adapter.stub_endpoint import FORECAST, StubEndpoint, stub_endpoint
from tests.xprotocol.people import ALICE, BOB
from tests.xprotocol.relay.raw_client import relay_in

ROOT = Path(__file__).resolve().parents[3]
WAYS = [
    ("stdio", "legacy"),
    ("stdio", "2026-07-28"),
    ("stdio", "auto"),
    ("http", "legacy"),
    ("http", "2026-07-28"),
    ("http", "auto"),
    ("sse", "legacy"),
]
HTTP = McpServerSettings(transport="sse", sse_port=0)


@pytest.fixture(autouse=True)
def patient_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK takes who does not answer its first question in 10 s for an old server."""
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", HANG_SECONDS)


@asynccontextmanager
async def client(
    folder: Path, way: str, mode: Any, **more: Any
) -> AsyncIterator[tuple[Client, StubEndpoint]]:
    """A client of the SDK, the listener that it takes for a server of tools, and the endpoint behind."""
    async with relay_in(folder) as relay, stub_endpoint(relay.url, BOB, caller=ALICE) as far:
        if way == "stdio":
            server: Any = StdioServerParameters(
                command=sys.executable,
                args=["-m", "tests.xprotocol.adapter.stdio_program", relay.url, far.key],
                cwd=ROOT,
            )
            async with Client(server, mode=mode, **more) as one:
                yield one, far
            return
        wanted = source(relay.url, mcp_tool_prefix="weather_")
        async with (
            open_outbound(relay.url, wanted) as outward,
            McpListener(HTTP, outward.backend) as listener,
        ):
            assert listener.url is not None
            server = listener.url if way == "http" else sse_client(listener.url.replace("/mcp", "/sse"))
            async with Client(server, mode=mode, **more) as one:
                yield one, far


def text_of(result: types.CallToolResult) -> str:
    (item,) = result.content
    assert isinstance(item, types.TextContent)
    return item.text


@pytest.mark.requirement(
    "XP-0-4",
    "XP-0-5",
    "XP-2.1-1",
    "XP-2.2-1",
    "XP-2.2-2",
    "XP-2.2-3",
    "XP-2.2-4",
    "XP-2.2-5",
    "XP-2.2-6",
    "XP-2.2-7",
    "XP-2.2-8",
    "XP-9-2",
)
@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_a_stock_client_lists_and_calls_everything(tmp_path: Path, way: str, mode: Any) -> None:
    """It knows nothing of XProtocol; over stdio it starts the adapter as a process of its own."""
    async with client(tmp_path, way, mode) as (one, far):
        assert one.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        tools = (await one.list_tools()).tools
        assert [tool.name for tool in tools] == [
            "weather_current_get",
            "weather_forecast_get",
            "weather_station_reset",
        ]
        assert tools[0].description is not None
        assert tools[0].description.endswith(f"[XProtocol: weather.current.get via {BOB.key.text}]")
        assert text_of(await one.call_tool("weather_current_get", {"location": "Bern"})) == "Bern: 17°C"
        forecast = await one.call_tool("weather_forecast_get", {"location": "Bern", "days": 2})
        assert forecast.structured_content == {"highs": [17, 18]}
        assert [each.uri for each in (await one.list_resources()).resources] == ["weather://stations/bern"]
        (content,) = (await one.read_resource("weather://stations/bern")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "17"
        assert [each.name for each in (await one.list_prompts()).prompts] == ["weather_prompt_greet"]
        prompt = await one.get_prompt("weather_prompt_greet", {"name": "Ada"})
        assert isinstance(prompt.messages[0].content, types.TextContent)
        assert prompt.messages[0].content.text == "Hello Ada, it is 17 degrees."
        assert {each.event.sender for each in far.served} == {ALICE.key.text}


@pytest.mark.requirement("XP-5.2-1", "XP-11.3-7")
@pytest.mark.parametrize(("way", "mode"), [("http", "legacy"), ("http", "2026-07-28"), ("stdio", "auto")])
async def test_a_stock_client_gets_the_errors_of_the_table(tmp_path: Path, way: str, mode: Any) -> None:
    """XP 5.3."""
    async with client(tmp_path, way, mode) as (one, far):
        await one.list_tools()
        far.contracts.remove(FORECAST)
        for tool, arguments, code, message in (
            ("weather_station_reset", {}, -32600, "Insufficient capability for this operation"),
            ("weather_current_get", {"location": 7}, -32602, "Request payload does not conform to schema"),
            ("weather_forecast_get", {"location": "x"}, -32600, "Resource or schema not found"),
            ("no_such_tool", {}, -32602, "Unknown tool: no_such_tool"),
        ):
            with pytest.raises(MCPError) as caught:
                await one.call_tool(tool, arguments)
            assert (caught.value.error.code, caught.value.error.message) == (code, message)


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_a_client_hears_of_new_tools_and_of_changed_resources(tmp_path: Path) -> None:
    received: list[str] = []

    async def hear(message: Any) -> None:
        received.append(type(getattr(message, "root", message)).__name__)

    async with client(tmp_path, "http", "legacy", message_handler=hear) as (one, far):
        await one.list_tools()
        await one.subscribe_resource("weather://stations/bern")
        await far.change(30)
        await until(lambda: "ResourceUpdatedNotification" in received)
        far.contracts.remove(FORECAST)
        await far.announce()
        await until(lambda: "ToolListChangedNotification" in received)

        async def shows_two() -> bool:
            return len((await one.list_tools()).tools) == 2

        await until_told(shows_two)


@asynccontextmanager
async def listening(folder: Path, **settings: Any) -> AsyncIterator[tuple[McpListener, OutboundEnvironment]]:
    options: dict[str, Any] = {"transport": "sse", "sse_port": 0} | settings
    async with (
        outbound_environment(folder) as out,
        McpListener(McpServerSettings(**options), out.outward.backend) as one,
    ):
        yield one, out


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
TYPES = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@pytest.mark.requirement("XP-3.1-40")
async def test_strange_hosts_and_pages_are_turned_away(tmp_path: Path) -> None:
    """D-84: loopback by default, and exact lists of hosts and origins."""
    async with (
        listening(tmp_path, allowed_hosts=("adapter.example",), allowed_origins=("https://app.example",)) as (
            one,
            _,
        ),
        httpx.AsyncClient(timeout=HANG_SECONDS) as web,
    ):
        assert one.url is not None
        host = one.url.split("/")[2]
        assert host.startswith("127.0.0.1:")
        for headers, status in (
            ({}, 200),
            ({"host": "evil.example"}, 421),
            ({"host": f"evil.example:{host.rpartition(':')[2]}"}, 421),
            ({"host": "adapter.example"}, 200),
            ({"origin": "https://evil.example"}, 403),
            ({"origin": "null"}, 403),
            ({"origin": "https://app.example"}, 200),
            ({"content-type": "text/plain"}, 415),
        ):
            answer = await web.post(one.url, json=INITIALIZE, headers=TYPES | headers)
            assert (headers, answer.status_code) == (headers, status)
        rebound = await web.get(
            one.url.replace("/mcp", "/sse"), headers={"host": "evil.example", "accept": "text/event-stream"}
        )
        assert rebound.status_code == 421


async def test_where_a_token_is_configured_nobody_comes_in_without_it(tmp_path: Path) -> None:
    async with (
        listening(tmp_path, token=Secret("correct-horse-battery")) as (one, _),
        httpx.AsyncClient(timeout=HANG_SECONDS) as web,
    ):
        assert one.url is not None
        for authorization, status in (
            (None, 401),
            ("Bearer wrong", 401),
            ("Basic correct-horse-battery", 401),
            ("Bearer correct-horse-battery", 200),
        ):
            headers = TYPES if authorization is None else TYPES | {"authorization": authorization}
            answer = await web.post(one.url, json=INITIALIZE, headers=headers)
            assert answer.status_code == status


@pytest.mark.requirement("XP-3.1-39", "XP-3.1-38")
async def test_a_port_is_open_only_for_http_and_is_the_one_that_was_named(tmp_path: Path) -> None:
    """XP 3.1; D-72: --port overrides it. D-73: `http` serves no SSE."""
    with held_port() as port:
        await check_ports(tmp_path, port)


async def check_ports(tmp_path: Path, port: int) -> None:
    async with outbound_environment(tmp_path) as out, httpx.AsyncClient(timeout=HANG_SECONDS) as web:
        backend = out.outward.backend
        for settings in (None, McpServerSettings(transport="none", sse_port=port)):
            async with McpListener(settings, backend) as listener:
                assert listener.url is None
                with pytest.raises(httpx.ConnectError):
                    await web.get(f"http://127.0.0.1:{port}/mcp")
        ways: list[tuple[Literal["sse", "http"], int]] = [("sse", 200), ("http", 404)]
        for transport, sse in ways:
            named = McpServerSettings(transport=transport, sse_port=1)
            async with McpListener(named, backend, port=port) as listener:
                assert listener.url == f"http://127.0.0.1:{port}/mcp"
                answer = await web.post(listener.url, json=INITIALIZE, headers=TYPES)
                assert answer.json()["result"]["serverInfo"]["name"] == "xprotocol-adapter"
                async with web.stream(
                    "GET", f"http://127.0.0.1:{port}/sse", headers={"accept": "text/event-stream"}
                ) as stream:
                    assert stream.status_code == sse
                with pytest.raises(MootError, match=r"mcp_server\.sse_port, or --port"):
                    async with McpListener(named, backend, port=port):
                        pass


@pytest.mark.requirement("XP-3.1-46")
@pytest.mark.parametrize("output", ["stdout", "adapter.log"])
async def test_over_stdio_nothing_but_mcp_is_on_stdout(tmp_path: Path, output: str) -> None:
    """D-72: the program itself, told to log to stdout; and the end of the client ends it."""
    async with relay_in(tmp_path / "relay") as relay, stub_endpoint(relay.url, BOB, caller=ALICE) as far:
        document = {
            "identity": {"key_file": str(tmp_path / "adapter.key")},
            "relay": {"urls": [relay.url]},
            "xprotocol_sources": [{"name": "weather", "key": far.key, "relay": relay.url}],
            "mcp_server": {"transport": "stdio"},
            "discovery": {"well_known_port": 0},
            "logging": {
                "level": "debug",
                "format": "json",
                "output": output if output == "stdout" else str(tmp_path / output),
            },
        }
        (tmp_path / "adapter.yml").write_text(yaml.safe_dump(document))
        command = [program(), "start", "--config", str(tmp_path / "adapter.yml")]
        meta = {PROTOCOL_VERSION_KEY: "2026-07-28", CLIENT_CAPABILITIES_KEY: {}}
        ask = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})
        with anyio.fail_after(HANG_SECONDS):
            done = await anyio.run_process(command, input=ask + b"\nno json\n", cwd=ROOT, check=False)
        answer = [orjson.loads(line) for line in done.stdout.splitlines()]
        assert [each["jsonrpc"] for each in answer] == ["2.0", "2.0"]
        (listed,) = (each["result"]["tools"] for each in answer if "result" in each)
        assert [tool["name"] for tool in listed][:1] == ["weather_current_get"]
        logged = done.stderr if output == "stdout" else (tmp_path / output).read_bytes()
        assert b"adapter up" in logged
        assert done.returncode == 0


def test_a_refusal_at_the_door_names_the_settings_of_the_adapter() -> None:
    from moot.mcp.downstream.http_access import HttpAccessDenied
    from moot.xprotocol.adapter.config.adapter_settings import McpServerSettings
    from moot.xprotocol.adapter.outbound.mcp_listener import _access_policy

    doors = _access_policy(McpServerSettings(transport="sse"), 8765)
    with pytest.raises(HttpAccessDenied, match=r"mcp_server\.allowed_hosts"):
        doors.check({"host": "evil.example"})
    with pytest.raises(HttpAccessDenied, match=r"mcp_server\.allowed_origins"):
        doors.check({"host": "127.0.0.1:8765", "origin": "http://evil.example"})
