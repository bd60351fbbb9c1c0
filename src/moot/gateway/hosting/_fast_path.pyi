from moot.gateway.hosting.delivery import HistoryEntry, MessageHistory
from moot.net.outbox import Outbox, Outgoing
from moot.space.id_window import SeenEnvelope
from moot.space.members.send_rate import SendRate, SendRateLimiter
from moot.space.state import State
from moot.store.journal import Journal

INTERFACE: int

class SpaceFastPath:
    @property
    def accepted(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    def __init__(
        self,
        state: State,
        journal: Journal,
        outgoing: Outgoing,
        history: MessageHistory,
        entry_type: type[HistoryEntry],
    ) -> None: ...
    def invalidate(self) -> None: ...
    def count_stored(self) -> int: ...

class SessionFastPath:
    def __init__(self, space: SpaceFastPath, sender: str) -> None: ...
    def needs_verdict(self, kind: str) -> bool: ...
    def mark_slow(self, kind: str) -> None: ...
    def mark_fast(
        self,
        kind: str,
        *,
        record: SeenEnvelope,
        common: bytes,
        rate: SendRate,
        limiter: SendRateLimiter,
        audience: list[Outbox],
        slow_from: int,
        clock_id: int,
        clock_offset_micros: int,
        max_bytes: int,
        max_id_chars: int,
    ) -> None: ...
    def accept(self, data: bytes) -> bool: ...
    def accept_at(self, data: bytes, micros: int, ending: bytes) -> bool: ...
    def recognises(self, data: bytes) -> bool: ...
