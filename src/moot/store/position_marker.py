"""How far a space had come, in a small file of its own (`DATA/spaces/NAME/position.json`).

Journal and snapshots are two witnesses of what was decided, and this is a third: the newest record that was
on disk when rights were last changed or a snapshot stored, and the number of that snapshot. Whichever of the
three is lost, another one tells, so that no kick is undone by a file that is gone (D-98). A copy of it is
beside the snapshots (`database`): the end of the journal and this file, in one folder, may be lost together.
Spaces of version 0.1 have neither; then journal and snapshots decide alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from moot.errors import UsageError
from moot.private_files import sync_folder
from moot.resilience.atomic_file import write_atomically
from moot.store.journal_segments import repair_hint

MARKER_FILE: Final = "position.json"


class PositionMarker(msgspec.Struct, frozen=True, kw_only=True):
    """`journaled` is False while the journal is off: then only a snapshot of this generation knows it all."""

    record: int = 0
    snapshot: int = 0
    journaled: bool = True

    def joined(self, other: PositionMarker) -> PositionMarker:
        """Both together, as far as either had come; `other` is the later one."""
        return PositionMarker(
            record=max(self.record, other.record),
            snapshot=max(self.snapshot, other.snapshot),
            journaled=other.journaled,
        )


def join_markers(first: PositionMarker | None, second: PositionMarker | None) -> PositionMarker | None:
    """What two copies know together; the one that came further is the later one."""
    if first is None or second is None:
        return first or second
    earlier, later = sorted((first, second), key=lambda each: (each.snapshot, each.record))
    return earlier.joined(later)


def read_marker(folder: Path) -> PositionMarker | None:
    """The marker in the folder of a space, None when there is none; raises UsageError for a damaged one."""
    try:
        return msgspec.json.decode((folder / MARKER_FILE).read_bytes(), type=PositionMarker)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as fault:
        raise UsageError(
            f"{folder / MARKER_FILE} is damaged ({fault}), so nobody knows how far the space {folder.name} "
            f"had come. {repair_hint(folder / 'journal')}"
        ) from None


def write_marker(folder: Path, marker: PositionMarker) -> None:
    """Replace the marker; it is on disk when this returns."""
    write_atomically(folder / MARKER_FILE, msgspec.json.encode(marker))
    sync_folder(folder)
