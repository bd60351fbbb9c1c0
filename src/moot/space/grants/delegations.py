"""Delegations: while somebody is away, another member decides proposals in their place.

A delegation holds no capabilities. Whatever a delegate sends that its own rights do not allow is held against
what the giver may do at this moment, so that it never gives more than that, and ends with the giver's right,
pause or membership. It is for decisions alone:

- requests that carry out a proposal, votes and rejections, and nothing else;
- on proposals of neither the delegate nor the giver;
- by rights that the giver may hand on: not those for a time or a number of uses (MEW 3.6.8), and none that
  the giver has by a delegation;
- a vote counts as the giver's, and whoever voted by themselves does not count again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moot.protocol.envelope import Envelope, rfc3339
from moot.protocol.exact_numbers import with_exact_numbers
from moot.protocol.kinds import DELEGATED_KINDS
from moot.protocol.operation import Json
from moot.space.config import Name
from moot.space.grants.grant_limits import rights_at
from moot.space.members.member import Session

if TYPE_CHECKING:
    from moot.space.state import State


def find_giver(state: State, session: Session, envelope: Envelope, now: float) -> Name | None:
    """In whose place a member may send this; None: in nobody's."""
    if envelope.kind not in DELEGATED_KINDS or not state.delegations:
        return None
    named = state.ledger.named_in(tuple(envelope.correlation_id))
    proposers = {each.proposer for each in named}
    name = session.member.name
    if not named or name in proposers:
        return None
    # What a token carries is less than all, and nobody said that this is among it.
    is_limited = session.options.limited_to is not None or not session.has_all_rights
    if is_limited or any(each.state_at(now) != "open" for each in named):
        return None
    givers = state.delegations.givers_to(name, now)
    return next((each for each in givers if each not in proposers and _may(state, each, envelope, now)), None)


def acting_for(state: State, session: Session, envelope: Envelope, now: float) -> Name | None:
    """In whose place a member sends this, because its own rights do not allow it."""
    if not state.delegations:
        return None
    rights, to = rights_at(state, session, now), state.resolve_names(envelope.to)
    if rights.allow(envelope.kind, envelope.payload, to, claim=envelope.claim):
        return None
    return find_giver(state, session, envelope, now)


def _may(state: State, giver: Name, envelope: Envelope, now: float) -> bool:
    member = state.roster.members.get(giver)
    if member is None or member.kicked:
        return False
    if member.pause is not None and not member.pause_is_over(now) and state.config.enforce_pause:
        return False
    rights, payload = member.lasting_rights, envelope.payload
    if rights.compares_numbers and not state.replaying:
        payload = with_exact_numbers(envelope.raw, payload)
    return rights.allow(envelope.kind, payload, state.resolve_names(envelope.to), claim=envelope.claim)


def describe_delegations(state: State, now: float) -> list[Json]:
    """Those that hold, for whoever asks."""
    return [
        {
            "delegation_id": each.id,
            "from": state.runtime_ids([each.giver])[0],
            "to": state.runtime_ids([each.delegate])[0],
            "until": rfc3339(each.until),
            **({"reason": each.reason} if each.reason else {}),
        }
        for each in state.delegations.living(now)
    ]
