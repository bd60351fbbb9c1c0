"""How an endpoint uses its relays: waits, bounds, and how far back it asks after a break."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moot.net.websocket_client import DialLimits
from moot.xprotocol.events import DEFAULT_TTL_SECONDS, MAX_EVENT_BYTES, SKEW_SECONDS

_DIAL: Final = DialLimits(message_bytes=MAX_EVENT_BYTES + 1_024)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaysSettings:
    """All of it has a number; XP 3.1 names the first."""

    # XP 3.1: between two rounds of trying all relays.
    reconnect_interval_seconds: float = 5.0
    # On a fall-back: how often the first relay is tried, because others meet there.
    return_seconds: float = 60.0
    # A relay that has not said OK by then is left for the next one, and the event goes there.
    ok_seconds: float = 10.0
    # Challenge and proof, together.
    proof_seconds: float = 10.0
    # Events that wait for their OK.
    publish_waiting: int = 1_024
    # Between two tries of an event that the relay would not take just then.
    retry_seconds: float = 1.0
    # What one subscription holds before the socket is read no further.
    queue_events: int = 1_024
    queue_bytes: int = 16 << 20
    # An event can come to a relay until it expires. Whoever was away since `t` misses nothing when it asks
    # for all that were made since `t` minus the longest lifetime that its peers use, and the skew.
    overlap_seconds: int = DEFAULT_TTL_SECONDS + SKEW_SECONDS
    # Some 100 bytes each; more than comes within the overlap, or an event may be heard twice.
    remembered_events: int = 200_000
    # Messages that are none, from one connection; then it is no relay worth having.
    faults: int = 20
    dial: DialLimits = _DIAL
