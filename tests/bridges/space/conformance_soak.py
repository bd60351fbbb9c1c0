"""The published suites against the everything-servers of others, directly and through a space.

    python -m tests.bridges.space.conformance_soak               prints where the two differ
    python -m tests.bridges.space.conformance_soak --write-docs  and writes docs/mcp-conformance.md
    python -m tests.bridges.space.conformance_soak --write-stdio writes its part about stdio; fetches nothing

Whatever a server does directly it has to do through Moot: a scenario that is lost and not explained is an
error.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moot.mcp.upstream import HttpServer
from tests.bridges.foreign_servers import ROOT, SERVERS, ForeignServer, running
from tests.bridges.space.conformance_page import write_page, write_stdio_section
from tests.bridges.space.conformance_suites import (
    HANDSHAKE_SUITE,
    STATELESS_SUITE,
    SUITES,
    Checks,
    Suite,
    bridged_chain,
    fixtures_process,
    judge,
    judge_on_any_machine,
    problems,
)

# (server, version of MCP, scenario) → why it differs.
EXPLAINED: Final = {
    ("Python SDK", "2026-07-28", "server-stateless"): (
        "The server lacks two diagnostic tools that this scenario calls. Its SDK answers the call of an "
        "unknown tool with a tool result, which the suite takes for the answer of the tool. Moot answers "
        "with the error that MCP prescribes, and the suite reports that it could not test."
    ),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a suite found about one server: directly, and through Moot."""

    server: ForeignServer
    suite: Suite
    direct: dict[str, Checks]
    through: dict[str, Checks]

    @property
    def lost(self) -> list[str]:
        """Scenarios that pass directly and fail through Moot."""
        return [
            scenario
            for scenario, checks in self.direct.items()
            if not problems(checks) and problems(self.through.get(scenario, [_MISSING]))
        ]

    @property
    def unexplained(self) -> list[str]:
        return [
            scenario
            for scenario in self.lost
            if (self.server.title, self.suite.spec_version, scenario) not in EXPLAINED
        ]


_MISSING: Final = {"id": "missing", "status": "FAILURE", "errorMessage": "the scenario did not run"}


async def compare(server: ForeignServer, folder: Path) -> list[Comparison]:
    """All suites against one server."""
    found = []
    async with running(server) as url, bridged_chain(folder, HttpServer(url=url)) as shown:
        for number, suite in enumerate(SUITES):
            direct = await judge(url, suite, folder / f"direct-{number}")
            through = await judge(shown.url, suite, folder / f"through-{number}")
            found.append(Comparison(server, suite, direct, through))
    return found


async def compare_all(servers: tuple[ForeignServer, ...] = SERVERS) -> list[Comparison]:
    found = []
    for server in servers:
        with tempfile.TemporaryDirectory() as folder:
            found += await compare(server, Path(folder))
    return found


async def judge_stdio() -> list[tuple[Suite, str, dict[str, Checks]]]:
    """Our own server as a process, behind the chain: with what a user types, and what the suite finds."""
    found = []
    for suite, era in ((HANDSHAKE_SUITE, None), (STATELESS_SUITE, None), (STATELESS_SUITE, "stateless")):
        with tempfile.TemporaryDirectory() as folder:
            server = fixtures_process("--one-era")
            async with bridged_chain(Path(folder), server, "stateless" if era else None) as shown:
                scenarios = await judge_on_any_machine(shown.url, suite, Path(folder) / "found")
            option = f"moot bridge --era {era} -- CMD" if era else "moot bridge -- CMD"
            found.append((suite, option, scenarios))
    return found


def passed(found: dict[str, Checks]) -> int:
    return sum(not problems(checks) for checks in found.values())


def run_conformance(cases: int, seed: int) -> str:
    """As many of the servers as there are cases, one at least."""
    comparisons = asyncio.run(compare_all(SERVERS[:cases]))
    for each in comparisons:
        assert not each.unexplained, (
            f"{each.server.title}, suite {each.suite.title}: lost through Moot: "
            f"{ {name: problems(each.through.get(name, [_MISSING])) for name in each.unexplained} }"
        )
    scenarios = sum(passed(each.through) for each in comparisons)
    return f"{scenarios} scenarios pass through a space, with {len(comparisons)} pairs of server and suite"


def main() -> None:
    parser = argparse.ArgumentParser(prog="conformance_soak", description=__doc__)
    parser.add_argument("--write-docs", action="store_true", help="write docs/mcp-conformance.md")
    parser.add_argument("--write-stdio", action="store_true", help="write its part about stdio alone")
    chosen = parser.parse_args()
    page = ROOT / "docs" / "mcp-conformance.md"
    if chosen.write_stdio:
        write_stdio_section(page, asyncio.run(judge_stdio()))
        return
    comparisons = asyncio.run(compare_all())
    for each in comparisons:
        print(
            f"{each.server.title}, suite {each.suite.title}: direct {passed(each.direct)} of "
            f"{len(each.direct)}, through Moot {passed(each.through)} of {len(each.through)}"
        )
        for scenario in each.lost:
            print(f"  lost: {scenario} {problems(each.through.get(scenario, [_MISSING]))}")
    if chosen.write_docs:
        write_page(page, comparisons, EXPLAINED)
        write_stdio_section(page, asyncio.run(judge_stdio()))


if __name__ == "__main__":
    main()
