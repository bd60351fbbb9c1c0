"""The journal of one space, as the gateway uses it: every input with its outcome, appended in order.

`file_journal` keeps it on disk; `open_journal` opens it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal, Protocol

from moot.store.record_chain import shared_ending

# How long to wait before a disk that failed is tried again.
RETRY_SECONDS: Final = 1.0
# An fsync that takes longer hangs, as far as anybody can tell: a busy disk takes up to 2 s.
SYNC_TIMEOUT_SECONDS: Final = 5.0


class JournalRules(Protocol):
    """What the configuration says of a journal, in `JournalConfig`, which this room does not know.

    `strict` and `on` write alike: what waits for the disk, the gateway says.
    """

    @property
    def mode(self) -> Literal["strict", "on", "off"]: ...
    @property
    def retain_segments(self) -> int: ...
    @property
    def retain_days(self) -> int: ...
    @property
    def log(self) -> bool: ...


class SharedRecords:
    """The numbers and salts that all gateways of a cluster give the records of one space alike."""

    __slots__ = ("_space", "copied", "count", "id", "is_copied", "seed")

    def __init__(self, id: str, count: int, copied: int) -> None:
        # Of which space: one of the same name may have been made anew.
        self.id = id
        self._space = id.encode()
        self.count = count
        # The last of them that this gateway's own copy has; 0 if it has none, and its times must tell.
        self.copied = copied
        self.is_copied = False
        self.seed = b""

    def next_ending(self) -> bytes | None:
        """How the next record ends; None if the copy has it already."""
        self.count += 1
        if self.count <= self.copied if self.copied else self.is_copied:
            return None
        return shared_ending(self.seed, self._space, self.count)


class Journal:
    """Use on the thread of the loop on which it was opened. `on_health` is called when `writable` changes."""

    next_number: int  # of the next record
    recorded: int  # the last record that a restart would find; what a snapshot may say that it covers
    is_written: bool  # whether there is a file at all
    # What waits to be written: texts of a line or more, each without its last closing brace.
    pending: list[bytes]
    # The last record that its log is signed for; None where none is kept.
    logged: int | None = None
    # In a cluster, while something is applied that all gateways have; None for records of this one alone.
    shared: SharedRecords | None = None
    # `close` gives a disk that does not answer this long; a gateway has 5 s to end.
    close_seconds: float = 2.0
    # By what the record is dated that stands for lost ones.
    clock: Callable[[], float] = staticmethod(time.time)
    writable: bool  # False from the fault of a write or fsync until all that was kept is on disk
    on_health: Callable[[bool], None] | None = None
    # Told how many seconds a write took (see TIMED_WRITES), and each fsync that went well.
    on_written: Callable[[float], None] | None = None
    on_synced: Callable[[float], None] | None = None

    @property
    def retry_seconds(self) -> float:
        """How long to wait before a disk that failed is tried again."""
        return RETRY_SECONDS

    @property
    def sync_timeout_seconds(self) -> float:
        """How long the disk may take before it counts as one that does not answer."""
        return SYNC_TIMEOUT_SECONDS

    @property
    def durable(self) -> int:
        """The last record that is on disk."""
        return self.recorded

    @property
    def sync_running_seconds(self) -> float:
        """How long the fsync that runs now has taken so far; 0 when none runs."""
        return 0.0

    @property
    def is_full(self) -> bool:
        """Whether what is appended now would be counted as lost: the disk fails, and memory has no room."""
        return False

    def append(self, members: bytes, rest: bytes = b"", *, vital: bool = False) -> int:
        """Journal one record; `members` and `rest` are the inside of a JSON object. Returns its number.

        Never waits and never fails for the disk's sake. `vital` records (D-85: what shrinks rights) find
        room in memory, while the disk fails, when others no longer do.
        """
        raise NotImplementedError

    def append_own(self, members: bytes) -> int:
        """Journal what other gateways of the cluster may not have, such as a refusal."""
        shared = self.shared
        if shared is not None and shared.is_copied:
            return self.next_number - 1
        self.shared = None
        try:
            return self.append(members)
        finally:
            self.shared = shared

    def schedule(self) -> None:
        """Have `pending` written in this tick: somebody added to it up to `next_number`."""

    def when_durable(self, number: int, call: Callable[[], None]) -> None:
        """Call back on the loop, in the order of numbers, once this record and all before are on disk."""
        raise NotImplementedError

    def process_syncs(self) -> None:
        """Process the results of fsyncs that have ended meanwhile."""

    def prune_until(self, number: int) -> None:
        """A snapshot covers all records up to this one: remove what the settings do not keep."""

    def end_old_segment(self) -> None:
        """With `retain_days`: go on in a new file each day, for only closed ones can be removed."""

    async def close(self) -> None:
        """Write and fsync what is left, and release the folder; a disk that does not take it is logged."""
