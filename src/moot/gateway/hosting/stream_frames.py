"""Frames of streams: they read the state and never change it, so that they are no inputs (D-89).

They are neither ordered nor journaled. In a cluster each gateway passes on what its own members send.
"""

from __future__ import annotations

from typing import Final, Protocol

from moot.errors import MalformedEnvelope, Refused, Unavailable
from moot.gateway.hosting.journaled_space import JournaledSpace
from moot.gateway.hosting.message_refusals import ErrorReplyLimiter, MessageRefusals, space_member
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.space_records import outcome_of
from moot.gateway.hosting.stored_input import ACCEPTED
from moot.protocol.frames import Frame, read_frame
from moot.space.config import Name, SessionId
from moot.space.effects import Deliver

# How often errors about one stream are answered in a second (D-36).
_ERRORS_PER_SECOND: Final = 1.0


class FrameExchange(Protocol):
    """The other gateways of a cluster, for frames."""

    def check_frame(self, session: SessionId, size: int) -> None:
        """Raises Refused if this gateway may not pass it on now."""

    def send_frame(self, session: SessionId, frame: Frame, effect: Deliver) -> None:
        """To those of whom it is meant for that are not connected here."""


class StreamFrames:
    """The frames of one space."""

    def __init__(self, journaled: JournaledSpace, refusals: MessageRefusals) -> None:
        self.exchange: FrameExchange | None = None
        self.error_replies = ErrorReplyLimiter(_ERRORS_PER_SECOND)
        self._journaled = journaled
        self._durability = journaled.durability
        self._space = journaled.space
        self._refusals = refusals

    def receive(self, session: SessionId, data: bytes, binary: bool, now: float) -> None:
        """A frame of a socket of this gateway, whose session is in the space."""
        try:
            frame = self._read(data, binary)
        except MalformedEnvelope as refusal:
            self._refusals.answer(session, refusal, len(data))
            return
        stream = (session, frame.stream_id)
        try:
            self._check_kept(session)
            if self.exchange is not None:
                self.exchange.check_frame(session, len(data))
        except Refused as refusal:
            if self.error_replies.allows(stream, now):
                refusal.details.setdefault("stream_id", frame.stream_id)
                self._refusals.answer(session, refusal, len(data))
            return
        effects = self._space.frame(session, frame, now, FreshMint())
        if outcome_of(effects) != ACCEPTED and not self.error_replies.allows(stream, now):
            return
        if self._durability.sends_at_once:
            self._journaled.delivery.carry_out(effects, now)
        else:
            self._journaled.carry_out(effects, self._journaled.journal.next_number - 1, now)
        if self.exchange is not None and effects and isinstance(effects[0], Deliver):
            self.exchange.send_frame(session, frame, effects[0])

    def take(self, session: SessionId, data: bytes, binary: bool) -> None:
        """A frame that another gateway received. Its writer's rights are looked at here, too."""
        if session not in self._space.state.roster.sessions:
            return
        try:
            frame = self._read(data, binary)
        except MalformedEnvelope:
            return
        now = self._journaled.clock()
        effects = self._space.frame(session, frame, now, FreshMint())
        self._journaled.delivery.carry_out([each for each in effects if isinstance(each, Deliver)], now)

    def _read(self, data: bytes, binary: bool) -> Frame:
        return read_frame(data, binary=binary, max_bytes=self._space.state.limits.max_frame_bytes)

    def _check_kept(self, session: SessionId) -> None:
        """Raises Unavailable if what lets its writer go on is not kept, or nothing can be delivered."""
        unsaved = self._durability.unsaved
        if unsaved is not None and unsaved.gives_rights:
            unsaved.check_member(Name(space_member(self._space, session)), self._journaled.saved)
        if self._durability.withholds:
            # Frames are not kept, so they cannot be delivered later.
            raise Unavailable("the journal cannot be written, and this space delivers nothing until it can")
