"""Files of signed events: read within a bound, parsed, and written whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from moot.errors import InvalidJson, UsageError
from moot.protocol.operation import Json
from moot.protocol.strict_json import parse
from moot.resilience.atomic_file import write_atomically

# Eight delegations with 256 capabilities each are some 600 KiB.
MAX_FILE_BYTES: Final = 1 << 20


def read_event_file(file: Path) -> bytes:
    """The bytes of a file of events; raises UsageError."""
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_FILE_BYTES + 1)
    except OSError as fault:
        raise UsageError(f"{file}: cannot be read: {fault.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise UsageError(f"{file}: is larger than {MAX_FILE_BYTES} bytes")
    return raw


def parse_events(raw: bytes, where: str) -> list[Json]:
    """The events in a text: one, a list of them, or one a line; raises UsageError."""
    try:
        value = parse(raw.strip())
        return value if isinstance(value, list) else [value]
    except InvalidJson:
        pass
    try:
        return [parse(line) for line in raw.splitlines() if line.strip()]
    except InvalidJson as fault:
        raise UsageError(f"{where}: holds no events: {fault.message}") from None


_FILE_MODE: Final = 0o644


def write_events(file: Path, events: Json, *, force: bool = False) -> None:
    """Write events to a new file, whole or not at all; raises UsageError when it exists already.

    The events are public; others may read the file, and only its owner may change it.
    """
    text = json.dumps(events, indent=1, ensure_ascii=True).encode("ascii") + b"\n"
    try:
        write_atomically(file, text, mode=_FILE_MODE, replace=force)
    except FileExistsError:
        raise UsageError(f"{file} exists already; use --force to overwrite it") from None
    except OSError as fault:
        raise UsageError(f"{file} cannot be written: {fault.strerror}") from None
