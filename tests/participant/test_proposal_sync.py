"""What a member knows of proposals: asked of the gateway at joining and after gaps, never guessed (D-96)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moot.errors import CallOutcomeUnknown, HostLeft, ProposalSettled, TargetAbsent
from tests.gateway.running_gateway import CALL
from tests.participant.gateway_with_members import PROPOSER, away, gateway_with, settled
from tests.waiting import until

PEOPLE: dict[str, Any] = {"agent": PROPOSER, "human": ["*"], "host": [], "other": ["*"]}


async def test_what_is_open_is_known_after_recall_however_long_ago_it_was_proposed(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, gateway={"poll_messages": 5}, **PEOPLE) as gateway:
        agent = await gateway.join("agent")
        big = 12345678901234567890
        call = {"name": "x", "arguments": {"n": big}}
        made = await agent.propose("host", "tools/call", call, wait_for_others=True)
        for number in range(20):
            await agent.chat(str(number))
        other = await gateway.join("other")
        await other.reject(made.id, "unsafe")
        human = await gateway.join("human")
        assert not human.proposals.known
        assert human.proposals.open() == []
        await human.recall()
        assert human.proposals.known
        (seen,) = human.proposals.open()
        assert seen.id == made.id
        assert [each.by for each in seen.rejections] == ["other"]
        # Its very bytes are here, so that it can be approved.
        ran: list[dict[str, Any]] = []
        host = await gateway.join("host")

        async def handler(request: Any) -> dict[str, Any]:
            ran.append(request.params["arguments"])
            return {"content": []}

        host.server.use_handler(handler)
        await human.approve(seen)
        assert ran == [{"n": big}]
        assert seen.outcome == "done"


async def test_nothing_is_known_of_a_gateway_that_does_not_answer_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another gateway refuses the kind, or hands it on to everybody."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        human = await gateway.join("human")
        for kind in ("x-other/question", "system/question"):
            monkeypatch.setattr("moot.participant.decisions.proposal_sync._KIND", kind)
            if kind == "x-other/question":
                human._session.router._routes = dict(human._session.router._routes) | {
                    kind: human._parts.proposal_sync.handle_echo
                }
            else:
                human._sender._check = lambda *_, **__: None  # type: ignore[method-assign]
            assert not await human.refresh_proposals()
            assert human.proposals.knowledge == "not_known"


async def test_a_gap_is_closed_by_asking(tmp_path: Path) -> None:
    """Meanwhile one was decided, one made and one withdrawn, and the history is too short for it."""
    async with gateway_with(tmp_path, gateway={"poll_messages": 2}, **PEOPLE) as gateway:
        agent, human, host = [await gateway.join(name) for name in ("agent", "human", "host")]
        other = await gateway.join("other")

        @host.tool
        def write(path: str) -> str:
            return path

        first, second = [
            await agent.propose("host", "tools/call", {"name": "write", "arguments": {"path": path}})
            for path in "ab"
        ]
        await human.recall()
        assert len(human.proposals.open()) == 2
        async with away(human):
            assert not human.proposals.known
            await other.approve(first.id)
            await second.withdraw()
            third = await agent.propose("host", "tools/call", {"name": "write", "arguments": {"path": "c"}})
            for number in range(10):
                await agent.chat(str(number))
        await until(lambda: human.proposals.known)
        assert [seen.id for seen in human.proposals.open()] == [third.id]
        decided, withdrawn = human.proposals.get(first.id), human.proposals.get(second.id)
        assert decided is not None
        assert withdrawn is not None
        assert (decided.status, decided.outcome, decided.fulfilled_by) == ("fulfilled", "done", "other")
        assert withdrawn.status == "withdrawn"


async def test_a_host_that_dies_makes_the_outcome_unknown_for_approver_and_proposer(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human = await gateway.join("agent"), await gateway.join("human")
        host = await gateway.raw("host")
        proposal = await agent.propose("host", "tools/call", CALL["params"])
        await settled(human)
        approving = asyncio.create_task(human.approve(proposal.id))
        request = await host.hear("mcp/request")
        await host.leave()
        with pytest.raises(HostLeft, match="unknown"):
            await approving
        with pytest.raises(CallOutcomeUnknown):
            await proposal.outcome()
        assert proposal.state == "unknown"
        seen = human.proposals.get(proposal.id)
        assert seen is not None
        assert seen.outcome == "unknown"
        assert human.proposals.unknown_outcomes() == [seen]
        with pytest.raises(ProposalSettled, match="never runs again"):
            await human.approve(seen)
        # Whoever joins later is told so, too.
        other = await gateway.join("other")
        await other.recall()
        assert [each.outcome for each in other.proposals.unknown_outcomes()] == ["unknown"]
        await other.settle(proposal.id, "done", note="the file is there")
        await settled(human)
        assert (seen.outcome, seen.assessed_by, seen.note) == ("done", "other", "the file is there")
        # The host's own word counts more.
        back = await gateway.raw("host")
        answer = {"jsonrpc": "2.0", "id": request["payload"]["id"], "error": {"code": 1, "message": "no"}}
        assert await back.refused("mcp/response", answer, to=["human"], about=[request["id"]]) is None
        await until(lambda: seen.outcome == "failed")


async def test_an_absent_target_is_told_and_the_proposal_stays_open(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human = await gateway.join("agent"), await gateway.join("human")
        proposal = await agent.propose("host", "tools/call", CALL["params"])
        await settled(human)
        with pytest.raises(TargetAbsent, match="stays open"):
            await human.approve(proposal.id)
        assert [seen.id for seen in human.proposals.open()] == [proposal.id]
        assert proposal.state == "pending"
