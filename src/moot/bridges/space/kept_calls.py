"""The calls of one member that became proposals: what is pending, and for a while what is over.

Two calls are the same if they go to the same host with the same method, params and key.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from moot.bridges.space.calls_file import CallsFile, RecordedCall, outcome_of
from moot.mcp.downstream.backend import PendingCall
from moot.mcp.eras import JsonObject
from moot.participant.decisions.seen_proposal import RecordedProposal, SeenProposal
from moot.protocol.continuation import VARYING
from moot.protocol.operation import Json

# Dropped oldest first; finished ones go before pending ones.
MAX_KEPT: Final = 1_000
# How long a result is kept for a client that comes back for it.
KEPT_SECONDS: Final = 3_600.0
# In `_meta` of a call: calls with different keys are different calls, and one with the same key is the same
# call for as long as it is known, also after its outcome was told.
IDEMPOTENCY_KEY: Final = "moot/idempotency_key"


def call_fingerprint(host: str, method: str, params: JsonObject, key: str | None = None) -> bytes:
    """What makes two calls the same; the order of members does not matter."""
    named = key_of(params) if key is None else key
    return json.dumps([host, method, without_meta(params), named], sort_keys=True).encode()


def call_fingerprint_of(record: RecordedCall) -> bytes:
    call = record.proposal
    return call_fingerprint(call.to, call.method, call.params, record.key)


def key_of(params: JsonObject) -> str:
    meta: Json = params.get("_meta")
    key = meta.get(IDEMPOTENCY_KEY) if isinstance(meta, dict) else None
    return key if isinstance(key, str) else ""


def without_meta(params: JsonObject) -> JsonObject:
    return {key: value for key, value in params.items() if key != "_meta"}


def without_input(params: JsonObject) -> JsonObject:
    """The params of a call that a repetition with the input for its tool has, too."""
    return {key: value for key, value in params.items() if key not in VARYING}


def record_of_seen(seen: SeenProposal) -> RecordedCall | None:
    """A proposal of ours that nobody wrote down here, made elsewhere in our name."""
    params = without_meta(seen.params)
    what = params.get("name", params.get("uri", seen.method))
    if len(seen.to) != 1 or not isinstance(what, str):
        return None
    proposal = RecordedProposal(
        id=seen.id, to=seen.to[0], method=seen.method, params=params, proposed_at=time.time()
    )
    return RecordedCall(proposal=proposal, what=what, params=params, key=key_of(seen.params))


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
