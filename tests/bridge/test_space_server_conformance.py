"""MCP's own conformance suite and its Inspector, through the whole chain: face, gateway, bridge, server.

What the suite finds wrong here it would have to find wrong with the server itself, and with that it finds
nothing but blanks around one header, which are a matter of the SDK's HTTP server and not of this chain.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moot.bridge.bridge_runner import bridged
from moot.bridge.bridge_settings import BridgeSettings
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer
from tests.bridge.served_space import ServedMember, served_space

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / ".node" / "node_modules"
ARCHITECTURE = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "x64"}.get(platform.machine(), "x64")
NODE = MODULES / f"node-linux-{ARCHITECTURE}" / "bin" / "node"
SUITE = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
INSPECTOR = MODULES / ".bin" / "mcp-inspector"
# Scenarios of which the fixtures have nothing: extensions that the server does not speak.
EXTENSIONS = ("tasks-", "sep-2640-")


@asynccontextmanager
async def chain(folder: Path, *arguments: str) -> AsyncIterator[ServedMember]:
    """The server with the suite's fixtures, bridged into a space, and a face in it."""
    argv = (sys.executable, "-m", "tests.mcp.servers.fixtures", *arguments)
    async with served_space(folder) as room:
        server = StdioServer(command=Command(argv=argv, cwd=str(ROOT)), inherited=os.environ)
        settings = BridgeSettings(
            server=server, gateway=room.room.url, space="lab", token="t-files", pin=False, must_start=True
        )
        await room.stack.enter_async_context(bridged(settings))
        yield await room.serve("bob")


async def run(*arguments: str | Path) -> tuple[int, str]:
    assert NODE.exists(), "make test installs Node and what runs on it"
    path = os.pathsep.join((str(NODE.parent), os.environ["PATH"]))
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": path, "HOME": os.environ.get("HOME", "/")},
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def judged(url: str, version: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What the suite finds, by scenario."""
    told = ["server", "--url", url, "--spec-version", version, "--suite", "all", "-o", str(folder)]
    _, output = await run(NODE, SUITE, *told)
    found = {
        file.parent.name: json.loads(file.read_text())
        for file in sorted(folder.glob("*/checks.json"))
        if not any(word in file.parent.name for word in EXTENSIONS)
    }
    assert found, output
    return found


@pytest.mark.parametrize(("version", "least"), [("2025-11-25", 33), ("2026-07-28", 40)])
async def test_the_suite_finds_nothing_wrong_through_the_whole_chain(
    tmp_path: Path, version: str, least: int
) -> None:
    async with chain(tmp_path) as shown:
        found = await judged(shown.url, version, tmp_path / "found")
    failed = [
        (scenario, check["id"], check.get("errorMessage"))
        for scenario, checks in found.items()
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    ]
    assert failed == []
    assert len(found) >= least


async def test_a_server_of_the_handshake_era_passes_what_its_era_has(tmp_path: Path) -> None:
    async with chain(tmp_path, "--handshake") as shown:
        found = await judged(shown.url, "2025-11-25", tmp_path / "found")
    failed = [
        (scenario, check["id"])
        for scenario, checks in found.items()
        for check in checks
        if check["status"] == "FAILURE"
    ]
    assert failed == []


async def test_the_inspector_lists_and_calls_in_every_era(tmp_path: Path) -> None:
    words = "This is a simple text response for testing."
    call = ["--method", "tools/call", "--tool-name", "test_simple_text"]
    async with chain(tmp_path) as shown:
        for era in ("legacy", "auto", "modern"):
            common: list[str | Path] = [
                INSPECTOR,
                "--cli",
                shown.url,
                "--transport",
                "http",
                "--protocol-era",
                era,
            ]
            listed, called = await asyncio.gather(run(*common, "--method", "tools/list"), run(*common, *call))
            assert (listed[0], '"test_simple_text"' in listed[1]) == (0, True), listed[1]
            assert (called[0], words in called[1]) == (0, True), called[1]
