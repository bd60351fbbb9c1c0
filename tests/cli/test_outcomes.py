"""Outcomes that nobody knows, as a person at a shell meets them (D-96, D-99, D-100)."""

from __future__ import annotations

import asyncio
from typing import Any

from moot.errors import HostLeft, TargetAbsent
from moot.participant import JoinedSpace, connect
from tests.cli.space_with_members import SpaceWithMembers
from tests.waiting import until


def proposed(lab: SpaceWithMembers, path: str = "notes.md") -> tuple[JoinedSpace, str]:
    agent = lab.join("agent")
    call: Any = {"name": "write_file", "arguments": {"path": path}}
    return agent, lab.do(agent.propose("host", "tools/call", call, wait_for_others=True)).id


async def approve_and_lose_the_host(lab: SpaceWithMembers, bob: JoinedSpace, id: str) -> None:
    """The host gets the call, and is gone before it answers."""
    token = lab.token("host").read_text("ascii").strip()
    got = asyncio.Event()
    async with connect(lab.gateway.url, "lab", token) as host:

        async def handler(_: Any) -> dict[str, Any]:
            got.set()
            await asyncio.Event().wait()
            return {}

        host.server.use_handler(handler)
        await until(lambda: bob.proposals.get(id) is not None)
        approving = asyncio.create_task(bob.approve(id))
        await got.wait()
    try:
        await approving
    except HostLeft:
        return
    raise AssertionError("the outcome was told as if it were known")


def test_an_absent_target_is_told_and_the_proposal_stays_on_the_list(lab: SpaceWithMembers) -> None:
    _, id = proposed(lab)
    code, output = lab.fails("approve", id)
    assert code == 3
    assert "host is not connected" in output
    assert "stays open" in output
    (listed,) = lab.value("proposals")
    assert (listed["id"], listed["status"]) == (id, "pending")
    assert TargetAbsent.code == "target_absent"


def test_an_unknown_outcome_is_listed_until_a_person_settles_it(lab: SpaceWithMembers) -> None:
    bob = lab.join("bob")
    _, id = proposed(lab)
    lab.do(approve_and_lose_the_host(lab, bob, id))
    shown = lab.output_of("proposals")
    assert "outcome unknown" in shown
    assert "never runs again" in shown
    assert "failed" not in shown
    (listed,) = lab.value("proposals")
    assert (listed["status"], listed["outcome"]) == ("fulfilled", "unknown")
    assert "unknown" in lab.output_of("proposal", "history", "--data", str(lab.folder / ".moot"))
    code, output = lab.fails("approve", id)
    assert code == 3
    assert "not known" in output
    settled = lab.value("proposal", "settle", id, "--outcome", "done", "--note", "the file is there")
    assert (settled["proposal_id"], settled["outcome"]) == (id, "done")
    assert lab.output_of("proposals") == "no pending proposals\n"
    history = lab.output_of("proposal", "history", "--json", "--data", str(lab.folder / ".moot"))
    assert '"outcome":"done"' in history
    assert '"settled_by":"alice"' in history
    assert "done, says alice" in lab.output_of("proposal", "history", "--data", str(lab.folder / ".moot"))
    # By the beginning of its id, as `moot proposals` shows it.
    explained = lab.output_of("proposal", "explain", id[:8], "--data", str(lab.folder / ".moot"))
    assert "alice settled it as done (the file is there)" in explained
    for little in (id[:3], ""):
        code, output = lab.fails("proposal", "explain", little, "--data", str(lab.folder / ".moot"))
        assert code == 2
        assert "`moot proposal history` lists them" in output
    code, output = lab.fails("proposal", "settle", id, "--outcome", "failed")
    assert code == 3
    assert "done already" in output
