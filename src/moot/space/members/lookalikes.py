"""Names that people take for others: `Alice`, `aIice` and `a1ice` beside `alice`.

Ids have ASCII letters, digits and `._:-` alone, so that the letters of other alphabets are no concern here.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from moot.errors import InvalidRequest
from moot.space.members.member import SpaceMember
from moot.space.members.roster import SpaceRoster

# By lower case: what looks alike in common fonts, and what is easily passed over.
_ALIKE: Final = str.maketrans("01i", "oll", "._:-")


@lru_cache(maxsize=1 << 15)
def _skeleton(name: str) -> str:
    """The same for all names that look alike."""
    return name.lower().translate(_ALIKE).replace("rn", "m").replace("vv", "w")


def find_lookalike(name: str, others: Iterable[str]) -> str | None:
    """One of the others that people take this name for, if there is one."""
    wanted = _skeleton(name)
    return next((other for other in others if _skeleton(other) == wanted), None)


def find_taken(roster: SpaceRoster, name: str, *, by: SpaceMember | None = None) -> str | None:
    """The name or id of somebody in the space, other than `by`, whom people take this name for."""
    names = (each for each, member in roster.members.items() if member is not by)
    ids = (each for each, member in roster.aliases.items() if member is not by)
    return find_lookalike(name, names) or find_lookalike(name, ids)


def check_id(roster: SpaceRoster, id: str, *, by: SpaceMember | None = None) -> None:
    """Raises InvalidRequest for an id that people would take for somebody else's than `by`."""
    _check(id, find_taken(roster, id, by=by))


def check_name(roster: SpaceRoster, name: str) -> None:
    """The same for the name of a new member.

    Guests and ids that members gave themselves block no name, and neither does whoever was removed.
    """
    others = (member.name for member in roster if not member.anonymous and not member.kicked)
    _check(name, find_lookalike(name, others))


def _check(name: str, taken: str | None) -> None:
    """For those who come in now: what a journal says about earlier ones stays as it was."""
    if taken is not None and taken != name:
        raise InvalidRequest(f"{name!r} looks like the participant {taken!r}: take another name")
