"""Whether the gateway is ready, from the first bound port to the last flushed journal.

    starting ──every space open──▶ running ──told to stop──▶ stopping

While it runs it is degraded as long as a journal cannot be written (D-85), and cut off while it does not
reach the log of its cluster: what it would answer may be old.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from moot.gateway.access import SpaceDirectory
from moot.net.probes import Reason

Phase = Literal["starting", "running", "stopping"]


class Readiness:
    """The phase of one gateway, and what keeps it from being ready."""

    def __init__(self, directory: SpaceDirectory) -> None:
        self.phase: Phase = "starting"
        self._directory = directory
        # In a cluster: whether this gateway does not reach the log, and serves nobody.
        self.is_cut_off: Callable[[], bool] = lambda: False
        # Whether it refuses messages and reads for that already; its connections wait a while longer.
        self.is_unavailable: Callable[[], bool] = lambda: False

    @property
    def reason(self) -> Reason | None:
        """Why it is not ready; None when it is."""
        if self.phase != "running":
            return self.phase
        if self.is_unavailable():
            return "cut_off"
        is_writable = all(host.journal.writable for host in self._directory.hosts.values())
        return None if is_writable else "degraded"
