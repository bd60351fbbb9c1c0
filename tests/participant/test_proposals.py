"""Proposing and deciding (MEW 3.2, 3.3, 10.2; D-28)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moot.errors import (
    ApprovalRequired,
    Expired,
    FulfilmentCancelled,
    McpError,
    NotAllowed,
    ProposalSettled,
    Rejected,
    TargetAbsent,
    TimedOut,
    UsageError,
    VoteCounted,
    Withdrawn,
)
from moot.participant import REJECT_REASONS, IncomingRequest, JoinedSpace, Progress, SeenProposal, ToolError
from moot.protocol.operation import Json
from tests.participant.gateway_with_members import PROPOSER, QUICK, ReceivedEnvelopes, gateway_with, settled
from tests.waiting import HANG_SECONDS, bounded, until

PEOPLE: dict[str, Any] = {"agent": PROPOSER, "human": ["*"], "host": [], "other": ["*"]}


async def host_of(space: JoinedSpace) -> list[str]:
    """A host with one tool; what it did is in the list."""
    done: list[str] = []

    @space.tool
    def write(path: str) -> str:
        done.append(path)
        return f"wrote {path}"

    return done


async def next_proposal(space: JoinedSpace) -> SeenProposal:
    await until(lambda: bool(space.proposals.open()))
    return space.proposals.open()[-1]


@pytest.mark.requirement(
    "MEW-1-2",
    "MEW-3.1-4",
    "MEW-3.2-3",
    "MEW-3.2.1-1",
    "MEW-3.2.1-2",
    "MEW-3.2.1-3",
    "MEW-3.2.1-6",
    "MEW-3.2.1-7",
    "MEW-3.2.1-9",
    "MEW-3-53",
    "MEW-7.1-4",
    "MEW-8.2-11",
    "MEW-8.2-12",
)
async def test_a_call_without_the_right_is_proposed_fulfilled_and_answered(tmp_path: Path) -> None:
    """MEW 3.2.1, step by step on the wire."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        watcher = await gateway.raw("other")
        agent, human, host = [await gateway.join(name) for name in ("agent", "human", "host")]
        done = await host_of(host)
        call = asyncio.create_task(agent.call("host", "write", {"path": "a"}))
        seen = await next_proposal(human)
        assert (seen.proposer, seen.to, seen.method) == ("agent", ("host",), "tools/call")
        assert seen.params == {"name": "write", "arguments": {"path": "a"}}
        await settled(human)
        assert done == []
        own = await human.approve(seen)
        outcome = await call
        assert outcome.text == own.text == "wrote a"
        assert (outcome.how, outcome.by, outcome.host) == ("fulfilled", "human", "host")
        assert outcome.proposal_id == seen.id
        assert done == ["a"]
        proposal, request, response = [
            await watcher.hear(kind) for kind in ("mcp/proposal", "mcp/request", "mcp/response")
        ]
        assert "correlation_id" not in proposal
        assert proposal["payload"] == {"method": "tools/call", "params": seen.params}
        assert request["from"] == "human"
        assert request["to"] == ["host"]
        assert request["correlation_id"] == [proposal["id"]]
        assert {key: request["payload"][key] for key in ("method", "params")} == proposal["payload"]
        assert response["to"] == ["human"]
        assert response["correlation_id"] == [request["id"]]
        assert seen.status == "fulfilled"
        assert human.proposals.open() == []
        # With the right to ask, asking is plain.
        direct = await human.call("host", "write", {"path": "b"})
        assert direct.how == "direct"
        assert "correlation_id" not in await watcher.hear("mcp/request")


@pytest.mark.requirement(
    "MEW-3.1-6",
    "MEW-3.3-1",
    "MEW-3.3.2-2",
    "MEW-3.3.2-4",
    "MEW-3.3.2-8",
    "MEW-3.3.3-16",
    "MEW-3.3.3-17",
    "MEW-3.3.3-18",
    "MEW-3.3.3-19",
    "MEW-3.3.3-20",
)
async def test_a_rejection_ends_the_wait_at_once_and_is_explained_later(tmp_path: Path) -> None:
    """MEW 3.3.2, 3.3.3; D-28: failing fast withdraws."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        watcher = await gateway.raw("other")
        agent, human, _ = [await gateway.join(name) for name in ("agent", "human", "host")]
        call = asyncio.create_task(agent.call("host", "write", {"path": "a"}))
        seen = await next_proposal(human)
        await human.reject(seen, "unsafe", explanation="that file matters")
        with pytest.raises(Rejected) as rejection:
            await call
        assert (rejection.value.by, rejection.value.reason) == ("human", "unsafe")
        assert await rejection.value.explanation(timeout_seconds=HANG_SECONDS) == "that file matters"
        reject = await watcher.hear("mcp/reject")
        assert reject["correlation_id"] == [seen.id]
        assert reject["to"] == ["agent"]
        answer = [await watcher.hear(), await watcher.hear()]
        chat = next(each for each in answer if each["kind"] == "chat")
        withdraw = next(each for each in answer if each["kind"] == "mcp/withdraw")
        assert chat["correlation_id"] == [reject["id"]]
        assert withdraw["correlation_id"] == [seen.id]
        assert seen.status == "withdrawn"

        # Nobody explains: the wait for it is bounded.
        call = asyncio.create_task(agent.call("host", "write", {"path": "b"}))
        await human.reject(await next_proposal(human), "busy")
        with pytest.raises(Rejected) as rejection:
            await call
        assert await rejection.value.explanation(timeout_seconds=0.05) is None


@pytest.mark.requirement("MEW-3.3.2-5", "MEW-3.3.2-6", "MEW-3.3.2-7")
async def test_waiting_for_others_outlasts_rejections(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host, other = [await gateway.join(name) for name in ("agent", "human", "host", "other")]
        await host_of(host)
        proposal = await agent.propose(
            "host", "tools/call", {"name": "write", "arguments": {"path": "a"}}, wait_for_others=True
        )
        await human.reject(proposal.id, "busy")
        await other.reject(proposal.id, "policy")
        await until(lambda: len(proposal.rejections) == 2)
        assert [(each.by, each.reason) for each in proposal.rejections] == [
            ("human", "busy"),
            ("other", "policy"),
        ]
        assert proposal.state == "pending"
        with pytest.raises(TimedOut, match="still open"):
            await proposal.outcome(timeout_seconds=0.05)
        # A desk shows it with its rejections, and it can still be fulfilled (D-28).
        (seen,) = other.proposals.open()
        assert [each.by for each in seen.rejections] == ["human", "other"]
        await other.approve(seen)
        assert (await proposal.outcome()).by == "other"
        state: str = proposal.state
        assert state == "done"
        # The next one, proposed otherwise, fails fast.
        quick = asyncio.create_task(agent.call("host", "write", {"path": "b"}))
        await human.reject(await next_proposal(human))
        with pytest.raises(Rejected):
            await quick


@pytest.mark.requirement(
    "MEW-3.1-5", "MEW-3.3.1-1", "MEW-3.3.1-3", "MEW-3.3.1-4", "MEW-3.3.1-5", "MEW-3.3-1", "MEW-3.3.3-12"
)
async def test_a_withdrawn_proposal_can_not_be_fulfilled(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host = [await gateway.join(name) for name in ("agent", "human", "host")]
        received = ReceivedEnvelopes(human)
        done = await host_of(host)
        proposal = await agent.propose("host", "tools/call", {"name": "write", "arguments": {"path": "a"}})
        seen = await next_proposal(human)
        await proposal.withdraw()
        with pytest.raises(Withdrawn, match="no_longer_needed"):
            await proposal.outcome()
        withdraw = await received.wait("mcp/withdraw")
        assert withdraw.correlation_id == [proposal.id]
        assert withdraw.payload == {"reason": "no_longer_needed"}
        assert human.proposals.open() == []
        with pytest.raises(ProposalSettled, match="withdrawn"):
            await human.approve(seen)
        with pytest.raises(ProposalSettled):
            await proposal.withdraw("again")
        assert done == []


async def test_nobody_else_withdraws_and_an_sdk_would_not_believe_it(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human = await gateway.join("agent"), await gateway.join("human")
        proposal = await agent.propose("host", "tools/call", {"name": "write", "arguments": {}})
        other = await gateway.raw("other")
        assert await other.refused("mcp/withdraw", {"reason": "other"}, about=[proposal.id]) == "unauthorized"
        seen = human.proposals.get(proposal.id)
        assert seen is not None
        assert seen.status == "pending"


@pytest.mark.requirement(
    "MEW-3.3.2-9",
    "MEW-3.3.3-1",
    "MEW-3.3.3-2",
    "MEW-3.3.3-3",
    "MEW-3.3.3-4",
    "MEW-3.3.3-5",
    "MEW-3.3.3-6",
    "MEW-3.3.3-7",
    "MEW-3.3.3-8",
    "MEW-3.3.3-9",
    "MEW-3.3.3-10",
    "MEW-3.3.3-11",
    "MEW-3.3.3-12",
    "MEW-3.3.3-13",
    "MEW-3.3.3-14",
    "MEW-3.3.3-15",
)
async def test_every_reason_reaches_the_proposer_known_or_not(tmp_path: Path) -> None:
    """MEW 3.3.3: codes are suggestions, and unknown ones do no harm."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, _ = [await gateway.join(name) for name in ("agent", "human", "host")]
        assert set(REJECT_REASONS) == {
            "disagree",
            "inappropriate",
            "unsafe",
            "busy",
            "incapable",
            "policy",
            "duplicate",
            "invalid",
            "timeout",
            "resource_limit",
            "no_longer_needed",
            "other",
        }
        for reason in (*REJECT_REASONS, "xyzzy", "not on a Friday, please"):
            proposal = await agent.propose("host", "tools/call", {"name": "write", "arguments": {}})
            await human.reject(proposal.id, reason)
            with pytest.raises(Rejected) as rejection:
                await proposal.outcome(timeout_seconds=HANG_SECONDS)
            assert rejection.value.reason == reason
            assert reason in str(rejection.value)
        assert agent.violations.total == 0


@pytest.mark.requirement("MEW-3.3.3-10")
async def test_a_proposal_nobody_takes_is_withdrawn_at_its_time(tmp_path: Path) -> None:
    """MEW 3.3.3: reason timeout."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, _ = [await gateway.join(name) for name in ("agent", "human", "host")]
        received = ReceivedEnvelopes(human)
        with pytest.raises(TimedOut, match="withdrawn"):
            await agent.call("host", "write", {"path": "a"}, timeout_seconds=0.1)
        assert (await received.wait("mcp/withdraw")).payload == {"reason": "timeout"}
        await until(lambda: human.proposals.open() == [])


async def test_a_proposal_that_cannot_be_withdrawn_is_not_called_withdrawn(tmp_path: Path) -> None:
    """Without the right to withdraw: at its time the proposal stays open for others."""
    async with gateway_with(tmp_path, **{**PEOPLE, "agent": ["mcp/proposal", "mcp/response"]}) as gateway:
        agent, human, _ = [await gateway.join(name) for name in ("agent", "human", "host")]
        with pytest.raises(TimedOut, match="could not be withdrawn: it may still be approved"):
            await agent.call("host", "write", {"path": "a"}, timeout_seconds=0.1)
        (proposal,) = await until(human.proposals.open)
        assert proposal.status == "pending"


async def test_cancelling_a_proposed_call_withdraws_it(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, _ = [await gateway.join(name) for name in ("agent", "human", "host")]
        received = ReceivedEnvelopes(human)
        call = asyncio.create_task(agent.call("host", "write", {"path": "a"}))
        await next_proposal(human)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await received.wait("mcp/withdraw")).payload == {"reason": "no_longer_needed"}


async def test_cancelling_while_it_is_being_proposed_leaves_no_orphan(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human = await gateway.join("agent"), await gateway.join("human")
        received = ReceivedEnvelopes(human)
        proposing = asyncio.create_task(agent.propose("host", "tools/call", {"name": "write"}))
        await asyncio.sleep(0)
        proposing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await proposing
        withdraw = await received.wait("mcp/withdraw")
        assert withdraw.correlation_id == [received.of("mcp/proposal")[0].id]


async def test_fulfilling_twice_runs_once(tmp_path: Path) -> None:
    """D-28: one proposal, at most one execution; of two who fulfil at once, one is told."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host, other = [await gateway.join(name) for name in ("agent", "human", "host", "other")]
        done = await host_of(host)
        call = asyncio.create_task(agent.call("host", "write", {"path": "a"}))
        first, second = await next_proposal(human), await next_proposal(other)
        results = await asyncio.gather(human.approve(first), other.approve(second), return_exceptions=True)
        assert sorted(type(each).__name__ for each in results) == ["Outcome", "ProposalSettled"]
        assert (await call).text == "wrote a"
        assert done == ["a"]


async def test_a_rejection_that_crosses_a_fulfilment_does_not_hide_it(tmp_path: Path) -> None:
    """The withdrawal comes too late; the outcome is told as it is."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host, other = [await gateway.join(name) for name in ("agent", "human", "host", "other")]
        await host_of(host)
        call = asyncio.create_task(agent.call("host", "write", {"path": "a"}))
        seen, same = await next_proposal(human), await next_proposal(other)
        outcomes = await asyncio.gather(
            human.approve(seen), other.reject(same, "disagree"), return_exceptions=True
        )
        assert not [each for each in outcomes if isinstance(each, Exception)]
        assert (await call).text == "wrote a"


async def test_a_fulfilment_must_repeat_the_proposal_to_the_digit(tmp_path: Path) -> None:
    """D-28: numbers that a double cannot hold are neither rounded by the SDK nor accepted otherwise."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        human, host = await gateway.join("human"), await gateway.join("host")
        raw = await gateway.raw("agent")
        got: list[Any] = []

        async def handler(request: IncomingRequest) -> dict[str, Json]:
            got.append(request.params)
            return {}

        host.server.use_handler(handler)
        text = (
            b'{"id":"p-1","kind":"mcp/proposal","to":["host"],"payload":{"method":"x/do",'
            b'"params":{"n":9007199254740993,"f":0.12345678901234567890,"z":1.0,"big":1e2}}}'
        )
        await raw.send(text)
        seen = await next_proposal(human)
        await human.approve(seen)
        assert got[0]["n"] == 9007199254740993
        # Anything else than what was proposed is refused by the gateway, and by an SDK that sees it.
        other = await gateway.raw("other")
        await raw.say("mcp/proposal", {"method": "x/do", "params": {"a": 1}}, to=["host"], id="p-2")
        changed = {"jsonrpc": "2.0", "id": 1, "method": "x/do", "params": {"a": 2}}
        assert await other.refused("mcp/request", changed, to=["host"], about=["p-2"]) == "proposal_mismatch"


@pytest.mark.requirement("MEW-3.3.2-3")
async def test_a_host_rejects_what_it_can_never_do(tmp_path: Path) -> None:
    people = PEOPLE | {"host": ["mcp/reject"]}
    async with gateway_with(tmp_path, **people) as gateway:
        agent, host = await gateway.join("agent"), await gateway.join("host")
        await host_of(host)
        with pytest.raises(Rejected) as rejection:
            await agent.call("host", "no_such_tool", timeout_seconds=HANG_SECONDS)
        assert (rejection.value.by, rejection.value.reason) == ("host", "incapable")
        # What it could do it leaves to those who decide.
        proposal = await agent.propose("host", "tools/call", {"name": "write", "arguments": {"path": "a"}})
        await settled_both(agent, host)
        assert proposal.state == "pending"
        await proposal.withdraw()


async def settled_both(agent: JoinedSpace, host: JoinedSpace) -> None:
    received = ReceivedEnvelopes(host)
    sent = await agent.chat("fence")
    await received.wait(lambda envelope: envelope.id == sent.id)
    sent = await agent.chat("fence again")
    await received.wait(lambda envelope: envelope.id == sent.id)


async def test_a_quorum_is_gathered_before_anybody_may_fulfil(tmp_path: Path) -> None:
    """D-28: `moot/approve`."""
    rules = {"quorum": [{"approvals_needed": 2}]}
    async with gateway_with(tmp_path, rules=rules, **PEOPLE, third=["*"]) as gateway:
        agent, human, host, other, third = [
            await gateway.join(name) for name in ("agent", "human", "host", "other", "third")
        ]
        await host_of(host)
        call = asyncio.create_task(agent.call("host", "write", {"path": "a"}))
        seen = await next_proposal(human)
        # What decides by rules does not vote.
        with pytest.raises(ApprovalRequired):
            await human.approve(seen, vote=False)
        with pytest.raises(VoteCounted, match="1 of 2 approvals, 1 more needed") as counted:
            await human.approve(seen)
        assert (counted.value.missing, counted.value.needed, seen.votes) == (1, 2, ["human"])
        done = await other.approve(seen.id)
        assert (done.by, done.host, done.proposal_id) == ("other", "host", seen.id)
        assert (await call).by == "other"
        with pytest.raises(ProposalSettled):
            await third.approve(seen.id)
        # Whoever may make the call proposes it, too.
        own = asyncio.create_task(third.call("host", "write", {"path": "b"}))
        again = await next_proposal(human)
        with pytest.raises(VoteCounted):
            await human.approve(again)
        assert (await other.approve(again.id)).result == (await own).result


async def test_a_last_vote_that_makes_no_call_says_why(tmp_path: Path) -> None:
    rules = {"quorum": [{"approvals_needed": 1}]}
    people = PEOPLE | {"voter": ["moot/approve"]}
    async with gateway_with(tmp_path, rules=rules, **people) as gateway:
        agent, human, voter = [await gateway.join(name) for name in ("agent", "human", "voter")]
        await agent.propose("host", "tools/call", {"name": "write", "arguments": {"path": "a"}})
        seen = await next_proposal(human)
        with pytest.raises(VoteCounted, match="somebody who may approves it") as counted:
            await voter.approve(seen.id)
        assert counted.value.missing == 0
        await until(lambda: seen.vote_text == "1 of 1 approvals, complete: approve it now")
        # It has its votes, but nobody is there to do it.
        with pytest.raises(TargetAbsent):
            await human.approve(seen)
        await host_of(await gateway.join("host"))
        assert (await human.approve(seen)).by == "human"


async def test_without_the_right_to_ask_or_to_propose_there_is_a_clear_error(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, mute=["chat"], host=[]) as gateway:
        mute = await gateway.join("mute")
        with pytest.raises(NotAllowed, match="neither") as refusal:
            await mute.call("host", "write")
        assert refusal.value.missing == ("mcp/request", "mcp/proposal")


async def test_one_can_insist_on_either_way(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host = [await gateway.join(name) for name in ("agent", "human", "host")]
        await host_of(host)
        with pytest.raises(NotAllowed) as refusal:
            await agent.call("host", "write", {"path": "a"}, propose="never")
        assert refusal.value.missing == ("mcp/request",)
        call = asyncio.create_task(human.call("host", "write", {"path": "a"}, propose="always"))
        other = await gateway.join("other")
        del other
        await until(lambda: bool(human.proposals.open()))
        await human.approve(human.proposals.open()[0])
        assert (await call).how == "fulfilled"


async def test_a_failed_tool_is_the_proposers_to_hear(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host = [await gateway.join(name) for name in ("agent", "human", "host")]

        @host.tool
        def breaks() -> str:
            raise ToolError("disk full")

        call = asyncio.create_task(agent.perform("host", "tools/call", {"name": "breaks"}))
        await human.approve(await next_proposal(human))
        assert (await call).is_error
        proposal = await agent.propose("host", "no/such-method")
        with pytest.raises(McpError):
            await human.approve(await next_proposal(human))
        with pytest.raises(McpError) as error:
            await proposal.outcome()
        assert error.value.code == -32601
        assert proposal.state == "failed"


async def test_progress_of_a_fulfilment_reaches_the_proposer(tmp_path: Path) -> None:
    """The token is part of what is proposed, so the fulfilment repeats it."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host = [await gateway.join(name) for name in ("agent", "human", "host")]

        @host.tool
        async def work(request: IncomingRequest) -> str:
            await request.progress(1, 2)
            await request.progress(2, 2)
            return "done"

        answer: list[Progress] = []
        call = asyncio.create_task(agent.call("host", "work", progress=answer.append))
        fulfillers: list[Progress] = []
        await human.approve(await next_proposal(human), progress=fulfillers.append)
        assert (await call).text == "done"
        assert [each.progress for each in answer] == [1, 2]
        assert [each.progress for each in fulfillers] == [1, 2]


async def test_a_fulfilment_that_is_called_off_is_told(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host = [await gateway.join(name) for name in ("agent", "human", "host")]

        @host.tool
        async def forever() -> str:
            await asyncio.Event().wait()
            return ""

        call = asyncio.create_task(agent.call("host", "forever"))
        fulfilling = asyncio.create_task(human.approve(await next_proposal(human)))
        await until(lambda: host.server.running == 1)
        fulfilling.cancel()
        with pytest.raises(FulfilmentCancelled, match="human"):
            await call


@pytest.mark.requirement("MEW-10.2-1", "MEW-10.2-2", "MCPX-10.2-1")
async def test_proposals_are_tracked_with_status_and_expiry(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human = await gateway.join("agent"), await gateway.join("human")
        proposal = await agent.propose("host", "tools/call", {"name": "write", "arguments": {"path": "a"}})
        seen = await next_proposal(human)
        record = seen.record()
        assert record == {
            "proposalId": proposal.id,
            "proposer": "agent",
            "target": ["host"],
            "method": "tools/call",
            "params": {"name": "write", "arguments": {"path": "a"}},
            "status": "pending",
            "createdAt": seen.created,
            "expiresAt": record["expiresAt"],
        }
        assert record["expiresAt"] > record["createdAt"]
        assert human.proposals.open() == [seen]
        human.proposals._gateway_ahead_seconds += QUICK.proposal_seconds
        assert human.proposals.open() == []
        assert seen.status == "expired"
        with pytest.raises(Expired):
            await human.approve(seen)


@pytest.mark.requirement("MEW-8.2-10", "MEW-3.2.1-4")
async def test_handlers_and_readers_are_shown_every_proposal(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host = [await gateway.join(name) for name in ("agent", "human", "host")]
        done = await host_of(host)
        shown: list[str] = []

        @human.on_proposal
        async def decide(seen: SeenProposal) -> None:
            shown.append(seen.id)
            await human.approve(seen)

        arriving = human.proposals.incoming()
        first = asyncio.ensure_future(anext(arriving))
        await asyncio.sleep(0)
        outcomes = await asyncio.gather(*(agent.call("host", "write", {"path": str(n)}) for n in range(5)))
        assert [outcome.text for outcome in outcomes] == [f"wrote {n}" for n in range(5)]
        assert sorted(done) == ["0", "1", "2", "3", "4"]
        assert [outcome.proposal_id for outcome in outcomes] == shown
        # Each fulfilment is tied to its own proposal.
        for outcome in outcomes:
            seen = host.proposals.get(outcome.proposal_id or "")
            assert seen is not None
            assert seen.request_id == outcome.request_id
            assert seen.fulfilled_by == "human"
        assert isinstance(await first, SeenProposal)


async def test_a_member_that_comes_late_can_recall_what_is_open(tmp_path: Path) -> None:
    """D-40: the gateway's memory; nothing of it is taken for news."""
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host = [await gateway.join(name) for name in ("agent", "human", "host")]
        await host_of(host)
        kept = await agent.propose("host", "tools/call", {"name": "write", "arguments": {"path": "a"}})
        gone = await agent.propose("host", "tools/call", {"name": "write", "arguments": {"path": "b"}})
        await gone.withdraw()
        refused = await agent.propose(
            "host", "tools/call", {"name": "write", "arguments": {"path": "c"}}, wait_for_others=True
        )
        await human.reject(refused.id, "policy")
        chat = await human.chat("hello, whoever comes")
        late = await gateway.join("other")
        news: list[SeenProposal] = []
        late.on_proposal(news.append)
        assert late.proposals.open() == []
        fresh = await late.recall()
        assert chat.id in [envelope.id for envelope in fresh]
        assert [seen.id for seen in late.proposals.open()] == [kept.id, refused.id]
        assert [each.by for each in late.proposals.open()[1].rejections] == ["human"]
        assert chat.id in [each.id for each in late.chats.pending()]
        assert news == []
        assert await late.recall() == []
        assert (await late.approve(kept.id)).text == "wrote a"
        assert (await kept.outcome(timeout_seconds=HANG_SECONDS)).by == "other"
        assert late.violations.total == 0
        assert late.space == "lab"


async def test_the_first_of_several_hosts_to_fail_ends_the_wait(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human = await gateway.join("agent"), await gateway.join("human")
        host, _silent = await gateway.raw("host"), await gateway.raw("other")
        proposal = await agent.propose(("host", "other"), "tools/call", {"name": "x", "arguments": {}})
        approving = asyncio.create_task(human.approve(await next_proposal(human)))
        request = await host.hear("mcp/request")
        # The proposer waits for the answers by now.
        await until(lambda: proposal.state == "fulfilled")
        fault = {"jsonrpc": "2.0", "id": request["payload"]["id"], "error": {"code": 7, "message": "no"}}
        await host.say("mcp/response", fault, to=["human"], about=[request["id"]])
        for wait in (approving, proposal.outcome()):
            async with bounded():
                with pytest.raises(McpError, match="no"):
                    await wait


async def test_a_proposal_without_a_host_needs_one_to_be_fulfilled(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human, host = [await gateway.join(name) for name in ("agent", "human", "host")]
        await host_of(host)
        call = asyncio.create_task(
            agent.perform((), "tools/call", {"name": "write", "arguments": {"path": "a"}})
        )
        seen = await next_proposal(human)
        with pytest.raises(UsageError, match="to="):
            await human.approve(seen)
        await human.approve(seen, to="host")
        assert (await call).text == "wrote a"
        with pytest.raises(UsageError, match="was seen"):
            await human.approve("p-unknown")


@pytest.mark.requirement("MEW-3-54", "MEW-3-55")
async def test_withdraw_and_reject_without_a_proposal_are_neither_sent_nor_believed(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, **PEOPLE) as gateway:
        agent, human = await gateway.join("agent"), await gateway.join("human")
        for kind in ("mcp/withdraw", "mcp/reject"):
            with pytest.raises(UsageError, match="correlation_id"):
                await human.send(kind, {"reason": "other"})
        proposal = await agent.propose("host", "tools/call", {"name": "write", "arguments": {}})
        other = await gateway.raw("other")
        await other.say("mcp/reject", {"reason": "unsafe"})
        await other.say("mcp/withdraw", {"reason": "other"})
        await other.fence()
        await settled_both(agent, human)
        assert proposal.state == "pending"
        assert agent.violations.of("other") == {"bad_payload": 2}
        seen = human.proposals.get(proposal.id)
        assert seen is not None
        assert seen.rejections == []
        await proposal.withdraw()
