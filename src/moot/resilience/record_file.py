"""A record that outlives a restart: read once at the start, and written as a whole before it is relied on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from moot.errors import UsageError
from moot.resilience.atomic_file import write_atomically

log = logging.getLogger(__name__)

Record = TypeVar("Record", bound=msgspec.Struct)


class RecordFile(Generic[Record]):
    """One record of a type in one file. A failure to write is an error; a file that cannot be read is not."""

    def __init__(self, path: Path, type: type[Record], *, max_bytes: int, what: str) -> None:
        """`what` names the content in the log, such as "the session"."""
        self._path = path
        self.record = self._read(type, max_bytes, what)

    def _read(self, type: type[Record], max_bytes: int, what: str) -> Record:
        try:
            with self._path.open("rb") as opened:
                return msgspec.json.decode(opened.read(max_bytes), type=type)
        except FileNotFoundError:
            return type()
        except (OSError, msgspec.MsgspecError) as fault:
            log.warning(f"{what} of the last run cannot be read", extra={"why": str(fault)})
            return type()

    def write(self) -> None:
        """Write the record; raises UsageError if that fails."""
        try:
            write_atomically(self._path, msgspec.json.encode(self.record))
        except OSError as fault:
            raise UsageError(f"{self._path} cannot be written: {fault.strerror}") from None
