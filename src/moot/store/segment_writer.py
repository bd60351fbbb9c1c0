"""The file that a journal is being written to: chained lines, new segments, cutting back after a fault.

Everything here may raise OSError, and then nothing has changed but the end of the file, which `reopen` mends.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Final

from moot.errors import FolderInUse
from moot.private_files import sync_folder
from moot.store.journal_segments import (
    ended_early_error,
    find_tail,
    make_folder,
    remove_leftovers,
    segment_at,
)
from moot.store.record_chain import ChainHead, Lines, seal

# Data and size, but not the time of the last change: half the work of fsync.
_flush: Final = getattr(os, "fdatasync", os.fsync)
# What stays in the kernel's memory behind the end: whoever follows the journal reads that far back.
_CACHED_BYTES: Final = 4 << 20
# One step of writing a backlog, so that the loop is not held up for longer than some 5 ms.
STEP_TEXTS: Final = 2_048
STEP_BYTES: Final = 2 << 20
# What a tick brings is written without counting.
_FEW_TEXTS: Final = 64


class SegmentWriter:
    """Holds the folder for this process alone until it is released."""

    def __init__(self, folder: Path, *, at_least: int = 0) -> None:
        if at_least and not folder.is_dir():
            # Made anew it would look as if it had been there.
            raise ended_early_error(folder, folder, 0, at_least)
        make_folder(folder)
        self.folder = folder
        self._lock = lock_folder(folder)
        try:
            remove_leftovers(folder)
            tail = find_tail(folder, repair=True, at_least=at_least)
            self._file = _open_segment(tail.segment.path)
            if tail.size:
                # What a process wrote that was killed can be read, and is perhaps not on disk yet.
                _flush(self._file)
            sync_folder(folder)
        except BaseException:
            os.close(self._lock)
            raise
        self.segment = tail.segment
        self.head: ChainHead = tail.head
        self.size = tail.size
        self._new_file = False
        # So much of the file the kernel need not keep in memory.
        self._uncached_bytes = 0

    def write(self, batch: Sequence[bytes], next_number: int) -> Lines:
        """Chain and write these records, numbered from the head on; returns the lines."""
        lines, head = seal(batch, self.head, next_number)
        self.size += self._write_lines(lines)
        self.head = head
        return lines

    def begin_segment(self) -> None:
        """Go on in a new file; the old one must be on disk."""
        segment = segment_at(self.folder, self.head.number)
        file = _open_segment(segment.path)
        _close_file(self._file)
        self._file, self.segment, self.size = file, segment, 0
        self._new_file = True
        self._uncached_bytes = 0

    def reopen(self, size: int, texts: Iterable[Lines] = ()) -> None:
        """Open the file anew, cut it back to this size and write these lines again."""
        file = os.open(self.segment.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        _close_file(self._file)
        self._file = file
        if os.fstat(file).st_size < size:
            raise OSError(errno.EIO, "the segment is shorter than what was written to it")
        os.ftruncate(file, size)
        for text in texts:
            size += self._write_lines(text)
        self.size = size

    def sync(self) -> None:
        """What is written is on disk after this; the only call for another thread."""
        size = self.size
        _flush(self._file)
        if size - self._uncached_bytes >= 2 * _CACHED_BYTES:
            self._drop_from_cache(size - _CACHED_BYTES)
        if self._new_file:
            os.fsync(self._lock)
            self._new_file = False

    def _drop_from_cache(self, size: int) -> None:
        """Let the kernel drop from its memory what has long been on disk: it is seldom read again."""
        if hasattr(os, "posix_fadvise"):
            end = size - size % mmap.PAGESIZE
            os.posix_fadvise(
                self._file, self._uncached_bytes, end - self._uncached_bytes, os.POSIX_FADV_DONTNEED
            )
            self._uncached_bytes = end

    def release(self) -> None:
        _close_file(self._file)
        os.close(self._lock)

    def _write_lines(self, lines: Lines) -> int:
        size = len(lines[0]) + len(lines[1])
        written = os.writev(self._file, lines)
        # A disk that is almost full takes a part, and the next call says why.
        while written < size:
            written += os.write(self._file, memoryview(b"".join(lines))[written:])
        return size


def step_length(pending: Sequence[bytes]) -> int:
    """How many of these texts are written at once."""
    if len(pending) <= _FEW_TEXTS:
        return len(pending)
    sizes = list(accumulate(map(len, pending[:STEP_TEXTS])))
    return max(1, bisect_right(sizes, STEP_BYTES))


def lock_folder(folder: Path) -> int:
    """Hold a journal until the descriptor is closed; raises FolderInUse when another process has it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise FolderInUse(f"another process writes the journal in {folder}: stop it first") from None
    return lock


def _close_file(file: int) -> None:
    """Close a descriptor. It is gone also when that fails, as on a network's disk.

    It must not be closed again, when it may be somebody else's. What counts is on disk by fsync alone.
    """
    with suppress(OSError):
        os.close(file)


def _open_segment(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
