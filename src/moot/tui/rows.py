"""A pane of rows: chosen with keys or mouse, folded to its width, drawn only where it is seen.

Ten thousand rows cost what forty do to draw; folding them again after a change of width takes a fraction of
a second. While the last row is chosen, the pane follows what comes; whoever has gone up stays where they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from moot.tui.row_layout import Line, PaneRow, Tone, folded

# What one pane keeps. The oldest go in blocks, so that a busy space does not move everything at every row.
ROWS_KEPT: Final = 10_000
_BLOCK: Final = 500

_GUTTER: Final = 2
_MARK: Final = "▌ "


class Rows(ScrollView, can_focus=True):
    """Rows of which one is chosen. `follows`: begins at the end and stays there."""

    ALLOW_SELECT = False
    # The bar is always there: one that came and went would change the width that everything is folded to.
    DEFAULT_CSS = """
    Rows { overflow: hidden scroll; scrollbar-size-vertical: 1; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "rows--text", "rows--dim", "rows--name", "rows--me", "rows--good", "rows--bad", "rows--warn",
        "rows--note", "rows--strong", "rows--chosen",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("home", "first", "First", show=False),
        Binding("end,G", "last", "Last", show=False),
        Binding("enter", "open", "Open", show=False),
    ]

    class Opened(Message):
        """A row was opened: Enter, or a click on the one that is chosen."""

        def __init__(self, rows: Rows, key: str) -> None:
            super().__init__()
            self.rows = rows
            self.key = key

        @property
        def control(self) -> Rows:
            return self.rows

    class Moved(Message):
        """Another row is chosen."""

        def __init__(self, rows: Rows, key: str) -> None:
            super().__init__()
            self.rows = rows
            self.key = key

    def __init__(
        self, *, id: str, empty: str = "nothing here", follows: bool = False, kept: int = ROWS_KEPT
    ) -> None:
        super().__init__(id=id)
        self._empty = empty
        self._follows = follows
        self._kept = kept
        self._rows: list[PaneRow] = []
        self._folded: list[list[Line]] = []
        # The first line of each row, and the number of all lines at the end.
        self._starts: list[int] = [0]
        self._chosen = 0
        self._at_end = follows
        self._folded_width = -1
        # The chosen row is marked where keys go to; a list that others move has no focus of its own.
        self.is_always_marked = False
        # How far down it has been drawn.
        self._drawn_to = 0
        # Rows that the bound has pushed out.
        self.dropped = 0

    # Looking

    @property
    def rows(self) -> list[PaneRow]:
        return self._rows

    @property
    def chosen(self) -> PaneRow | None:
        return self._rows[self._chosen] if self._rows else None

    @property
    def is_at_end(self) -> bool:
        """Whether it follows what comes."""
        return self._at_end

    @property
    def has_shown_all(self) -> bool:
        """Whether the last line has been on the screen, at this width."""
        return self._drawn_to >= self._starts[-1]

    # Filling

    def replace(self, rows: Iterable[PaneRow]) -> None:
        """Show these instead; what was chosen stays chosen, if it is still there."""
        before, place = self.chosen, self._chosen
        wanted = list(rows)[-self._kept :]
        if wanted == self._rows and self._folded_width == self._text_width:
            return
        self._rows = wanted
        keys = {row.key: number for number, row in enumerate(self._rows)}
        last = max(0, len(self._rows) - 1)
        self._chosen = keys.get(before.key, min(place, last)) if before is not None else 0
        if self._follows and self._at_end:
            self._chosen = last
        self._refold()

    def extend(self, rows: Iterable[PaneRow]) -> None:
        """Add these at the end."""
        fresh = list(rows)
        if not fresh:
            return
        self._rows += fresh
        width = self._text_width
        if self._folded_width != width:
            self._refold()
        else:
            for row in fresh:
                self._fold_one(row, width)
        if len(self._rows) > self._kept + _BLOCK:
            self._drop(len(self._rows) - self._kept)
        if self._at_end:
            self._chosen = len(self._rows) - 1
        self._resize()

    def choose(self, key: str) -> bool:
        """Choose a row by its key; whether it is there."""
        for number in range(len(self._rows) - 1, -1, -1):
            if self._rows[number].key == key:
                self._go(number)
                return True
        return False

    def _drop(self, count: int) -> None:
        gone = self._starts[count]
        del self._rows[:count], self._folded[:count]
        self._starts = [start - gone for start in self._starts[count:]]
        self._chosen = max(0, self._chosen - count)
        self.dropped += count
        if not self._at_end:
            self.scroll_to(y=max(0, self.scroll_y - gone), animate=False, force=True, immediate=True)

    @property
    def _text_width(self) -> int:
        return max(0, self.scrollable_content_region.width - _GUTTER)

    def _refold(self) -> None:
        width = self._text_width
        self._folded, self._starts, self._folded_width = [], [0], width
        for row in self._rows:
            self._fold_one(row, width)
        self._resize()

    def _fold_one(self, row: PaneRow, width: int) -> None:
        lines = folded(row, width)
        self._folded.append(lines)
        self._starts.append(self._starts[-1] + len(lines))

    def _resize(self) -> None:
        self.virtual_size = Size(self._text_width + _GUTTER, self._starts[-1])
        if self._rows:
            self._show_chosen()
        self.refresh()

    # Moving

    def _go(self, number: int) -> None:
        if not self._rows:
            return
        self._chosen = min(max(0, number), len(self._rows) - 1)
        self._at_end = self._follows and self._chosen == len(self._rows) - 1
        self._show_chosen()
        self.refresh()
        self.post_message(self.Moved(self, self._rows[self._chosen].key))

    def _show_chosen(self) -> None:
        if self._at_end:
            # Not scroll_end: that waits for the next refresh, and more may have come by then.
            self.scroll_to(y=self._starts[-1], animate=False, force=True, immediate=True)
            return
        first, after = self._starts[self._chosen], self._starts[self._chosen + 1]
        height = min(after - first, max(1, self.scrollable_content_region.height))
        self.scroll_to_region(Region(0, first, 1, height), animate=False, force=True, immediate=True)

    def action_move(self, by: int) -> None:
        self._go(self._chosen + by)

    def action_page(self, by: int) -> None:
        """A screen further; within a row that is longer than the screen its lines move."""
        height = max(1, self.scrollable_content_region.height - 1)
        first, after = self._starts[self._chosen], self._starts[self._chosen + 1] if self._rows else 0
        if after - first > height + 1:
            edge = after - height - 1 if by > 0 else first
            if (by > 0 and self.scroll_y < edge) or (by < 0 and self.scroll_y > edge):
                self.scroll_to(y=self.scroll_y + by * height, animate=False, force=True, immediate=True)
                return
        wanted = first + by * height
        self._go(bisect_right(self._starts, max(0, wanted), hi=max(1, len(self._rows))) - 1)

    def action_first(self) -> None:
        self._go(0)

    def action_last(self) -> None:
        self._go(len(self._rows) - 1)

    def action_open(self) -> None:
        if self.chosen is not None:
            self.post_message(self.Opened(self, self.chosen.key))

    def on_click(self, event: events.Click) -> None:
        at = int(self.scroll_y) + event.y - self.gutter.top
        if not self._rows or not 0 <= at < self._starts[-1]:
            return
        number = bisect_right(self._starts, at) - 1
        if number == self._chosen:
            self.action_open()
        else:
            self._go(number)

    def on_resize(self) -> None:
        if self._text_width != self._folded_width:
            self._refold()
        elif self._rows and self._at_end:
            # Fewer lines fit: the last ones are those that count.
            self._show_chosen()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    # Drawing

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        base = self.rich_style
        at = y + int(self.scroll_y)
        if not self._rows:
            words = f"  {self._empty}" if y == 0 else ""
            return Strip([Segment(words, base + self._tone("dim"))]).adjust_cell_length(width, base)
        if not 0 <= at < self._starts[-1]:
            return Strip.blank(width, base)
        self._drawn_to = max(self._drawn_to, at + 1)
        number = bisect_right(self._starts, at) - 1
        is_chosen = number == self._chosen and (self.has_focus or self.is_always_marked)
        if is_chosen:
            base = base + self.get_component_rich_style("rows--chosen", partial=True)
        mark = _MARK if is_chosen else "  "
        segments = [Segment(mark, base + self._tone("note"))]
        for text, tone in self._folded[number][at - self._starts[number]]:
            segments.append(Segment(text, base + self._tone(tone)))
        return Strip(segments).adjust_cell_length(width, base)

    def _tone(self, tone: Tone) -> Style:
        return self.get_component_rich_style(f"rows--{tone}", partial=True)
