"""`python -m tests.gateway.cluster.shifted_log serve FILE`: a gateway whose NATS servers have other clocks.

NATS stamps each message of the log with the clock of the leader, and this is all that Moot goes by. The file
that MOOT_TEST_SHIFTS names has a line `FROM SECONDS` for each time that the clocks were set: messages stored
at FROM (in real seconds) or later are stamped so many seconds later. Written ahead of FROM, all gateways and
all of their later processes see one time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from moot.cli import main
from moot.gateway.cluster.nats import log_reader
from tests.gateway.cluster import planted_faults
from tests.gateway.cluster.task_dump import dump_tasks_on_signal

_VARIABLE = "MOOT_TEST_SHIFTS"


class Shifts:
    """The file, read anew when it has changed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._size = -1
        self._lines: list[tuple[int, int]] = []

    def at(self, nanoseconds: int) -> int:
        size = self._file.stat().st_size
        if size != self._size:
            pairs = [line.split() for line in self._file.read_text("ascii").splitlines()]
            self._lines = [(int(float(start) * 1e9), int(float(shift) * 1e9)) for start, shift in pairs]
            self._size = size
        return next((shift for start, shift in reversed(self._lines) if start <= nanoseconds), 0)


def shift_log(file: Path) -> None:
    """From now on this process reads the log with the times of this file."""
    place_of, shifts = log_reader._place_of, Shifts(file)

    def shifted(reply: bytes) -> tuple[int, int]:
        sequence, nanoseconds = place_of(reply)
        return sequence, nanoseconds + shifts.at(nanoseconds)

    log_reader._place_of = shifted


if __name__ == "__main__":
    shift_log(Path(os.environ[_VARIABLE]))
    if planted := os.environ.get(planted_faults.VARIABLE):
        planted_faults.PLANTED[planted].plant()
    dump_tasks_on_signal()
    sys.exit(main(sys.argv[1:]))
