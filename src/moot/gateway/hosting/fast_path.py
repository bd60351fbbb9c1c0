"""The fast path: ordinary messages go from their socket to journal and outboxes in one compiled step.

Most of a busy space is chat and thoughts: envelopes that nobody has to answer and that the gateway only
relays, from members who hold a capability for their kind as a whole. Once the ladder has accepted one of
them, the next one of that kind from that session differs in little: is it well formed, does it name its
sender, is its id new, does it come too fast. The compiled part (`_fast_path.pyx`) checks that little, and
then does what the slow path would do: window, record, outboxes, history. It refuses nothing. Whatever it
does not recognise is left untouched for the slow path, which decides and answers.

Why that is safe:

- A verdict is given by the ladder, for one kind of one session (`fast_path_record`), and never for a kind
  that can change a verdict (`Kind.changes_verdict`).
- It holds for one epoch. `State.verdict_epoch` counts up wherever the state changes that a verdict depends
  on: members, rights, pauses, shutdowns, the configuration. `tests/space/test_verdict_epoch.py` runs every
  kind and every other input and compares.
- The gateway ends all verdicts itself (`FastPaths.invalidate`) when effects have to wait for the disk, which
  nothing may overtake, when a snapshot is taken, and when a connection goes.
- The next envelope on the slow path gets a verdict again.

In a cluster a log puts messages in order. There the socket only asks whether the form is one that the fast
path takes (`recognises`), so that nothing is decoded before the log, and behind it every gateway takes the
message at the log's time (`accept_logged`).

The compiled part is built where there is a C compiler. Without it, or with MOOT_PURE_PYTHON set, everything
takes the slow path, with the same outcome. The log says at the start which it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from moot.gateway.hosting.delivery import Delivery, HistoryEntry
from moot.protocol.envelope import MAX_ID_CHARS, Envelope
from moot.resilience.steady_clock import CLOCK_ID, SteadyClock
from moot.space.config import SessionId
from moot.space.fast_path_record import fast_path_record
from moot.space.state import State
from moot.store.journal import Journal

try:
    from moot.gateway.hosting._fast_path import INTERFACE, SessionFastPath, SpaceFastPath
except ImportError:
    _is_built = False
else:
    _is_built = INTERFACE == 2

COMPILED: Final = _is_built and not os.environ.get("MOOT_PURE_PYTHON")


class FastPaths:
    """The fast paths of all sessions of one space."""

    def __init__(self, state: State, journal: Journal, delivery: Delivery, *, compiled: bool = True) -> None:
        self._state = state
        self._delivery = delivery
        self._space: SpaceFastPath | None = None
        if COMPILED and compiled:
            self._space = SpaceFastPath(state, journal, delivery.outgoing, delivery.history, HistoryEntry)
        self._sessions: dict[SessionId, SessionFastPath] = {}
        # In a cluster a log puts messages in order and gives them their time: none is taken at its socket.
        self.is_logged = False

    @property
    def accepted(self) -> int:
        """How many envelopes took the fast path."""
        return 0 if self._space is None else self._space.accepted

    @property
    def delivered(self) -> int:
        """How many messages they became."""
        return 0 if self._space is None else self._space.delivered

    def begin(self, session: SessionId, sender: str) -> None:
        """A MEW session has joined, whose envelopes name this sender."""
        if self._space is not None:
            self._sessions[session] = SessionFastPath(self._space, sender)

    def end(self, session: SessionId) -> None:
        self._sessions.pop(session, None)
        self.invalidate()

    def acceptor_of(self, session: SessionId) -> Callable[[bytes], bool] | None:
        """Accepts a text message of this session, or returns False: it has to take the slow path."""
        path = self._sessions.get(session)
        return None if path is None or self.is_logged else path.accept

    def recognises(self, session: SessionId, data: bytes) -> bool:
        """Whether a text message of this session is one that the fast path takes, as far as its form says."""
        path = self._sessions.get(session)
        return path is not None and path.recognises(data)

    def accept_logged(self, session: SessionId, data: bytes, now: float, ending: bytes) -> bool:
        """Take a message that a log has put in order, at its time; False: it has to take the slow path.

        `ending` is how its record ends at all gateways.
        """
        path = self._sessions.get(session)
        return path is not None and path.accept_at(data, round(now * 1e6), ending)

    def invalidate(self) -> None:
        """Let every session take the slow path once."""
        if self._space is not None:
            self._space.invalidate()

    def learn(
        self,
        id: SessionId,
        envelope: Envelope,
        common: Callable[[str], bytes],
        clock: Callable[[], float],
        slow_from: int,
    ) -> None:
        """The slow path has delivered this to everybody; let the next ones take the fast path if they may.

        `common` encodes what records of a kind have in common; records from number `slow_from` on take the
        slow path.
        """
        path = self._sessions.get(id)
        kind = envelope.kind
        if path is None or envelope.missing or not path.needs_verdict(kind):
            return
        state = self._state
        session = state.roster.sessions[id]
        everyone = state.audiences.everyone() if session.options.echo else state.audiences.all_but(session)
        audience = self._delivery.audience_of(everyone)
        record = fast_path_record(state, session, kind)
        limits = state.config.limits.envelope
        if (
            record is None
            or not (audience.only_dialect == "mew" or (self.is_logged and not audience.outboxes))
            # The compiled part reads the clock itself.
            or not (self.is_logged or isinstance(clock, SteadyClock))
        ):
            path.mark_slow(kind)
            return
        path.mark_fast(
            kind,
            record=record,
            common=common(kind),
            rate=state.send_rate,
            limiter=session.member.send_limiter,
            audience=audience.outboxes,
            slow_from=slow_from,
            clock_id=CLOCK_ID,
            clock_offset_micros=clock.offset_micros if isinstance(clock, SteadyClock) else 0,
            # The compiled part counts no objects: what could have too many of them is left to the slow path.
            max_bytes=min(limits.max_bytes, 2 * limits.max_containers + 1),
            max_id_chars=MAX_ID_CHARS,
        )
