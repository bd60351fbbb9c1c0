"""Grants that end by themselves: at a time, or after a number of uses.

`capability/grant` may say `expires_in_seconds`, `max_uses`, or both; whoever does not know these fields
ignores them. The space keeps both, so that no client has to be there when a grant ends:

    a time    is a deadline by the space's clock. It is looked at for every message too, so that a late timer
              gives nobody a moment more.
    a use     is an accepted message that nothing else allows. It is counted before anybody receives the
              message, and is on disk before that (`waits_for_disk`).

When a grant ends, everybody is told with a `capability/revoke` of the gateway, and its holder with a welcome.
Such a grant cannot be handed on. Where it is not known how much time or how many uses are left, it is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from moot.errors import InvalidRequest, ResourceLimit
from moot.protocol.operation import Json, Payload
from moot.protocol.patterns import Rights
from moot.space.effects import Effect, Mint
from moot.space.grants.grant_table import GrantRecord
from moot.space.members.listing import welcome_again
from moot.space.members.member import Session

if TYPE_CHECKING:
    from moot.space.state import State

GrantEnd = Literal["expired", "used_up", "clock_lost"]

# Capabilities in one grant or invitation.
MAX_CAPABILITIES: Final = 64
# The same in bytes: four of the longest, or five hundred ordinary ones.
MAX_CAPABILITY_BYTES: Final = 65_536
# A grant that ends at a time ends within a year; one that is meant to last says no time.
MAX_EXPIRY_SECONDS: Final = 366 * 86_400
# Uses of a grant that counts them.
MAX_USES: Final = 1_000_000


def read_grant_limits(state: State, payload: Payload) -> tuple[float | None, int | None]:
    """How long a grant lasts and how often it may be used, None where it does not say; or InvalidRequest."""
    seconds, uses = payload.get("expires_in_seconds"), payload.get("max_uses")
    if not _is_number(seconds) or not (seconds is None or seconds > 0):
        if state.replaying:
            # Accepted by a version that did not read it.
            return None, None
        raise InvalidRequest(
            "payload.expires_in_seconds must be a positive number; without it a grant lasts until revoked"
        )
    if not _is_number(uses) or not (uses is None or (isinstance(uses, int) and uses > 0)):
        if state.replaying:
            return None, None
        raise InvalidRequest(
            "payload.max_uses must be a positive whole number; without it a grant may be used at will"
        )
    return seconds, uses


def _is_number(value: Json) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def check_grant_limits(seconds: float | None, uses: int | None) -> None:
    """Raises ResourceLimit."""
    if seconds is not None and seconds > MAX_EXPIRY_SECONDS:
        raise ResourceLimit(
            f"a grant may last {MAX_EXPIRY_SECONDS:g} seconds, or until it is revoked: "
            "leave expires_in_seconds out",
            limit="max_grant_expiry_seconds",
        )
    if uses is not None and uses > MAX_USES:
        raise ResourceLimit(
            f"a grant may count {MAX_USES} uses, or none: leave max_uses out",
            limit="max_grant_uses",
        )


def rights_at(state: State, session: Session, now: float, *, counted: bool = True) -> Rights:
    """What a session may do at this time, `counted` without the grants that have a number of uses."""
    if counted and now < state.grants.earliest_end:
        return session.rights
    member = session.member
    held = [
        capability
        for grant in state.grants.to(member.name)
        if grant.is_limited and not grant.is_over(now) and (counted or grant.uses_left is None)
        for capability in grant.capabilities
    ]
    if not held:
        return session.lasting_rights
    return session.rights_with([*member.lasting_granted, *held])


def counted_rights(
    state: State, session: Session, others: Rights, now: float
) -> Iterator[tuple[GrantRecord, Rights]]:
    """The member's grants that count their uses, oldest first, each with what it adds to `others`."""
    for grant in state.grants.to(session.member.name):
        if grant.uses_left is not None and not grant.is_over(now):
            added = session.limited_by_token(Rights(grant.capabilities))
            yield grant, Rights(dict.fromkeys([*others.capabilities, *added.capabilities]))


def count_use(state: State, grant: GrantRecord, now: float, mint: Mint) -> list[Effect]:
    """One use of a grant that counts them; the last one ends it."""
    # As it is by now: the message itself may have revoked it.
    current = state.grants.by_id.get(grant.id)
    if current is None or current.uses_left is None:
        return []
    if current.uses_left > 1:
        state.grants.add(msgspec.structs.replace(current, uses_left=current.uses_left - 1))
        return []
    return end_grants(state, [current], "used_up", now, mint)


def end_grants(
    state: State, grants: Sequence[GrantRecord], reason: GrantEnd, now: float, mint: Mint
) -> list[Effect]:
    """End grants that are limited, and tell everybody. Nothing rests on them, so nothing else falls."""
    effects: list[Effect] = []
    for grant in grants:
        state.grants.remove(grant.id)
        state.forget_grant(grant)
        recipient = state.roster.members[grant.recipient]
        payload: dict[str, Json] = {
            "recipient": recipient.id,
            "grant_id": grant.id,
            "capabilities": list(grant.capabilities),
            "reason": reason,
        }
        effects.append(
            state.announce(
                "capability/revoke", payload, now, mint, to=[recipient.id], correlation_id=[grant.id]
            )
        )
        if state.refresh(recipient):
            effects += welcome_again(state, [recipient], now, mint)
    return effects
