"""Writes a file as a whole: after a crash there is the old file or the new one, and never half of one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
