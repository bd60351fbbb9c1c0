"""Why the gateway ends a connection, and whether the client may come back (one table for all sides)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class CloseCode(NamedTuple):
    """One WebSocket close code: its number, what it means, whether reconnecting by itself is welcome."""

    number: int
    meaning: str
    reconnect: bool


GOING_AWAY: Final = 1001
POLICY: Final = 1008
TOO_BIG: Final = 1009
MOVED: Final = 1012
TRY_AGAIN: Final = 1013
REPLACED: Final = 4001
SHUT_DOWN: Final = 4002
REMOVED: Final = 4003

CLOSE_CODES: Final[Mapping[int, CloseCode]] = {
    row.number: row
    for row in (
        CloseCode(1000, "the client left", False),
        CloseCode(GOING_AWAY, "the gateway is stopping", True),
        CloseCode(POLICY, "not admitted: no or bad credentials, or the protocol was broken", False),
        CloseCode(TOO_BIG, "a message was larger than this gateway takes", True),
        CloseCode(1011, "a fault of the gateway", True),
        CloseCode(MOVED, "this gateway no longer serves the space: connect to another one", True),
        CloseCode(TRY_AGAIN, "read too slowly, or too many connections: come back later", True),
        CloseCode(REPLACED, "a newer connection of the same exclusive participant took over (D-22)", False),
        CloseCode(SHUT_DOWN, "participant/shutdown: rejoin when asked to (D-26)", False),
        CloseCode(
            REMOVED, "removed from the space, or its token was replaced or removed (D-24, D-101)", False
        ),
    )
}
