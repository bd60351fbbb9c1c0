"""How fast one member may talk: messages and bytes per second (ladder step 2)."""

from __future__ import annotations

from moot.errors import RateLimited
from moot.space.config import Limits

# A burst of one second's worth is fine; a flood is not.
BURST_SECONDS = 1.0


class Throttle:
    """Two leaky buckets, each kept as the moment at which it will have drained.

    A refused message takes nothing from them.
    """

    __slots__ = ("_bytes_drained", "_messages_drained")

    def __init__(self) -> None:
        self._messages_drained = 0.0
        self._bytes_drained = 0.0

    def check_rate(self, size: int, now: float, limits: Limits) -> None:
        """Count one message of `size` bytes, or raise RateLimited with `retry_after` seconds."""
        messages, octets = self._messages_drained, self._bytes_drained
        # A clock that went back must not lock anyone out.
        if messages > now + 2 * BURST_SECONDS:
            messages = now
        if limits.messages_per_second:
            messages = (messages if messages > now else now) + 1 / limits.messages_per_second
            if messages > now + BURST_SECONDS:
                raise _too_fast("messages_per_second", messages - now - BURST_SECONDS)
        if limits.bytes_per_second:
            # One message larger than a second's worth passes when nothing is owed: size limits judge it.
            if octets > now + BURST_SECONDS:
                raise _too_fast("bytes_per_second", octets - now - BURST_SECONDS)
            octets = (octets if octets > now else now) + size / limits.bytes_per_second
        self._messages_drained, self._bytes_drained = messages, octets


def _too_fast(limit: str, wait: float) -> RateLimited:
    seconds = max(round(wait, 3), 0.001)
    return RateLimited(f"too fast for {limit}: try again in {seconds} s", limit=limit, retry_after=seconds)
