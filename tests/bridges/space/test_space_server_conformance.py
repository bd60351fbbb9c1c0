"""MCP's own conformance suites and its Inspector, from `moot mcp` to a bridged server.

What a suite finds wrong here it would have to find wrong with the server itself, and with that it finds
nothing but blanks around one header, which are a matter of the SDK's HTTP server and not of this chain. The
everything-servers of others are in `conformance_soak`: they cannot be installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moot.mcp.eras import Era
from moot.mcp.upstream import HttpServer
from tests.bridges.foreign_servers import MODULES, NODE, ROOT, listening
from tests.bridges.served_space import ServedMember
from tests.bridges.space.conformance_suites import (
    HANDSHAKE_SUITE,
    OLD_SUITE,
    STATELESS_SUITE,
    Suite,
    bridged_chain,
    fixtures_process,
    judge_on_any_machine,
    problems,
    run,
)
from tests.warm_start import sdk_server

__all__ = ["INSPECTOR", "NODE", "run"]

INSPECTOR = MODULES / ".bin" / "mcp-inspector"


@asynccontextmanager
async def chain(folder: Path, *arguments: str, era: Era | None = None) -> AsyncIterator[ServedMember]:
    """The server with the suite's fixtures as a process, behind the whole chain."""
    async with bridged_chain(folder, fixtures_process(*arguments), era) as shown:
        yield shown


@pytest.mark.parametrize(
    ("suite", "least", "era", "arguments"),
    [
        (HANDSHAKE_SUITE, 33, None, ()),
        (HANDSHAKE_SUITE, 33, None, ("--one-era",)),
        (STATELESS_SUITE, 40, "stateless", ("--one-era",)),
    ],
)
async def test_the_suite_finds_nothing_wrong_through_the_whole_chain(
    tmp_path: Path, suite: Suite, least: int, era: Era | None, arguments: tuple[str, ...]
) -> None:
    """With `--one-era` each tool asks its caller in the way of one era only."""
    async with chain(tmp_path, *arguments, era=era) as shown:
        found = await judge_on_any_machine(shown.url, suite, tmp_path / "found")
    failed = {
        scenario: problems(checks, "FAILURE", "WARNING")
        for scenario, checks in found.items()
        if problems(checks, "FAILURE", "WARNING")
    }
    assert failed == {}
    assert len(found) >= least


async def test_a_server_of_the_handshake_era_passes_what_its_era_has(tmp_path: Path) -> None:
    async with chain(tmp_path, "--handshake") as shown:
        found = await judge_on_any_machine(shown.url, HANDSHAKE_SUITE, tmp_path / "found")
    assert {scenario: problems(checks) for scenario, checks in found.items() if problems(checks)} == {}


async def test_every_tool_works_with_a_server_that_speaks_both_eras_and_whose_tools_do_not(
    tmp_path: Path,
) -> None:
    """So are the everything-servers of both SDKs and of the suite: see `conformance_soak`."""
    argv = (*sdk_server("fixtures"), "--one-era", "--http", "{port}")
    async with listening(argv, ROOT) as url, bridged_chain(tmp_path, HttpServer(url=url)) as shown:
        for number, (suite, least) in enumerate(((OLD_SUITE, 32), (STATELESS_SUITE, 40))):
            found = await judge_on_any_machine(shown.url, suite, tmp_path / f"found-{number}")
            assert {name: problems(checks) for name, checks in found.items() if problems(checks)} == {}
            assert len(found) >= least


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
