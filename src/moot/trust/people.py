"""Whose approvals teach: people, told apart from agents and tool servers by a right that only they hold.

A person of a space is a member who may say `trust/accept`, as its rights in the roster show. Whoever may not
accept a rule does not teach one either: an agent that may call tools itself and fulfils what others propose,
a bridge, another approver. Anybody's rejection counts, since it only keeps rules from being suggested.

Rights are seen of members who are here, so what was seen last is kept: Alice's approvals of yesterday teach
while she is away, and no longer once she came back without the right.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

ACCEPT: Final = "trust/accept"
# More than a space has members; beyond it nobody new is learned from.
MAX_PEOPLE: Final = 10_000


class SeenMember(Protocol):
    """A member as the roster shows it."""

    @property
    def name(self) -> str: ...
    def may(self, kind: str, /) -> bool: ...


def people_among(members: Iterable[SeenMember], before: frozenset[str], *, me: str) -> frozenset[str]:
    """The people known so far, with what the rights of those who are here say now. We are never one."""
    present = list(members)
    # One member may be here twice, under several runtime ids: every one of them must hold the right.
    without = {member.name for member in present if not member.may(ACCEPT)} | {me}
    found = (before | {member.name for member in present}) - without
    return found if len(found) <= MAX_PEOPLE else before - without
