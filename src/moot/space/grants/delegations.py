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

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from moot.protocol.envelope import Envelope, rfc3339
from moot.protocol.exact_numbers import with_exact_numbers
from moot.protocol.kinds import DELEGATED_KINDS
from moot.protocol.operation import Json
from moot.space.config import Name
from moot.space.grants.grant_limits import rights_at
from moot.space.members.member import Session

if TYPE_CHECKING:
    from moot.space.state import State


class DelegationRecord(msgspec.Struct, frozen=True):
    """One delegation: `id` is the message that made it."""

    id: str
    giver: Name
    delegate: Name
    until: float
    reason: str | None = None


class DelegationTable:
    """The delegations of a space, one from each giver to each delegate; those that are over do not count."""

    def __init__(self) -> None:
        self._by_pair: dict[tuple[Name, Name], DelegationRecord] = {}

    def __bool__(self) -> bool:
        return bool(self._by_pair)

    def living(self, now: float) -> Iterator[DelegationRecord]:
        return (each for each in self._by_pair.values() if now < each.until)

    def givers_to(self, delegate: Name, now: float) -> tuple[Name, ...]:
        """Who lets this member decide, the first first."""
        return tuple(each.giver for each in self.living(now) if each.delegate == delegate)

    def add(self, delegation: DelegationRecord, now: float) -> None:
        """Take in a new one, in place of an earlier one between the same two."""
        self._by_pair = {(each.giver, each.delegate): each for each in self.living(now)}
        self._by_pair[delegation.giver, delegation.delegate] = delegation

    def delegates_of(self, giver: Name, now: float) -> set[Name]:
        """Who decides in this member's place."""
        return {each.delegate for each in self.living(now) if each.giver == giver}

    def end(self, giver: Name, delegate: Name) -> bool:
        """Whether there was one."""
        return self._by_pair.pop((giver, delegate), None) is not None

    def forget(self, name: Name) -> None:
        """A member is removed: nobody decides in its place, and it decides in nobody's."""
        self._by_pair = {pair: each for pair, each in self._by_pair.items() if name not in pair}

    def end_before(self, latest: float) -> None:
        """It is later than it seemed."""
        self._by_pair = {pair: each for pair, each in self._by_pair.items() if latest < each.until}

    def save(self) -> list[Json]:
        return [msgspec.to_builtins(each) for each in self._by_pair.values()]

    @classmethod
    def load(cls, saved: list[Any]) -> DelegationTable:
        table = cls()
        for each in msgspec.convert(saved, list[DelegationRecord]):
            table._by_pair[each.giver, each.delegate] = each
        return table


def find_giver(state: State, session: Session, envelope: Envelope, now: float) -> Name | None:
    """In whose place a member may send this; None: in nobody's."""
    if envelope.kind not in DELEGATED_KINDS or not state.delegations:
        return None
    named = state.ledger.named_in(envelope.correlation_id)
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
