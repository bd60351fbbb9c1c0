"""What an agent has spent, in a file: a restart of its process does not begin the day anew.

Each entry has the time of the machine's steady clock and the start of the machine that this belongs to, so
that setting the wall clock buys nothing. Only after a restart of the machine the wall clock tells how long
ago it was, and a time in the future counts as now. Several processes may share a file.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from moot.errors import UsageError
from moot.private_files import lock_file, use_folder
from moot.resilience.atomic_file import write_atomically

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# A day in slots of a minute has 1,440 entries of some 100 bytes.
_MAX_BYTES: Final = 1 << 20


class SpendingSlot(NamedTuple):
    """What was spent from `start` on, by the steady clock of this machine."""

    start: float
    tokens: int
    cost: float


class _Entry(msgspec.Struct, array_like=True):
    boot: str
    steady: float
    wall: float
    tokens: int
    cost: float


class _Kept(msgspec.Struct):
    version: int
    entries: list[_Entry]


def _read_boot_id() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        # Then only the wall clock tells.
        return ""


class SpendingFile:
    """The entries of one agent. The clocks are those of the machine; tests give others."""

    def __init__(
        self,
        path: Path,
        *,
        steady: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        boot: str | None = None,
    ) -> None:
        self.path = path
        self._steady = steady
        self._wall = wall
        self._boot = _read_boot_id() if boot is None else boot

    def open(self) -> list[SpendingSlot]:
        """Check that the file can be used; raises UsageError with what to do."""
        use_folder(self.path.parent, what="the folder of the spending file", option="--spending-file FILE")
        try:
            return self.update(lambda slots: slots)
        except OSError as fault:
            raise UsageError(
                f"{self.path}, which keeps what the agent spent, cannot be used: {fault.strerror or fault}. "
                "Name another file with --spending-file FILE"
            ) from None

    def update(self, change: Callable[[list[SpendingSlot]], list[SpendingSlot]]) -> list[SpendingSlot]:
        """Read, change and write the slots in one step; raises OSError, UsageError if they are damaged."""
        with lock_file(self.path):
            slots = self._read()
            changed = change(slots)
            if changed != slots or not self.path.exists():
                self._write(changed)
        return changed

    def _read(self) -> list[SpendingSlot]:
        try:
            with self.path.open("rb") as file:
                raw = file.read(_MAX_BYTES + 1)
            kept = msgspec.json.decode(raw, type=_Kept)
            if kept.version != 1 or not all(map(_is_sane, kept.entries)):
                raise msgspec.ValidationError("not what was written")
        except FileNotFoundError:
            return []
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Not a new day: nobody knows what was spent.
            raise UsageError(
                f"{self.path}, which keeps what the agent spent, is damaged: delete it to begin a new day"
            ) from None
        return [SpendingSlot(self._start_of(entry), entry.tokens, entry.cost) for entry in kept.entries]

    def _start_of(self, entry: _Entry) -> float:
        now = self._steady()
        if self._boot and entry.boot == self._boot:
            return min(entry.steady, now)
        return now - max(0.0, self._wall() - entry.wall)

    def _write(self, slots: list[SpendingSlot]) -> None:
        ahead = self._wall() - self._steady()
        entries = [
            _Entry(self._boot, slot.start, slot.start + ahead, slot.tokens, slot.cost) for slot in slots
        ]
        write_atomically(self.path, msgspec.json.encode(_Kept(1, entries)))


def _is_sane(entry: _Entry) -> bool:
    numbers = (entry.steady, entry.wall, entry.cost)
    return all(map(math.isfinite, numbers)) and entry.tokens >= 0 and entry.cost >= 0
