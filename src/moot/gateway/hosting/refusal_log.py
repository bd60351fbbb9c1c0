"""What the journal keeps of refused messages: enough for an audit, bounded whatever a member sends.

Of a refused message its head, size and hash are kept. Its bytes are kept once for each hash, up to
BYTES_PER_HOUR of a member. After RECORDS_PER_MINUTE records of a member, its refusals
are only counted, by code, and the count is journaled every COUNT_SECONDS and at the end:

    {"in":"refused","who":"agent","count":51210,"bytes":53000000,"codes":{"capability_violation":51210},…}

Refusals change no state, so that replay passes over all of this. Guests share one budget: they could come
back under another name for another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from orjson import dumps

from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.space_records import encode_record
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

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
        self.hashes: OrderedDict[bytes, int] = OrderedDict()
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
            if len(budget.hashes) > _MAX_HASHES:
                budget.hashes.popitem(last=False)
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
