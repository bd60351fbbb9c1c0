"""What Kubernetes, Docker or a load balancer asks: `/livez` and `/readyz`, the same on every server of ours.

A probe comes from an address and not by a name, sends no secret and changes nothing. So it is answered
whatever its Host says, and its answer is a status and a few words: no version, no names, no counts.
"""

from __future__ import annotations

from typing import Final, Literal

import orjson

LIVE_PATH: Final = "/livez"
READY_PATH: Final = "/readyz"
PROBE_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

Reason = Literal["starting", "degraded", "stopping"]

_MESSAGES: Final[dict[Reason, str]] = {
    "starting": "not everything is open yet: ask again in a moment",
    "degraded": "something it needs does not work: /health and the log say more",
    "stopping": "no new connections are taken",
}


def liveness() -> tuple[int, bytes]:
    """Whoever can ask this was answered by the event loop, and that is all it says."""
    return 200, orjson.dumps({"status": "ok"})


def readiness(reason: Reason | None) -> tuple[int, bytes]:
    """200 when work can be sent here; otherwise 503 and why not."""
    if reason is None:
        return 200, orjson.dumps({"status": "ready"})
    return 503, orjson.dumps({"status": reason, "message": _MESSAGES[reason]})
