"""Aligned tables of plain text: one writer for everything that lists.

Columns are as wide as what is in them, counted in cells of a terminal. Where that is too wide, the widest
columns are cut. Cells are escaped, since they may hold what others wrote.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from moot.operations.text.terminal_escape import printable

_GAP: Final = "  "
# A column that is cut keeps this much, or its heading.
_LEAST_CELLS: Final = 8


class TextTable(msgspec.Struct, frozen=True):
    """Rows under their headings. `details` are lines below each row, indented and never cut."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    details: Sequence[Sequence[str]] = ()
    # Columns of numbers.
    right: Collection[int] = ()

    def lines(self, width: int | None = None) -> list[str]:
        """The table, at most `width` cells wide."""
        widths = self.widths(width)
        lines = [self.line(self.headings, widths, width)]
        for number, row in enumerate(self.rows):
            lines.append(self.line(row, widths, width))
            lines += [f"    {printable(detail)}" for detail in (self.details[number] if self.details else ())]
        return lines

    def widths(self, width: int | None = None) -> list[int]:
        """How wide each column is, so that all together fit."""
        cells = [[display_width(printable(cell)) for cell in row] for row in (self.headings, *self.rows)]
        widths = [max(column) for column in zip(*cells, strict=True)]
        if width is None:
            return widths
        floors = [min(wide, max(_LEAST_CELLS, head)) for wide, head in zip(widths, cells[0], strict=True)]
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
        while excess > 0 and widths != floors:
            widest = max(
                (column for column, wide in enumerate(widths) if wide > floors[column]),
                key=widths.__getitem__,
            )
            widths[widest] -= 1
            excess -= 1
        return widths

    def line(self, row: Sequence[str], widths: Sequence[int], width: int | None = None) -> str:
        """One row, each cell cut or filled to the width of its column."""
        cells = []
        for column, (cell, wide) in enumerate(zip(row, widths, strict=True)):
            text = cut(printable(cell), wide)
            space = " " * (wide - display_width(text))
            cells.append(space + text if column in self.right else text + space)
        text = _GAP.join(cells).rstrip()
        # Where even the narrowest columns are too wide.
        return text if width is None else cut(text, width)


def display_width(text: str) -> int:
    """How many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def cut(text: str, width: int) -> str:
    """The text, or its beginning and an ellipsis, in at most `width` cells."""
    if display_width(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += _character_width(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…"


def _character_width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
