"""Whose approvals count for learning: people, recognised by a capability that only they hold.

A person is a member who may send `trust/accept`, as the roster shows. Approvals of other members do not
count: an agent that may call tools itself and fulfils what others propose, a bridge, another approver.
Anyone's rejection counts, since it only prevents suggestions.

Capabilities are only visible of members who are present, so the last known state is kept: Alice's approvals
of yesterday count while she is away, and no longer once she has come back without the capability.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

ACCEPT: Final = "trust/accept"
# More than a space has members; beyond this nobody is added.
MAX_PEOPLE: Final = 10_000


class SeenMember(Protocol):
    """A member as the roster shows it."""

    @property
    def name(self) -> str: ...
    def may(self, kind: str, /) -> bool: ...


def people_among(members: Iterable[SeenMember], before: frozenset[str], *, me: str) -> frozenset[str]:
    """The people known so far, updated by the capabilities of the present members. `me` is never one."""
    present = list(members)
    # A member may be connected several times: every connection must hold the capability.
    without = {member.name for member in present if not member.may(ACCEPT)} | {me}
    found = (before | {member.name for member in present}) - without
    return found if len(found) <= MAX_PEOPLE else before - without
