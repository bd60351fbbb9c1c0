"""Tables on the standard output: as wide as the terminal, uncut and without colours in a pipe."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final

from moot.operations.text.text_table import TextTable

# So many rows decide how wide the columns are; more would have to be kept in memory first.
_MEASURED_ROWS: Final = 200


def terminal_width() -> int | None:
    """Of the terminal that is printed to; None for a pipe or a file, where nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


class TableWriter:
    """Prints rows as they come. The first ones decide how wide the columns are."""

    def __init__(self, *headings: str, right: Collection[int] = ()) -> None:
        self._headings = headings
        self._right = right
        self._widths: list[int] = []

    def write(self, rows: Iterable[Sequence[str]]) -> None:
        """Print rows; the headings come with the first of them."""
        coming = iter(rows)
        width = terminal_width()
        table = TextTable(self._headings, (), right=self._right)
        if not self._widths:
            first = list(islice(coming, _MEASURED_ROWS))
            if not first:
                return
            self._widths = TextTable(self._headings, first).widths(width)
            for row in (self._headings, *first):
                print(table.line(row, self._widths, width))
        for row in coming:
            widths = self._widths
            if width is None:
                # A later row that needs more room takes it where nothing has to fit.
                widths = [max(pair) for pair in zip(widths, TextTable(row, ()).widths(), strict=True)]
            print(table.line(row, widths, width))


def print_table(table: TextTable) -> None:
    """Print a whole table, with the details below its rows."""
    for line in table.lines(terminal_width()):
        print(line)
