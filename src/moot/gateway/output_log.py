"""Members that are files: they are sent every envelope, one JSON line each (`output_log`)."""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)


class OutputLog:
    """One file that grows by everything said in a space."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._is_broken = False

    def write(self, envelope: bytes) -> None:
        """Append one line; a file that cannot be written never holds up a space."""
        try:
            os.write(self._file, envelope.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n")
            self._is_broken = False
        except OSError as fault:
            if not self._is_broken:
                log.warning(
                    "output_log cannot be written", extra={"path": str(self._path), "why": fault.strerror}
                )
            self._is_broken = True

    def close(self) -> None:
        os.close(self._file)
