"""Removing what is too old, or too much, of a journal: whole segments, from the oldest on.

A space that is held keeps all (`remove_segments`). So does what no snapshot or log covers yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from moot.errors import UsageError
from moot.store.journal_segments import last_line, remove_segments, segments_of
from moot.store.worker_thread import WorkerThread

log = logging.getLogger(__name__)

DAY_SECONDS: Final = 86_400.0


class Retention:
    """Keeps the newest `keep` closed segments of a folder, and none that is older; 0 keeps all.

    In a thread: large files take time.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        folder: Path,
        keep: int,
        *,
        max_age_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._keep = keep
        self._max_age_seconds = max_age_seconds
        self._clock = clock
        self._worker = WorkerThread(loop, name)

    def prune_until(self, number: int) -> None:
        """Remove what is not kept of the segments up to this record: a restart does not need them."""
        segments = segments_of(self._folder)
        keep = self._keep or len(segments)
        ends = [segment.first - 1 for segment in segments[1 : max(1, len(segments) - keep + 1)]]
        if self._max_age_seconds:
            oldest = self._clock() - self._max_age_seconds
            for segment, following in pairwise(segments):
                if following.first - 1 > number or time_of_last(segment.path) >= oldest:
                    break
                ends.append(following.first - 1)
        last = max((end for end in ends if end <= number), default=0)
        if last:
            self._worker.submit(partial(remove_segments, self._folder, last), _note_removal)

    def stop(self) -> None:
        self._worker.stop()


def _note_removal(fault: OSError | UsageError | None) -> None:
    if fault is not None:
        log.warning("old segments of the journal could not be removed", extra={"why": str(fault)})


def time_of_first(path: Path) -> float:
    """When the first record of a segment was made, in seconds since 1970."""
    with path.open("rb") as file:
        return _time_in(file.readline())


def time_of_last(path: Path) -> float:
    return _time_in(last_line(path))


def _time_in(line: bytes) -> float:
    try:
        return _timed.decode(line).t
    except msgspec.MsgspecError:
        # Whatever has no time is of today: what should go must not be guessed.
        return float("inf")


class _Timed(msgspec.Struct):
    t: float


_timed: Final = msgspec.json.Decoder(_Timed)
