"""Large values of one space, in files that are named by their SHA-256. Nothing here is async.

What is kept in all is bounded: a new value takes the place of those that nobody has fetched or sent for
longest. A value that is sent again is kept once. The last room of the disk is the journal's.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from moot.private_files import open_private, sync_folder

_NAME: Final = re.compile(r"[0-9a-f]{64}")
# Of the disk: without a journal nothing happens in a space.
_FREE_BYTES: Final = 64 << 20
# What is being written, and how long that takes at most: 32 MiB on a slow disk take seconds.
_PARTIAL: Final = ".partial"
_PARTIAL_SECONDS: Final = 600.0


def keep_content(folder: Path, data: bytes, *, max_total_bytes: int, free_bytes: int = _FREE_BYTES) -> str:
    """Keep a value, on disk when this returns; its SHA-256. Raises OSError."""
    digest = sha256(data).hexdigest()
    path = folder / digest
    if path.exists():
        os.utime(path)
        return digest
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_room(folder, max_total_bytes - len(data))
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < len(data) + free_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    # One's own: several may send the same value at once.
    partial = folder / f"{digest}.{secrets.token_hex(8)}{_PARTIAL}"
    try:
        with open(partial, "wb", opener=open_private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(folder)
    return digest


def find_content(folder: Path, digest: str) -> Path | None:
    """The file of a value; None if it is not kept (any more)."""
    if not _NAME.fullmatch(digest):
        return None
    path = folder / digest
    try:
        os.utime(path)
    except OSError:
        return None
    return path


def _make_room(folder: Path, max_bytes: int) -> None:
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            # What another sender was writing has its name now, or is given up.
            with suppress(FileNotFoundError):
                facts = entry.stat()
                if entry.name.endswith(_PARTIAL) and facts.st_mtime < time.time() - _PARTIAL_SECONDS:
                    # Left by a gateway that was killed.
                    Path(entry.path).unlink()
                else:
                    found.append((facts.st_mtime, facts.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= max_bytes:
            return
        Path(path).unlink(missing_ok=True)
        total -= size
