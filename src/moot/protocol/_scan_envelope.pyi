from collections.abc import Mapping

from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Operation, Payload

MAX_NAMES: int
MAX_NAME_BYTES: int

def is_plain(raw: bytes) -> bool: ...
def plain_fingerprint(raw: bytes, payload: Payload) -> str | None: ...
def read_envelope(
    raw: bytes, dialect: DialectName, known_kinds: Mapping[str, tuple[str, Operation | None]]
) -> Envelope | None: ...
