"""How the full screen of one person looks and behaves."""

from __future__ import annotations

from dataclasses import dataclass

from moot.operations.operation import UserOperation
from moot.tui.theme import DEFAULT_THEME


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalOptions:
    """Chosen when it starts."""

    # What the space is called on the screen.
    space_label: str
    # Show all messages, not only those that people read.
    verbose: bool = False
    theme: str = DEFAULT_THEME
    # Ring when a proposal comes that waits for a decision.
    bell: bool = False
    # How long a decision can be taken back before it is sent; 0 sends at once.
    take_back_seconds: int = 0
    # Commands beside those that every terminal has.
    extra_commands: tuple[UserOperation, ...] = ()
