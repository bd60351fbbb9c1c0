"""How fast one member may send: messages and bytes per second (ladder step 2)."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from moot.errors import RateLimited
from moot.space.config import SpaceLimits

# A burst of one second's worth is fine; a flood is not.
BURST_SECONDS = 1.0


class SendRate(NamedTuple):
    """How long one message and one byte take at the allowed speed; 0 is unlimited."""

    seconds_per_message: float
    seconds_per_byte: float

    @classmethod
    def of(cls, limits: SpaceLimits) -> SendRate:
        messages, octets = limits.messages_per_second, limits.bytes_per_second
        if not messages and not octets:
            return UNLIMITED
        return cls(1 / messages if messages else 0.0, 1 / octets if octets else 0.0)


UNLIMITED: Final = SendRate(0.0, 0.0)


class SendRateLimiter:
    """Two leaky buckets, each kept as the moment at which it will have drained.

    A refused message takes nothing from them. One message larger than a second's worth of bytes passes
    when nothing is owed: how large a message may be is another limit. The fast path counts the messages that
    it takes as `check_rate` does (`gateway/hosting/_fast_path.pyx`).
    """

    __slots__ = ("bytes_drained", "messages_drained")

    def __init__(self) -> None:
        self.messages_drained = 0.0
        self.bytes_drained = 0.0

    def check_rate_ahead(self, now: float, rate: SendRate) -> None:
        """Raise RateLimited if `check_rate` would, whatever comes next. Counts nothing."""
        per_message, per_byte = rate
        full = now + BURST_SECONDS
        if self.messages_drained > full + per_message:
            # The clock went back, as below.
            return
        if per_message and self.messages_drained + per_message > full:
            raise _too_fast("messages_per_second", self.messages_drained + per_message - full)
        if per_byte and self.bytes_drained > full:
            raise _too_fast("bytes_per_second", self.bytes_drained - full)

    def check_rate(self, size: int, now: float, rate: SendRate) -> None:
        """Count one message of `size` bytes, or raise RateLimited with `retry_after` seconds."""
        per_message, per_byte = rate
        messages, octets = self.messages_drained, self.bytes_drained
        if messages > now + BURST_SECONDS + per_message:
            # The clock went back: nobody is locked out for that.
            messages = octets = now
        if messages < now:
            messages = now
        if octets < now:
            octets = now
        if per_message:
            messages += per_message
            if messages > now + BURST_SECONDS:
                raise _too_fast("messages_per_second", messages - now - BURST_SECONDS)
        if per_byte:
            if octets > now + BURST_SECONDS:
                raise _too_fast("bytes_per_second", octets - now - BURST_SECONDS)
            octets += size * per_byte
        self.messages_drained, self.bytes_drained = messages, octets

    def charge(self, size: int, now: float, rate: SendRate) -> None:
        """Count bytes that the gateway writes to answer a message, as if they had been sent."""
        self.bytes_drained = max(self.bytes_drained, now) + size * rate.seconds_per_byte


def _too_fast(limit: str, wait: float) -> RateLimited:
    # Rounded up: whoever waits that long must not be refused again.
    seconds = (math.floor(wait * 1000) + 1) / 1000
    return RateLimited(f"too fast for {limit}: try again in {seconds} s", limit=limit, retry_after=seconds)
