"""The line in which a person types: chat, or a slash command with completion and a memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from moot.tui.completion import Completion
from moot.tui.row_layout import PaneRow, line
from moot.tui.rows import Rows
from moot.tui.terminal_escape import printable

# Lines that can be called back, and the longest one: an envelope has at most 1 MiB, nobody types more.
REMEMBERED: Final = 500
LINE_CHARS: Final = 200_000
# Candidates that stand above the line at once.
_OFFERED: Final = 50


class InputLine(Input):
    """Chat or a command. Tab takes what is offered, up and down choose it or call earlier lines back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "take", "Complete", show=False),
        Binding("up", "older", "Earlier line", show=False),
        Binding("down", "newer", "Later line", show=False),
        Binding("escape", "leave", "Panes"),
    ]

    class Typed(Message):
        """A line is done."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """Somebody wants to go to the panes."""

    def __init__(self, complete: Callable[[str], Completion], offered: Rows) -> None:
        super().__init__(
            placeholder="Message, or / for commands · Esc for panes · F1 for help",
            id="prompt",
            max_length=LINE_CHARS,
            select_on_focus=False,
        )
        self._complete = complete
        self._offered = offered
        self._completion = Completion(0)
        self._past: list[str] = []
        self._place = 0
        self._unfinished = ""

    # Completing

    def watch_value(self, value: str) -> None:
        self.offer(value)

    def offer(self, value: str | None = None) -> None:
        """Show what the last word may become."""
        text = self.value if value is None else value
        self._completion = self._complete(text)
        rows = [
            PaneRow(each.text, (line((each.text, "strong"), (f"  {each.help}" if each.help else "", "dim")),))
            for each in self._completion.candidates[:_OFFERED]
        ]
        self._offered.display = bool(rows)
        self._offered.replace(rows)
        if rows:
            self._offered.action_first()

    @property
    def is_offering(self) -> bool:
        return bool(self._completion.candidates)

    def action_take(self) -> None:
        """Take the candidate that is chosen; without one, on to the next pane."""
        chosen = self._offered.chosen
        found = [
            each for each in self._completion.candidates if chosen is not None and each.text == chosen.key
        ]
        if found:
            self.value = self._completion.applied(self.value, found[0])
            self.cursor_position = len(self.value)
        elif not self.value:
            self.screen.focus_next()

    # Earlier lines

    def action_older(self) -> None:
        if self.is_offering:
            self._offered.action_move(-1)
            return
        if self._place == len(self._past):
            self._unfinished = self.value
        self._recall(self._place - 1)

    def action_newer(self) -> None:
        if self.is_offering:
            self._offered.action_move(1)
        else:
            self._recall(self._place + 1)

    def _recall(self, place: int) -> None:
        if not 0 <= place <= len(self._past):
            return
        self._place = place
        self.value = self._past[place] if place < len(self._past) else self._unfinished
        self.cursor_position = len(self.value)

    # Done

    async def action_submit(self) -> None:
        text = self.value
        self.value = ""
        if not text.strip():
            return
        if not self._past or self._past[-1] != text:
            self._past = [*self._past[1 - REMEMBERED :], text]
        self._place, self._unfinished = len(self._past), ""
        self.post_message(self.Typed(text))

    def action_leave(self) -> None:
        """First what is offered goes, then we."""
        if self.is_offering:
            self._completion = Completion(0)
            self._offered.display = False
        else:
            self.post_message(self.Left())

    def _on_paste(self, event: events.Paste) -> None:
        # What is pasted may come from anywhere: it becomes one line that obeys nothing.
        text = " ".join(event.text.splitlines())
        self.insert_text_at_cursor(printable(text))
        event.stop()
        event.prevent_default()
