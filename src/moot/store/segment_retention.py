"""Old segments of a journal go once a snapshot covers them, in a thread: large files take their time."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

from moot.errors import UsageError
from moot.store.journal_segments import remove_segments, segments_of
from moot.store.worker_thread import WorkerThread

log = logging.getLogger(__name__)


class Retention:
    """Keeps the newest `keep` segments of a folder; 0 keeps all."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep
        self._worker = WorkerThread(loop, name)

    def prune_until(self, number: int) -> None:
        """Remove what is not kept of the segments up to this record: a restart does not need them."""
        if not self._keep:
            return
        firsts = [segment.first for segment in segments_of(self._folder)]
        ends = [first - 1 for first in firsts[1 : max(1, len(firsts) - self._keep + 1)]]
        last = max((end for end in ends if end <= number), default=0)
        if last:
            self._worker.submit(partial(remove_segments, self._folder, last), _note_removal)

    def stop(self) -> None:
        self._worker.stop()


def _note_removal(fault: OSError | UsageError | None) -> None:
    if fault is not None:
        log.warning("old segments of the journal could not be removed", extra={"why": str(fault)})
