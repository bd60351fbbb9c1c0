"""Agent, member and gateway are killed: nothing is done twice, and nothing is dropped in silence."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from moot.agents.acp.acp_member import AcpMember
from moot.errors import CallOutcomeUnknown, MootError
from moot.participant import ParticipantLimits, connect
from moot.protocol.envelope import Envelope
from tests.agents.acp.agent_kills import acp_process, kill_at, lab
from tests.agents.acp.agent_space import (
    AgentSpace,
    agent_space,
    settings_for,
    tool_update,
    write_script,
)
from tests.agents.acp.test_permissions import edit
from tests.gateway.served import started
from tests.participant.gateway_with_members import away
from tests.participant.watched_agent import running_member
from tests.waiting import until, until_told


async def test_an_agent_that_is_killed_while_people_decide_leaves_an_approval_unused(tmp_path: Path) -> None:
    async with agent_space(tmp_path, edit(tmp_path), load=True) as space:
        await space.ask()
        proposal = await space.proposal()
        os.kill(space.member.agent.process.child._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
        await space.wait_for("mcp/withdraw")
        await space.wait_for("chat", "was ended by SIGKILL while it worked on this.")
        with pytest.raises(MootError, match="withdrawn"):
            await space.alice.approve(proposal.id)
        await space.wait_for("chat", "The agent runs again.")
        assert not (tmp_path / "work" / "a.txt").exists()
        # The message is not prompted again by itself; the next one goes to the same session.
        assert len(space.prompts()) == 1
        await space.ask("again, please")
        await space.wait_for("chat", "Fine.")
        assert space.received("session/load")


async def test_an_agent_that_is_killed_after_the_approval_has_an_unknown_outcome(tmp_path: Path) -> None:
    async with agent_space(tmp_path, edit(tmp_path, then=[{"kill": True}])) as space:
        await space.ask()
        proposal = await space.proposal()
        approving = asyncio.create_task(space.alice.approve(proposal.id))
        await space.wait_for("chat", "This was allowed, and whether it was done is not known")
        # Never "failed", which would invite a second time.
        with pytest.raises(CallOutcomeUnknown, match="whether the agent did it is not known"):
            await approving
        found = await until_told(lambda: outcome_of(space.alice, proposal.id))
        assert found == "unknown"


async def outcome_of(alice: object, id: str) -> str:
    found = await alice.look_up_proposal(id)  # type: ignore[attr-defined]
    return "" if found is None or found.outcome == "pending" else str(found.outcome)


async def test_a_call_whose_approver_stops_waiting_is_settled_when_it_is_over(tmp_path: Path) -> None:
    go = tmp_path / "go"
    then = [{"await_file": str(go)}, tool_update(status="completed"), {"say": "Late."}]
    async with agent_space(tmp_path, edit(tmp_path, then=then)) as space:
        await space.ask()
        proposal = await space.proposal()
        approving = asyncio.create_task(space.alice.approve(proposal.id))
        await until(lambda: space.outcomes())
        approving.cancel()
        assert await until_told(lambda: outcome_of(space.alice, proposal.id)) == "unknown"
        go.touch()
        await space.wait_for("chat", "Late.")

        async def is_done() -> bool:
            return await outcome_of(space.alice, proposal.id) == "done"

        await until_told(is_done)


async def test_a_session_survives_a_lost_connection_and_a_pending_permission_too(tmp_path: Path) -> None:
    async with agent_space(tmp_path, edit(tmp_path)) as space:
        await space.ask()
        proposal = await space.proposal()
        await lose_connection(space)
        await space.alice.approve(proposal.id)
        await space.wait_for("chat", "Written.")
        await space.decided("once")


async def lose_connection(space: AgentSpace) -> None:
    """Cut the member's connection, and wait until it is back."""
    joined = space.turns.space
    before = joined.counts.reconnects
    joined._sender.socket._drop()
    await until(lambda: joined.counts.reconnects > before and joined.state == "joined")


def proposal_status(space: AgentSpace, id: str) -> str:
    seen = space.alice.proposals.get(id)
    return "" if seen is None else seen.status


async def test_an_approval_that_got_lost_is_told_to_be_unused(tmp_path: Path) -> None:
    limits = ParticipantLimits(request_seconds=1.0)
    async with agent_space(tmp_path, edit(tmp_path), settings={"member": limits}) as space:
        await space.ask()
        proposal = await space.proposal()
        joined = space.turns.space

        async def lose(_: object) -> None:
            """The request gets lost on its way to the member."""

        joined.server.use_handler(lose)
        approving = asyncio.create_task(space.alice.approve(proposal.id))
        await until(lambda: proposal_status(space, proposal.id) == "fulfilled")
        await lose_connection(space)
        await space.wait_for(
            "chat", "Not done (the approval by alice did not reach me, and was not used): edit"
        )
        await space.decided("no")
        approving.cancel()


async def test_the_member_is_killed_while_people_decide_and_after_the_approval(tmp_path: Path) -> None:
    """The process `moot acp` itself: a new one says what the old one has left, and repeats nothing."""
    running = [{"await_file": str(tmp_path / "never")}]
    write_script(tmp_path, edit(tmp_path), edit(tmp_path, then=running), load=True)
    async with lab(tmp_path) as (_, gateways), connect(gateways[0].url, "lab", "t-alice") as alice:
        heard: list[Envelope] = []
        alice.on("*")(heard.append)

        def texts() -> list[str]:
            return [each.payload["text"] for each in heard if each.kind == "chat"]

        def proposals() -> list[Envelope]:
            return [each for each in heard if each.kind == "mcp/proposal"]

        async with acp_process(gateways[0].url, tmp_path) as first:
            await until(lambda: "agent" in alice.roster)
            await alice.chat("do it", to="agent")
            await until(proposals)
            first.kill()
        async with acp_process(gateways[0].url, tmp_path) as second:
            # What it asked for can release nothing any more, so it is withdrawn.
            await until(lambda: any(each.kind == "mcp/withdraw" for each in heard))
            await until(lambda: any("I was stopped while I worked on this." in text for text in texts()))
            with pytest.raises(MootError):
                await alice.approve(proposals()[0].id)
            await alice.chat("once more", to="agent")
            await until(lambda: len(proposals()) == 2)
            approving = asyncio.create_task(alice.approve(proposals()[1].id))
            await until(lambda: '"once"' in (tmp_path / "received.jsonl").read_text())
            second.kill()
            await until(lambda: any(each.kind == "moot/outcome" for each in heard))
        with pytest.raises(MootError):
            await approving
        found = await alice.look_up_proposal(proposals()[1].id)
        assert found is not None
        assert found.outcome == "unknown"
        received = (tmp_path / "received.jsonl").read_text()
        assert received.count("do it") == received.count("once more") == 1
        # The second run had the session of the first.
        assert received.count("session/load") == 1
        assert received.count("session/new") == 1


async def test_the_gateway_is_killed_while_people_decide(tmp_path: Path) -> None:
    write_script(tmp_path, edit(tmp_path))
    async with lab(tmp_path) as (file, gateways):
        url = gateways[0].url
        settings = settings_for(url, tmp_path)
        async with running_member(AcpMember(settings), settings) as member:
            async with connect(url, "lab", "t-alice") as alice:
                await alice.chat("do it", to="agent")
                await until(lambda: member.turns is not None and member.turns.permissions.open == 1)
                await until(lambda: alice.proposals.open())
                (proposal,) = alice.proposals.open()
            await gateways[0].end(signal.SIGKILL)
            gateways.append(await started(file, "--port", url.rpartition(":")[2]))
            async with connect(url, "lab", "t-alice") as alice:
                heard: list[Envelope] = []
                alice.on("chat")(heard.append)
                await until(lambda: "agent" in alice.roster)
                await alice.refresh_proposals()
                await alice.approve(proposal.id)
                await until(lambda: any(each.payload["text"] == "Written." for each in heard))
                assert (tmp_path / "work" / "a.txt").read_text() == "hello"
                received = (tmp_path / "received.jsonl").read_text()
                assert received.count('"once"') == 1


async def test_a_chat_that_comes_while_the_connection_is_lost_is_a_prompt_afterwards(tmp_path: Path) -> None:
    async with agent_space(tmp_path) as space:
        await space.ask("first")
        await space.wait_for("chat", "Fine.")
        joined = space.turns.space
        async with away(joined):
            await until(lambda: "agent" not in space.alice.roster)
            await space.alice.chat("agent, are you there?")
        await until(lambda: len(space.prompts()) == 2)
        await until(lambda: len([e for e in space.of("chat") if e.payload["text"] == "Fine."]) == 2)
        assert space.prompts()[1].endswith("> agent, are you there?")
        await space.idle()
        # And only once.
        assert len(space.prompts()) == 2


async def test_the_gateway_is_killed_after_the_approval_and_the_edit_is_made_once(tmp_path: Path) -> None:
    """All three victims at every step: `make soak`, agents."""
    assert await kill_at(tmp_path, "gateway", "allowed") == "done"
