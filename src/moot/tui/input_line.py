"""The input line: chat, or a slash command with completion and history."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from moot.operations.text.terminal_escape import printable
from moot.tui.completion import Completion
from moot.tui.row_layout import PaneRow, line
from moot.tui.rows import Rows

# Lines in the history, and the longest one; an envelope has at most 1 MiB.
MAX_HISTORY_LINES: Final = 500
MAX_LINE_CHARS: Final = 200_000
# Completions that are shown above the line.
_MAX_COMPLETIONS: Final = 50


class InputLine(Input):
    """Chat or a command. Tab accepts a completion, up and down select one or recall earlier lines."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "Complete", show=False),
        Binding("up", "older", "Earlier line", show=False),
        Binding("down", "newer", "Later line", show=False),
        Binding("escape", "leave", "Panes"),
    ]

    class Entered(Message):
        """A line was entered."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Escaped(Message):
        """A person wants to go to the panes."""

    def __init__(self, complete: Callable[[str], Completion], completions: Rows) -> None:
        super().__init__(
            placeholder="Message, or / for commands · Esc for panes · F1 for help",
            id="input-line",
            max_length=MAX_LINE_CHARS,
            select_on_focus=False,
        )
        self._complete = complete
        self._completions = completions
        self._completion = Completion(0)
        self._history: list[str] = []
        self._position = 0
        self._unfinished = ""

    # Completion

    def watch_value(self, value: str) -> None:
        self.show_completions(value)

    def show_completions(self, value: str | None = None) -> None:
        """Show completions for the last word."""
        text = self.value if value is None else value
        self._completion = self._complete(text)
        rows = [
            PaneRow(each.text, (line((each.text, "strong"), (f"  {each.help}" if each.help else "", "dim")),))
            for each in self._completion.candidates[:_MAX_COMPLETIONS]
        ]
        self._completions.display = bool(rows)
        self._completions.replace(rows)
        if rows:
            self._completions.action_first()

    @property
    def has_completions(self) -> bool:
        return bool(self._completion.candidates)

    def action_complete(self) -> None:
        """Accept the selected completion; without one, move to the next pane."""
        selected = self._completions.selected
        found = [
            each for each in self._completion.candidates if selected is not None and each.text == selected.key
        ]
        if found:
            self.value = self._completion.apply(self.value, found[0])
            self.cursor_position = len(self.value)
        elif not self.value:
            self.screen.focus_next()

    # History

    def action_older(self) -> None:
        if self.has_completions:
            self._completions.action_move(-1)
            return
        if self._position == len(self._history):
            self._unfinished = self.value
        self._recall(self._position - 1)

    def action_newer(self) -> None:
        if self.has_completions:
            self._completions.action_move(1)
        else:
            self._recall(self._position + 1)

    def _recall(self, position: int) -> None:
        if not 0 <= position <= len(self._history):
            return
        self._position = position
        self.value = self._history[position] if position < len(self._history) else self._unfinished
        self.cursor_position = len(self.value)

    # Submitting

    async def action_submit(self) -> None:
        text = self.value
        self.value = ""
        if not text.strip():
            return
        if not self._history or self._history[-1] != text:
            self._history = [*self._history[1 - MAX_HISTORY_LINES :], text]
        self._position, self._unfinished = len(self._history), ""
        self.post_message(self.Entered(text))

    def action_leave(self) -> None:
        """Hide the completions; without any, leave the line."""
        if self.has_completions:
            self._completion = Completion(0)
            self._completions.display = False
        else:
            self.post_message(self.Escaped())

    async def _on_key(self, event: events.Key) -> None:
        # Textual inserts characters here, but looks for what other keys do only after they went up to the
        # application: of keys that come together, Enter and Backspace would act after what follows them.
        for binding in () if event.is_printable else self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return
        await super()._on_key(event)

    def _on_paste(self, event: events.Paste) -> None:
        # Pasted text may come from anywhere: it becomes one line without control characters.
        text = " ".join(event.text.splitlines())
        self.insert_text_at_cursor(printable(text))
        event.stop()
        event.prevent_default()
