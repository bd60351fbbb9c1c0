"""A token in a file that another program replaces: of a workload, or a short-lived one."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from moot.errors import UsageError
from moot.private_files import token_from

log = logging.getLogger(__name__)


class TokenFile:
    """Called, it gives the token that is in the file now; while that cannot be read, the last one."""

    def __init__(self, path: Path, token: str) -> None:
        """`token` is what was in it a moment ago."""
        self._path = path
        self._token = token
        self._seen = self._look()

    def __call__(self) -> str:
        seen = self._look()
        if seen is not None and seen != self._seen:
            self._seen = seen
            try:
                self._token = token_from(self._path)
            except UsageError as fault:
                log.warning("the token stays as it was", extra={"why": str(fault)})
        return self._token

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size
