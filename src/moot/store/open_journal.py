"""Opens the journal of a space: its files, or one that only counts where it is off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from moot.errors import UsageError
from moot.resilience.disk_room import FREE_IT, is_disk_full
from moot.store.file_journal import FileJournal
from moot.store.journal import Journal, JournalRules
from moot.store.journal_segments import find_tail
from moot.store.segment_writer import SegmentWriter


def open_journal(folder: Path, settings: JournalRules, *, sync_seconds: float | None = None) -> Journal:
    """The journal in this folder, going on where it ended; a torn end is cut off and kept beside it.

    Blocks while it checks the segments that it has not seen before, and the last one. Raises UsageError
    when another process has it open, when it cannot be written, and for damage that no crash explains.
    What nobody waits for is on disk after `sync_seconds`.
    """
    return _journal_of(settings, _open_files(folder, settings, 0), sync_seconds)


async def open_journal_in_thread(folder: Path, settings: JournalRules, *, at_least: int = 0) -> Journal:
    """`open_journal`, which may read gigabytes, while the loop answers others.

    Raises UsageError, too, when it ends before record `at_least`.
    """
    return _journal_of(settings, await asyncio.to_thread(_open_files, folder, settings, at_least))


def _journal_of(
    settings: JournalRules, opened: SegmentWriter | int, sync_seconds: float | None = None
) -> Journal:
    return NullJournal(opened) if isinstance(opened, int) else FileJournal(settings, opened, sync_seconds)


def _open_files(folder: Path, settings: JournalRules, at_least: int) -> SegmentWriter | int:
    """The files of a journal; when it is off, the number that would come next in them."""
    try:
        if settings.mode == "off":
            return find_tail(folder, repair=False, at_least=at_least).head.number
        return SegmentWriter(folder, at_least=at_least)
    except OSError as fault:
        if is_disk_full(folder, fault):
            raise UsageError(f"the disk of the journal in {folder} is full: {FREE_IT}") from fault
        raise UsageError(
            f"cannot write the journal in {folder}: {fault.strerror}. "
            "Free the disk or correct the rights of that folder, or name another with --data"
        ) from fault


class NullJournal(Journal):
    """`mode: off`: records have numbers, and that is all."""

    is_written = False

    def __init__(self, next_number: int) -> None:
        self.next_number = next_number
        # What is in the file from a time when there was a journal.
        self.recorded = self.next_number - 1
        self.writable = True
        self.pending = []
        self._loop = asyncio.get_running_loop()

    @property
    def durable(self) -> int:
        return self.next_number - 1

    def append(self, members: bytes, rest: bytes = b"", *, vital: bool = False) -> int:  # noqa: ARG002
        if self.shared is not None:
            self.shared.next_ending()
        self.next_number += 1
        return self.next_number - 1

    def when_durable(self, number: int, call: Callable[[], None]) -> None:  # noqa: ARG002
        self._loop.call_soon(call)
