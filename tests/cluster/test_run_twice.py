"""An approver or a bridge that runs twice, at two gateways, acts once."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

from moot.participant import JoinedSpace, connect
from moot.protocol.close_codes import REPLACED
from moot.trust.approver import Approver
from moot.trust.approver_settings import ApproverSettings
from moot.trust.decision_ledger import DecisionLedger
from moot.trust.rule_store import RuleStore
from tests.cluster.conftest import StartGateway
from tests.gateway.running_gateway import LocalGateway, participants
from tests.trust.test_approver import AGENT, APPROVER, FILES, LEARNING
from tests.waiting import HANG_SECONDS, bounded, until

RULE = """
rules:
  - {name: reports, decision: approve, to: files, tool: write_file, arguments: {path: "reports/*"}}
"""
PEOPLE = participants(
    agent=AGENT,
    approver=APPROVER,
    files={"capabilities": FILES, "exclusive": True},
    alice=["*"],
)
PROPOSALS = 20


def serve_files(space: JoinedSpace, written: list[str]) -> None:
    @space.tool
    def write_file(path: str) -> str:
        written.append(path)
        return "written"


async def test_two_approvers_of_one_name_carry_each_proposal_out_once(
    start: StartGateway, tmp_path: Path
) -> None:
    written: list[str] = []
    async with start("a", PEOPLE) as a, start("b", PEOPLE) as b, AsyncExitStack() as stack:
        files = await _join(stack, a, "files")
        serve_files(files, written)
        agent = await _join(stack, b, "agent")
        approvers, running = list[Approver](), []
        for gateway in (a, b):
            store = RuleStore.open(tmp_path / f"trust-{gateway.port}")
            store.rules_file.write_text(RULE)
            store.reload()
            store.mark_reviewed(["reports"], time.time())
            approver = Approver(
                await _join(stack, gateway, "approver"),
                store,
                DecisionLedger(),
                ApproverSettings(learning=LEARNING),
            )
            approvers.append(approver)
            running.append(asyncio.create_task(approver.run()))
        paths = [f"reports/{number}" for number in range(PROPOSALS)]
        calls = (
            agent.call("files", "write_file", {"path": path}, timeout_seconds=HANG_SECONDS) for path in paths
        )
        async with bounded():
            outcomes = await asyncio.gather(*calls)
        assert {outcome.by for outcome in outcomes} == {"approver"}
        # Both saw all of it.
        await until(lambda: all(len(list(each.ledger)) == PROPOSALS for each in approvers))
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert sorted(written) == sorted(paths)


async def test_a_second_process_of_an_exclusive_tool_server_takes_over_and_the_first_ends(
    start: StartGateway,
) -> None:
    """Where the log puts the second join, all gateways turn to it: no call reaches both."""
    written: dict[str, list[str]] = {"first": [], "second": []}
    async with start("a", PEOPLE) as a, start("b", PEOPLE) as b, AsyncExitStack() as stack:
        alice = await _join(stack, b, "alice")
        first = await _join(stack, a, "files")
        serve_files(first, written["first"])
        numbers = iter(range(1_000))

        async def call() -> None:
            path = f"reports/{next(numbers)}"
            async with bounded():
                await alice.call("files", "write_file", {"path": path}, timeout_seconds=HANG_SECONDS)

        await call()
        second = await _join(stack, b, "files")
        serve_files(second, written["second"])
        for _ in range(5):
            await call()
        async with bounded():
            reason = await first.stay()
        assert reason.code == REPLACED
        assert written == {"first": ["reports/0"], "second": [f"reports/{n}" for n in range(1, 6)]}
        await until(lambda: _sessions(a) == _sessions(b) == 1)


async def _join(stack: AsyncExitStack, gateway: LocalGateway, name: str) -> JoinedSpace:
    return await stack.enter_async_context(connect(gateway.url, "lab", f"t-{name}"))


def _sessions(gateway: LocalGateway) -> int:
    sessions = gateway.gateway.directory.hosts["lab"].space.state.roster.sessions.values()
    return sum(each.member.name == "files" for each in sessions)
