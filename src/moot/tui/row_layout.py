"""Lines of styled text, wrapped to the width of a pane.

A part is a text with a tone; the theme gives each tone a style. Text is escaped here, in the one place that
every drawn line passes, so that no pane can forget it (D-86). There is no markup: `[red]` or `[@click=…]` in
a message are ordinary characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.cells import cell_len, get_character_cell_size

from moot.operations.text.terminal_escape import printable

Tone = Literal["text", "dim", "name", "me", "good", "bad", "warn", "note", "strong"]
Part = tuple[str, Tone]
Line = tuple[Part, ...]

# A narrower pane cannot be read anyway, and wrapping would put each character on its own line.
MIN_WIDTH: Final = 8


@dataclass(frozen=True, slots=True)
class PaneRow:
    """A row that can be selected: its key and its lines, which wrap `indent` columns further in."""

    key: str
    lines: tuple[Line, ...]
    indent: int = 2


def line(*parts: Part | str) -> Line:
    """A line of parts; a bare string has no tone."""
    return tuple((part, "text") if isinstance(part, str) else part for part in parts)


def escape_line(parts: Line) -> Line:
    """The same line without anything that a terminal would interpret."""
    return tuple((printable(text), tone) for text, tone in parts)


def wrap_row(row: PaneRow, width: int) -> list[Line]:
    """All lines of a row at this width, escaped."""
    width = max(width, MIN_WIDTH)
    found: list[Line] = []
    indent = min(row.indent, width // 2)
    for each in row.lines:
        first, *rest = _split_lines(each)
        found += _wrap_line(escape_line(first), width, indent)
        # Indented, so that no text of another member starts where a line of ours does.
        for more in rest:
            found += _wrap_line(escape_line(((" " * indent, "text"), *more)), width, indent)
    return found or [()]


def _split_lines(parts: Line) -> list[Line]:
    if not any("\n" in text for text, _ in parts):
        return [parts]
    lines: list[list[Part]] = [[]]
    for text, tone in parts:
        first, *rest = text.split("\n")
        lines[-1].append((first, tone))
        lines += [[(each, tone)] for each in rest]
    return [tuple(each) for each in lines]


def _wrap_line(parts: Line, width: int, indent: int) -> Sequence[Line]:
    text = "".join(text for text, _ in parts)
    if len(text) <= width and (text.isascii() or cell_len(text) <= width):
        return [parts]
    places = _breaks_ascii(text, width, indent) if text.isascii() else _breaks(text, width, indent)
    lines: list[Line] = []
    for number, (start, end) in enumerate(places):
        cut = _cut(parts, start, end)
        lines.append(cut if number == 0 or not indent else ((" " * indent, "text"), *cut))
    return lines


def _breaks_ascii(text: str, width: int, indent: int) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    start, room = 0, width
    while len(text) - start > room:
        # After a space if there is one in the second half, else wherever the line is full.
        space = text.rfind(" ", start + room // 2, start + room)
        end = space + 1 if space > 0 else start + room
        places.append((start, end))
        start, room = end, width - indent
    places.append((start, len(text)))
    return places


def _breaks(text: str, width: int, indent: int) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    start, used, room, space = 0, 0, width, -1
    at = 0
    while at < len(text):
        cells = get_character_cell_size(text[at])
        if used + cells > room and at > start:
            end = space + 1 if space >= start + room // 4 else at
            places.append((start, end))
            start = at = end
            used, room, space = 0, width - indent, -1
            continue
        if text[at] == " ":
            space = at
        used += cells
        at += 1
    places.append((start, len(text)))
    return places


def _cut(parts: Line, start: int, end: int) -> Line:
    cut: list[Part] = []
    at = 0
    for text, tone in parts:
        piece = text[max(0, start - at) : max(0, end - at)]
        if piece:
            cut.append((piece, tone))
        at += len(text)
        if at >= end:
            break
    return tuple(cut)
