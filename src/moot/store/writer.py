"""The file that a journal is being written to: chained lines, new segments, cutting back after a fault.

Everything here may raise OSError, and then nothing has changed but the end of the file, which `reopen` mends.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from moot.errors import UsageError
from moot.store.chain import Entry, Head, seal
from moot.store.segments import find_tail, make_folder, segment_at, sweep, sync_folder

# Data and size, but not the time of the last change: half the work of fsync.
_flush: Final = getattr(os, "fdatasync", os.fsync)


class Writer:
    """Holds the folder for this process alone until it is released."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.folder = folder
        self._lock = _locked(folder)
        try:
            sweep(folder)
            tail = find_tail(folder, mend=True)
            self._file = _opened(tail.segment.path)
            sync_folder(folder)
        except BaseException:
            os.close(self._lock)
            raise
        self.segment = tail.segment
        self.head: Head = tail.head
        self.size = tail.size
        self._new_file = False

    def write(self, batch: Sequence[Entry]) -> bytes:
        """Number, chain and write these records; returns the lines."""
        text, head = seal(batch, self.head)
        self._put(text)
        self.head = head
        self.size += len(text)
        return text

    def begin_segment(self) -> None:
        """Go on in a new file; the old one must be on disk."""
        segment = segment_at(self.folder, self.head.number)
        file = _opened(segment.path)
        os.close(self._file)
        self._file, self.segment, self.size = file, segment, 0
        self._new_file = True

    def reopen(self, size: int, texts: Iterable[bytes] = ()) -> None:
        """Open the file anew, cut it back to this size and write these lines again."""
        file = os.open(self.segment.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.close(self._file)
        self._file = file
        if os.fstat(file).st_size < size:
            raise OSError(errno.EIO, "the segment is shorter than what was written to it")
        os.ftruncate(file, size)
        for text in texts:
            self._put(text)
            size += len(text)
        self.size = size

    def sync(self) -> None:
        """What is written is on disk after this; the only call for another thread."""
        _flush(self._file)
        if self._new_file:
            os.fsync(self._lock)
            self._new_file = False

    def release(self) -> None:
        os.close(self._file)
        os.close(self._lock)

    def _put(self, text: bytes) -> None:
        written = os.write(self._file, text)
        # A disk that is almost full takes a part, and the next call says why.
        while written < len(text):
            written += os.write(self._file, memoryview(text)[written:])


def _locked(folder: Path) -> int:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UsageError(f"another process writes the journal in {folder}: stop it first") from None
    return lock


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
