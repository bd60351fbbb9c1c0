"""The short way: what is plainly said goes from its socket to journal and outboxes in one compiled step.

Most of a busy space is chat and thoughts: envelopes that nobody has to answer and on which nothing is
executed, from members who hold a capability for their kind as a whole. Once the ladder has let one of them
through, the next one of that kind from that session differs in little: is it well formed, does it name its
sender, is its id new, does it come too fast. A *lane* is the verdict on all the rest. While it is open, the
compiled part (`_lane.pyx`) looks at that little and does what the long way would do: window, record, past,
outboxes. What it hesitates at it leaves untouched to the long way, which decides and finds the words; it
never refuses anything.

Every input that could change a verdict closes all lanes of its space: all but envelopes whose only effect is
to be heard. The next plain envelope that goes the long way opens its lane again. So nobody has to keep a
list of what a verdict rests on.

The compiled part is built where there is a C compiler. Without it, or with MOOT_PURE_PYTHON set, everything
goes the long way, with the same outcome.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from moot.gateway.delivery import Delivery, HistoryEntry
from moot.protocol.envelope import Envelope
from moot.space.config import SessionId
from moot.space.fast_path_record import fast_path_record
from moot.space.state import State
from moot.store.journal import Journal

try:
    from moot.gateway._fast_path import Lane, Shared
    from moot.protocol._scan_envelope import MOST_NAME_BYTES, MOST_NAMES
except ImportError:
    _is_built = False
else:
    _is_built = True

COMPILED: Final = _is_built and not os.environ.get("MOOT_PURE_PYTHON")


class FastPaths:
    """The lanes of one space."""

    def __init__(self, journal: Journal, delivery: Delivery) -> None:
        self._delivery = delivery
        self._shared = (
            Shared(journal, delivery.outgoing, delivery.history, HistoryEntry) if COMPILED else None
        )
        self._lanes: dict[SessionId, Lane] = {}

    @property
    def heard(self) -> int:
        """How many envelopes took the short way."""
        return 0 if self._shared is None else self._shared.heard

    @property
    def delivered(self) -> int:
        """How many messages they became."""
        return 0 if self._shared is None else self._shared.delivered

    def begin(self, session: SessionId, sender: str) -> None:
        """A session that speaks MEW has joined; it signs its envelopes like this."""
        if self._shared is not None:
            self._lanes[session] = Lane(self._shared, sender)

    def end(self, session: SessionId) -> None:
        self._lanes.pop(session, None)
        self.close()

    def entrance(self, session: SessionId) -> Callable[[bytes], bool] | None:
        """Takes a text message of this session, or says that it has to go the long way."""
        lane = self._lanes.get(session)
        return None if lane is None else lane.hear

    def close(self) -> None:
        """Something happened that could change a verdict."""
        if self._shared is not None:
            self._shared.close()

    def passed(
        self,
        state: State,
        id: SessionId,
        envelope: Envelope,
        common: Callable[[str], bytes],
        clock: Callable[[], float],
        before: int,
    ) -> None:
        """The long way let this through to all who listen; open the lane if the next one may be spared it.

        `common` spells what records of a kind share; records from number `before` on go the long way.
        """
        lane = self._lanes.get(id)
        kind = envelope.kind
        if lane is None or envelope.missing or not lane.wants(kind, envelope.ts):
            return
        session = state.roster.sessions[id]
        everyone = state.everyone() if session.options.echo else state.all_but(session)
        audience = self._delivery.audience_of(everyone)
        record = fast_path_record(state, session, kind)
        limits = state.config.limits.envelope
        if (
            record is None
            or audience.only_dialect != "mew"
            or self._delivery.on_envelope is not None
            # The compiled part reads the clock itself, and lists of names up to its own bounds.
            or clock is not time.time
            or min(limits.max_recipients, limits.max_correlations) < MOST_NAMES
            or limits.max_id_chars < MOST_NAME_BYTES
        ):
            lane.pass_by(kind)
            return
        lane.open(
            kind,
            envelope.ts,
            record=record,
            common=common(kind),
            window=state.window,
            pace=state.pace,
            throttle=session.member.throttle,
            audience=audience.outboxes,
            before=before,
            most_bytes=limits.max_bytes,
            max_id_chars=limits.max_id_chars,
        )
