"""One space with its journal: every input is recorded with its outcome, and its effects go out in that order.

When they go out depends on what keeps the inputs (`durability`). Besides: snapshots, and the space's time.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from moot.config.gateway_config import JournalConfig
from moot.gateway.hosting.delivery import Delivery
from moot.gateway.hosting.durability import CarriedOut, Durability, PendingEffects
from moot.gateway.hosting.fast_path import FastPaths
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.snapshot_saver import SnapshotSaver
from moot.gateway.hosting.space_records import encode_record
from moot.protocol.operation import Json
from moot.resilience.steady_clock import SteadyClock
from moot.space.config_json import save_config
from moot.space.effects import Deliver, Effect
from moot.space.space import Space
from moot.store.database import Database
from moot.store.journal import Journal

log = logging.getLogger(__name__)

Input = Callable[[float, FreshMint], list[Effect]]

# At the end: a database that does not answer must not keep the gateway from ending.
_LAST_SNAPSHOT_SECONDS = 0.5
# Records between two snapshots: so many are replayed in half a second, and one costs milliseconds.
SNAPSHOT_RECORDS: Final = 20_000
# How often a journal is looked at for what is too old.
_AGE_CHECK_SECONDS: Final = 3_600.0
# How often the wall clock is compared with the space's, and what is too little to be a jump.
_WALL_CHECK_SECONDS = 10.0
_JUMP_SECONDS = 1.0
# A deadline further away is looked at again then.
_LONGEST_TIMER_SECONDS = 86_400.0


class HostOptions(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    folder: Path  # of its journal
    journal: JournalConfig
    # Whether ordinary messages may take the compiled way, where it is built: not in a cluster.
    fast_path: bool = True
    # The space's time: it never jumps. Conformance vectors make it stand still.
    clock: Callable[[], float] = msgspec.field(default_factory=SteadyClock)


class JournaledSpace:
    """One space, its journal and its delivery."""

    def __init__(
        self,
        options: HostOptions,
        space: Space,
        journal: Journal,
        delivery: Delivery,
        database: Database,
        make_durability: Callable[[JournaledSpace], Durability],
    ) -> None:
        self.options = options
        self.name = options.name
        self.folder = options.folder
        self.space = space
        self.journal = journal
        self.delivery = delivery
        self.fast_paths = FastPaths(space.state, journal, delivery, compiled=options.fast_path)
        self.clock = options.clock
        # The number of the record that calls for the next snapshot.
        self.snapshot_due = self._snapshot_records = SNAPSHOT_RECORDS
        self._database = database
        self.snapshots = SnapshotSaver(options.name, options.folder.parent, journal, database)
        # A deadline has come, and how long it takes until one does: in a cluster, by the log.
        self.on_deadline = self.expire_due
        self.seconds_until: Callable[[float], float] = lambda when: when - self.clock()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        # How many deadlines had been set when the timer was.
        self._scheduled = 0
        # Without a journal: the last input that a saved snapshot covers.
        self._committed = 0
        self._retry_timer: asyncio.TimerHandle | None = None
        self._is_stopping = False
        # For the next input, unless it has drawn something: then `next_mint` makes another.
        self.mint = FreshMint()
        # How far the wall clock was ahead of the space's when that was last recorded.
        self._wall_ahead = 0.0
        self._wall_timer: asyncio.TimerHandle | None = None
        self._age_timer: asyncio.TimerHandle | None = None
        self.durability = make_durability(self)
        journal.on_health = self.durability.report_health

    # Inputs

    def next_mint(self) -> FreshMint:
        """The mint for the next input. Most inputs draw nothing, so that one mint does for many."""
        mint = self.mint
        if mint.ids or mint.tokens:
            mint = self.mint = FreshMint()
        return mint

    def step(self, input: str, act: Input, **facts: Json) -> None:
        """Apply one input, record it and carry its effects out."""
        now, mint = self.clock(), self.next_mint()
        effects = act(now, mint)
        self.carry_out(effects, self.record(input, now, mint, **facts), now)

    def record(self, input: str, now: float, mint: FreshMint, **facts: Json) -> int:
        return self.journal.append(encode_record(input, now, mint, **facts))

    # Effects

    def deliver_at_once(self, effect: Deliver, number: int, now: float) -> None:
        """Carry out the only effect of an input, if `durability.sends_at_once`."""
        self.delivery.deliver(effect, now)
        if self.space.state.deadlines.scheduled != self._scheduled or number >= self.snapshot_due:
            self._look_ahead(number)

    def carry_out(
        self,
        effects: list[Effect],
        number: int,
        now: float,
        *,
        waits: bool = False,
        shrinks_rights: bool = False,
        is_audited: bool = False,
        done: asyncio.Future[CarriedOut] | None = None,
    ) -> None:
        """Carry out the effects of record `number`, with `waits` when it is on disk."""
        self.durability.carry_out(
            PendingEffects(number, effects, now, waits, shrinks_rights, is_audited, done)
        )
        is_due = number >= self.snapshot_due
        # A timer that has run out is set again, whoever let its deadlines act.
        if is_due or self._timer is None or self.space.state.deadlines.scheduled != self._scheduled:
            self._look_ahead(number)

    def hold_until_durable(
        self, effects: list[Effect], number: int, now: float, *, shrinks_rights: bool = False
    ) -> asyncio.Future[CarriedOut]:
        """`carry_out` when the record is on disk; OutcomeUnknown is its answer if the journal fails first.

        What only reduces rights takes effect then all the same, which the answer says (`on_disk`).
        """
        done: asyncio.Future[CarriedOut] = asyncio.get_running_loop().create_future()
        self.carry_out(effects, number, now, waits=True, shrinks_rights=shrinks_rights, done=done)
        return done

    @property
    def saved(self) -> int:
        """The last record that is on disk; without a journal, the last that a saved snapshot covers."""
        return self.journal.durable if self.journal.is_written else self._committed

    # Snapshots

    def save_snapshot(self) -> asyncio.Future[None]:
        """Save the state as it is, once the records that it covers are on disk."""
        number = self.journal.next_number - 1
        config = save_config(self.space.state.config)
        state = self.space.save() | {"config": config, "time": self.clock()}
        saving = self.snapshots.save(number, state)
        self.snapshot_due = number + self._snapshot_records
        # They know the number at which the one before was due.
        self.fast_paths.invalidate()
        saving.add_done_callback(lambda done: self._note_saved(number, done))
        if not self.journal.is_written:
            asyncio.get_running_loop().call_later(
                self.journal.sync_timeout_seconds, self._look_for_stall, saving
            )
        return saving

    def _note_saved(self, number: int, done: asyncio.Future[None]) -> None:
        fault = None if done.cancelled() else done.exception()
        if fault is None and not done.cancelled():
            self._committed = number
            self.journal.prune_until(number if self.journal.is_written else self.journal.recorded)
        elif fault is not None:
            log.warning("snapshot not saved", extra={"space": self.name, "why": str(fault)})
        self.durability.release()
        if not self.journal.is_written:
            self._note_committed(fault is None)

    def _note_committed(self, writable: bool) -> None:
        """Without a journal the snapshots are what has to be on disk: they say whether that works."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        if not writable and not self._is_stopping:
            self._retry_timer = asyncio.get_running_loop().call_later(
                self.journal.retry_seconds, self.save_snapshot
            )
        if writable != self.journal.writable:
            self.journal.writable = writable
            level = logging.INFO if writable else logging.ERROR
            log.log(
                level,
                "state is saved again" if writable else "state cannot be saved",
                extra={"space": self.name},
            )
            self.durability.report_health(writable)
            if writable and not self.durability.sends_at_once:
                # What was withheld meanwhile is not in the one that was saved now.
                self.save_snapshot()

    def _look_for_stall(self, saving: asyncio.Future[None]) -> None:
        if not saving.done() and self.journal.writable:
            self.journal.writable = False
            why = f"a snapshot has not been saved for {self.journal.sync_timeout_seconds:g} seconds"
            log.error("state cannot be saved", extra={"space": self.name, "why": why})
            self.durability.report_health(writable=False)

    async def stop(self) -> None:
        """Everything on disk; the last effects are out. What is not on disk by now is not carried out."""
        self._is_stopping = True
        for timer in (self._timer, self._retry_timer, self._wall_timer, self._age_timer):
            if timer is not None:
                timer.cancel()
        await self.journal.close()
        self.durability.release()
        # Also what came while it closed: a disk that recovered just then is a record, too.
        if not self.journal.is_written or self.journal.durable >= self.journal.next_number - 1:
            try:
                await self._database.wait_answering(self.save_snapshot(), _LAST_SNAPSHOT_SECONDS)
            except (sqlite3.Error, TimeoutError) as fault:
                # The journal has all of it; without one, this is what is lost.
                log.error("last snapshot not saved", extra={"space": self.name, "why": str(fault)})
        self.durability.release()
        self.snapshots.stop()
        self.durability.stop()

    # Time

    @property
    def wall_ahead_seconds(self) -> float:
        """How far the wall clock is ahead of the space's time; 0 where that is not told."""
        return self.clock.wall_ahead_seconds if isinstance(self.clock, SteadyClock) else 0.0

    @property
    def is_clock_lost(self) -> bool:
        """Whether the wall clock is behind what the journal knows: how long the stop was is not known."""
        return self.wall_ahead_seconds < -_JUMP_SECONDS

    def watch_wall_clock(self) -> None:
        """Note when the wall clock is set, now and from now on: records have the space's time."""
        self._wall_timer = asyncio.get_running_loop().call_later(_WALL_CHECK_SECONDS, self.watch_wall_clock)
        ahead = self.wall_ahead_seconds
        if abs(ahead - self._wall_ahead) < _JUMP_SECONDS:
            return
        self._wall_ahead = ahead
        log.warning(
            "the wall clock was set: deadlines and times of records go on as if it had not been",
            extra={"space": self.name, "ahead_seconds": round(ahead, 3)},
        )
        wall = round(self.clock() + ahead, 6)
        self.step("clock", lambda now, mint: self.space.note_wall_clock(wall, now, mint), wall=wall)

    def watch_age(self) -> None:
        """With `retain_days`, remove what is older, now and every hour: also of a space that is silent."""
        if not self.options.journal.retain_days or self._is_stopping:
            return
        self._age_timer = asyncio.get_running_loop().call_later(_AGE_CHECK_SECONDS, self.watch_age)
        self.journal.end_old_segment()
        # Which removes what it covers.
        self.save_snapshot()

    def _look_ahead(self, number: int) -> None:
        """Set the timer for the next deadline, and take the snapshot that is due."""
        self._scheduled = self.space.state.deadlines.scheduled
        self.set_timer()
        if number >= self.snapshot_due:
            self.save_snapshot()

    def set_timer(self) -> None:
        """Wait for the next deadline, from now on."""
        when = self.space.state.deadlines.next_deadline()
        if when == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = when
        if when is not None:
            delay = min(max(0.0, self.seconds_until(when)), _LONGEST_TIMER_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(delay, self._note_deadline)

    def _note_deadline(self) -> None:
        self._timer = self._timer_at = None
        if not self._is_stopping:
            self.on_deadline()

    def expire_due(self) -> None:
        """Let the deadlines act that have come."""
        if self.space.is_due(self.clock()):
            self.step("expire", self.space.expire)
        self.set_timer()
