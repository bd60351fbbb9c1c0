"""What a team says and agrees about a proposal: comments, approval with changes, whom it is for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moot.errors import NotAllowed, ProposalSettled, UsageError
from moot.participant import JoinedSpace, SeenProposal
from tests.participant.gateway_with_members import PROPOSER, ReceivedEnvelopes, gateway_with
from tests.waiting import until

PEOPLE: dict[str, Any] = {
    "agent": PROPOSER,
    "ana": ["mcp/*", "chat"],
    "bob": ["mcp/*", "chat"],
    "bank": [],
}


def bank_of(space: JoinedSpace) -> list[int]:
    paid: list[int] = []

    @space.tool
    def pay(amount: int, note: str = "") -> str:
        paid.append(amount)
        return f"paid {amount}"

    return paid


async def next_proposal(space: JoinedSpace) -> SeenProposal:
    await until(lambda: bool(space.proposals.open()))
    return space.proposals.open()[-1]


def with_amount(seen: SeenProposal, amount: int) -> dict[str, Any]:
    return {**seen.params, "arguments": {**seen.params["arguments"], "amount": amount}}


async def test_a_call_that_is_approved_with_changes_tells_the_agent_what_was_changed(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, ana, bob, bank = [await gateway.join(name) for name in ("agent", "ana", "bob", "bank")]
        paid = bank_of(bank)
        heard = ReceivedEnvelopes(bob)
        call = asyncio.create_task(agent.call("bank", "pay", {"amount": 950, "note": "rent"}))
        seen = await next_proposal(ana)
        own = await ana.approve(seen, params=with_amount(seen, 95))
        outcome = await call
        assert paid == [95]
        assert outcome.text == own.text == "paid 95"
        assert [each.text for each in outcome.changes] == ["arguments.amount: 950 → 95"]
        assert own.changes == outcome.changes
        assert (outcome.by, own.proposal_id) == ("ana", seen.id)
        # Everybody sees how: a counter-proposal, and a request that names it and what it changes.
        counter, made = heard.of("mcp/proposal")[-1], heard.of("mcp/request")[-1]
        assert counter.correlation_id == [seen.id]
        assert made.correlation_id == [counter.id, seen.id]
        theirs = bob.proposals.get(seen.id)
        assert theirs is not None
        assert theirs.state_text == "approved with changes by ana, done"
        with pytest.raises(ProposalSettled):
            await bob.approve(theirs)
        assert not bob.proposals.open()


async def test_an_approval_without_a_difference_is_the_plain_one(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, ana, bank = [await gateway.join(name) for name in ("agent", "ana", "bank")]
        bank_of(bank)
        call = asyncio.create_task(agent.call("bank", "pay", {"amount": 950}))
        seen = await next_proposal(ana)
        await ana.approve(seen, params=dict(seen.params))
        assert (await call).changes == ()


async def test_a_change_that_cannot_run_leaves_nothing_behind(tmp_path: Path) -> None:
    """The host is away: the original is pending as before, and the counter-proposal is withdrawn."""
    async with gateway_with(tmp_path, **{**PEOPLE, "cara": ["mcp/request", "chat"]}) as gateway:
        agent, ana, cara = [await gateway.join(name) for name in ("agent", "ana", "cara")]
        proposal = await agent.propose("bank", "tools/call", {"name": "pay", "arguments": {"amount": 1}})
        seen = await next_proposal(ana)
        with pytest.raises(Exception, match="not connected"):
            await ana.approve(seen, params=with_amount(seen, 2))
        await until(lambda: [each.id for each in agent.proposals.open()] == [proposal.id])
        with pytest.raises(NotAllowed, match="mcp/proposal"):
            await cara.approve(await next_proposal(cara), params=with_amount(seen, 2))
        exact = '{"name": "pay", "arguments": {"amount": 0.12345678901234567890123}}'
        raw = await gateway.raw("bob")
        await raw.socket.send(
            '{"protocol":"mew/v0.4","id":"p9","ts":"2026-11-18T00:00:00Z","from":"bob","to":["bank"],'
            f'"kind":"mcp/proposal","payload":{{"method":"tools/call","params":{exact}}}}}'
        )
        await until(lambda: ana.proposals.get("p9") is not None)
        with pytest.raises(UsageError, match="more digits"):
            await ana.approve("p9", params={"name": "pay", "arguments": {"amount": 2}})


async def test_comments_are_chats_about_a_proposal_and_answers_to_them(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, ana, bob = [await gateway.join(name) for name in ("agent", "ana", "bob")]
        proposal = await agent.propose("bank", "tools/call", {"name": "pay", "arguments": {"amount": 1}})
        changes: list[int] = []
        proposal.on_change = lambda changed: changes.append(len(changed.comments))
        await next_proposal(ana)
        asked = await ana.comment(proposal.id, "what for?")
        await until(lambda: len(proposal.comments) == 1)
        assert (proposal.comments[0].by, proposal.comments[0].text) == ("ana", "what for?")
        # It asks the proposer, unless it mentions somebody.
        assert proposal.comments[0].to == ("agent",)
        assert changes == [1]
        await agent.chat("the rent", about=asked.id)
        await ana.comment(proposal.id, "@bob is that right? mail@agent.example")
        await until(lambda: len(proposal.comments) == 3)
        seen = bob.proposals.get(proposal.id)
        assert seen is not None
        assert [(each.by, each.to) for each in seen.comments] == [
            ("ana", ("agent",)),
            ("agent", ()),
            ("ana", ("bob",)),
        ]
        # Whoever comes later reads them, too.
        await bob.close()
        late = await gateway.join("bob")
        await late.recall()
        again = late.proposals.get(proposal.id)
        assert again is not None
        assert [each.text for each in again.comments] == [each.text for each in seen.comments]


async def test_whom_a_proposal_is_for_is_seen_by_all_and_told_to_who_comes_later(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, ana, bank = [await gateway.join(name) for name in ("agent", "ana", "bank")]
        bank_of(bank)
        proposal = await agent.propose("bank", "tools/call", {"name": "pay", "arguments": {"amount": 1}})
        await next_proposal(ana)
        await ana.assign(proposal.id, "bob")
        await until(lambda: proposal.seen.assigned_to == ["bob"])
        assert proposal.seen.assigned_by == "ana"
        bob = await gateway.join("bob")
        await bob.refresh_proposals()
        seen = bob.proposals.open()[0]
        assert (seen.assigned_to, seen.assigned_by) == (["bob"], "ana")
        with pytest.raises(NotAllowed):
            await agent.assign(proposal.id, ())
        # It is for Bob, and Ana may decide all the same.
        assert (await ana.approve(proposal.id)).text == "paid 1"


async def test_while_ana_is_away_bob_decides_in_her_place_and_no_longer(tmp_path: Path) -> None:
    people = {**PEOPLE, "ana": ["mcp/*", "chat", "moot/delegate"], "bob": ["chat"]}
    async with gateway_with(tmp_path, **people) as gateway:
        agent, ana, bob, bank = [await gateway.join(name) for name in ("agent", "ana", "bob", "bank")]
        paid = bank_of(bank)
        call = asyncio.create_task(agent.call("bank", "pay", {"amount": 5}))
        seen = await next_proposal(bob)
        with pytest.raises(NotAllowed):
            await bob.approve(seen)
        await ana.delegate("bob", seconds=3_600, reason="on holiday")
        await until(lambda: bool(bob.proposals.delegations.to_us()))
        await ana.close()
        assert (await bob.approve(seen)).text == "paid 5"
        assert (await call).by == "bob"
        told = await bob.look_up_proposal(seen.id)
        assert told is not None
        assert (told.fulfilled_by, told.fulfilled_for) == ("bob", "ana")
        # Who comes later is told.
        late = await gateway.join("ana")
        await late.refresh_proposals()
        (listed,) = late.proposals.delegations.living()
        assert (listed.giver, listed.delegate, listed.reason) == ("ana", "bob", "on holiday")
        await late.end_delegation(to="bob")
        await until(lambda: not bob.proposals.delegations.to_us())
        await agent.propose("bank", "tools/call", {"name": "pay", "arguments": {"amount": 6}})
        await until(lambda: bool(bob.proposals.open()))
        with pytest.raises(NotAllowed):
            await bob.approve(bob.proposals.open()[0])
        assert paid == [5]
