"""Joins as soon as the gateway is there: a client does not start us again because its gateway came later."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

from moot.bridges.space.late_backend import LateBackend
from moot.errors import Unreachable
from moot.participant import CloseReason


async def join_when_reachable(late: LateBackend, join: Callable[[], Awaitable[CloseReason]]) -> CloseReason:
    """Call `join` until it reaches the gateway; what it returns. Other errors than Unreachable pass."""
    while True:
        try:
            return await join()
        except Unreachable as fault:
            if not late.problem:
                print(f"moot: {fault}. Waiting for it.", file=sys.stderr, flush=True)
            late.report_problem(str(fault))
