"""The order of a space's inputs: "order this input, tell me when it is applied".

    sockets, HTTP, operators ─▶ InputOrder ─▶ InputApplier ─▶ space, journal, delivery

A gateway alone applies each input when it comes (`LocalOrder`). In a cluster a log orders those of all
gateways, and each applies what the log brings (`cluster.log_order`). Nothing else knows which of both it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from moot.errors import Refused
from moot.gateway.hosting.input_applier import LARGE_BYTES, Applied, InputApplier, NewSession
from moot.gateway.hosting.stored_input import StoredInput
from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json
from moot.space.config import SessionId
from moot.space.effects import Reply

# What an input came to: nothing to wait for, something that is to reach the disk, a refusal.
Outcome = Applied | Reply | Exception | None
Tell = Callable[[Outcome], None]
Reject = Callable[[Refused], None]


class InputOrder(Protocol):
    """Puts the inputs of one space in order."""

    @property
    def is_shared(self) -> bool:
        """Whether other gateways apply the same inputs, at the same times."""

    @property
    def is_first(self) -> bool:
        """Whether this gateway does what one of them has to do."""

    def new_session(self) -> SessionId: ...

    def join(self, joining: NewSession, attach: Callable[[], None], reject: Reject) -> None:
        """Join a session. `attach` connects its outbox before anything is sent to it; one that may not join
        is told by `reject`, which may come later."""

    def leave(self, session: SessionId) -> None:
        """A connection ended."""

    def receive(self, session: SessionId, dialect: DialectName, data: bytes, binary: bool) -> None:
        """One message from a socket: an envelope, or a stream frame. Nearly all inputs are these."""

    async def post(self, posting: NewSession, body: bytes) -> Applied | Reply:
        """One envelope from HTTP, when it is applied; a refusal is returned as the reply. Raises Refused."""

    def submit(self, input: str, facts: dict[str, Json], tell: Tell | None = None) -> None:
        """Anything else. Raises Refused if that is known at once; `tell` is told when it is applied."""

    def check_available(self) -> None:
        """Raises Unavailable while no input can be kept."""

    def check_current(self) -> None:
        """Raises Unavailable while what is known here may be old, as who was removed."""

    def check_rate_ahead(self, who: str, size: int) -> None:
        """Raises RateLimited for a message of a member who is too fast, before it is decoded."""


class LocalOrder:
    """The order in which inputs come to one gateway."""

    is_shared = False
    is_first = True

    def __init__(self, applier: InputApplier) -> None:
        self.receive = applier.receive
        self.leave = applier.leave
        self.check_available = applier.journaled.durability.check
        self._applier = applier
        self._space = applier.journaled.space
        self._sessions = 0

    def new_session(self) -> SessionId:
        self._sessions += 1
        return SessionId(f"{int(self._applier.journaled.clock() * 1000):x}-{self._sessions}")

    def join(self, joining: NewSession, attach: Callable[[], None], reject: Reject) -> None:
        try:
            self._applier.join(joining, attach)
        except Refused as refusal:
            reject(refusal)

    async def post(self, posting: NewSession, body: bytes) -> Applied | Reply:
        return self._applier.post(posting, body)

    def submit(self, input: str, facts: dict[str, Json], tell: Tell | None = None) -> None:
        stored = msgspec.convert({"t": 0.0, "in": input} | facts, StoredInput)
        outcome = self._applier.act(stored, facts)
        if tell is not None:
            tell(outcome)

    def check_current(self) -> None:
        """Nobody else changes this space."""

    def check_rate_ahead(self, who: str, size: int) -> None:
        if size >= LARGE_BYTES:
            self._space.check_rate_ahead(who, self._applier.journaled.clock())


async def wait_applied(submit: Callable[[Tell], None]) -> Applied | Reply | None:
    """Submit an input, and wait until it is applied; raises what it was refused with."""
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def tell(outcome: Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    submit(tell)
    outcome = await done
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
