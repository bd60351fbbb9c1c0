"""A space whose inputs are ordered by a log that several gateways read (`nats.shared_log`).

    alone:       input ─▶ space ─▶ journal ─▶ effects
    in a cluster: input ─▶ log … the log ─▶ space ─▶ journal (a copy for this gateway's own files) ─▶ effects

The same code applies inputs in both. In a cluster it is called by the log alone (`performing`), with the
log's time and with ids made of the log's seed, so that every gateway comes to the same state. Nothing waits
for this gateway's own disk: what is in the log is kept, by NATS.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from moot.errors import Refused, UsageError
from moot.gateway.hosting.delivery import Delivery
from moot.gateway.hosting.host_options import HostOptions
from moot.gateway.hosting.journaled_space import (
    CarriedOut,
    Input,
    JournaledSpace,
    PendingEffects,
)
from moot.gateway.hosting.mint import FreshMint
from moot.protocol.operation import Json
from moot.space.effects import Effect, Result, Token
from moot.space.space import Space
from moot.store.database import Database
from moot.store.journal import Journal

log = logging.getLogger(__name__)

T = TypeVar("T")

# A deadline that the log's time has not reached yet is asked for again after this.
_MIN_TIMER_SECONDS: Final = 0.05


class LogClock:
    """The log's time: when its latest message was stored, by the clock of NATS. It never goes back."""

    def __init__(self) -> None:
        self.latest = 0.0
        self._heard_at = time.monotonic()

    def __call__(self) -> float:
        return self.latest

    def advance(self, stored_at: float) -> float:
        """A message of the log was stored then. No two messages have the same time.

        Always whole microseconds: a gateway that begins at a snapshot goes on from the same number.
        """
        self.latest = max(round(self.latest + 1e-6, 6), round(stored_at, 6))
        self._heard_at = time.monotonic()
        return self.latest

    def seconds_until(self, moment: float) -> float:
        """How long it takes about until a message would have this time."""
        return moment - self.latest - (time.monotonic() - self._heard_at)


class SeededMint(FreshMint):
    """Ids that every gateway makes alike; tokens whose secrets only one of them knows."""

    __slots__ = ("_given", "_seed")

    def __init__(self, seed: bytes, given: Sequence[Token] = ()) -> None:
        super().__init__()
        self._seed = seed
        self._given = iter(given)

    def id(self) -> str:
        drawn = hashlib.blake2b(self._seed + b"/%d" % len(self.ids), digest_size=16).digest()
        self.ids.append(str(uuid.UUID(bytes=drawn, version=4)))
        return self.ids[-1]

    def token(self) -> Token:
        token = next(self._given, None)
        if token is None:
            raise UsageError("an input of the log draws more tokens than were made for it")
        self.tokens.append(token.hash)
        return token


class InputLog(Protocol):
    """Where inputs go that are not applied here and now."""

    def submit(
        self, space: str, input: str, facts: dict[str, Json], on_done: Callable[[object], None] | None
    ) -> None:
        """Append an input to the log. Raises Unavailable when it cannot be reached."""
        ...

    @property
    def is_first(self) -> bool:
        """Whether this gateway does what one of them has to do."""
        ...


class ClusteredSpace(JournaledSpace):
    """A space whose inputs come from the log."""

    has_shared_times = True

    def __init__(
        self,
        options: HostOptions,
        space: Space,
        journal: Journal,
        delivery: Delivery,
        database: Database,
        input_log: InputLog,
        clock: LogClock,
    ) -> None:
        super().__init__(options, space, journal, delivery, database)
        self.input_log = input_log
        self._log_clock = clock
        # The local journal has everything up to this time of the log.
        self.copied_until = 0.0
        self.is_performing = False
        self.unsaved = None
        space.state.limit_rate_at_edge()

    @contextmanager
    def performing(self, mint: FreshMint) -> Iterator[None]:
        """Apply an input of the log: whatever happens in here happens on all gateways."""
        self.is_performing, self.mint = True, mint
        self.journal.skips = self.clock() <= self.copied_until
        try:
            yield
        finally:
            self.journal.skips = False
            self.is_performing, self.mint = False, FreshMint()

    def step(self, input: str, act: Input, *, waits: bool = False, **facts: Json) -> list[Result]:
        if self.is_performing:
            return super().step(input, act, waits=waits, **facts)
        self.input_log.submit(self.name, input, facts, None)
        return []

    async def step_applied(self, input: str, act: Input, **facts: Json) -> None:
        await self.step_durably(input, act, **facts)

    def step_told(
        self,
        input: str,
        act: Input,  # noqa: ARG002  # it acts when the log brings it
        refuse: Callable[[Refused], None],
        **facts: Json,
    ) -> None:
        def tell(outcome: object) -> None:
            if isinstance(outcome, Refused):
                refuse(outcome)

        try:
            self.input_log.submit(self.name, input, facts, tell)
        except Refused as refusal:
            refuse(refusal)

    async def step_durably(
        self,
        input: str,
        act: Input,  # noqa: ARG002  # it acts when the log brings it
        *,
        shrinks_rights: bool = False,  # noqa: ARG002
        widens: str = "",  # noqa: ARG002
        **facts: Json,
    ) -> CarriedOut:
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.input_log.submit(self.name, input, facts, lambda outcome: settle(done, outcome))
        return await wait_applied(done, CarriedOut)

    def perform_act(
        self, input: str, effects: list[Effect], now: float, facts: dict[str, Json]
    ) -> CarriedOut:
        """Record what an operator or the log itself did, and carry it out."""
        number = self.record(input, now, self.mint, **facts)
        self.snapshots.mark_rights_change(number)
        return self.hold_until_durable(effects, number, now).result()

    def carry_out(
        self,
        effects: list[Effect],
        number: int,
        now: float,
        *,
        waits: bool = False,  # noqa: ARG002  # the log has it
        shrinks_rights: bool = False,  # noqa: ARG002
        is_audited: bool = False,  # noqa: ARG002
        done: asyncio.Future[CarriedOut] | None = None,
    ) -> None:
        self._finish(PendingEffects(number, effects, now, done=done), on_disk=True)
        self._look_ahead(number)

    @property
    def sends_at_once(self) -> bool:
        return True

    @property
    def withholds(self) -> bool:
        return False

    def _report_health(self, writable: bool) -> None:
        """The files of one gateway are its own affair: the space goes on by the log."""
        log.log(
            logging.INFO if writable else logging.ERROR,
            "the local journal is written again" if writable else "the local journal cannot be written",
            extra={"space": self.name},
        )

    def _seconds_until(self, when: float) -> float:
        return max(_MIN_TIMER_SECONDS, self._log_clock.seconds_until(when))

    def expire_due(self) -> None:
        """Ask for the deadlines that have come. One gateway does; without it heartbeats see to that."""
        self._timer = self._timer_at = None
        if self.input_log.is_first and not self._is_stopping:
            self.input_log.submit(self.name, "expire", {}, None)


def settle(done: asyncio.Future[object], outcome: object) -> None:
    if not done.done():
        done.set_result(outcome)


async def wait_applied(done: asyncio.Future[object], wanted: type[T]) -> T:
    """What came of an input when it was applied; raises what it was refused with."""
    outcome = await done
    if isinstance(outcome, Exception):
        raise outcome
    if not isinstance(outcome, wanted):
        raise TypeError(f"an input came to {outcome!r}")
    return outcome
