"""What is refused in a space: counted, journaled within a budget, and answered within a rate (D-36).

A message that never became an envelope is journaled by its size alone; a refused envelope as far as its
sender's budget goes (`refusal_log`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from hashlib import sha256
from typing import Final

from orjson import dumps

from moot.errors import Refused
from moot.gateway.hosting.journaled_space import JournaledSpace
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.space_records import encode_record
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.resilience.rate_limits import token_buckets
from moot.space.config import Name, SessionId
from moot.space.space import Space

# What the journal keeps of refused messages: enough for an audit, bounded whatever a member sends.
#
# Of a refused message its head, size and hash are kept. Its bytes are kept once for each hash, up to
# BYTES_PER_HOUR of a member. After RECORDS_PER_MINUTE records of a member, its refusals
# are only counted, by code, and the count is journaled every COUNT_SECONDS and at the end:
#
#     {"in":"refused","who":"agent","count":51210,"bytes":53000000,"codes":{"capability_violation":51210},…}
#
# Refusals change no state, so that replay passes over all of this. Guests share one budget: they could come
# back under another name for another.

# Refused messages of one member with a record of their own: two a second, more than anybody reads.
RECORDS_PER_MINUTE: Final = 120
# Bytes of one member's refused messages that are kept, each message once: some hundred ordinary ones.
BYTES_PER_HOUR: Final = 1 << 20
# What goes beyond is only counted; after so long, and at the end, the count is journaled.
COUNT_SECONDS: Final = 60.0
_MINUTE: Final = 60.0
_HOUR: Final = 3_600.0
# Of a head that a sender made up; what a space accepts is shorter.
_HEAD_CHARS: Final = 128
_HEAD_NAMES: Final = 8
# Different bytes that are remembered for each member, and members: the oldest are forgotten, and pay again.
_MAX_HASHES: Final = 256
_MAX_MEMBERS: Final = 10_000
# Under this name the refusals of guests are counted.
GUESTS: Final = "guests"


class _MemberBudget:
    """What one member has used up, and what was only counted."""

    def __init__(self, now: float) -> None:
        self.minute = self.hour = now
        self.records = 0
        self.bytes = 0
        self.hashes: LatestDict[bytes, int] = LatestDict(_MAX_HASHES)
        self.codes: Counter[str] = Counter()
        self.counted_bytes = 0
        self.since = 0.0

    def start_intervals(self, now: float) -> None:
        # A clock that was set back starts a new one, too.
        if not 0 <= now - self.minute < _MINUTE:
            self.minute, self.records = now, 0
        if not 0 <= now - self.hour < _HOUR:
            self.hour, self.bytes = now, 0
            self.hashes.clear()


class RefusalLog:
    """Journals the refusals of one space. `append` journals a record and returns its number."""

    def __init__(self, space: str, append: Callable[[bytes], int], clock: Callable[[], float]) -> None:
        self._space = space
        self._append = append
        self._clock = clock
        self._members: OrderedDict[str, _MemberBudget] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        # How many refusals were only counted, and how many bytes were not kept.
        self.counted = 0
        self.dropped_bytes = 0

    def record(
        self, key: str, code: str, size: int, now: float, mint: FreshMint, input: str, **facts: Json
    ) -> int | None:
        """Journal a refusal without its bytes; None when it was only counted."""
        budget = self._budget(key, now)
        if not self._takes(budget, key, code, size, now):
            return None
        return self._append(encode_record(input, now, mint, **facts, out=code, size=size))

    def record_envelope(
        self,
        key: str,
        code: str,
        envelope: Envelope,
        raw: bytes,
        now: float,
        mint: FreshMint,
        input: str,
        **facts: Json,
    ) -> int | None:
        """Journal a refused envelope, with its bytes while there is room for them; None when only counted."""
        budget = self._budget(key, now)
        size = len(raw)
        if not self._takes(budget, key, code, size, now):
            return None
        digest = sha256(raw).digest()
        head: dict[str, Json] = {
            "kind": (envelope.wire_kind or envelope.kind)[:_HEAD_CHARS],
            "id": envelope.id[:_HEAD_CHARS],
            "out": code,
            "size": size,
            "sha256": digest.hex(),
        }
        # A join contains a token, which no record may.
        is_secret = envelope.kind.startswith("system")
        earlier = budget.hashes.get(digest)
        keeps = not is_secret and earlier is None and budget.bytes + size <= BYTES_PER_HOUR
        if not keeps:
            self.dropped_bytes += size
            if earlier is not None:
                head["same_as"] = earlier
            if not is_secret:
                head["to"] = [str(name)[:_HEAD_CHARS] for name in envelope.to[:_HEAD_NAMES]]
        encoded = encode_record(input, now, mint, **facts, **head)
        number = self._append(b"".join((encoded, b',"raw":', raw if keeps else b"null")))
        if keeps:
            budget.bytes += size
            budget.hashes[digest] = number
        return number

    def flush(self) -> None:
        """Journal what was only counted so far; the timer calls this, and whoever stops the space."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock()
        for key, budget in self._members.items():
            if budget.codes:
                self._write_count(key, budget, now)

    # Counting

    def _takes(self, budget: _MemberBudget, key: str, code: str, size: int, now: float) -> bool:
        """Whether this refusal gets a record of its own; counts it otherwise."""
        if budget.records < RECORDS_PER_MINUTE:
            budget.records += 1
            log.info("refused", extra={"space": self._space, "participant": key, "code": code})
            return True
        if not budget.codes:
            budget.since = now
        budget.codes[code] += 1
        budget.counted_bytes += size
        self.counted += 1
        self.dropped_bytes += size
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(COUNT_SECONDS, self.flush)
        return False

    def _budget(self, key: str, now: float) -> _MemberBudget:
        budget = self._members.get(key)
        if budget is None:
            budget = self._members[key] = _MemberBudget(now)
            if len(self._members) > _MAX_MEMBERS:
                oldest, forgotten = self._members.popitem(last=False)
                if forgotten.codes:
                    self._write_count(oldest, forgotten, now)
        else:
            self._members.move_to_end(key)
        budget.start_intervals(now)
        return budget

    def _write_count(self, key: str, budget: _MemberBudget, now: float) -> None:
        count = sum(budget.codes.values())
        facts: dict[str, Json] = {
            "who": key,
            "count": count,
            "bytes": budget.counted_bytes,
            "codes": dict(budget.codes),
            "since": budget.since,
        }
        log.info("more refused", extra={"space": self._space, "participant": key, "count": count})
        budget.codes.clear()
        budget.counted_bytes = 0
        self._append(dumps({"t": now, "in": "refused"} | facts)[1:-1])


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


# How often a peer gets an error reply for the same kind of mistake: a client may be in a loop.

# Peers choose the keys (sessions come and go, stream ids are made up); this many are remembered.
_MAX_KEYS: Final = 10_000


class ErrorReplyLimiter:
    """A token bucket for each key: so many answers a second, and a burst of one second's worth."""

    def __init__(self, per_second: float) -> None:
        self._rates = token_buckets(per_second, per_second, max_keys=_MAX_KEYS)
        self.suppressed = 0

    def allows(self, key: Hashable, now: float) -> bool:
        """Whether this mistake still gets an error reply."""
        if self._rates.take(key, now):
            self.suppressed += 1
            return False
        return True


class MessageRefusals:
    """The refusals of one space."""

    def __init__(self, journaled: JournaledSpace) -> None:
        self._journaled = journaled
        self._space = journaled.space
        self.counts: Counter[str] = Counter()
        options = journaled.options
        self.log = RefusalLog(options.name, journaled.journal.append_own, journaled.clock)
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
