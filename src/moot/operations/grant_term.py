"""How long a grant lasts. The gateway keeps it, so that it ends whether or not this terminal is open."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

_HOUR_SECONDS: Final = 3_600


def local_time() -> datetime:
    """The time where this terminal is."""
    return datetime.now().astimezone()


@dataclass(frozen=True, slots=True)
class GrantTerm:
    """One choice, shortest first in `GRANT_TERMS`."""

    name: Literal["once", "one hour", "today", "until revoked"]

    @property
    def max_uses(self) -> int | None:
        return 1 if self.name == "once" else None

    def expires_in_seconds(self, now: datetime) -> float | None:
        """For the person at this terminal: a day ends at their midnight."""
        if self.name == "one hour":
            return _HOUR_SECONDS
        if self.name == "today":
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
            return max(1, int(midnight.timestamp() - now.timestamp()))
        return None

    def text(self, now: datetime) -> str:
        """For "agent can do this …"."""
        if self.name == "one hour":
            return f"until {now + timedelta(seconds=_HOUR_SECONDS):%H:%M}"
        return {
            "once": "one more time",
            "today": "until midnight",
            "until revoked": "until someone revokes it",
        }[self.name]


GRANT_TERMS: Final = (
    GrantTerm("once"),
    GrantTerm("one hour"),
    GrantTerm("today"),
    GrantTerm("until revoked"),
)
# Long enough for the work at hand, short enough to be forgotten without harm.
DEFAULT_TERM: Final = GRANT_TERMS[1]
