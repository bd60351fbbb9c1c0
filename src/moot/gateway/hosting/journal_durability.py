"""Inputs that the journal of one gateway keeps.

Most effects go out at once and the journal is synced behind them. Effects of inputs that change rights wait
until their record is on disk (D-41), and so does everything after them, so that order is kept; under
`strict` all of them wait.

When the journal cannot be written, the space is told and refuses what must be audited (D-85). Of the rest:

    reduces rights                  takes effect at once, also if it was waiting
    waits for the disk by itself,   is withheld until it is on disk; under `strict` that is everything
    or must be audited
    waited behind such a one        goes out at once: chat and presence go on

Whoever waits over HTTP is told that the outcome is not known (D-97), never that all went well.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from types import UnionType

from moot.errors import OutcomeUnknown, Unavailable
from moot.gateway.hosting.durability import CarriedOut, PendingEffects
from moot.gateway.hosting.journaled_space import JournaledSpace
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.unsaved_changes import UnsavedChanges
from moot.space.effects import Disconnect, Reply


class JournalDurability:
    """What waits for the disk."""

    def __init__(self, journaled: JournaledSpace) -> None:
        self._journaled = journaled
        self._journal = journaled.journal
        self._delivery = journaled.delivery
        self._strict = journaled.options.journal.mode == "strict"
        self.pending: deque[PendingEffects] = deque()
        self.unsaved = UnsavedChanges(journaled.space)

    @property
    def sends_at_once(self) -> bool:
        return not self.pending and not self._strict

    @property
    def withholds(self) -> bool:
        return self._strict and not self._journal.writable

    @property
    def lost_records(self) -> int:
        return self._journal.next_number - 1 - self._journaled.saved

    def check(self) -> None:
        if not self._journal.writable:
            raise Unavailable("the journal cannot be written: try again later")

    def carry_out(self, entry: PendingEffects) -> None:
        if self._journal.writable:
            if self.pending or entry.waits or self._strict:
                self._hold(entry)
            else:
                entry.finish(self._delivery, on_disk=False)
        elif self._goes_on(entry):
            entry.finish(self._delivery, on_disk=False)
        else:
            # What only its sender gets, a refusal or a welcome, tells nobody of something that may be lost.
            self._withhold(entry, but=Reply | Disconnect)
            if entry.effects:
                self._hold(entry)

    def _hold(self, entry: PendingEffects) -> None:
        # Nothing may overtake it.
        self._journaled.fast_paths.invalidate()
        self.pending.append(entry)
        if self._journal.is_written:
            self._journal.when_durable(entry.number, partial(self._finish_until, entry.number))
        elif self._journal.writable:
            # D-41: without a journal the state itself is committed first.
            self._journaled.save_snapshot()

    def _goes_on(self, entry: PendingEffects) -> bool:
        """Whether the effects may go out although the journal cannot be written."""
        return entry.shrinks_rights or not (entry.waits or entry.is_audited or self._strict)

    def _withhold(self, entry: PendingEffects, *, but: type | UnionType) -> None:
        """Carry out no more of these effects now than those of this type; whoever waits is told."""
        self._delivery.carry_out([each for each in entry.effects if isinstance(each, but)], entry.now)
        entry.effects = [each for each in entry.effects if not isinstance(each, but)]
        _report_unknown(entry)

    def release(self) -> None:
        self._finish_until(self._journaled.saved)

    def _finish_until(self, saved: int) -> None:
        """Carry out what waits for this record or one before it: it is on disk."""
        while self.pending and self.pending[0].number <= saved:
            self.pending.popleft().finish(self._delivery, on_disk=True)

    def tell_unsaved(self) -> None:
        if not self._journal.writable:
            now = self._journaled.clock()
            notices = self.unsaved.take_notices(now, FreshMint(), self._journaled.saved)
            self._delivery.carry_out([*notices], now)

    def report_health(self, writable: bool) -> None:
        space = self._journaled.space
        self._journaled.step(
            "health", lambda _now, _mint: space.health(journal_writable=writable), able=writable
        )
        if not writable:
            # What ended up on disk before the fault is not affected by it.
            self.release()
            waiting = list(self.pending)
            self.pending.clear()
            for entry in waiting:
                if self._goes_on(entry):
                    entry.finish(self._delivery, on_disk=False)
                else:
                    # The replies of a grant tell of rights; others are answers that only their sender gets.
                    self._withhold(entry, but=Disconnect if entry.waits else Reply | Disconnect)
                    self.pending.append(entry)
            self.tell_unsaved()

    async def wait_noted(self, number: int, done: CarriedOut) -> None:
        if done.on_disk:
            seconds = self._journaled.journal.sync_timeout_seconds
            await self._journaled.snapshots.wait_noted(number, seconds)

    def stop(self) -> None:
        for entry in self.pending:
            _report_unknown(entry)


def _report_unknown(entry: PendingEffects) -> None:
    """Tell whoever waits that nobody knows what will become of this."""
    if entry.done is not None and not entry.done.done():
        entry.done.set_exception(
            OutcomeUnknown(
                "the journal failed before this was on disk, so its outcome is not known: look for its id "
                "before you send it again, or send it again with the same id"
            )
        )
