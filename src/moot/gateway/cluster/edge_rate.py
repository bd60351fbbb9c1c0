"""How fast members may send in a cluster: counted by the gateway that they are connected to, before the log.

What was counted is no part of a space's state, so that gateways would come to different verdicts.
"""

from __future__ import annotations

import asyncio
from typing import Final

from moot.space.config import Name
from moot.space.send_rate import SendRate, SendRateLimiter
from moot.space.space import Space

# No participant can have a space in its name.
_ALL_GUESTS: Final = "all guests"


class EdgeRate:
    """Step 2 of the ladder, for what this gateway receives."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._limiters: dict[str, SendRateLimiter] = {}
        space.state.limit_rate_at_edge()

    def check(self, who: str, size: int) -> None:
        """Count one message; raises RateLimited."""
        rated = self._rated_as(who)
        limiter = self._limiters.get(rated)
        if limiter is None:
            members = self._space.state.roster.members
            if len(self._limiters) > 2 * len(members) + 64:
                kept = {*members, _ALL_GUESTS}
                self._limiters = {name: each for name, each in self._limiters.items() if name in kept}
            limiter = self._limiters[rated] = SendRateLimiter()
        limiter.check_rate(size, asyncio.get_running_loop().time(), self._rate)

    def check_ahead(self, who: str) -> None:
        """Raises RateLimited if whatever this member sends next is too fast. Counts nothing."""
        limiter = self._limiters.get(self._rated_as(who))
        if limiter is not None:
            limiter.check_rate_ahead(asyncio.get_running_loop().time(), self._rate)

    @property
    def _rate(self) -> SendRate:
        return SendRate.of(self._space.state.limits)

    def _rated_as(self, who: str) -> str:
        """Guests share a rate, as in a space without a cluster."""
        member = self._space.state.roster.members.get(Name(who))
        return _ALL_GUESTS if member is not None and member.anonymous else who
