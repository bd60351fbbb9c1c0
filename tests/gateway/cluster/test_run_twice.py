"""An approver or a bridge that runs twice, at two gateways, acts once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from moot.bridges.server import bridge_runner, standby
from moot.bridges.server.bridge_settings import BridgeSettings
from moot.bridges.server.standby import wait_for_turn
from moot.config.configuration import McpServerConfig, MemberConfig
from moot.config.secrets.secret import Secret
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer
from moot.participant import JoinedSpace, connect
from moot.protocol.close_codes import REPLACED
from moot.resilience.task_set import end_tasks
from moot.trust.approver.approver import Approver
from moot.trust.approver.approver_settings import ApproverSettings
from moot.trust.history.proposal_history import ProposalHistory
from moot.trust.rules.rule_store import RuleStore
from moot.up.bridged_server import BridgedServer
from moot.up.template_vars import TemplateVars
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.running_gateway import LocalGateway, participants
from tests.ports import held_port
from tests.trust.approver.test_approver import AGENT, APPROVER, FILES, LEARNING
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
                ProposalHistory(),
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


async def test_a_tool_server_that_was_replaced_returns_when_the_newer_one_goes(
    start: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks first: joining at once would throw the newer one out."""

    @asynccontextmanager
    async def joined(settings: BridgeSettings, **_more: object) -> AsyncIterator[SimpleNamespace]:
        async with connect(settings.gateway, settings.space, settings.token) as space:
            upstream = SimpleNamespace(
                counts=SimpleNamespace(starts=1), state="up", stderr=SimpleNamespace(last_lines=lambda _n: [])
            )
            yield SimpleNamespace(space=space, upstream=upstream, sign_in=None, changes=[])

    asked = list[float]()

    async def ask_soon(settings: BridgeSettings) -> None:
        async def note(seconds: float) -> None:
            asked.append(seconds)
            await asyncio.sleep(0.01)

        await wait_for_turn(settings, sleep=note)

    monkeypatch.setattr(bridge_runner, "bridged", joined)
    monkeypatch.setattr(standby, "wait_for_turn", ask_soon)
    async with start("a", PEOPLE) as a, start("b", PEOPLE) as b:
        part = _bridged_server(f"{a.url},{b.url}", tmp_path)
        running = asyncio.create_task(part.run())
        try:
            await until(lambda: part.status().state == "running")
            async with AsyncExitStack() as newer:
                second = await _join(newer, b, "files")
                await until(lambda: len(asked) >= 5)
                assert part.status().state == "waiting"
                assert "a newer process has taken over" in part.status().message
                assert second.state == "joined"
            await until(lambda: part.status().state == "running")
            await until(lambda: _sessions(a) == _sessions(b) == 1)
        finally:
            await end_tasks([running])
        assert max(asked) <= standby.MAX_SECONDS
        assert min(asked) >= standby.FIRST_SECONDS / 2


async def test_who_cannot_ask_does_not_return() -> None:
    """No gateway that answers, or one that does not tell, is no reason to throw somebody out."""
    asked = list[float]()

    async def three_times(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) == 3:
            raise TimeoutError

    with held_port() as port:
        server = StdioServer(command=Command(argv=("true",)))
        settings = BridgeSettings(server=server, gateway=f"http://127.0.0.1:{port}", space="lab", token="t")
        with pytest.raises(TimeoutError):
            await wait_for_turn(settings, sleep=three_times)


def _bridged_server(gateway: str, folder: Path) -> BridgedServer:
    variables = TemplateVars(
        gateway=gateway,
        port=0,
        space="lab",
        name="files",
        folder=folder,
        token=Secret("t-files"),
        token_file=None,
        environ={},
    )
    config = MemberConfig(
        mcp_server=McpServerConfig(url="http://127.0.0.1:1/mcp", headers={"Authorization": "x"})
    )
    return BridgedServer(config, variables, folder / "log", pins=folder / "pins.json", on_change=lambda: None)


async def _join(stack: AsyncExitStack, gateway: LocalGateway, name: str) -> JoinedSpace:
    return await stack.enter_async_context(connect(gateway.url, "lab", f"t-{name}"))


def _sessions(gateway: LocalGateway) -> int:
    sessions = gateway.gateway.directory.hosts["lab"].space.state.roster.sessions.values()
    return sum(each.member.name == "files" for each in sessions)
