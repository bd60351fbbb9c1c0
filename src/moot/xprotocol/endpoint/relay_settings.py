"""Settings of the relay client: timeouts, limits, and how far back it reads after a reconnect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moot.net.websocket_client import DialLimits
from moot.xprotocol.events.events import MAX_EVENT_BYTES

_DIAL: Final = DialLimits(message_bytes=MAX_EVENT_BYTES + 1_024)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayClientSettings:
    """XP 3.1 names the first; the others are ours."""

    # XP 3.1: wait after all relays have failed.
    reconnect_interval_seconds: float = 5.0
    # Published events without an OK.
    max_pending_events: int = 1_024
    # Invalid messages on one connection; then it is closed.
    dial: DialLimits = _DIAL
