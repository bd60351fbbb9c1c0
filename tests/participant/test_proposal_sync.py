"""What a member knows of proposals: asked of the gateway at joining and after gaps, never guessed (D-96)."""

from __future__ import annotations

import asyncio
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moot.errors import (
    CallOutcomeUnknown,
    HostDoesNotKnow,
    HostLeft,
    ProposalSettled,
    Refused,
    TargetAbsent,
    UsageError,
)
from moot.operations.operation import ClientContext
from moot.operations.proposal_operations import OPERATIONS
from moot.participant import IncomingRequest, connect
from moot.participant.decisions import proposal_list
from moot.participant.decisions.seen_proposal import RecordedProposal
from moot.protocol.answer_marks import unknown_outcome
from moot.protocol.operation import Json
from tests.gateway.running_gateway import CALL, fields
from tests.participant.gateway_with_members import PROPOSER, away, gateway_with, settled
from tests.participant.rogue_gateway import rogue_gateway
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


@pytest.mark.parametrize("days", [2, -2])
async def test_a_clock_that_is_days_away_hides_nothing_that_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """Deadlines are the gateway's: its clock says when they have come."""
    right = time.time
    monkeypatch.setattr(proposal_list, "time", SimpleNamespace(time=lambda: right() + days * 86_400))
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human = await gateway.join("agent"), await gateway.join("human")
        # Heard, told when one joins, and asked for.
        first = await agent.propose("host", "tools/call", {"name": "x"}, wait_for_others=True)
        for member in (human, await gateway.join("other")):
            await member.recall()
            assert [seen.id for seen in member.proposals.open()] == [first.id]
        # By its own clock alone it took it for expired: the gateway knows better.
        (seen,) = human.proposals
        seen.status = "expired"
        await human.recall()
        assert [seen.id for seen in human.proposals.open()] == [first.id]
        await first.withdraw()
        await until(lambda: human.proposals.open() == [])


async def test_a_proposal_that_is_too_large_for_the_list_is_fetched_whole(tmp_path: Path) -> None:
    """With the name of its space and without, in both dialects; what was decided meanwhile is told too."""
    limits = {"limits": {"max_proposal_page_bytes": 2_000}}
    async with gateway_with(tmp_path, rules=limits, **PEOPLE) as gateway:
        agent = await gateway.join("agent")
        call = {"name": "write", "arguments": {"text": "y" * 5_000}}
        made = await agent.propose("host", "tools/call", call, wait_for_others=True)
        human = await gateway.join("human")
        for options in ({}, {"space": ""}, {"dialect": "mcpx"}):
            other = await gateway.join("other", **options)
            assert await other.refresh_proposals(), options
            (seen,) = other.proposals.open()
            assert seen.params["arguments"] == call["arguments"]
            answer = await other.look_up_proposal(made.id)
            assert answer is not None
            assert b"yyyy" in bytes(answer.envelope)
        host = await gateway.join("host")
        host.tool(lambda text: text, name="write")
        await human.recall()
        await human.approve(human.proposals.open()[0])
        (seen,) = human.proposals
        assert seen.outcome == "done"


async def test_a_large_proposal_that_nobody_tells_leaves_the_list_unknown(tmp_path: Path) -> None:
    limits = {"limits": {"max_proposal_page_bytes": 2_000}}
    async with gateway_with(tmp_path, rules=limits, **PEOPLE) as gateway:
        agent = await gateway.join("agent")
        call = {"name": "write", "arguments": {"text": "y" * 5_000}}
        made = await agent.propose("host", "tools/call", call)
        human = await gateway.join("human")
        elsewhere = human._session.link.url
        human._session.link.url = "http://127.0.0.1:9"
        assert not await human.refresh_proposals()
        assert human.proposals.knowledge == "not_known"
        human._session.link.url = elsewhere
        await made.withdraw()
        # It is over: nothing is left that could not be read.
        assert await human.refresh_proposals()
        assert human.proposals.open() == []


async def test_a_proposal_that_is_no_call_hides_none_of_the_others(tmp_path: Path) -> None:
    """A gateway relays what it does not carry out; those who hear it live pass it over, too."""
    limits = {"limits": {"max_proposal_page_bytes": 2_000}}
    async with gateway_with(tmp_path, rules=limits, **PEOPLE) as gateway:
        mallory = await gateway.raw("agent")
        odd: list[Json] = [{}, {"method": 1}, {"method": "x", "params": []}, {"text": "y" * 5_000}]
        for number, payload in enumerate(odd):
            told = await mallory.refused("mcp/proposal", payload, to=["host"], id=f"odd-{number}")
            assert told is None
        other = await gateway.join("other")
        made = await other.propose("host", "tools/call", CALL["params"], wait_for_others=True)
        human = await gateway.join("human")
        assert await human.refresh_proposals()
        assert [seen.id for seen in human.proposals.open()] == [made.id]
        assert (human.state, human.proposals.known) == ("joined", True)


async def test_a_call_that_was_written_down_is_shown_as_it_was_proposed(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human = await gateway.join("agent"), await gateway.join("human")
        made = await agent.propose("host", "tools/call", CALL["params"], wait_for_others=True)
        await human.recall()
        proposals = human._parts.proposals
        (known,) = proposals.open()
        proposals.untrack(made.id)
        own = {"name": "x", "arguments": {"command": "rm -rf /"}, "_meta": {"ours": 1}}
        record = RecordedProposal(id=made.id, to="other", method="x/y", params=own, proposed_at=0.0)
        seen = proposals.add_recorded(record, "agent")
        assert seen.risks
        await human.refresh_proposals()
        assert (seen.to, seen.method, seen.params) == (known.to, known.method, known.params)
        assert (seen.envelope.raw, seen.risks) == (known.envelope.raw, [])


async def test_a_gateway_whose_welcome_does_not_name_the_question_is_not_asked() -> None:
    """The reference gateway relays what it does not know to everybody, and nobody needs our questions."""
    async with rogue_gateway() as gateway, connect(gateway.url, "lab", "t") as human:
        assert not await human.refresh_proposals()
        assert str(human.proposals.knowledge) == "not_told"
        # Asking again would not help, and nobody knows that none is pending.
        context = ClientContext(human)
        listing = next(each for each in OPERATIONS if each.name == "proposals")
        answer = "\n".join((await listing.run(context, Namespace(all=False))).lines)
        with pytest.raises(UsageError) as unknown:
            context.proposal("ea3b2d86")
        for text in (answer, str(unknown.value)):
            assert "does not tell which proposals are pending" in text
            assert "moot join" in text
        with pytest.raises(Refused, match="does not tell"):
            await human.look_up_proposal("p1")
        await human.chat("the first")
        assert (await gateway.received.get())["kind"] == "chat"
        # One that names it is asked, and not believed if it is silent.
        you = {"id": "me", "capabilities": [{"kind": "*"}]}
        await gateway.emit("system/welcome", {"you": you, "extensions": ["moot/list-proposals"]}, to=["me"])
        await gateway.fence()
        asking = asyncio.create_task(human.refresh_proposals())
        asked = await gateway.wait_for("moot/list-proposals")
        await gateway.emit("system/error", {"error": "invalid_request"}, to=["me"], about=[asked["id"]])
        assert not await asking
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


async def test_a_host_that_does_not_know_is_no_failure_for_approver_and_proposer(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host = [await gateway.join(name) for name in ("agent", "human", "host")]

        async def handle(request: IncomingRequest) -> dict[str, Json]:
            raise HostDoesNotKnow(-32004, "it ended before it answered", unknown_outcome())

        host.server.use_handler(handle)
        proposal = await agent.propose("host", "tools/call", CALL["params"])
        await settled(human)
        with pytest.raises(HostDoesNotKnow, match="ended before it answered") as caught:
            await human.approve(proposal.id)
        assert (caught.value.code, caught.value.data) == (-32004, {"moot/outcome": "unknown"})
        with pytest.raises(HostDoesNotKnow):
            await proposal.outcome()
        assert proposal.state == "unknown"
        await settled(human)
        seen = human.proposals.get(proposal.id)
        assert seen is not None
        assert human.proposals.unknown_outcomes() == [seen]
        await human.settle(proposal.id, "failed", note="nothing is there")
        await settled(human)
        assert (seen.outcome, seen.note) == ("failed", "nothing is there")


async def test_what_a_person_says_of_an_unknown_outcome_while_we_are_away_is_asked_for(
    tmp_path: Path,
) -> None:
    async with gateway_with(tmp_path, gateway={"poll_messages": 2}, **PEOPLE) as gateway:
        agent, human, host = [await gateway.join(name) for name in ("agent", "human", "host")]
        other = await gateway.join("other")

        async def handle(request: IncomingRequest) -> dict[str, Json]:
            raise HostDoesNotKnow(-32004, "it ended before it answered", unknown_outcome())

        host.server.use_handler(handle)
        proposal = await agent.propose("host", "tools/call", CALL["params"])
        await settled(human)
        with pytest.raises(HostDoesNotKnow):
            await human.approve(proposal.id)
        await settled(human)
        seen = human.proposals.get(proposal.id)
        assert seen is not None
        assert seen.state == "unknown"
        async with away(human):
            await other.settle(proposal.id, "done", note="the file is there")
            for number in range(10):
                await agent.chat(str(number))
        await until(lambda: human.proposals.known)
        assert (seen.state, seen.note) == ("done", "the file is there")


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


async def test_approving_a_call_of_a_host_that_polls_waits_for_its_answer(tmp_path: Path) -> None:
    """It is in no roster, and the gateway said that it is reachable: nobody is told that nothing was done."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human = await gateway.join("agent"), await gateway.join("human")
        await agent.propose("host", "tools/call", {"name": "x", "arguments": {}}, wait_for_others=True)
        await until(lambda: human.proposals.open())
        await gateway.gateway.poll("host")
        approving = asyncio.create_task(human.approve(human.proposals.open()[0]))

        async def polled() -> Any:
            messages = (await gateway.gateway.poll("host"))["messages"]
            return next((each for each in messages if each["kind"] == "mcp/request"), None)

        while (request := await polled()) is None:
            assert not approving.done()
        result = {"result": {"content": [{"type": "text", "text": "done"}]}}
        answer = fields("mcp/response", result, to=["human"], about=[request["id"]])
        assert (await gateway.gateway.post("host", answer)).status_code == 200
        assert (await approving).text == "done"
