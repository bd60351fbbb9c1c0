"""Writes a file as a whole: after a crash there is the old file or the new one, and never half of one."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from moot.errors import UsageError

# A record that outlives a restart: read once at the start, and written as a whole before it is relied on.

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


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Errors of the operating system name this file; those of a write or an fsync name none."""
    try:
        yield
    except OSError as fault:
        if fault.filename is None:
            fault.filename = str(file)
        raise


def write_atomically(file: Path, data: bytes, *, mode: int = 0o600, replace: bool = True) -> None:
    """Write a file and its folder; raises OSError, and FileExistsError if it exists and is not replaced."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = file.with_name(f".{file.name}.{secrets.token_hex(8)}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with naming(file), open(os.open(scratch, flags, mode), "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        if replace:
            os.replace(scratch, file)
        else:
            # A link fails where there is a file already; a rename would replace it.
            os.link(scratch, file)
    finally:
        scratch.unlink(missing_ok=True)
