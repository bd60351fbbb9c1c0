"""Whether a disk is full, which people mend in another way than a wrong permission or a broken file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
FREE_IT: Final = "free some room and start again, or name a folder on another disk with --data DIR"


def is_disk_full(folder: Path, fault: Exception) -> bool:
    """Whether it failed for that reason. SQLite often says no more than that the disk failed."""
    if isinstance(fault, OSError):
        return fault.errno in _FULL
    # Of sqlite3.Error, which most commands do not load.
    name = str(getattr(fault, "sqlite_errorname", ""))
    try:
        return name == "SQLITE_FULL" or (name.startswith("SQLITE_IOERR") and os.statvfs(folder).f_bavail == 0)
    except OSError:
        return False
