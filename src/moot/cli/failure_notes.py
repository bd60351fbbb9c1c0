"""What `moot up` tells of a part that failed: why, the last lines that it wrote, and where the rest is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moot.up.part_status import PartStatus

_Key = tuple[str, str, str]


class FailureNotes:
    """Tells of each failure once, and again when it ends with another line."""

    def __init__(self, *, several: bool) -> None:
        self._several = several
        self._told: dict[_Key, tuple[str, ...]] = {}

    def of(self, statuses: Sequence[PartStatus]) -> Iterator[list[str]]:
        """The lines of each note. They hold what processes wrote: escape them before they are shown."""
        for status in statuses:
            key = (status.space, status.name, status.kind)
            failed = status.state == "waiting" or (status.state == "ended" and bool(status.message))
            if not failed or status.kind not in ("server", "member"):
                continue
            # The last line is why it failed; those before it may be of an earlier run.
            if self._told.get(key) == status.output[-1:]:
                continue
            self._told[key] = status.output[-1:]
            yield self._lines_of(status)

    def _lines_of(self, status: PartStatus) -> list[str]:
        name = f"{status.space}/{status.name}" if self._several else status.name
        head = f"{name}: {status.message}"
        if status.log_file is None:
            return [head]
        if not status.output:
            return [f"{head}. It wrote nothing; its log: {status.log_file}"]
        return [
            f"{head}. Its last lines (log: {status.log_file}):",
            *(f"    {each}" for each in status.output),
        ]
