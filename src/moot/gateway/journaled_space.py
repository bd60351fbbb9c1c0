"""The order of one space: every input journaled with its outcome, its effects carried out after it.

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
from moot.gateway.space_records import members
from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.space.config import SpaceConfig
from moot.space.config_json import save_config
from moot.space.effects import Effect, Result
from moot.space.space import Space
from moot.store.database import Database
from moot.store.journal import Journal, JournalSettings

Act = Callable[[float, FreshMint], list[Effect]]


class PendingEffects(msgspec.Struct):
    """Effects that wait for their record to be on disk."""

    number: int
    effects: list[Effect]
    now: float
    results: asyncio.Future[list[Result]] | None = None


class JournaledSpace:
    """One space, its journal and its delivery. `SpaceHost` adds what members and operators do."""

    def __init__(
        self, name: str, config: SpaceConfig, folder: Path, settings: JournalSettings, database: Database
    ) -> None:
        self.name = name
        self.space = Space(config)
        self.journal = Journal.open(folder, settings)
        self.delivery: Delivery
        self.lanes: FastPaths
        self.snapshot_records = 50_000
        # The space's time; whoever runs vectors has it stand still.
        self.clock: Callable[[], float] = time.time
        self._database = database
        self._folder = folder
        self._strict = settings.mode == "strict"
        self._unwritten = settings.mode == "off"
        self._held: deque[PendingEffects] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        # The record that calls for the next snapshot.
        self._snapshot_due = self.snapshot_records
        # How many deadlines had been set when the timer was.
        self._scheduled = 0
        self._committed = 0
        self.journal.on_health = self._journal_health

    def save_snapshot(self) -> asyncio.Future[None]:
        """The state as it is, with the number of the last record that it covers."""
        number = self.journal.next_number - 1
        # Without a journal nothing new is in the file, so that a later one starts where this one ended.
        position = self.journal.recorded if self._unwritten else number
        state = self.space.save() | {"config": save_config(self.space.state.config)}
        saving = self._database.save_snapshot(self.name, position, strict_json.encode(state))
        self._snapshot_due = number + self.snapshot_records
        # They were told of the one before.
        self.lanes.close()
        saving.add_done_callback(lambda done: self._saved(number, position, done))
        return saving

    def _saved(self, number: int, position: int, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._committed = number
            self.journal.covered(position)
        self._release()

    async def _settled(self, input: str, act: Act, **facts: Json) -> list[Result]:
        """An operator's act: carried out, and answered, once it is on disk."""
        self.lanes.close()
        now, mint = self._clock(), FreshMint()
        effects = act(now, mint)
        number = self._record(input, now, mint, **facts)
        done: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self._carry_out(effects, number, now, waits=True, results=done)
        return await done

    def _step(self, input: str, act: Act, *, waits: bool = False, **facts: Json) -> list[Result]:
        self.lanes.close()
        now, mint = self._clock(), FreshMint()
        effects = act(now, mint)
        number = self._record(input, now, mint, **facts)
        results = [effect for effect in effects if isinstance(effect, Result)]
        self._carry_out(effects, number, now, waits=waits)
        return results

    def _record(self, input: str, now: float, mint: FreshMint, **facts: Json) -> int:
        return self.journal.append(members(input, now, mint, **facts))

    def _carry_out(
        self,
        effects: list[Effect],
        number: int,
        now: float,
        *,
        waits: bool = False,
        results: asyncio.Future[list[Result]] | None = None,
    ) -> None:
        self.lanes.close()
        if self._held or ((waits or self._strict) and self.journal.able):
            self._held.append(PendingEffects(number, effects, now, results))
            if self._unwritten:
                # D-41: without a journal the state itself is committed first.
                self.save_snapshot()
            else:
                self.journal.when_durable(number, self._release)
        else:
            found = self.delivery.carry_out(effects, now)
            if results is not None:
                results.set_result(found)
        self._look_ahead(number)

    def _look_ahead(self, number: int) -> None:
        """The next deadline and the next snapshot."""
        self._scheduled = self.space.state.scheduled
        self._set_timer()
        if number >= self._snapshot_due:
            self.save_snapshot()

    def _release(self, *, anyway: bool = False) -> None:
        """Carry out what is on disk by now, in order; or all of it, when waiting is over."""
        safe = self._committed if self._unwritten else self.journal.durable
        while self._held and (anyway or self._held[0].number <= safe):
            held = self._held.popleft()
            found = self.delivery.carry_out(held.effects, held.now)
            if held.results is not None and not held.results.done():
                held.results.set_result(found)

    def _journal_health(self, able: bool) -> None:
        self._step("health", lambda _now, _mint: self.space.health(journal_able=able), able=able)
        if not able:
            # What waits for the disk would hold back chat and presence; its record is kept and written later.
            self._release(anyway=True)

    # Time

    def _clock(self) -> float:
        return self.clock()

    def _set_timer(self) -> None:
        when = self.space.state.next_deadline()
        if when == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = when
        if when is not None:
            delay = max(0.0, when - self._clock())
            # A day at most: a deadline far away is looked at again then.
            self._timer = asyncio.get_running_loop().call_later(min(delay, 86_400.0), self._expire)

    def _expire(self) -> None:
        self._timer = self._timer_at = None
        when = self.space.next_deadline()
        if when is not None and when <= self._clock():
            self._step("expire", lambda now, mint: self.space.expire(now, mint))
        self._set_timer()
