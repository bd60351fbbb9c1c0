from moot.gateway.delivery import HistoryEntry, MessageHistory
from moot.net.outbox import Outbox, Outgoing
from moot.space.id_window import IdWindow, SeenEnvelope
from moot.space.send_rate import SendRate, SendRateTable
from moot.store.journal import Journal

class Shared:
    @property
    def heard(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    def __init__(
        self, journal: Journal, outgoing: Outgoing, past: MessageHistory, heard_type: type[HistoryEntry]
    ) -> None: ...
    def close(self) -> None: ...
    def settle(self) -> None: ...

class Lane:
    def __init__(self, shared: Shared, sender: str) -> None: ...
    def wants(self, kind: str, ts: str) -> bool: ...
    def pass_by(self, kind: str) -> None: ...
    def open(
        self,
        kind: str,
        ts: str,
        *,
        record: SeenEnvelope,
        common: bytes,
        window: IdWindow,
        pace: SendRate,
        throttle: SendRateTable,
        audience: list[Outbox],
        before: int,
        most_bytes: int,
        max_id_chars: int,
    ) -> None: ...
    def hear(self, data: bytes) -> bool: ...
