"""What keeps the inputs of a space, and so decides when their effects go out.

A gateway alone keeps them in its journal (`journal_durability`). In a cluster the log has an input before it
is applied (`cluster.log_durability`), and the journal is a copy of it.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

import msgspec

from moot.gateway.hosting.delivery import Delivery
from moot.gateway.hosting.unsaved_changes import UnsavedChanges
from moot.space.effects import Effect, Result


class CarriedOut(NamedTuple):
    """What the effects of one input came to, and whether its record is on disk."""

    results: list[Result]
    on_disk: bool


class PendingEffects(msgspec.Struct):
    """Effects that wait for their record to be on disk, by themselves or behind others."""

    number: int
    effects: list[Effect]
    now: float
    waits: bool = False
    shrinks_rights: bool = False
    is_audited: bool = False
    done: asyncio.Future[CarriedOut] | None = None

    def finish(self, delivery: Delivery, *, on_disk: bool) -> None:
        """Carry them out, and tell whoever waits."""
        found = delivery.carry_out(self.effects, self.now)
        if self.done is not None and not self.done.done():
            self.done.set_result(CarriedOut(found, on_disk))


class Durability(Protocol):
    """When the effects of recorded inputs go out."""

    @property
    def unsaved(self) -> UnsavedChanges | None:
        """What is in effect and not kept; None where everything is kept before it is applied."""

    @property
    def sends_at_once(self) -> bool:
        """Whether the effects of an input may go out before its record is on disk."""

    @property
    def withholds(self) -> bool:
        """Whether nothing is delivered for now: the disk fails, and the space is `strict`."""

    @property
    def lost_records(self) -> int:
        """How many inputs are not kept; asked after the end."""

    def check(self) -> None:
        """D-85: nothing that must be audited happens while it cannot be. Raises Unavailable."""

    def carry_out(self, entry: PendingEffects) -> None:
        """Carry out the effects of a record, now or when it is kept."""

    def release(self) -> None:
        """Carry out what is kept by now, in order."""

    def tell_unsaved(self) -> None:
        """Tell who reduced rights that this is not on disk, if it cannot be written."""

    def report_health(self, writable: bool) -> None:
        """The journal can be written again, or cannot be any longer."""

    async def wait_noted(self, number: int, done: CarriedOut) -> None:
        """Before a change of rights is acknowledged: also if its record were lost, the loss would show."""

    def stop(self) -> None:
        """Nothing more comes: tell whoever waits still that nobody knows what will become of it."""
