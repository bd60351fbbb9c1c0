from moot.gateway.delivery import Heard, Past
from moot.net.outbox import Outbox, Outgoing
from moot.space.throttle import Pace, Throttle
from moot.space.window import Record, Window
from moot.store.journal import Journal

class Shared:
    @property
    def heard(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    def __init__(self, journal: Journal, outgoing: Outgoing, past: Past, heard_type: type[Heard]) -> None: ...
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
        record: Record,
        common: bytes,
        window: Window,
        pace: Pace,
        throttle: Throttle,
        audience: list[Outbox],
        before: int,
        most_bytes: int,
        id_chars: int,
    ) -> None: ...
    def hear(self, data: bytes) -> bool: ...
