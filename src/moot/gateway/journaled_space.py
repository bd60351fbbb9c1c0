"""One space with its journal: every input is recorded with its outcome, and its effects go out in that order.

Most effects go out at once and the journal is synced behind them. Effects of inputs that change rights wait
until their record is on disk (D-41), and so does everything after them, so that order is kept; under
`strict` all of them wait. When the journal cannot be written, the space is told and refuses what must be
audited (D-85); what it still accepts goes out at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from moot.gateway.delivery import Delivery
from moot.gateway.fast_path import FastPaths
from moot.gateway.mint import FreshMint
from moot.gateway.space_records import encode_record
from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.space.config_json import save_config
from moot.space.effects import Deliver, Effect, Result
from moot.space.space import Space
from moot.store.database import Database
from moot.store.journal import Journal, JournalSettings

Input = Callable[[float, FreshMint], list[Effect]]

# A deadline further away is looked at again then.
_LONGEST_TIMER_SECONDS = 86_400.0


class HostOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says about running one space."""

    name: str
    folder: Path  # of its journal
    journal: JournalSettings
    # A snapshot is due after this many records.
    snapshot_records: int
    history_messages: int
    history_bytes: int
    # How many malformed messages of one session are answered.
    errors_per_second: float
    # The space's time; conformance vectors make it stand still.
    clock: Callable[[], float] = time.time


class PendingEffects(msgspec.Struct):
    """Effects that wait for their record to be on disk."""

    number: int
    effects: list[Effect]
    now: float
    results: asyncio.Future[list[Result]] | None = None


class JournaledSpace:
    """One space, its journal and its delivery."""

    def __init__(
        self, options: HostOptions, space: Space, journal: Journal, delivery: Delivery, database: Database
    ) -> None:
        self.name = options.name
        self.space = space
        self.journal = journal
        self.delivery = delivery
        self.fast_paths = FastPaths(space.state, journal, delivery)
        self.clock = options.clock
        self.pending: deque[PendingEffects] = deque()
        # The number of the record that calls for the next snapshot.
        self.snapshot_due = options.snapshot_records
        self._snapshot_records = options.snapshot_records
        self._strict = options.journal.mode == "strict"
        self._database = database
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        # How many deadlines had been set when the timer was.
        self._scheduled = 0
        # Without a journal: the last input that a saved snapshot covers.
        self._committed = 0
        journal.on_health = self._report_health

    # Inputs

    def step(self, input: str, act: Input, *, waits: bool = False, **facts: Json) -> list[Result]:
        """Apply one input, record it and carry its effects out."""
        now, mint = self.clock(), FreshMint()
        effects = act(now, mint)
        number = self.record(input, now, mint, **facts)
        results = [effect for effect in effects if isinstance(effect, Result)]
        self.carry_out(effects, number, now, waits=waits)
        return results

    async def step_durably(self, input: str, act: Input, **facts: Json) -> list[Result]:
        """`step`, answered once the record is on disk."""
        now, mint = self.clock(), FreshMint()
        effects = act(now, mint)
        return await self.carry_out_durably(effects, self.record(input, now, mint, **facts), now)

    def record(self, input: str, now: float, mint: FreshMint, **facts: Json) -> int:
        return self.journal.append(encode_record(input, now, mint, **facts))

    # Effects

    @property
    def sends_at_once(self) -> bool:
        """Whether the effects of an input may go out before its record is on disk."""
        return not self.pending and not self._strict

    def deliver_at_once(self, effect: Deliver, number: int, now: float) -> None:
        """Carry out the only effect of an input; `sends_at_once` must hold."""
        self.delivery.deliver(effect, now)
        if self.space.state.scheduled != self._scheduled or number >= self.snapshot_due:
            self._look_ahead(number)

    def carry_out(
        self,
        effects: list[Effect],
        number: int,
        now: float,
        *,
        waits: bool = False,
        results: asyncio.Future[list[Result]] | None = None,
    ) -> None:
        """Carry out the effects of record `number`, with `waits` when it is on disk."""
        if self.pending or ((waits or self._strict) and self.journal.writable):
            # Nothing may overtake them.
            self.fast_paths.invalidate()
            self.pending.append(PendingEffects(number, effects, now, results))
            if self.journal.is_written:
                self.journal.when_durable(number, self._release)
            else:
                # D-41: without a journal the state itself is committed first.
                self.save_snapshot()
        else:
            found = self.delivery.carry_out(effects, now)
            if results is not None:
                results.set_result(found)
        self._look_ahead(number)

    async def carry_out_durably(self, effects: list[Effect], number: int, now: float) -> list[Result]:
        """`carry_out` when the record is on disk; returns what its effects came to."""
        done: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self.carry_out(effects, number, now, waits=True, results=done)
        return await done

    def _release(self, *, all_of_it: bool = False) -> None:
        """Carry out what is on disk by now, in order; or all of it, when waiting is over."""
        safe = self.journal.durable if self.journal.is_written else self._committed
        while self.pending and (all_of_it or self.pending[0].number <= safe):
            first = self.pending.popleft()
            found = self.delivery.carry_out(first.effects, first.now)
            if first.results is not None and not first.results.done():
                first.results.set_result(found)

    def _report_health(self, writable: bool) -> None:
        self.step("health", lambda _now, _mint: self.space.health(journal_writable=writable), able=writable)
        if not writable:
            # What waits for the disk would hold back chat and presence; its record is kept and written later.
            self._release(all_of_it=True)

    # Snapshots

    def save_snapshot(self) -> asyncio.Future[None]:
        """Save the state as it is, with the number of the last record that it covers."""
        number = self.journal.next_number - 1
        # Without a journal nothing new is in the file, so that a later one starts where this one ended.
        position = number if self.journal.is_written else self.journal.recorded
        state = self.space.save() | {"config": save_config(self.space.state.config)}
        saving = self._database.save_snapshot(self.name, position, strict_json.encode(state))
        self.snapshot_due = number + self._snapshot_records
        # They know the number at which the one before was due.
        self.fast_paths.invalidate()
        saving.add_done_callback(lambda done: self._note_saved(number, position, done))
        return saving

    def _note_saved(self, number: int, position: int, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._committed = number
            self.journal.prune_until(position)
        self._release()

    async def stop(self) -> None:
        """Everything on disk; the last effects are out."""
        if self._timer is not None:
            self._timer.cancel()
        position = self.journal.next_number - 1
        await self.journal.close()
        self._release(all_of_it=True)
        if not self.journal.is_written or self.journal.durable >= position:
            await self.save_snapshot()

    # Time

    def _look_ahead(self, number: int) -> None:
        """Set the timer for the next deadline, and take the snapshot that is due."""
        self._scheduled = self.space.state.scheduled
        self._set_timer()
        if number >= self.snapshot_due:
            self.save_snapshot()

    def _set_timer(self) -> None:
        when = self.space.next_deadline()
        if when == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = when
        if when is not None:
            delay = min(max(0.0, when - self.clock()), _LONGEST_TIMER_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(delay, self.expire_due)

    def expire_due(self) -> None:
        """Let the deadlines act that have come; the timer calls this."""
        self._timer = self._timer_at = None
        when = self.space.next_deadline()
        if when is not None and when <= self.clock():
            self.step("expire", lambda now, mint: self.space.expire(now, mint))
        self._set_timer()
