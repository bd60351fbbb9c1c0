"""The probes of Kubernetes, Docker and load balancers: `/livez` and `/readyz`, the same on all our servers.

A probe connects to an address and not to a name, sends no secret and changes nothing. So it is answered
whatever its Host header says, with a status and a short text: no version, no names, no counts. A gateway of
a cluster tells for a name which part of the log that space is in, by which members and load balancers choose.
"""

from __future__ import annotations

from typing import Final, Literal

import orjson

LIVE_PATH: Final = "/livez"
READY_PATH: Final = "/readyz"
PROBE_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

Reason = Literal["starting", "degraded", "cut_off", "stopping", "not_served"]

_MESSAGES: Final[dict[Reason, str]] = {
    "starting": "not everything is open yet: try again in a moment",
    "degraded": "something it needs does not work: see /health and the log",
    "cut_off": "this gateway does not reach the log of its cluster: use another one",
    "stopping": "no new connections are accepted",
    "not_served": "this gateway does not serve that space now: use another one",
}


def liveness() -> tuple[int, bytes]:
    """The event loop answers, and that is all that this says."""
    return 200, orjson.dumps({"status": "ok"})


def readiness(reason: Reason | None, *, shard: int | None = None) -> tuple[int, bytes]:
    """200 when work can be sent here; otherwise 503 and why not."""
    told = {} if shard is None else {"shard": shard}
    if reason is None:
        return 200, orjson.dumps({"status": "ready"} | told)
    return 503, orjson.dumps({"status": reason, "message": _MESSAGES[reason]} | told)
