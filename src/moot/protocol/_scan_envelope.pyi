MOST_NAMES: int
MOST_NAME_BYTES: int

def plain(raw: bytes) -> tuple[str, str, str, str] | None: ...
