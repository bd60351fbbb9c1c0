"""Lines of toned text, folded to the width of a pane.

A part is a text with a tone; a tone is a name that the theme gives a style. Texts are made harmless here, at
the one place where they are cut into what is drawn, so that no pane can forget it (D-86). There is no markup:
`[red]` or `[@click=…]` of a peer are six or so ordinary characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.cells import cell_len, get_character_cell_size

from moot.tui.terminal_escape import printable

Tone = Literal["text", "dim", "name", "me", "good", "bad", "warn", "note", "strong"]
Part = tuple[str, Tone]
Line = tuple[Part, ...]

# Below this a pane cannot be read anyway; it also keeps folding from making a line of every character.
LEAST_WIDTH: Final = 8


@dataclass(frozen=True, slots=True)
class PaneRow:
    """Something in a pane that can be chosen: its key, and the lines that show it.

    What does not fit a line goes on below, `hanging` columns further in.
    """

    key: str
    lines: tuple[Line, ...]
    hanging: int = 2


def line(*parts: Part | str) -> Line:
    """A line of parts; a bare string has no tone."""
    return tuple((part, "text") if isinstance(part, str) else part for part in parts)


def harmless(parts: Line) -> Line:
    """The same with everything escaped that a terminal might obey."""
    return tuple((printable(text), tone) for text, tone in parts)


def plain(parts: Line) -> str:
    return "".join(text for text, _ in harmless(parts))


def folded(row: PaneRow, width: int) -> list[Line]:
    """All lines of a row at this width, harmless."""
    width = max(width, LEAST_WIDTH)
    found: list[Line] = []
    hanging = min(row.hanging, width // 2)
    for each in row.lines:
        first, *rest = _at_line_feeds(each)
        found += _fold(harmless(first), width, hanging)
        # Further in, so that no text of a peer begins where a line of ours does.
        for more in rest:
            found += _fold(harmless(((" " * hanging, "text"), *more)), width, hanging)
    return found or [()]


def _at_line_feeds(parts: Line) -> list[Line]:
    if not any("\n" in text for text, _ in parts):
        return [parts]
    lines: list[list[Part]] = [[]]
    for text, tone in parts:
        first, *rest = text.split("\n")
        lines[-1].append((first, tone))
        lines += [[(each, tone)] for each in rest]
    return [tuple(each) for each in lines]


def _fold(parts: Line, width: int, hanging: int) -> Sequence[Line]:
    text = "".join(text for text, _ in parts)
    if len(text) <= width and (text.isascii() or cell_len(text) <= width):
        return [parts]
    places = _breaks_ascii(text, width, hanging) if text.isascii() else _breaks(text, width, hanging)
    lines: list[Line] = []
    for number, (start, end) in enumerate(places):
        cut = _cut(parts, start, end)
        lines.append(cut if number == 0 or not hanging else ((" " * hanging, "text"), *cut))
    return lines


def _breaks_ascii(text: str, width: int, hanging: int) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    start, room = 0, width
    while len(text) - start > room:
        # After a space if there is one in the second half, else wherever the line is full.
        space = text.rfind(" ", start + room // 2, start + room)
        end = space + 1 if space > 0 else start + room
        places.append((start, end))
        start, room = end, width - hanging
    places.append((start, len(text)))
    return places


def _breaks(text: str, width: int, hanging: int) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    start, used, room, space = 0, 0, width, -1
    at = 0
    while at < len(text):
        cells = get_character_cell_size(text[at])
        if used + cells > room and at > start:
            end = space + 1 if space >= start + room // 4 else at
            places.append((start, end))
            start = at = end
            used, room, space = 0, width - hanging, -1
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
