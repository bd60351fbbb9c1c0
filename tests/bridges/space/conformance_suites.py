"""MCP's published conformance suites: run one against a server, and read what it found."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moot.bridges.server.bridge_runner import bridged
from moot.bridges.server.bridge_settings import BridgeSettings
from moot.config.configuration import McpServerConfig
from moot.mcp.eras import Era
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import Server, StdioServer, UpstreamOptions
from tests.bridges.foreign_servers import MODULES, NODE, ROOT
from tests.bridges.served_space import ServedMember, served_space
from tests.warm_start import sdk_server

# Scenarios of extensions: whoever does not speak them cannot be judged by them.
EXTENSIONS: Final = ("tasks-", "sep-2640-")
_FOLDER: Final = re.compile(r"(?:server-)?(.+)-\d{4}-\d\d-\d\dT[\d-]+Z\Z")

# How often a scenario that failed is judged again.
_REPEATS: Final = 3

Checks = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Suite:
    """A published suite, and the version of MCP that its client speaks."""

    package: str
    spec_version: str
    arguments: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.version}, {self.spec_version}"

    @property
    def version(self) -> str:
        """Of the package."""
        return str(json.loads((MODULES / self.package / "package.json").read_text())["version"])


HANDSHAKE_SUITE: Final = Suite(
    "@modelcontextprotocol/conformance", "2025-11-25", ("--spec-version", "2025-11-25")
)
STATELESS_SUITE: Final = Suite(
    "@modelcontextprotocol/conformance", "2026-07-28", ("--spec-version", "2026-07-28")
)
# The last of the handshake era: its client is another one, and so are some of its checks.
OLD_SUITE: Final = Suite("mcp-conformance-0.1", "2025-11-25")
SUITES: Final = (OLD_SUITE, HANDSHAKE_SUITE, STATELESS_SUITE)


async def run(*arguments: str | Path) -> tuple[int, str]:
    """Run a program with our Node on its path; its exit code and what it wrote."""
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


async def judge(url: str, suite: Suite, folder: Path) -> dict[str, Checks]:
    """What a suite finds, by scenario."""
    return await _judge(url, suite, folder, "--suite", "all")


async def judge_on_any_machine(url: str, suite: Suite, folder: Path) -> dict[str, Checks]:
    """As `judge`, but what failed is judged again by itself: a suite gives a server one or two seconds,
    however busy the machine is.
    """
    found = await judge(url, suite, folder / "all")
    for number in range(_REPEATS):
        for scenario in [each for each, checks in found.items() if problems(checks, "FAILURE", "WARNING")]:
            found |= await _judge(url, suite, folder / f"{scenario}-{number}", "--scenario", scenario)
    return found


async def _judge(url: str, suite: Suite, folder: Path, *which: str) -> dict[str, Checks]:
    program = MODULES / suite.package / "dist" / "index.js"
    _, output = await run(NODE, program, "server", "--url", url, *which, "-o", folder, *suite.arguments)
    found: dict[str, Checks] = {}
    for file in sorted(folder.glob("*/checks.json")):
        named = _FOLDER.match(file.parent.name)
        scenario = named.group(1) if named else file.parent.name
        if not scenario.startswith(EXTENSIONS):
            found[scenario] = json.loads(file.read_text())
    assert found, output
    return found


def problems(checks: Checks, *statuses: str) -> list[tuple[str, str]]:
    """The checks of a scenario with these statuses, and what they say; FAILURE unless told otherwise."""
    wanted = statuses or ("FAILURE",)
    return [
        (str(check["id"]), str(check.get("errorMessage") or ""))
        for check in checks
        if check["status"] in wanted
    ]


@asynccontextmanager
async def bridged_chain(folder: Path, server: Server, era: Era | None = None) -> AsyncIterator[ServedMember]:
    """A server behind the whole chain: `moot mcp`, gateway, `moot bridge`."""
    async with served_space(folder) as served:
        settings = BridgeSettings(
            server=server,
            gateway=served.gateway.url,
            space="lab",
            token="t-files",
            config=McpServerConfig(pin=False),
            must_start=True,
            upstream=UpstreamOptions(era=era),
        )
        await served.stack.enter_async_context(bridged(settings))
        yield await served.serve("bob")


def fixtures_process(*arguments: str) -> StdioServer:
    """Our server with the suite's fixtures, made with the official SDK, as a process."""
    argv = (*sdk_server("fixtures"), *arguments)
    return StdioServer(command=Command(argv=argv, cwd=str(ROOT)), inherited=os.environ)
