"""A pane of rows: selected with keys or mouse, wrapped to its width, drawn only where it is visible.

Ten thousand rows cost as much to draw as forty; wrapping them again after a change of width takes a fraction
of a second. While the last row is selected, the pane follows new rows; otherwise it stays where it is.
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

from moot.tui.row_layout import Line, PaneRow, Tone, escape_line, wrap_row

# What one pane keeps. The oldest are dropped in blocks, so that not every new row moves all others.
MAX_ROWS: Final = 10_000
_DROP_BLOCK: Final = 500

_GUTTER: Final = 2
_MARK: Final = "▌ "


class Rows(ScrollView, can_focus=True):
    """Rows of which one is selected. `follows`: starts at the end and stays there."""

    ALLOW_SELECT = False
    # The scroll bar is always shown: otherwise the width that everything is wrapped to would change.
    DEFAULT_CSS = """
    Rows { overflow: hidden scroll; scrollbar-size-vertical: 1; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "rows--text", "rows--dim", "rows--name", "rows--me", "rows--good", "rows--bad", "rows--warn",
        "rows--note", "rows--strong", "rows--selected",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("home", "first", "First", show=False),
        Binding("end,G", "last", "Last", show=False),
        Binding("enter", "open", "Open", show=False),
        Binding("C", "copy", "Copy", show=False),
    ]

    class Opened(Message):
        """A row was opened: Enter, or a click on the selected one."""

        def __init__(self, rows: Rows, key: str) -> None:
            super().__init__()
            self.rows = rows
            self.key = key

        @property
        def control(self) -> Rows:
            return self.rows

    def __init__(
        self, *, id: str, empty: str = "nothing here", follows: bool = False, max_rows: int = MAX_ROWS
    ) -> None:
        super().__init__(id=id)
        self.empty_text = empty
        self._follows = follows
        self._max_rows = max_rows
        self._rows: list[PaneRow] = []
        self._wrapped: list[list[Line]] = []
        # The first line of each row, and the number of all lines at the end.
        self._starts: list[int] = [0]
        self._selected = 0
        self._at_end = follows
        self._wrapped_width = -1
        # The selected row is marked if the pane has the focus; this is for a list that another widget moves.
        self.is_always_marked = False
        # How many lines from the top have been drawn.
        self._drawn_to = 0
        # Whether copying means everything, as in a text that is split into rows.
        self.copies_all = False

    # Looking

    @property
    def rows(self) -> list[PaneRow]:
        return self._rows

    @property
    def selected(self) -> PaneRow | None:
        return self._rows[self._selected] if self._rows else None

    @property
    def is_at_end(self) -> bool:
        """Whether it follows new rows."""
        return self._at_end

    @property
    def has_shown_all(self) -> bool:
        """Whether the last line has been on the screen, at this width."""
        return self._drawn_to >= self._starts[-1]

    def action_copy(self) -> None:
        """Put the selected row, or the whole text, into the clipboard of the terminal (OSC 52).

        As it is shown: what a terminal would interpret is escaped, so that nothing runs when it is pasted.
        """
        chosen = self._rows if self.copies_all else [row for row in (self.selected,) if row is not None]
        lines = ["".join(text for text, _ in escape_line(each)) for row in chosen for each in row.lines]
        if lines:
            self.app.copy_to_clipboard("\n".join(lines))
            self.app.notify(f"copied {len(lines)} line{'s' if len(lines) > 1 else ''}", timeout=2)

    # Filling

    def replace(self, rows: Iterable[PaneRow]) -> None:
        """Show these rows instead; the selected one stays selected if it is still there."""
        before, place = self.selected, self._selected
        wanted = list(rows)[-self._max_rows :]
        if wanted == self._rows and self._wrapped_width == self._text_width:
            return
        self._rows = wanted
        keys = {row.key: number for number, row in enumerate(self._rows)}
        last = max(0, len(self._rows) - 1)
        self._selected = keys.get(before.key, min(place, last)) if before is not None else 0
        if self._follows and self._at_end:
            self._selected = last
        self._rewrap()

    def extend(self, rows: Iterable[PaneRow]) -> None:
        """Add these at the end."""
        fresh = list(rows)
        if not fresh:
            return
        self._rows += fresh
        width = self._text_width
        if self._wrapped_width != width:
            self._rewrap()
        else:
            for row in fresh:
                self._wrap_one(row, width)
        if len(self._rows) > self._max_rows + _DROP_BLOCK:
            self._drop(len(self._rows) - self._max_rows)
        if self._at_end:
            self._selected = len(self._rows) - 1
        self._resize()

    def select(self, key: str) -> bool:
        """Select a row by its key; returns whether it is there."""
        for number in range(len(self._rows) - 1, -1, -1):
            if self._rows[number].key == key:
                self._go(number)
                return True
        return False

    def _drop(self, count: int) -> None:
        gone = self._starts[count]
        del self._rows[:count], self._wrapped[:count]
        self._starts = [start - gone for start in self._starts[count:]]
        self._selected = max(0, self._selected - count)
        if not self._at_end:
            self.scroll_to(y=max(0, self.scroll_y - gone), animate=False, force=True, immediate=True)

    @property
    def _text_width(self) -> int:
        return max(0, self.scrollable_content_region.width - _GUTTER)

    def _rewrap(self) -> None:
        width = self._text_width
        self._wrapped, self._starts, self._wrapped_width = [], [0], width
        for row in self._rows:
            self._wrap_one(row, width)
        self._resize()

    def _wrap_one(self, row: PaneRow, width: int) -> None:
        lines = wrap_row(row, width)
        self._wrapped.append(lines)
        self._starts.append(self._starts[-1] + len(lines))

    def _resize(self) -> None:
        self.virtual_size = Size(self._text_width + _GUTTER, self._starts[-1])
        if self._rows:
            self._show_selected()
        self.refresh()

    # Moving

    def _go(self, number: int) -> None:
        if not self._rows:
            return
        self._selected = min(max(0, number), len(self._rows) - 1)
        self._at_end = self._follows and self._selected == len(self._rows) - 1
        self._show_selected()
        self.refresh()

    def _show_selected(self) -> None:
        if self._at_end:
            # Not scroll_end: that waits for the next refresh, and there may be more rows by then.
            self.scroll_to(y=self._starts[-1], animate=False, force=True, immediate=True)
            return
        first, after = self._starts[self._selected], self._starts[self._selected + 1]
        height = min(after - first, max(1, self.scrollable_content_region.height))
        self.scroll_to_region(Region(0, first, 1, height), animate=False, force=True, immediate=True)

    def action_move(self, by: int) -> None:
        self._go(self._selected + by)

    def action_page(self, by: int) -> None:
        """Move by a screen; a row that is longer than the screen is scrolled by lines."""
        height = max(1, self.scrollable_content_region.height - 1)
        first, after = self._starts[self._selected], self._starts[self._selected + 1] if self._rows else 0
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
        # Of a last row that is longer than the screen, its end.
        self.scroll_to(y=self._starts[-1], animate=False, force=True, immediate=True)

    def action_open(self) -> None:
        if self.selected is not None:
            self.post_message(self.Opened(self, self.selected.key))

    def on_click(self, event: events.Click) -> None:
        at = int(self.scroll_y) + event.y - self.gutter.top
        if not self._rows or not 0 <= at < self._starts[-1]:
            return
        number = bisect_right(self._starts, at) - 1
        if number == self._selected:
            self.action_open()
        else:
            self._go(number)

    def on_resize(self) -> None:
        if self._text_width != self._wrapped_width:
            self._rewrap()
        elif self._rows and self._at_end:
            # Fewer lines fit: the last ones are those that count.
            self._show_selected()

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
            text = f"  {self.empty_text}" if y == 0 else ""
            return Strip([Segment(text, base + self._tone("dim"))]).adjust_cell_length(width, base)
        if not 0 <= at < self._starts[-1]:
            return Strip.blank(width, base)
        self._drawn_to = max(self._drawn_to, at + 1)
        number = bisect_right(self._starts, at) - 1
        is_selected = number == self._selected and (self.has_focus or self.is_always_marked)
        if is_selected:
            base = base + self.get_component_rich_style("rows--selected", partial=True)
        mark = _MARK if is_selected else "  "
        segments = [Segment(mark, base + self._tone("note"))]
        for text, tone in self._wrapped[number][at - self._starts[number]]:
            segments.append(Segment(text, base + self._tone(tone)))
        return Strip(segments).adjust_cell_length(width, base)

    def _tone(self, tone: Tone) -> Style:
        return self.get_component_rich_style(f"rows--{tone}", partial=True)
