"""The file that an export writes: always a new one, readable by its owner only."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from moot.errors import UsageError
from moot.resilience.atomic_file import naming


@contextmanager
def open_new_file(name: str) -> Iterator[IO[bytes]]:
    """Open a file that is not there yet, or the standard output for `-`; raises UsageError."""
    if name == "-":
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{name} exists: choose another name, or remove it first") from None
    except OSError as fault:
        raise UsageError(f"cannot write {name}: {fault.strerror}") from None
    try:
        with naming(Path(name)), open(descriptor, "wb") as file:
            yield file
    except BaseException:
        # The beginning of an export looks like a short one.
        os.unlink(name)
        raise
