"""One space with its journal: every input is recorded with its outcome, and its effects go out in that order.

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

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable
from types import UnionType
from typing import NamedTuple

import msgspec

from moot.errors import OutcomeUnknown, Refused
from moot.gateway.hosting.delivery import Delivery
from moot.gateway.hosting.fast_path import FastPaths
from moot.gateway.hosting.host_options import HostOptions
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.snapshot_saver import SnapshotSaver
from moot.gateway.hosting.space_records import encode_record
from moot.gateway.hosting.unsaved_changes import UnsavedChanges
from moot.protocol.operation import Json
from moot.resilience.steady_clock import SteadyClock
from moot.space.config import Name
from moot.space.config_json import save_config
from moot.space.effects import Deliver, Disconnect, Effect, Reply, Result
from moot.space.space import Space
from moot.store.database import Database
from moot.store.journal import Journal

log = logging.getLogger(__name__)

Input = Callable[[float, FreshMint], list[Effect]]

# At the end: a database that does not answer must not keep the gateway from ending.
_LAST_SNAPSHOT_SECONDS = 0.5
# How often the wall clock is compared with the space's, and what is too little to be a jump.
_WALL_CHECK_SECONDS = 10.0
_JUMP_SECONDS = 1.0
# A deadline further away is looked at again then.
_LONGEST_TIMER_SECONDS = 86_400.0


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


class JournaledSpace:
    """One space, its journal and its delivery."""

    # Whether journals of other gateways hold the same inputs with the same times.
    has_shared_times = False

    def __init__(
        self, options: HostOptions, space: Space, journal: Journal, delivery: Delivery, database: Database
    ) -> None:
        self.name = options.name
        self.folder = options.folder
        self.space = space
        self.journal = journal
        self.delivery = delivery
        self.fast_paths = FastPaths(space.state, journal, delivery, compiled=options.fast_path)
        self.clock = options.clock
        self.pending: deque[PendingEffects] = deque()
        # The number of the record that calls for the next snapshot.
        self.snapshot_due = options.snapshot_records
        self._snapshot_records = options.snapshot_records
        self._strict = options.journal.mode == "strict"
        self._retry_seconds = options.journal.retry_seconds
        self._sync_timeout_seconds = options.journal.sync_timeout_seconds
        self._database = database
        self.snapshots = SnapshotSaver(options.name, options.folder.parent, journal, database)
        # What is in effect and not on disk; None in a cluster, where the log has it.
        self.unsaved: UnsavedChanges | None = UnsavedChanges(space)
        # After `stop`: how many records are not on disk.
        self.lost_records = 0
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
        journal.on_health = self._report_health

    # Inputs

    def next_mint(self) -> FreshMint:
        """The mint for the next input. Most inputs draw nothing, so that one mint does for many."""
        mint = self.mint
        if mint.ids or mint.tokens:
            mint = self.mint = FreshMint()
        return mint

    def step(self, input: str, act: Input, *, waits: bool = False, **facts: Json) -> list[Result]:
        """Apply one input, record it and carry its effects out."""
        now, mint = self.clock(), self.next_mint()
        effects = act(now, mint)
        number = self.record(input, now, mint, **facts)
        results = [effect for effect in effects if isinstance(effect, Result)]
        if waits:
            self.snapshots.mark_rights_change(number)
        self.carry_out(effects, number, now, waits=waits)
        return results

    async def step_applied(self, input: str, act: Input, **facts: Json) -> None:
        """`step`, done when the space has applied it: in a cluster, when the log has brought it back."""
        self.step(input, act, **facts)

    def step_told(self, input: str, act: Input, refuse: Callable[[Refused], None], **facts: Json) -> None:
        """`step`, whose refusal is told and not raised: in a cluster it comes later."""
        try:
            self.step(input, act, **facts)
        except Refused as refusal:
            refuse(refusal)

    async def step_durably(
        self, input: str, act: Input, *, shrinks_rights: bool = False, widens: str = "", **facts: Json
    ) -> CarriedOut:
        """`step`, answered once the record is on disk; `widens` names a member who may do more then.

        Raises as `carry_out_durably` does.
        """
        now, mint = self.clock(), self.next_mint()
        effects = act(now, mint)
        number = self.record(input, now, mint, **facts)
        if widens and self.unsaved is not None:
            self.unsaved.note_member(Name(widens), number)
        self.snapshots.mark_rights_change(number)
        done = await self.carry_out_durably(effects, number, now, shrinks_rights=shrinks_rights)
        await self.wait_noted(number, done)
        return done

    async def wait_noted(self, number: int, done: CarriedOut) -> None:
        """Before a change of rights is acknowledged: also if its record were lost, the loss would show."""
        if done.on_disk:
            await self.snapshots.wait_noted(number, self._sync_timeout_seconds)

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
        if self.space.state.deadlines.scheduled != self._scheduled or number >= self.snapshot_due:
            self._look_ahead(number)

    @property
    def withholds(self) -> bool:
        """Whether nothing is delivered for now: the disk fails, and the space is `strict`."""
        return self._strict and not self.journal.writable

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
        entry = PendingEffects(number, effects, now, waits, shrinks_rights, is_audited, done)
        if self.journal.writable:
            if self.pending or waits or self._strict:
                self._hold(entry)
            else:
                self._finish(entry, on_disk=False)
        elif self._goes_on(entry):
            self._finish(entry, on_disk=False)
        else:
            # What only its sender gets, a refusal or a welcome, tells nobody of something that may be lost.
            self._withhold(entry, but=Reply | Disconnect)
            if entry.effects:
                self._hold(entry)
        self._look_ahead(number)

    async def carry_out_durably(
        self, effects: list[Effect], number: int, now: float, *, shrinks_rights: bool = False
    ) -> CarriedOut:
        """`carry_out` when the record is on disk. Raises OutcomeUnknown when the journal fails before that.

        What only reduces rights takes effect then all the same, which the answer says (`on_disk`).
        """
        return await self.hold_until_durable(effects, number, now, shrinks_rights=shrinks_rights)

    def hold_until_durable(
        self, effects: list[Effect], number: int, now: float, *, shrinks_rights: bool = False
    ) -> asyncio.Future[CarriedOut]:
        """`carry_out_durably` for whoever does not wait at once: what it would return or raise."""
        done: asyncio.Future[CarriedOut] = asyncio.get_running_loop().create_future()
        self.carry_out(effects, number, now, waits=True, shrinks_rights=shrinks_rights, done=done)
        return done

    def _hold(self, entry: PendingEffects) -> None:
        # Nothing may overtake it.
        self.fast_paths.invalidate()
        self.pending.append(entry)
        if self.journal.is_written:
            self.journal.when_durable(entry.number, self._release)
        elif self.journal.writable:
            # D-41: without a journal the state itself is committed first.
            self.save_snapshot()

    def _goes_on(self, entry: PendingEffects) -> bool:
        """Whether the effects may go out although the journal cannot be written."""
        return entry.shrinks_rights or not (entry.waits or entry.is_audited or self._strict)

    def _withhold(self, entry: PendingEffects, *, but: type | UnionType) -> None:
        """Carry out no more of these effects now than those of this type; whoever waits is told."""
        self.delivery.carry_out([each for each in entry.effects if isinstance(each, but)], entry.now)
        entry.effects = [each for each in entry.effects if not isinstance(each, but)]
        _report_unknown(entry)

    def _finish(self, entry: PendingEffects, *, on_disk: bool) -> None:
        found = self.delivery.carry_out(entry.effects, entry.now)
        if entry.done is not None and not entry.done.done():
            entry.done.set_result(CarriedOut(found, on_disk))

    @property
    def saved(self) -> int:
        """The last record that is on disk; without a journal, the last that a saved snapshot covers."""
        return self.journal.durable if self.journal.is_written else self._committed

    def tell_unsaved(self) -> None:
        """Tell who reduced rights that this is not on disk, if it cannot be written."""
        if self.unsaved is not None and not self.journal.writable:
            now = self.clock()
            self.delivery.carry_out([*self.unsaved.take_notices(now, FreshMint(), self.saved)], now)

    def _release(self) -> None:
        """Carry out what is on disk by now, in order."""
        safe = self.saved
        while self.pending and self.pending[0].number <= safe:
            self._finish(self.pending.popleft(), on_disk=True)

    def _report_health(self, writable: bool) -> None:
        self.step("health", lambda _now, _mint: self.space.health(journal_writable=writable), able=writable)
        if not writable:
            # What ended up on disk before the fault is not affected by it.
            self._release()
            waiting = list(self.pending)
            self.pending.clear()
            for entry in waiting:
                if self._goes_on(entry):
                    self._finish(entry, on_disk=False)
                else:
                    # The replies of a grant tell of rights; others are answers that only their sender gets.
                    self._withhold(entry, but=Disconnect if entry.waits else Reply | Disconnect)
                    self.pending.append(entry)
            self.tell_unsaved()

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
            asyncio.get_running_loop().call_later(self._sync_timeout_seconds, self._look_for_stall, saving)
        return saving

    def _note_saved(self, number: int, done: asyncio.Future[None]) -> None:
        fault = None if done.cancelled() else done.exception()
        if fault is None and not done.cancelled():
            self._committed = number
            self.journal.prune_until(number if self.journal.is_written else self.journal.recorded)
        elif fault is not None:
            log.warning("snapshot not saved", extra={"space": self.name, "why": str(fault)})
        self._release()
        if not self.journal.is_written:
            self._note_committed(fault is None)

    def _note_committed(self, writable: bool) -> None:
        """Without a journal the snapshots are what has to be on disk: they say whether that works."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        if not writable and not self._is_stopping:
            self._retry_timer = asyncio.get_running_loop().call_later(self._retry_seconds, self.save_snapshot)
        if writable != self.journal.writable:
            self.journal.writable = writable
            level = logging.INFO if writable else logging.ERROR
            log.log(
                level,
                "state is saved again" if writable else "state cannot be saved",
                extra={"space": self.name},
            )
            self._report_health(writable)
            if writable and self.pending:
                # What was withheld meanwhile is not in the one that was saved now.
                self.save_snapshot()

    def _look_for_stall(self, saving: asyncio.Future[None]) -> None:
        if not saving.done() and self.journal.writable:
            self.journal.writable = False
            why = f"a snapshot has not been saved for {self._sync_timeout_seconds:g} seconds"
            log.error("state cannot be saved", extra={"space": self.name, "why": why})
            self._report_health(writable=False)

    async def stop(self) -> None:
        """Everything on disk; the last effects are out. What is not on disk by now is not carried out."""
        self._is_stopping = True
        for timer in (self._timer, self._retry_timer, self._wall_timer):
            if timer is not None:
                timer.cancel()
        await self.journal.close()
        self._release()
        # Also what came while it closed: a disk that recovered just then is a record, too.
        if not self.journal.is_written or self.journal.durable >= self.journal.next_number - 1:
            try:
                await self._database.wait_answering(self.save_snapshot(), _LAST_SNAPSHOT_SECONDS)
            except (sqlite3.Error, TimeoutError) as fault:
                # The journal has all of it; without one, this is what is lost.
                log.error("last snapshot not saved", extra={"space": self.name, "why": str(fault)})
        if self.unsaved is not None:
            self.lost_records = self.journal.next_number - 1 - self.saved
        self._release()
        self.snapshots.stop()
        for entry in self.pending:
            _report_unknown(entry)

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

    def _look_ahead(self, number: int) -> None:
        """Set the timer for the next deadline, and take the snapshot that is due."""
        self._scheduled = self.space.state.deadlines.scheduled
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
            delay = min(max(0.0, self._seconds_until(when)), _LONGEST_TIMER_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(delay, self.expire_due)

    def _seconds_until(self, when: float) -> float:
        return when - self.clock()

    def expire_due(self) -> None:
        """Let the deadlines act that have come; the timer calls this."""
        self._timer = self._timer_at = None
        when = self.space.next_deadline()
        if when is not None and when <= self.clock():
            self.step("expire", lambda now, mint: self.space.expire(now, mint))
        self._set_timer()


def _report_unknown(entry: PendingEffects) -> None:
    """Tell whoever waits that nobody knows what will become of this."""
    if entry.done is not None and not entry.done.done():
        entry.done.set_exception(
            OutcomeUnknown(
                "the journal failed before this was on disk, so its outcome is not known: look for its id "
                "before you send it again, or send it again with the same id"
            )
        )
