"""Settings of the relay client: timeouts, limits, and how far back it reads after a reconnect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moot.net.websocket_client import DialLimits
from moot.xprotocol.events.events import DEFAULT_TTL_SECONDS, MAX_EVENT_BYTES, SKEW_SECONDS

_DIAL: Final = DialLimits(message_bytes=MAX_EVENT_BYTES + 1_024)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayClientSettings:
    """XP 3.1 names the first; the others are ours."""

    # XP 3.1: wait after all relays have failed.
    reconnect_interval_seconds: float = 5.0
    # On a fallback: how often the preferred relay is tried.
    preferred_retry_seconds: float = 60.0
    # A relay that has not confirmed an event by then is dropped for the next one, and the event goes there.
    ok_timeout_seconds: float = 10.0
    # Challenge and proof together.
    auth_timeout_seconds: float = 10.0
    # Published events without an OK.
    max_pending_events: int = 1_024
    # Between two tries of an event that the relay refused for the moment.
    publish_retry_seconds: float = 1.0
    # Queue of one subscription; when it is full, the socket is not read.
    max_queued_events: int = 1_024
    max_queued_bytes: int = 16 << 20
    # An event can reach a relay until it expires. After a break since `t`, nothing is missed if the client
    # reads everything created since `t` minus the longest lifetime that its peers use, and the clock skew.
    overlap_seconds: int = DEFAULT_TTL_SECONDS + SKEW_SECONDS
    # Hashes of some 100 bytes; must cover the overlap, or an event may be delivered twice.
    max_seen_events: int = 200_000
    # Invalid messages on one connection; then it is closed.
    max_faults: int = 20
    dial: DialLimits = _DIAL
