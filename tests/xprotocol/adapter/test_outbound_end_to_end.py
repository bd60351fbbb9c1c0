"""Two adapters and a relay as processes, real MCP servers at one end and stock MCP clients at the other.

    npm filesystem, PyPI time ─ adapter ─ relay ─ adapter ─ SDK client, Inspector

The call goes MCP → event → relay → event → MCP and back. The second adapter knows of the first one nothing
but its address, `xp://…`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import mcp_types as types
import pytest
import yaml

from mcp import Client, StdioServerParameters
from moot.protocol.operation import Json
from moot.xprotocol.identity import keyfile
from tests.bridges.space.test_space_server_conformance import INSPECTOR, NODE, run
from tests.mcp.upstreams import NODE as SERVERS
from tests.ports import held_port
from tests.waiting import HANG_SECONDS, bounded, until_told
from tests.warm_start import warm_programs
from tests.xprotocol.adapter.command_runner import program

SECRET = "what only the two ends may read, 7f3c"


@pytest.fixture(autouse=True)
def patient_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK takes who does not answer its first question in 10 s for an old server."""
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", HANG_SECONDS)


@asynccontextmanager
async def process(*argv: str | Path, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    with log.open("wb") as answer:
        child = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=answer, stderr=answer
        )
        try:
            yield child
        finally:
            if child.returncode is None:
                child.terminate()
                try:
                    async with bounded():
                        await child.wait()
                except TimeoutError:
                    child.kill()
                    await child.wait()


async def answers(url: str, log: Path) -> None:
    """Wait until something answers there."""
    async with httpx.AsyncClient(timeout=HANG_SECONDS) as web:

        async def somebody_answers() -> bool:
            try:
                await web.get(url)
            except httpx.TransportError:
                return False
            return True

        await until_told(somebody_answers, lambda: f"nothing at {url}: {log.read_text()[-3000:]}")


@dataclass
class Chain:
    """What clients need to know of it."""

    folder: Path
    near: Path
    near_url: str

    @property
    def near_stdio(self) -> StdioServerParameters:
        """The same, started by the client and spoken to over its streams."""
        file = self.folder / "near-stdio.yml"
        document = yaml.safe_load(self.near.read_text()) | {"mcp_server": {"transport": "stdio"}}
        # The other one runs already, and two cannot share their data.
        document["store"] = str(self.folder / "near-stdio")
        document["control"] = str(self.folder / "near-stdio.sock")
        document["discovery"] = {"well_known_port": 0}
        file.write_text(yaml.safe_dump(document))
        return StdioServerParameters(command=program(), args=["start", "--config", str(file)])


@asynccontextmanager
async def chain(folder: Path) -> AsyncIterator[Chain]:
    with held_port() as relay_port, held_port() as far_port, held_port() as near_port:
        async with chain_at(folder, relay_port, far_port, near_port) as made:
            yield made


@asynccontextmanager
async def chain_at(folder: Path, relay_port: int, far_port: int, near_port: int) -> AsyncIterator[Chain]:
    """Relay, far adapter, near adapter; the near one's key may use what the far one wraps."""
    data = folder / "data"
    data.mkdir()
    (data / "secret.txt").write_text(SECRET)
    relay = f"ws://127.0.0.1:{relay_port}"
    near_key = keyfile.load_or_create(folder / "near.key").key.text
    path = os.pathsep.join((str(NODE.parent), os.environ["PATH"]))
    far: dict[str, Json] = {
        "identity": {"key_file": str(folder / "far.key"), "display_name": "Far"},
        "relay": {"urls": [relay]},
        "mcp_sources": [
            {
                "name": "filesystem",
                "transport": "stdio",
                "command": f"{SERVERS / 'mcp-server-filesystem'} {data}",
                "env": {"PATH": path},
                "xprotocol_namespace": "com.acme.filesystem",
            },
            {
                "name": "time",
                "transport": "stdio",
                "command": f"{sys.executable} -m mcp_server_time",
                "xprotocol_namespace": "com.acme.time",
            },
        ],
        "access": {near_key: ["com.acme.filesystem.*", "com.acme.time.*"]},
        "discovery": {"well_known_port": far_port},
    }
    near: dict[str, Json] = {
        "identity": {"key_file": str(folder / "near.key"), "display_name": "Near"},
        "relay": {"urls": [relay]},
        "xprotocol_sources": [
            {"name": "acme", "endpoint": f"xp://127.0.0.1:{far_port}", "allow_private_addresses": True}
        ],
        "mcp_server": {"transport": "sse", "sse_port": near_port},
        "discovery": {"well_known_port": 0},
    }
    for name, document in (("far", far), ("near", near)):
        (folder / f"{name}.yml").write_text(yaml.safe_dump(document))
    moot = warm_programs() / "moot"
    logs = {name: folder / f"{name}.log" for name in ("relay", "far", "near")}
    async with process(
        moot, "xp", "relay", "--port", str(relay_port), "--data", folder / "relay", log=logs["relay"]
    ):
        await answers(f"http://127.0.0.1:{relay_port}/health", logs["relay"])
        async with process(program(), "start", "--config", folder / "far.yml", log=logs["far"]):
            await answers(f"http://127.0.0.1:{far_port}/health", logs["far"])
            async with process(program(), "start", "--config", folder / "near.yml", log=logs["near"]):
                url = f"http://127.0.0.1:{near_port}/mcp"
                await answers(url, logs["near"])
                yield Chain(folder, folder / "near.yml", url)


def text_of(result: types.CallToolResult) -> str:
    item = result.content[0]
    assert isinstance(item, types.TextContent)
    return item.text


async def offers_all(client: Client) -> None:
    """Servers that take long to start are offered when they are there."""
    wanted = {
        "com_acme_filesystem_read_text_file",
        "com_acme_filesystem_write_file",
        "com_acme_time_get_current_time",
    }

    async def has_all() -> bool:
        return wanted <= {tool.name for tool in (await client.list_tools()).tools}

    await until_told(has_all)


async def use(server: Any, mode: Any, folder: Path) -> None:
    """What a client does: list, read, write, ask for the time."""
    async with Client(server, mode=mode) as one:
        await offers_all(one)
        secret = folder / "data" / "secret.txt"
        read = await one.call_tool("com_acme_filesystem_read_text_file", {"path": str(secret)})
        assert text_of(read) == SECRET
        note = folder / "data" / f"note-{mode}.txt"
        await one.call_tool("com_acme_filesystem_write_file", {"path": str(note), "content": SECRET[::-1]})
        assert note.read_text() == SECRET[::-1]
        answer = await one.call_tool("com_acme_time_get_current_time", {"timezone": "Europe/Zurich"})
        assert json.loads(text_of(answer))["timezone"] == "Europe/Zurich"
        # Outside of the folder that the far server serves: its own refusal arrives.
        refused = await one.call_tool("com_acme_filesystem_read_text_file", {"path": "/etc/passwd"})
        assert refused.is_error


@pytest.mark.requirement("XP-0-4", "XP-0-5", "XP-2.2-12", "XP-5.2-4", "XP-9-2", "XP-1.1-1")
async def test_real_servers_are_called_by_stock_clients_through_two_adapters_and_a_relay(
    tmp_path: Path,
) -> None:
    async with chain(tmp_path) as here:
        call = ["--method", "tools/call", "--tool-name", "com_acme_time_get_current_time"]
        call += ["--tool-arg", "timezone=Europe/Zurich"]
        common: list[str | Path] = [INSPECTOR, "--cli", here.near_url, "--transport", "http"]
        async with Client(here.near_url, mode="legacy") as one:
            await offers_all(one)
        *_, legacy, modern = await asyncio.gather(
            use(here.near_url, "legacy", tmp_path),
            use(here.near_url, "2026-07-28", tmp_path),
            use(here.near_stdio, "auto", tmp_path),
            run(*common, "--protocol-era", "legacy", *call),
            run(*common, "--protocol-era", "modern", *call),
        )
        for code, output in (legacy, modern):
            assert (code, "Europe/Zurich" in output) == (0, True), output
    # Everything that the relay ever wrote down, and everybody's logs: sealed, or not there.
    for file in [*(tmp_path / "relay").rglob("*"), *tmp_path.glob("*.log")]:
        if file.is_file():
            content = file.read_bytes()
            for words in (SECRET, SECRET[::-1], "secret.txt", "Europe/Zurich"):
                assert words.encode() not in content, f"{words!r} in {file.name}"
