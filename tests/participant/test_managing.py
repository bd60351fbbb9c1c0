"""Grants, invitations and removals (MEW 3.6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from moot.errors import CapabilityViolation, InvalidOperation, InvalidRequest, NotAllowed, ParticipantNotFound
from moot.participant import connect
from moot.participant.connection.envelope_sender import SentEnvelope
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from tests.participant.gateway_with_members import PROPOSER, QUICK, ReceivedEnvelopes, gateway_with
from tests.waiting import HANG_SECONDS, until

WRITE: Json = {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "write"}}}


async def test_an_acknowledgement_that_is_read_together_with_our_own_grant_counts(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=["*"], agent=PROPOSER) as gateway:
        human, agent = [await gateway.join(name) for name in ("human", "agent")]
        heard = ReceivedEnvelopes(human)
        grant = await human.admin.grant("agent", [WRITE], ack_timeout_seconds=0)
        await heard.wait("capability/grant-ack")
        sent = SentEnvelope(grant.id, "", "capability/grant")
        acks = human.admin._acks
        assert (await acks.wait(sent, HANG_SECONDS, agent.me)).payload == {"status": "accepted"}


@pytest.mark.requirement("MEW-3.6.1-10", "MEW-3.6.3-1")
async def test_a_grant_turns_proposals_into_requests_and_is_acknowledged(tmp_path: Path) -> None:
    """MEW 3.6.1, 9.2: the acknowledgement comes after the new welcome."""
    async with gateway_with(tmp_path, human=["*"], agent=PROPOSER, host=[]) as gateway:
        human, agent, host = [await gateway.join(name) for name in ("human", "agent", "host")]
        received = ReceivedEnvelopes(agent)

        @host.tool
        def write() -> str:
            return "ok"

        assert not agent.may_request("host", "tools/call", {"name": "write"})
        grant = await human.admin.grant("agent", [WRITE], reason="you did well")
        assert grant.acknowledged == "accepted"
        assert agent.may_request("host", "tools/call", {"name": "write"})
        assert not agent.may_request("host", "tools/call", {"name": "erase"})
        ack = await received.wait("capability/grant-ack")
        assert ack.correlation_id == [grant.id]
        assert ack.to == ["human"]
        assert ack.payload == {"status": "accepted"}
        kinds = [each.kind for each in received.envelopes]
        assert kinds.index("system/welcome") < kinds.index("capability/grant-ack")
        assert (await agent.call("host", "write")).how == "direct"
        revocation = await human.admin.revoke("agent", grant_id=grant.id, reason="enough")
        assert revocation.remaining == []
        await until(lambda: not agent.may_request("host", "tools/call", {"name": "write"}))


async def test_what_cannot_be_granted_is_told(tmp_path: Path) -> None:
    granter = ["capability/grant", "capability/revoke", "chat"]
    async with gateway_with(tmp_path, human=granter, agent=["chat"], mute=["chat"]) as gateway:
        human, mute = await gateway.join("human"), await gateway.join("mute")
        with pytest.raises(CapabilityViolation, match="do not hold yourself"):
            await human.admin.grant("agent", [WRITE])
        with pytest.raises(ParticipantNotFound):
            await human.admin.grant("nobody", ["chat"])
        with pytest.raises(InvalidOperation):
            await human.admin.grant("human", ["chat"])
        with pytest.raises(NotAllowed):
            await mute.admin.grant("agent", ["chat"])
        with pytest.raises(InvalidRequest):
            await human.admin.revoke("agent", grant_id="never")
        # Somebody who is away gets the right all the same, and nobody waits for a word of it.
        grant = await human.admin.grant("agent", [read_capability({"kind": "chat"})])
        assert grant.acknowledged is None


async def test_a_revocation_that_leaves_something_says_what(tmp_path: Path) -> None:
    """D-18: revoke_incomplete."""
    async with gateway_with(
        tmp_path, human=["*"], agent=[{"kind": "mcp/request", "payload": {"method": "x/*"}}]
    ) as gateway:
        human, _ = await gateway.join("human"), await gateway.join("agent")
        await human.admin.grant("agent", [{"kind": "mcp/request", "payload": {"method": "x/a"}}])
        revocation = await human.admin.revoke(
            "agent", capabilities=[{"kind": "mcp/request", "payload": {"method": "x/a"}}]
        )
        await until(lambda: bool(revocation.remaining))
        assert revocation.remaining == [{"kind": "mcp/request", "payload": {"method": "x/*"}}]
        assert human.counts.unasked_refusals == 0


async def test_an_invitation_brings_a_token_to_the_inviter_alone(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, human=["*"], watch=["chat"]) as gateway:
        human, watcher = await gateway.join("human"), await gateway.join("watch")
        received = ReceivedEnvelopes(watcher)
        invitation = await human.admin.invite("newcomer", [{"kind": "chat"}], reason="welcome")
        assert invitation.status == "created"
        assert invitation.token
        assert invitation.token not in repr(invitation)
        invited = await received.wait(lambda each: each.payload.get("event") == "invited")
        assert invited.payload["participant"]["id"] == "newcomer"
        assert invitation.token.encode() not in b"".join(each.raw for each in received.envelopes)
        async with connect(gateway.url, "lab", invitation.token, limits=QUICK) as newcomer:
            assert newcomer.me == "newcomer"
            await newcomer.chat("hello")
        assert (await human.admin.invite("newcomer")).status == "already_exists"
        refused = await human.admin.invite("other", [{"kind": "chat"}], email="a@example.org")
        assert refused.status == "created"
        with pytest.raises(InvalidRequest):
            await human.admin.invite("bad name!")


async def test_a_kicked_member_is_out_for_good(tmp_path: Path) -> None:
    """D-24, close code 4003: no coming back by itself."""
    async with gateway_with(tmp_path, human=["*"], agent=["chat"]) as gateway:
        human, agent = await gateway.join("human"), await gateway.join("agent")
        await human.admin.kick("agent", "misbehaved")
        ending = await agent.stay()
        assert ending.code == 4003
        assert "misbehaved" in ending.reason
        await until(lambda: "agent" not in human.roster)
        with pytest.raises(ParticipantNotFound):
            await human.admin.kick("nobody")
