MAX_NAMES: int
MAX_NAME_BYTES: int

def scan(raw: bytes) -> tuple[str, str, str, str] | None: ...
