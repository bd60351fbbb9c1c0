"""Whether the gateway is ready, from the first bound port to the last flushed journal.

    starting ──every space open──▶ running ──told to stop──▶ stopping

While it runs it is degraded as long as a journal cannot be written (D-85), and while it is cut off from its
cluster.
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

    @property
    def is_degraded(self) -> bool:
        return self.is_cut_off() or not all(host.journal.writable for host in self._directory.hosts.values())

    @property
    def reason(self) -> Reason | None:
        """Why it is not ready; None when it is."""
        if self.phase != "running":
            return self.phase
        return "degraded" if self.is_degraded else None
