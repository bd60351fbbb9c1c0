"""MEW 9.4 in real processes: first approvals, a suggestion, a rule, automatic fulfilment, a trip-wire.

`moot up` runs the gateway, a file server and the approver; Alice looks after rules from a shell.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moot.errors import Rejected
from moot.participant import JoinedSpace, SeenProposal, connect
from tests.up.moot_up import MootUp, moot_up, run_moot, write_config
from tests.waiting import HANG_SECONDS, until_told

SPACE = """
    spaces:
      newsroom:
        default_participant: alice
        participants:
          alice: {capabilities: [{kind: "*"}]}
          agent: {capabilities: [{kind: chat}, {kind: mcp/proposal}, {kind: mcp/withdraw}]}
          approver:
            capabilities:
              - {kind: mcp/request, to: [files], payload: {method: tools/call}}
              - {kind: mcp/request, payload: {method: tools/list}}
              - {kind: mcp/reject}
              - {kind: mcp/response}
              - {kind: chat}
              - {kind: "trust/*"}
            command: moot
            args: [rules, run, --approvals, "6", --check, "0"]
        mcp_servers:
          files: {command: python3, args: [-m, moot.up.servers.files, "${FOLDER}/out"]}
"""


@dataclass
class People:
    """Alice, who decides as she is in the mood for, and the agent, who may only propose."""

    alice: JoinedSpace
    agent: JoinedSpace
    # None: Alice leaves it to others.
    mood: str | None = "approve"

    async def writes(self, path: str) -> str | None:
        """The agent proposes to write a file; who had it done, None when it was rejected."""
        try:
            outcome = await self.agent.call(
                "files", "write_file", {"path": path, "text": "news"}, timeout_seconds=HANG_SECONDS
            )
        except Rejected:
            return None
        assert outcome.how == "fulfilled"
        return outcome.by


@asynccontextmanager
async def people(up: MootUp) -> AsyncIterator[People]:
    async with (
        connect(up.url, "newsroom", up.token("alice")) as alice,
        connect(up.url, "newsroom", up.token("agent")) as agent,
    ):
        here = People(alice, agent)

        @alice.on_proposal
        async def decide(seen: SeenProposal) -> None:
            if here.mood == "approve":
                await alice.approve(seen)
            elif here.mood == "reject":
                await alice.reject(seen, "unsafe")

        yield here


@pytest.mark.requirement("MEW-9.4-2", "MEW-9.4-3", "MEW-1-5", "MCPX-1-5")
async def test_the_story_of_a_rule_from_its_first_approval_to_its_trip_wire(tmp_path: Path) -> None:
    write_config(tmp_path, SPACE)
    (tmp_path / "out").mkdir()
    async with moot_up(tmp_path) as up:
        await up.wait_for_state("approver", "running", joined=True)
        await up.wait_for_state("files", "running", joined=True)
        async with people(up) as here:
            for day in range(10, 20):
                assert await here.writes(f"reports/day-{day}.md") == "alice"
            (suggestion,) = await until_suggested(up)
            assert "reports/day-" in suggestion["description"]
            # Nothing is automatic before somebody says so.
            assert (await output_of(up, "rules", "list"))["rules"] == []
            await output_of(up, "rules", "accept", suggestion["id"])
            await until_rules(up, "active")
            here.mood = None
            assert await here.writes("reports/day-21.md") == "approver"
            assert (tmp_path / "out" / "reports" / "day-21.md").read_text() == "news"
            # A trip-wire: a path that hides something.
            here.mood = "reject"
            assert await here.writes("reports/../day-22.md") is None
            (rule,) = await until_rules(up, "suspended")
            assert "unusual" in rule["reason"]
            here.mood = "approve"
            assert await here.writes("reports/day-23.md") == "alice"
        exported = [
            json.loads(line) for line in (await shell(up, "proposal", "history", "--json")).splitlines()
        ]
    verdicts = [(each["status"], each["decided_by"], each["automated"]) for each in exported]
    assert verdicts.count(("fulfilled", "alice", False)) == 11
    assert verdicts.count(("fulfilled", "approver", True)) == 1
    automatic = next(each for each in exported if each["automated"])
    assert (automatic["arguments"]["path"], automatic["result"]) == ("reports/day-21.md", "ok")
    code, why = await run_moot(tmp_path, "proposal", "explain", automatic["id"])
    assert code == 0
    assert f"Decided automatically by rule {automatic['rule']}" in why
    assert "alice accepted this rule" in why
    assert f"Rules of then: approve (rule {automatic['rule']} matches)." in why
    assert "should not have" not in why


async def shell(up: MootUp, *words: str) -> str:
    code, out = await run_moot(up.folder, *words)
    assert code == 0, out
    return out


async def output_of(up: MootUp, *words: str) -> Any:
    return json.loads(await shell(up, *words, "--json"))


async def until_suggested(up: MootUp) -> list[Any]:
    async def suggestions() -> list[Any]:
        return list(await output_of(up, "rules", "suggestions"))

    return await until_told(suggestions)


async def until_rules(up: MootUp, state: str) -> list[Any]:
    async def rules() -> list[Any]:
        found = (await output_of(up, "rules", "list"))["rules"]
        return list(found) if [each["state"] for each in found] == [state] else []

    return await until_told(rules)
