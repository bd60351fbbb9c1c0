"""How much a member may read over HTTP: as many requests and bytes a second as it may send.

Polls, pages of proposals and of the roster are made for whoever asks, up to megabytes at a time. Without a
limit, one member that asks in a loop on many connections keeps the event loop from all others.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from starlette.responses import Response

from moot.gateway.hosting.space_host import SpaceHost
from moot.space.send_rate import SendRate, SendRateLimiter

# Participants whose rate is remembered, the latest ones.
_MAX_KEYS: Final = 10_000


class HttpReadLimiter:
    """Counts what is answered to the members of one gateway."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limiters: OrderedDict[tuple[str, str], SendRateLimiter] = OrderedDict()

    def check(self, host: SpaceHost, member: str) -> None:
        """Count a request; raises RateLimited if it comes too early after those before."""
        self._limiter(host, member).check_rate(0, self._clock(), SendRate.of(host.space.state.limits))

    def charge(self, host: SpaceHost, member: str, response: Response) -> Response:
        """Count the bytes of an answer, which is given back: the next one has to wait for them."""
        rate = SendRate.of(host.space.state.limits)
        self._limiter(host, member).charge(len(response.body), self._clock(), rate)
        return response

    def _limiter(self, host: SpaceHost, member: str) -> SendRateLimiter:
        key = host.name, member
        limiter = self._limiters.get(key)
        if limiter is None:
            limiter = self._limiters[key] = SendRateLimiter()
            if len(self._limiters) > _MAX_KEYS:
                self._limiters.popitem(last=False)
        else:
            self._limiters.move_to_end(key)
        return limiter
