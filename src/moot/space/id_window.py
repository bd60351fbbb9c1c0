"""What the gateway remembers of recent envelopes by id: author, kind, and pending answers (D-07, D-09, D-15).

The window is bounded. Ids of open objects are *pinned*, so that no flood of chat can push out the id
of a proposal under review or of a request that waits for its answer.
"""

from __future__ import annotations

import builtins
from collections import deque
from typing import Any

import msgspec

from moot.protocol.operation import Json, Operation
from moot.space.config import Name


class SeenEnvelope(msgspec.Struct, gc=False):
    """One accepted envelope, as far as later ones need it."""

    author: Name
    kind: str
    # For requests and proposals: what they ask for, and whom (logical names; empty: everybody).
    operation: Operation | None = None
    to: tuple[Name, ...] = ()
    # For a fulfilment: who proposed it (D-30).
    proposer: Name | None = None
    # Who still owes an answer (D-15), and until when; empty once nobody does.
    owed: tuple[Name, ...] = ()
    expires: float = 0.0


class IdWindow:
    """The most recent envelopes by id, and those whose object is still open.

    The fast path reads and fills `recent` and `order` itself: what `remember` does, it does too
    (`gateway/_fast_path.pyx`). The three containers stay the same objects for the life of a space.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.recent: dict[str, SeenEnvelope] = {}
        self.pinned: dict[str, SeenEnvelope] = {}
        self._pins: dict[str, int] = {}
        self.order: deque[str] = deque()

    def __contains__(self, id: str) -> bool:
        return id in self.recent or id in self.pinned

    def get(self, id: str) -> SeenEnvelope | None:
        return self.recent.get(id) or self.pinned.get(id)

    def remember(self, id: str, record: SeenEnvelope) -> None:
        recent, order = self.recent, self.order
        recent[id] = record
        order.append(id)
        if len(order) > self.size:
            del recent[order.popleft()]

    def resize(self, size: int) -> None:
        self.size = size
        while len(self.order) > size:
            del self.recent[self.order.popleft()]

    def pin(self, id: str) -> None:
        """Keep this id, which has just been remembered, until it is unpinned as often."""
        self._pins[id] = self._pins.get(id, 0) + 1
        record = self.recent.get(id)
        if record is not None:
            self.pinned[id] = record

    def unpin(self, id: str) -> None:
        left = self._pins.get(id, 0) - 1
        if left > 0:
            self._pins[id] = left
        else:
            self._pins.pop(id, None)
            self.pinned.pop(id, None)

    def save(self) -> dict[str, Json]:
        """Many envelopes share one record (`SpaceMember.seen_record`), which is written once."""
        rows: dict[int, int] = {}
        records: list[Json] = []

        def row_of(record: SeenEnvelope) -> int:
            row = rows.get(builtins.id(record))
            if row is None:
                row = rows[builtins.id(record)] = len(records)
                records.append(msgspec.to_builtins(record))
            return row

        return {
            "order": list(self.order),
            "rows": [row_of(self.recent[id]) for id in self.order],
            "pins": dict(self._pins),
            "pinned": {id: row_of(record) for id, record in self.pinned.items()},
            "records": records,
        }

    @classmethod
    def load(cls, saved: dict[str, Any], size: int) -> IdWindow:
        window = cls(size)
        records = [msgspec.convert(record, SeenEnvelope) for record in saved["records"]]
        window.order = deque(saved["order"])
        window._pins = dict(saved["pins"])
        window.recent = {id: records[row] for id, row in zip(saved["order"], saved["rows"], strict=True)}
        window.pinned = {id: records[row] for id, row in saved["pinned"].items()}
        return window
