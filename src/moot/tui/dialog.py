"""The frame of every dialog: a title, rows to read, and a line of hints about keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from moot.operations.text.terminal_escape import printable
from moot.protocol.operation import Json
from moot.tui.row_layout import Line, PaneRow, line
from moot.tui.rows import Rows

# How long a new dialog ignores decisions: longer than a key repeats, shorter than anyone reads.
SETTLE_SECONDS: Final = 0.4


# Lines of one dialog: a file that people read has fewer, and a terminal takes a second or two for them.
MAX_DIALOG_ROWS: Final = 100_000


class Dialog(ModalScreen[Json]):
    """A frame with a title, rows to read, and a line of hints about keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", "Close")]

    def __init__(self, title: str, hint: str) -> None:
        super().__init__()
        self._title = title
        self._hint = hint
        self._opened: float | None = None
        # One more than `numbered` makes: it says that there are more.
        self.rows = Rows(id="dialog-rows", empty="", max_rows=MAX_DIALOG_ROWS + 1)
        self.rows.copies_all = True

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Content(printable(self._title)), id="dialog-title", markup=False)
            yield self.rows
            yield from self.compose_below()
            yield Static(Content(self._hint), id="dialog-keys", markup=False)

    def compose_below(self) -> ComposeResult:
        return ()

    def on_mount(self) -> None:
        self.set_up()

    def set_up(self) -> None:
        """Prepare the dialog once it is on the screen; subclasses add to it.

        Not `on_mount`: Textual calls that of every class by itself.
        """
        self._opened = asyncio.get_running_loop().time()
        self.set_focus(self.rows)
        self.fill()

    @property
    def has_settled(self) -> bool:
        # Keys that were typed ahead reach a dialog before anyone has seen it.
        if self._opened is None:
            return False
        return asyncio.get_running_loop().time() - self._opened >= SETTLE_SECONDS

    @property
    def is_cut(self) -> bool:
        """Whether there are more lines than are shown."""
        return len(self.rows.rows) > MAX_DIALOG_ROWS

    def fill(self) -> None:
        """Fill the rows."""

    def show_hint(self, text: str) -> None:
        self.query_one("#dialog-keys", Static).update(Content(printable(text)))

    def action_leave(self) -> None:
        self.dismiss(None)


def numbered(lines: Iterable[Line]) -> list[PaneRow]:
    """A row for each line, so that long texts scroll by lines. Of very many, the first and how many more."""
    all_lines = list(lines)
    rows = [PaneRow(str(at), (each,), indent=4) for at, each in enumerate(all_lines[:MAX_DIALOG_ROWS])]
    if len(all_lines) > MAX_DIALOG_ROWS:
        more = f"… {len(all_lines) - MAX_DIALOG_ROWS:,} more lines are not shown here"
        rows.append(PaneRow("more", (line((more, "warn")),), indent=4))
    return rows


class DetailDialog(Dialog):
    """Something to read. `read_lines` is called again whenever the lines may have changed."""

    def __init__(
        self, title: str, read_lines: Callable[[], Iterable[Line]], *, follows: bool = False
    ) -> None:
        super().__init__(title, "↑↓ PgUp PgDn scroll · Esc close")
        self._read_lines = read_lines
        self._follows = follows

    def fill(self) -> None:
        self.rows.replace(numbered(self._read_lines()))
        if self._follows:
            self.rows.action_last()

    def refill(self) -> None:
        """Read the lines again; stays at the end if it was there."""
        rows = self.rows
        if self._opened is None:
            return
        at_end = rows.selected is None or rows.selected is rows.rows[-1]
        rows.replace(numbered(self._read_lines()))
        if at_end and self._follows:
            rows.action_last()
