from collections.abc import Sequence

from moot.protocol.operation import Payload

MAX_NAMES: int
MAX_NAME_BYTES: int

OrdinaryMembers = tuple[str, str, str, str, Sequence[str], Sequence[str], str | None, Payload]

def is_plain(raw: bytes) -> bool: ...
def read_ordinary(raw: bytes, is_mew: bool) -> OrdinaryMembers | None: ...
