"""What the gateway remembers of recent envelopes by id: author, kind, and pending answers (D-07, D-09, D-15).

The window is bounded. Ids of open objects are *pinned*, so that no flood of chat can push out the id
of a proposal under review or of a request that waits for its answer; that holds for a window of no size too.

Under `reference_compat` an id may come again in a later session of its author (D-94). The newer envelope
takes the place of the older one, whose turn in `order` then passes without effect (`superseded`).
"""

from __future__ import annotations

import builtins
from collections import Counter, deque
from typing import Any

import msgspec

from moot.protocol.operation import Json, Operation
from moot.space.config import Name


class SeenEnvelope(msgspec.Struct, gc=False):
    """One accepted envelope, as far as later ones need it."""

    author: Name
    kind: str
    # The number of the session that sent it (`Session.number`); 0: from before these were counted.
    session: int = 0
    # For requests and proposals: what they ask for, and whom (logical names; empty: everybody).
    operation: Operation | None = None
    to: tuple[Name, ...] = ()
    # For a fulfilment: who proposed it (D-30).
    proposer: Name | None = None
    # Who still owes an answer (D-15), and until when; empty once nobody does.
    owed: tuple[Name, ...] = ()
    expires: float = 0.0
    # Who let that time pass: a late answer of theirs still counts (D-99).
    late: tuple[Name, ...] = ()
    # Of a proposal: whether members of other dialects were sent it.
    translated: bool = True
    # Of a request to everybody: who has answered it.
    answered: tuple[Name, ...] = ()
    # Of a request or proposal: how many sessions had joined by then (later ones did not hear it), and the
    # numbers of those that said that they do not offer what it asks for.
    sessions_joined: int = 0
    not_offered: tuple[int, ...] = ()


class IdWindow:
    """The most recent envelopes by id, and those whose object is still open.

    The fast path reads and fills `recent`, `order` and `superseded` itself: what `remember` does, it does too
    (`gateway/hosting/_fast_path.pyx`). The containers stay the same objects for the life of a space.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.recent: dict[str, SeenEnvelope] = {}
        self.pinned: dict[str, SeenEnvelope] = {}
        # Of those that several open objects keep: how many beside the first.
        self._more_pins: dict[str, int] = {}
        self.order: deque[str] = deque()
        # By id: how many of its turns in `order` belong to older envelopes.
        self.superseded: dict[str, int] = {}

    def __contains__(self, id: str) -> bool:
        return id in self.recent or id in self.pinned

    def get(self, id: str) -> SeenEnvelope | None:
        return self.recent.get(id) or self.pinned.get(id)

    def remember(self, id: str, record: SeenEnvelope) -> None:
        recent, order = self.recent, self.order
        if id in recent:
            self.superseded[id] = self.superseded.get(id, 0) + 1
        recent[id] = record
        order.append(id)
        if len(order) > self.size:
            if self.superseded:
                self._forget_oldest()
            else:
                del recent[order.popleft()]

    def resize(self, size: int) -> None:
        self.size = size
        while len(self.order) > size:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        id = self.order.popleft()
        if id not in self.superseded:
            del self.recent[id]
        elif self.superseded[id] > 1:
            self.superseded[id] -= 1
        else:
            del self.superseded[id]

    def pin(self, id: str, record: SeenEnvelope) -> None:
        """Keep this id, which has just been remembered, until it is unpinned as often."""
        if id in self.pinned:
            self._more_pins[id] = self._more_pins.get(id, 0) + 1
        self.pinned[id] = record

    def pins_of(self, id: str) -> int:
        """How many open objects keep this id."""
        return 1 + self._more_pins.get(id, 0) if id in self.pinned else 0

    def unpin(self, id: str) -> None:
        more = self._more_pins.pop(id, 0)
        if more > 1:
            self._more_pins[id] = more - 1
        elif not more:
            self.pinned.pop(id, None)

    def save(self) -> dict[str, Json]:
        """Many envelopes share one record (`Session.seen_record`), which is written once."""
        seen = [*map(self.recent.__getitem__, self.order), *self.pinned.values()]
        keys = list(map(builtins.id, seen))
        records = dict(zip(keys, seen, strict=True))
        row_of = {key: row for row, key in enumerate(records)}
        rows: list[Json] = [row_of[key] for key in keys]
        return {
            "order": list(self.order),
            "rows": rows[: len(self.order)],
            "pins": {id: self.pins_of(id) for id in self.pinned},
            "pinned": dict(zip(self.pinned, rows[len(self.order) :], strict=True)),
            "records": [msgspec.to_builtins(record) for record in records.values()],
        }

    @classmethod
    def load(cls, saved: dict[str, Any], size: int) -> IdWindow:
        window = cls(size)
        records = [msgspec.convert(record, SeenEnvelope) for record in saved["records"]]
        window.order = deque(saved["order"])
        pins: dict[str, int] = saved["pins"]
        window._more_pins = {id: count - 1 for id, count in pins.items() if count > 1}
        window.recent = {id: records[row] for id, row in zip(saved["order"], saved["rows"], strict=True)}
        window.pinned = {id: records[row] for id, row in saved["pinned"].items()}
        # 0.1 kept no record of what it pinned in a window of no size: such an id stays taken, by nobody.
        for id in pins.keys() - window.pinned.keys():
            window.pinned[id] = window.recent.get(id) or SeenEnvelope(Name(""), "")
        window.superseded = {id: turns - 1 for id, turns in Counter(window.order).items() if turns > 1}
        return window
