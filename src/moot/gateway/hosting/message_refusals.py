"""What is refused in a space: counted, journaled within a budget, and answered within a rate (D-36).

A message that never became an envelope is journaled by its size alone; a refused envelope as far as its
sender's budget goes (`refusal_log`).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Final

from moot.errors import Refused
from moot.gateway.hosting.error_reply_limiter import ErrorReplyLimiter
from moot.gateway.hosting.journaled_space import JournaledSpace
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.refusal_log import GUESTS, RefusalLog
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Json
from moot.space.config import Name, SessionId
from moot.space.space import Space

# The id of an envelope behind nothing but other texts, within so many bytes.
_AHEAD_BYTES: Final = 1_024
_MAX_ABOUT_CHARS: Final = 256
_TEXT: Final = rb'[^"\\\x00-\x1f]*+'
_ID_AHEAD: Final = re.compile(
    rb'\s*+\{\s*+(?:(?!"id")"%b"\s*+:\s*+"%b"\s*+,\s*+)*+"id"\s*+:\s*+"(%b)"' % (_TEXT, _TEXT, _TEXT)
)


# Under this name the sign-ins that were refused are counted.
_SIGN_INS: Final = "sign-ins"
# Answers to malformed input of one connection; a client in a loop is not answered for ever.
ERRORS_PER_SECOND: Final = 10.0

log = logging.getLogger(__name__)


class MessageRefusals:
    """The refusals of one space."""

    def __init__(self, journaled: JournaledSpace) -> None:
        self._journaled = journaled
        self._space = journaled.space
        self.counts: Counter[str] = Counter()
        options = journaled.options
        self.log = RefusalLog(options.name, lambda record: journaled.journal.append(record), journaled.clock)
        # How often malformed messages of one session are answered.
        self._replies = ErrorReplyLimiter(ERRORS_PER_SECOND)

    @property
    def suppressed(self) -> int:
        """How many were not answered, because there were too many."""
        return self._replies.suppressed

    def record_envelope(
        self,
        input: str,
        session: SessionId,
        who: str,
        dialect: DialectName,
        envelope: Envelope,
        code: str,
        raw: bytes,
        now: float,
        mint: FreshMint,
    ) -> int:
        """Count a refusal and journal what there is room for; returns the record that its answer follows."""
        self.counts[code] += 1
        number = self.log.record_envelope(
            self._budget_of(who),
            code,
            envelope,
            raw,
            now,
            mint,
            input,
            session=session,
            who=who,
            dialect=dialect,
        )
        return self._journaled.journal.next_number - 1 if number is None else number

    def record_malformed(
        self, session: SessionId, who: str, refusal: Refused, size: int, now: float, mint: FreshMint
    ) -> int:
        self.counts[refusal.code] += 1
        number = self.log.record(
            self._budget_of(who), refusal.code, size, now, mint, "malformed", session=session, who=who
        )
        return self._journaled.journal.next_number - 1 if number is None else number

    def record_sign_in(self, who: dict[str, Json], why: str) -> None:
        """Journal and log that somebody was not let in whom a provider knows. All share one budget."""
        code, now, mint = "sign_in_refused", self._journaled.clock(), self._journaled.next_mint()
        self.counts[code] += 1
        if (
            self.log.record(_SIGN_INS, code, 0, now, mint, "sign_in_refused", sign_in=who, why=why)
            is not None
        ):
            log.info("sign-in refused", extra={"space": self._journaled.name, "why": why} | who)

    def answer(self, session: SessionId, refusal: Refused, size: int) -> None:
        """Answer something that never became an envelope; its bytes are not journaled, only that it came."""
        now, mint = self._journaled.clock(), self._journaled.next_mint()
        if session not in self._space.state.roster.sessions or not self._replies.allows(session, now):
            return
        effects = self._space.refuse(session, refusal, now, mint)
        who = space_member(self._space, session)
        number = self.record_malformed(session, who, refusal, size, now, mint)
        self._journaled.carry_out(effects, number, now)

    def answer_undecoded(self, session: SessionId, refusal: Refused, data: bytes) -> None:
        """Answer something that was too fast to be decoded, by its id where that is easily found."""
        now, mint = self._journaled.clock(), self._journaled.next_mint()
        found = _ID_AHEAD.match(data[:_AHEAD_BYTES])
        if found is not None:
            refusal.about = found[1].decode("utf-8", "replace")[:_MAX_ABOUT_CHARS]
        effects = self._space.refuse(session, refusal, now, mint)
        who = space_member(self._space, session)
        number = self.record_malformed(session, who, refusal, len(data), now, mint)
        self._journaled.carry_out(effects, number, now)

    def _budget_of(self, who: str) -> str:
        """Whose budget a refusal takes from. Guests could come back under another name."""
        member = self._space.state.roster.members.get(Name(who))
        return GUESTS if member is None or member.anonymous else who


def space_member(space: Space, session: SessionId) -> str:
    """The name of the member that a session belongs to; empty if it has left."""
    known = space.state.roster.sessions.get(session)
    return known.member.name if known is not None else ""
