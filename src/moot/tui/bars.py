"""The lines around the panes: the status, the tabs of the panes, and what keys do here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from textual.content import Content
from textual.widgets import Static

from moot.operations.text.terminal_escape import printable
from moot.participant import JoinedSpace
from moot.tui.panes import PANES

# Short names, so that sixty columns hold all tabs.
_SHORT_NAMES: Final[Mapping[str, str]] = {
    "timeline": "time",
    "approvals": "ask",
    "members": "member",
    "reasoning": "reason",
    "streams": "stream",
    "chats": "chat",
    "rules": "rule",
}


class PaneTab(Static):
    """The name of a pane and how many items it has; a click opens it."""

    def __init__(self, pane: str) -> None:
        super().__init__(Content(""), id=f"tab-{pane}", classes="tab", markup=False)
        self.pane = pane
        self._text = ""

    def show_count(self, count: int, *, is_narrow: bool) -> None:
        name = _SHORT_NAMES[self.pane] if is_narrow else self.pane
        text = f"{PANES.index(self.pane) + 1} {name}{f'({count})' if count else ''}"
        if text != self._text:
            self._text = text
            self.update(Content(text))

    async def on_click(self) -> None:
        await self.app.run_action(f"app.pane('{self.pane}')")


class StatusBar(Static):
    """The space, our name in it, and the state of the connection."""

    def __init__(self) -> None:
        super().__init__(Content(""), id="status", markup=False)
        self._text = ""

    def show_status(
        self, space: JoinedSpace, space_label: str, *, pending: int, extra: Sequence[str]
    ) -> None:
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
        parts = [state, f"{space_label} as {space.me}"]
        if space.paused is not None:
            parts.append(f"‖ paused by {space.paused.by}")
        nothing = {"known": "nothing pending", "asking": "loading …"}
        otherwise = nothing.get(space.proposals.knowledge, "pending: not known")
        parts.append(f"{pending} pending" if pending else otherwise)
        text = printable("  ".join([*parts, *extra]))
        if text != self._text:
            self._text = text
            self.update(Content(text))
        self.set_class(space.state != "joined", "-away")


class KeyBar(Static):
    """What keys do where the focus is. Textual's own footer rebuilds itself whenever the focus moves."""

    def __init__(self) -> None:
        super().__init__(Content(""), id="keys", markup=False)
        self._shown: dict[str, str] = {}

    def show_keys(self) -> None:
        found: dict[str, str] = {}
        for _, binding, is_enabled, _ in self.app.screen.active_bindings.values():
            if binding.show and is_enabled and binding.description:
                found.setdefault(binding.description, self.app.get_key_display(binding))
        shown = fitting_keys(found, self.size.width)
        if shown == self._shown:
            return
        self._shown = shown
        parts: list[Content | tuple[str, str]] = []
        for text, key in shown.items():
            parts += [(key, "bold $accent"), (f" {text}  ", "")]
        self.update(Content.assemble(*parts))


def fitting_keys(keys: Mapping[str, str], width: int) -> dict[str, str]:
    """Those that fit on the line, whole; the last one, which is the help, always."""
    *firsts, last = keys.items() if keys else [("", "")]
    shown: list[tuple[str, str]] = []
    # Each has a space before its text and two behind it, and the line begins with one.
    left = width - 1 - sum(map(len, last)) - 3
    for text, key in firsts:
        left -= len(text) + len(key) + 3
        if left < 0:
            break
        shown.append((text, key))
    return dict([*shown, last])
