"""What members know of proposals that they have not looked at (decision 0259)."""

from __future__ import annotations

from pathlib import Path

import msgspec
from bench.approval_path import measure

from moot.participant.decisions.unread_proposals import MAX_UNREAD, UnreadProposals
from moot.protocol.dialects import DIALECTS
from tests.participant.gateway_with_members import PROPOSER, gateway_with
from tests.waiting import until


async def test_who_never_looks_at_proposals_follows_none_and_sees_them_all_when_it_looks(
    tmp_path: Path,
) -> None:
    """Decision 0259; a host checks all the same that it is asked for what was proposed (D-28)."""
    async with gateway_with(tmp_path, agent=PROPOSER, human=["*"], host=[]) as gateway:
        agent, human = await gateway.join("agent"), await gateway.join("human")
        host = await gateway.join("host")
        host.tool(lambda text: text, name="echo")
        params = {"name": "echo", "arguments": {"text": "x"}}
        made = await agent.propose("host", "tools/call", params)
        await until(lambda: len(human.proposals.open()) == 1)
        await human.approve(made.id)
        outcome = await made.outcome()
        pending = await agent.propose("host", "tools/call", params)
        await until(lambda: human.proposals.get(pending.id) is not None)
        assert not host._parts.proposals.is_followed
        assert human._parts.proposals.is_followed
        done = host.proposals.get(made.id)
        assert done is not None
        assert (done.state, done.fulfilled_by, done.result) == ("done", human.roster.own_id, outcome.result)
        assert [seen.id for seen in host.proposals.open()] == [pending.id]


def test_what_nobody_looks_at_is_bounded_and_the_oldest_goes_first() -> None:
    unread = UnreadProposals()
    fields = {"protocol": "mew/v0.4", "ts": "2026-01-05T10:00:00Z", "from": "agent", "to": ["host"]}
    body = {"method": "tools/call", "params": {"name": "echo"}}
    for number in range(MAX_UNREAD + 5):
        made = fields | {"id": f"p{number}", "kind": "mcp/proposal", "payload": body}
        unread.add(DIALECTS["mew"].decode(msgspec.json.encode(made)), 0.0, "agent")
    assert len(unread.messages) == len(unread.proposals) == MAX_UNREAD
    assert "p4" not in unread.proposals
    assert "p5" in unread.proposals


async def test_an_approval_goes_through_no_more_code_than_this() -> None:
    """`python -m bench.approval_path`: 428 and 107, a few more if the disk answers in other portions."""
    count = await measure()
    assert count.calls.total() < 460
    assert count.room_changes < 115
