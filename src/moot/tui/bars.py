"""The lines around the panes: how things stand, the panes by number, and what keys do here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from textual.content import Content
from textual.widgets import Static

from moot.participant import JoinedSpace
from moot.tui.commands import PANES
from moot.tui.terminal_escape import printable

# The panes where there is little room: sixty columns hold them all, with numbers of two digits.
_SHORT: Final[Mapping[str, str]] = {
    "timeline": "time",
    "approvals": "ask",
    "people": "who",
    "reasoning": "reason",
    "streams": "stream",
    "chats": "chat",
    "rules": "rule",
}


class PaneTab(Static):
    """The name of a pane and how much is in it; a click opens it."""

    def __init__(self, pane: str) -> None:
        super().__init__(Content(""), id=f"tab-{pane}", classes="tab", markup=False)
        self.pane = pane
        self._words = ""

    def tell(self, count: int, *, is_narrow: bool) -> None:
        name = _SHORT[self.pane] if is_narrow else self.pane
        words = f"{PANES.index(self.pane) + 1} {name}{f'({count})' if count else ''}"
        if words != self._words:
            self._words = words
            self.update(Content(words))

    async def on_click(self) -> None:
        await self.app.run_action(f"app.pane('{self.pane}')")


class StatusBar(Static):
    """Where we are, as whom, and whether the connection stands."""

    def __init__(self) -> None:
        super().__init__(Content(""), id="head", markup=False)
        self._words = ""

    def tell(self, space: JoinedSpace, place: str, *, waiting: int, more: Sequence[str]) -> None:
        match space.state:
            case "joined":
                state = "● joined"
            case "reconnecting":
                state = "◌ reconnecting …"
            case _:
                ending = space.close_reason
                state = (
                    "■ disconnected" if ending is None else f"■ disconnected: {ending.code} {ending.reason}"
                )
        parts = [state, f"{place} as {space.me}"]
        if space.paused is not None:
            parts.append(f"‖ paused by {space.paused.by}")
        parts.append(f"{waiting} pending" if waiting else "nothing pending")
        words = printable("  ".join([*parts, *more]))
        if words != self._words:
            self._words = words
            self.update(Content(words))
        self.set_class(space.state != "joined", "-away")


class KeyBar(Static):
    """What keys do where the focus is. Textual's own footer makes itself anew whenever that moves."""

    def __init__(self) -> None:
        super().__init__(Content(""), id="keys", markup=False)

    def tell(self) -> None:
        found: dict[str, str] = {}
        for _, binding, is_enabled, _ in self.app.screen.active_bindings.values():
            if binding.show and is_enabled and binding.description:
                found.setdefault(binding.description, self.app.get_key_display(binding))
        parts: list[Content | tuple[str, str]] = []
        for words, key in found.items():
            parts += [(key, "bold $accent"), (f" {words}  ", "")]
        self.update(Content.assemble(*parts))
