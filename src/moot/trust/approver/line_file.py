"""A file of JSON lines that an approver adds to: a process that is killed forgets none that it wrote.

Each is written at once and without waiting for the disk. When there are many, or one that cannot be read,
they are replaced at the next start by what they come to.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from moot.private_files import open_private
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically

log = logging.getLogger(__name__)

# More lines are summed up at a start.
MAX_LINES: Final = 20_000


class LineFile:
    """One file; without a path nothing is kept. `fault` is why it can be neither read nor written now."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.fault: str | None = None

    def read(self, take: Callable[[Any], None], summary: Callable[[], Iterable[Mapping[str, Json]]]) -> None:
        """Take each line, in order; if they are many, or some are damaged, `summary` is written instead.

        One at which `take` raises ValueError, KeyError or TypeError is skipped.
        """
        if self._path is None:
            return
        try:
            lines = [line for line in self._path.read_text("utf-8", errors="replace").splitlines() if line]
        except FileNotFoundError:
            return
        except OSError as fault:
            self._note_fault(fault)
            return
        skipped = 0
        for line in lines:
            try:
                take(json.loads(line))
            except (ValueError, KeyError, TypeError):
                skipped += 1
        if skipped:
            log.warning("lines were skipped", extra={"file": self._path.name, "lines": skipped})
        if skipped or len(lines) > MAX_LINES:
            try:
                write_atomically(self._path, b"".join(map(_encode, summary())))
            except OSError as fault:
                self._note_fault(fault)

    def write(self, line: Mapping[str, Json]) -> bool:
        """Add a line; returns whether all of it is written."""
        if self._path is None:
            return True
        # The file may end within a line: this one begins on its own.
        data = b"\n" + _encode(line)
        try:
            descriptor = open_private(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                if os.write(descriptor, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(descriptor)
        except OSError as fault:
            self._note_fault(fault)
            return False
        self.fault = None
        return True

    def _note_fault(self, fault: OSError) -> None:
        if self.fault is None and self._path is not None:
            log.warning("cannot be read or written", extra={"file": self._path.name, "why": str(fault)})
        self.fault = str(fault)


def _encode(line: Mapping[str, Json]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n"
