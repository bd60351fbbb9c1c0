"""The vote that completes a quorum makes the call (D-103).

It happens in the step of the vote: both are one input, in one order with all others, so that a call is made
once whoever votes at the same moment, and also if the voter leaves at once. It is a request of the voter's,
with the voter's rights, and passes the ladder as any other; what refuses it leaves the votes as they are, and
the next vote, or whoever may make the call, tries again.

The journal keeps the requests with the vote. Replay makes those and no others: whether a host was there, and
which version ran then, is not known later.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE, Envelope, rfc3339
from moot.protocol.operation import Json
from moot.protocol.proposal_life import proposed_bytes
from moot.space.acts.approvals import announce_votes
from moot.space.effects import Deliver, Effect, Mint, Reply, Result
from moot.space.ladder import process_envelope
from moot.space.members.member import Session
from moot.space.proposals.proposal_ledger import ProposalRecord
from moot.space.state import State


def process_vote(
    state: State,
    session: Session,
    vote: Envelope,
    now: float,
    mint: Mint,
    *,
    made: Sequence[bytes] = (),
) -> list[Effect]:
    """A vote, what everybody is told of the count, and the calls that it completes.

    `made` are the requests of this vote in the journal, while it is replayed.
    """
    effects = process_envelope(state, session, vote, now, mint)
    first = effects[0] if effects else None
    if not isinstance(first, Deliver) or not isinstance(first.message, Envelope):
        return effects
    if state.replaying:
        for raw in made:
            effects += process_envelope(state, session, read_made(raw), now, mint)
        return effects
    told: dict[str, Json] = {}
    for proposal in state.ledger.named_in(vote.correlation_id):
        facts, calls = _carry_out(state, session, vote, proposal, now, mint)
        facts["vote_id"] = first.message.id
        effects += announce_votes(state, [proposal.id], now, mint, **facts)
        effects += [effect for effect in calls if not isinstance(effect, Result)]
        told = {"approvals_missing": proposal.approvals_missing(), **facts, **told}
    if session.options.injected:
        effects = [
            Result(each.session, {**told, **each.fields}) if isinstance(each, Result) else each
            for each in effects
        ]
    return effects


def read_made(raw: bytes) -> Envelope:
    """A request that the gateway made for a voter."""
    return DIALECTS["mew"].decode(raw, ANY_SIZE)


def made_requests(effects: Sequence[Effect]) -> list[bytes]:
    """The requests that were made for a voter, out of the effects of the vote, for the journal."""
    messages = (effect.message for effect in effects if isinstance(effect, Deliver))
    return [each.raw for each in messages if isinstance(each, Envelope) and each.kind == "mcp/request"]


def _carry_out(
    state: State, session: Session, vote: Envelope, proposal: ProposalRecord, now: float, mint: Mint
) -> tuple[dict[str, Json], list[Effect]]:
    """Make the call if it has its votes; what is to be told of that, and the effects."""
    if (
        not state.config.last_vote_carries_out
        or not proposal.approvals_needed
        or proposal.approvals_missing(session.member.name)
    ):
        return {}, []
    if not proposal.to or not proposal.raw:
        why = "it names no host: approve it and say who shall do it"
        return _not_carried_out("invalid_request", why), []
    # Earlier calls with its key, which the voter names: it is to be done again.
    again = [id for id in vote.correlation_id if state.effects.about(id)]
    request = _request(state, session, proposal, again, mint.id(), now)
    effects = process_envelope(state, session, request, now, mint)
    if effects and isinstance(effects[0], Reply):
        refusal = effects[0].notice.payload
        return _not_carried_out(refusal["error"], refusal["message"]), []
    return {"request_id": request.id}, effects


def _not_carried_out(error: str, message: str) -> dict[str, Json]:
    return {"not_carried_out": {"error": error, "message": message}}


def _request(
    state: State, session: Session, proposal: ProposalRecord, again: Sequence[str], id: str, now: float
) -> Envelope:
    """Exactly what was proposed, as a request of the voter's."""
    same = {name: orjson.Fragment(value) for name, value in proposed_bytes(proposal.raw).items()}
    payload: dict[str, Json] = {"jsonrpc": "2.0", "id": id, **same}
    fields: dict[str, Json] = {
        "protocol": DIALECTS["mew"].protocol,
        "id": id,
        "ts": rfc3339(now),
        "from": session.member.id,
        "to": state.runtime_ids(proposal.to),
        "kind": "mcp/request",
        "correlation_id": [proposal.id, *_open_originals(state, proposal, now), *again],
        "payload": payload,
    }
    return read_made(orjson.dumps(fields))


def _open_originals(state: State, proposal: ProposalRecord, now: float) -> list[str]:
    named = state.ledger.named_in(proposal.counters)
    return [each.id for each in named if each.state_at(now) == "open"]
