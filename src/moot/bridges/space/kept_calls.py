"""The calls of one member that became proposals: what is pending, and for a while what is over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import msgspec

from moot.bridges.space.calls_file import CallsFile, RecordedCall, outcome_of
from moot.bridges.space.same_calls import call_fingerprint_of
from moot.mcp.downstream.backend import PendingCall
from moot.participant.decisions.seen_proposal import SeenProposal

# Dropped oldest first; finished ones go before pending ones.
MAX_KEPT: Final = 1_000
# How long a result is kept for a client that comes back for it.
KEPT_SECONDS: Final = 3_600.0


class KeptCalls:
    """Calls by handle, newest last. What a later run has to know of them is in the file, if there is one."""

    def __init__(self, file: CallsFile | None) -> None:
        self._file = file
        self._kept: dict[str, PendingCall] = {}
        self._records: dict[str, RecordedCall] = {}
        # The latest call of each kind: host, method and params.
        self._latest: dict[bytes, PendingCall] = {}
        # Those that are over when somebody rejects them.
        self._ended_by_rejection: set[str] = set()

    def __iter__(self) -> Iterator[PendingCall]:
        self._drop_expired()
        return iter(tuple(self._kept.values()))

    def get(self, handle: str) -> PendingCall | None:
        self._drop_expired()
        return self._kept.get(handle)

    def latest(self, kind: bytes) -> PendingCall | None:
        """The latest call with this fingerprint."""
        self._drop_expired()
        return self._latest.get(kind)

    def record_of(self, pending: PendingCall) -> RecordedCall:
        return self._records[pending.handle]

    def add(self, record: RecordedCall, pending: PendingCall) -> None:
        pending.on_delivered = lambda pending: self._on_delivered(pending, record)
        self._kept[record.handle] = pending
        self._records[record.handle] = record
        self._latest[call_fingerprint_of(record)] = pending

    def end_by_rejection(self, pending: PendingCall) -> None:
        """It is over when somebody rejects it."""
        self._ended_by_rejection.add(pending.handle)

    def is_ended_by(self, seen: SeenProposal) -> bool:
        """Whether a rejection has ended it."""
        return bool(seen.rejections) and seen.id in self._ended_by_rejection

    def forget(self, handle: str) -> None:
        """A client has its outcome, or it was never proposed: the next run need not tell of it."""
        if self._file is not None:
            self._file.remove(handle)

    def _on_delivered(self, pending: PendingCall, record: RecordedCall) -> None:
        """A client has its outcome: the next run tells of it only to a client that polls a task."""
        if not pending.is_task or self._file is None:
            self.forget(pending.handle)
            return
        left = pending.kept_seconds - pending.age_seconds
        recorded = outcome_of(pending, until=time.time() + left)
        if recorded is not None:
            self._file.replace(msgspec.structs.replace(record, outcome=recorded))

    def _drop_expired(self) -> None:
        for handle, pending in tuple(self._kept.items()):
            kept_seconds = pending.kept_seconds if pending.is_task else KEPT_SECONDS
            if pending.finished.is_set() and pending.idle_seconds > kept_seconds:
                self._drop(handle)
        finished = [handle for handle, pending in self._kept.items() if pending.finished.is_set()]
        while len(self._kept) > MAX_KEPT:
            self._drop(finished.pop(0) if finished else next(iter(self._kept)))

    def _drop(self, handle: str) -> None:
        dropped = self._kept.pop(handle)
        self._ended_by_rejection.discard(handle)
        record = self._records.pop(handle)
        kind = call_fingerprint_of(record)
        if self._latest.get(kind) is dropped:
            del self._latest[kind]
        if dropped.finished.is_set() and not dropped.is_task:
            self.forget(handle)
