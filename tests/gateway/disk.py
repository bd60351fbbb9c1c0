"""Disks that fail, without a mock: the kernel itself refuses to let files grow."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def no_room_on_disk(folder: Path) -> Iterator[None]:
    """While this lasts, no file of this process grows beyond what the journal has now (EFBIG).

    Python ignores SIGXFSZ, so writes fail as they do on a full disk. Smaller files, such as the log of
    pytest, are not affected as long as they stay smaller.
    """
    size = max(1, max(folder.glob("*.jsonl")).stat().st_size)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def everything_under(folder: Path) -> bytes:
    """The bytes of every file in a folder and below it."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def file_mode(path: Path) -> int:
    return os.stat(path).st_mode & 0o777
