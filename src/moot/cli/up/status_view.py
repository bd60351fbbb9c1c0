"""What `moot up` shows: a table that stays in its place on a terminal, lines elsewhere, JSON for machines.

Words of members are theirs: every cell is escaped and cut before it is shown (D-86).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from moot.operations.text.terminal_escape import printable
from moot.operations.text.text_table import TextTable, cut
from moot.up.part_status import PartStatus

_HEADS: Final = ("NAME", "KIND", "STATE", "JOINED", "TIME", "RESTARTS", "MESSAGE")
_GAP: Final = "  "
# A name has at most 64 characters; a table of them is no table.
_NAME_CHARS: Final = 24
# Narrower than this nothing is worth showing; wider than this nobody reads a line.
LEAST_WIDTH, _MOST_WIDTH = 40, 160
_UP: Final = "\x1b[{}A"
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"
_COLOURS: Final[Mapping[str, str]] = {"running": "32", "waiting": "33", "starting": "36", "stopping": "33"}


class Output(Protocol):
    """Where it goes: a text stream."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


def table(
    title: str, statuses: Sequence[PartStatus], now: float, *, width: int, height: int, several: bool
) -> list[str]:
    """The lines of the table, none wider than the terminal, and no more than it has."""
    width = max(LEAST_WIDTH, min(width, _MOST_WIDTH))
    # The title is about our own gateway; further ones are those of a cluster.
    shown_statuses = [each for each in statuses if (each.kind, each.name) != ("gateway", "gateway")]
    rows = [_row(status, now, several=several) for status in shown_statuses]
    shown = rows[: max(1, height - 4)]
    lines = [cut(printable(title), width), *TextTable(_HEADS, shown).lines(width)]
    if len(rows) > len(shown):
        lines.append(f"… and {len(rows) - len(shown)} more: the terminal has {height} lines")
    return [cut(line, width) for line in lines]


def _row(status: PartStatus, now: float, *, several: bool) -> tuple[str, ...]:
    name = f"{status.space}/{status.name}" if several else status.name
    is_person, is_ours = status.kind == "person", status.kind in ("gateway", "nats")
    return (
        cut(printable(name), _NAME_CHARS),
        status.kind,
        "" if is_person else status.state,
        "" if is_ours else "yes" if status.joined else "no",
        "" if is_person or status.state == "idle" else duration(now - status.since),
        str(status.restarts) if status.restarts else "",
        printable(status.message),
    )


def duration(seconds: float) -> str:
    """1:05, 2:03:10: as a clock shows it."""
    whole = max(0, int(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


class LiveTable:
    """Draws the table over the last one."""

    def __init__(self, output: Output, *, colours: bool) -> None:
        self._output = output
        self._colours = colours
        self._drawn = 0

    def draw(self, lines: Sequence[str]) -> None:
        start = _UP.format(self._drawn) if self._drawn else ""
        body = "".join(f"{self._coloured(line)}{_CLEAR_LINE}\n" for line in lines)
        self._output.write(f"{start}\r{body}{_CLEAR_BELOW}")
        self._output.flush()
        self._drawn = len(lines)

    def forget(self) -> None:
        """Something else was printed: the next table stands below it, not over it."""
        self._drawn = 0

    def _coloured(self, line: str) -> str:
        if not self._colours:
            return line
        for word, colour in _COLOURS.items():
            before, found, after = line.partition(f"{_GAP}{word} ")
            if found:
                return f"{before}{_GAP}\x1b[{colour}m{word}\x1b[0m {after}"
        return line


class ChangeLines:
    """Tells what changed since the last look, one line each, as words or as JSON."""

    def __init__(self, *, as_json: bool, several: bool) -> None:
        self._as_json = as_json
        self._several = several
        self._last: dict[tuple[str, str, str], tuple[object, ...]] = {}
        self._proposals: int | None = 0

    def of(self, statuses: Sequence[PartStatus], *, open_proposals: int | None = 0) -> Iterator[str]:
        """Lines for what is not as it was. What members print is in their logs and no news here."""
        if open_proposals is not None and open_proposals != self._proposals:
            self._proposals = open_proposals
            text = f"pending proposals: {open_proposals} (`moot proposals` shows them)"
            yield json.dumps({"open_proposals": open_proposals}) if self._as_json else text
        here = set()
        for status in statuses:
            key = (status.space, status.name, status.kind)
            here.add(key)
            facts = (status.state, status.joined, status.restarts)
            if self._last.get(key) != facts:
                self._last[key] = facts
                yield self._line_of(status)
        for gone in [known for known in self._last if known not in here]:
            del self._last[gone]
            yield self._line_of(PartStatus(space=gone[0], name=gone[1], kind="person", state="ended"))

    def _line_of(self, status: PartStatus) -> str:
        if self._as_json:
            fields = status.as_json()
            return json.dumps(fields | {"message": fields.pop("words")})
        name = f"{status.space}/{status.name}" if self._several and status.space else status.name
        if status.kind == "person":
            return f"{printable(name)}: {'is here' if status.joined else 'left'}"
        facts: list[str] = [status.state]
        if status.pid is not None:
            facts.append(f"pid {status.pid}")
        is_ours = status.kind in ("gateway", "nats")
        if not is_ours and status.state == "running":
            facts.append("in the space" if status.joined else "not in the space yet")
        message = status.message if status.state != "running" or is_ours else ""
        return f"{printable(name)}: {', '.join(facts)}" + (f" ({printable(message)})" if message else "")


class FailureNotes:
    """Tells of each failure once, and again when it ends with another line."""

    def __init__(self, *, several: bool) -> None:
        self._several = several
        self._told: dict[tuple[str, str, str], tuple[str, ...]] = {}

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
