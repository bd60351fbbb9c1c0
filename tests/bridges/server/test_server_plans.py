"""Plans of servers: people see what the server says it would do, and it is called while it says so."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from moot.bridges.server.server_member import ServerMember
from moot.errors import McpError, UsageError
from moot.mcp.eras import JsonObject
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import HttpServer, StdioServer
from moot.participant import JoinedSpace, SeenProposal
from moot.protocol.operation import Json
from moot.protocol.preview_report import EFFECT_KEY
from tests.bridges.bridged_space import BridgedSpace, bridged_space
from tests.waiting import until

_SERVER = Path(__file__).with_name("planning_server.py")


class Planned:
    """Alice, who may do everything, and Carl, who may only propose, at a server that plans."""

    def __init__(self, space: BridgedSpace, alice: JoinedSpace, carl: JoinedSpace, state: Path) -> None:
        self.space, self.alice, self.carl, self.state = space, alice, carl, state

    async def start(self) -> ServerMember:
        bridging, self.space.stack = self.space.stack, AsyncExitStack()
        self.stop = self.space.stack.aclose
        bridging.push_async_callback(self.stop)
        server = StdioServer(command=Command(argv=(sys.executable, str(_SERVER), str(self.state))))
        try:
            return await self.space.bridge(server, plans=True)
        finally:
            self.space.stack = bridging

    async def propose(self, version: str, tool: str = "deploy", **more: Json) -> SeenProposal:
        params: JsonObject = {"name": tool, "arguments": {"version": version}, **more}
        made = await self.carl.propose("host", "tools/call", params)
        await until(lambda: self.alice.proposals.get(made.id) is not None)
        seen = self.alice.proposals.get(made.id)
        assert seen is not None
        return seen

    async def planned(self, version: str, **more: Json) -> SeenProposal:
        seen = await self.propose(version, **more)
        await until(lambda: seen.preview is not None)
        return seen

    async def carry_out_raw(self, seen: SeenProposal, **more: Json) -> None:
        """As a client that asks nothing before, and names an effect or none."""
        payload: JsonObject = {"jsonrpc": "2.0", "id": 1, **seen.envelope.payload, **more}
        await self.alice.send("mcp/request", payload, to="host", about=seen.id)
        await until(lambda: seen.outcome in ("done", "failed"))

    def calls(self) -> list[tuple[str, str | None]]:
        lines = self.state.with_suffix(".calls").read_text().splitlines()
        return [(name, id) for name, id in map(json.loads, lines)]


@asynccontextmanager
async def planning_server(tmp_path: Path) -> AsyncIterator[Planned]:
    state = tmp_path / "deployed"
    state.write_text("v1")
    async with bridged_space(tmp_path) as space:
        made = Planned(space, await space.join("alice"), await space.join("carl"), state)
        await made.start()
        yield made


async def test_a_plan_is_shown_and_the_call_is_made_with_its_id_while_it_holds(tmp_path: Path) -> None:
    async with planning_server(tmp_path) as planned:
        seen = await planned.planned("v2", _meta={"moot/plan-id": "of the proposer"})
        report = seen.preview
        assert report is not None
        assert report.lines() == [
            "its server plans: replace v1 by v2",
            "its server plans: restart 2 machines",
            "nothing was tried: these are the words of the server",
            "approving makes the call only while its server plans exactly this",
        ]
        whole = await planned.alice.request("host", "moot/preview", {"proposal": seen.id})
        assert whole["differences"][0]["lines"] == ["replace v1 by v2", "restart 2 machines"]
        outcome = await planned.alice.approve(seen)
        assert (outcome.text, planned.state.read_text()) == ("v2 runs", "v2")
        assert outcome.result["_meta"][EFFECT_KEY] == {"effect": report.effect}
        (last, last_id), (ran, id) = planned.calls()[-2:]
        assert (last, ran) == ("plan_deploy", "deploy")
        assert last_id is None
        # Of the last plan, and never one that a proposer made up.
        assert id is not None
        assert id.startswith("plan-")


async def test_another_plan_means_that_nothing_is_done_and_there_is_a_new_one(tmp_path: Path) -> None:
    async with planning_server(tmp_path) as planned:
        seen = await planned.planned("v3")
        assert seen.preview is not None
        former = seen.preview.effect
        planned.state.write_text("v2")
        with pytest.raises(UsageError, match="nothing was done: the plan changed, and there is a new one"):
            await planned.alice.approve(seen)
        assert (planned.state.read_text(), seen.status) == ("v2", "pending")
        await until(lambda: seen.preview is not None and seen.preview.effect != former)
        assert seen.preview.plan == ("replace v2 by v3", "restart 2 machines")
        assert (await planned.alice.approve(seen)).text == "v3 runs"


@pytest.mark.parametrize("names_it", [True, False])
async def test_whatever_a_client_does_the_bridge_plans_again_before_the_call(
    tmp_path: Path, *, names_it: bool
) -> None:
    async with planning_server(tmp_path) as planned:
        seen = await planned.planned("v3")
        assert seen.preview is not None
        planned.state.write_text("v2")
        await planned.carry_out_raw(seen, **({"effect": seen.preview.effect} if names_it else {}))
        assert "nothing was done: its server plans something else now" in str(seen.error)
        assert "replace v2 by v3" in str(seen.error)
        assert planned.state.read_text() == "v2"
        assert "deploy" not in [name for name, _ in planned.calls()]


async def test_after_a_restart_of_the_bridge_only_a_named_plan_binds(tmp_path: Path) -> None:
    """What it told before, it does not know: a request without its hash is refused, and not made unbound."""
    async with planning_server(tmp_path) as planned:
        named, unnamed = await planned.planned("v2"), await planned.planned("v2")
        assert named.preview is not None
        await planned.stop()
        await planned.start()
        await planned.carry_out_raw(unnamed)
        assert "told before this bridge was started" in str(unnamed.error)
        assert planned.state.read_text() == "v1"
        await planned.carry_out_raw(named, effect=named.preview.effect)
        assert planned.state.read_text() == "v2"


async def test_what_cannot_be_planned_says_why_and_no_tool_that_changes_something_is_run(
    tmp_path: Path,
) -> None:
    async with planning_server(tmp_path) as planned:
        broken = await planned.planned("broken")
        assert broken.preview is not None
        assert broken.preview.why == "its server gives no plan: plan_deploy fails: no such version"
        changing = await planned.planned("v2", tool="drop")
        assert changing.preview is not None
        assert changing.preview.why == "its server gives no plan: deploy does not say that it only reads"
        assert planned.state.read_text() == "v1"
        # Neither does the call of somebody who proposed nothing wait for a plan.
        await planned.alice.request("host", "tools/call", {"name": "deploy", "arguments": {"version": "v9"}})
        assert planned.state.read_text() == "v9"
        read = await planned.propose("v2", tool="plan_deploy")
        with pytest.raises(McpError, match="this tool says that it only reads"):
            await planned.alice.request("host", "moot/preview", {"proposal": read.id})


async def test_plans_are_not_made_with_accounts_of_members(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        server = HttpServer(url="http://127.0.0.1:9/mcp")
        with pytest.raises(UsageError, match="plans are made with the account of the bridge"):
            await space.bridge(server, plans=True, credentials="requester")
