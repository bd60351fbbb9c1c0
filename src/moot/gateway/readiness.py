"""Whether the gateway is ready, from the first bound port to the last flushed journal.

    starting ──every space open──▶ running ──told to stop──▶ stopping

While it runs it is degraded as long as a journal cannot be written (D-85).
"""

from __future__ import annotations

from typing import Literal

from moot.gateway.access import SpaceDirectory
from moot.net.probes import Reason

Phase = Literal["starting", "running", "stopping"]


class Readiness:
    """The phase of one gateway, and what keeps it from being ready."""

    def __init__(self, directory: SpaceDirectory) -> None:
        self.phase: Phase = "starting"
        self._directory = directory

    @property
    def is_degraded(self) -> bool:
        return not all(host.journal.writable for host in self._directory.hosts.values())

    @property
    def reason(self) -> Reason | None:
        """Why it is not ready; None when it is."""
        if self.phase != "running":
            return self.phase
        return "degraded" if self.is_degraded else None
