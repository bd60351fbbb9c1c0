"""Inputs that the log of a cluster keeps: nothing waits for this gateway's own disk."""

from __future__ import annotations

import logging

from moot.gateway.hosting.durability import CarriedOut, PendingEffects
from moot.gateway.hosting.journaled_space import JournaledSpace

log = logging.getLogger(__name__)


class LogDurability:
    """Effects go out at once: whatever comes out of the log is kept, by NATS."""

    unsaved = None
    sends_at_once = True
    withholds = False
    lost_records = 0

    def __init__(self, journaled: JournaledSpace) -> None:
        self._journaled = journaled

    def check(self) -> None:
        """It was kept before it was applied."""

    def carry_out(self, entry: PendingEffects) -> None:
        if entry.waits:
            # Also in the copy soon: should a power cut take the end of the log, a right must not come back.
            self._journaled.journal.when_durable(entry.number, _nobody_waits)
        entry.finish(self._journaled.delivery, on_disk=True)

    def release(self) -> None:
        """Nothing waits."""

    def tell_unsaved(self) -> None:
        """Nothing is unsaved."""

    def report_health(self, writable: bool) -> None:
        """The files of one gateway are its own affair: the space goes on by the log."""
        log.log(
            logging.INFO if writable else logging.ERROR,
            "the local journal is written again" if writable else "the local journal cannot be written",
            extra={"space": self._journaled.name},
        )

    async def wait_noted(self, number: int, done: CarriedOut) -> None:
        """The log itself knows of every record."""

    def stop(self) -> None:
        """Nobody waits."""


def _nobody_waits() -> None:
    """It was carried out when it came."""
