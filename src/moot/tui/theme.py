"""The looks of the terminal: our own themes beside those that Textual brings.

Every state has a sign of its own as well, so that nothing is told by colour alone, and NO_COLOR takes
nothing away. `moot-terminal` uses the sixteen colours of the terminal itself, as its owner has set them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from moot.operations.operation import UserOperation

DEFAULT_THEME: Final = "moot-dark"
# How far dim text and frames are blended from the background; dim text keeps a contrast of at least 4.5 to 1.
_DIM_BLEND: Final = 0.66
_LINE_BLEND: Final = 0.3
_ANSI_SHADES: Final[Mapping[str, str]] = {"dim": "ansi_bright_black", "line": "ansi_bright_black"}

THEMES: Final = (
    Theme(
        name="moot-dark",
        primary="#7aa2f7",
        secondary="#9ece6a",
        accent="#e0af68",
        success="#9ece6a",
        warning="#e0af68",
        error="#f7768e",
        foreground="#d5d9e5",
        background="#14161c",
        surface="#1a1d26",
        panel="#242938",
        dark=True,
    ),
    Theme(
        name="moot-light",
        primary="#2a5db0",
        secondary="#33691e",
        accent="#8a4b00",
        success="#2e6b1f",
        warning="#8a4b00",
        error="#b3261e",
        foreground="#1b1d23",
        background="#fbfbf8",
        surface="#f2f2ed",
        panel="#e4e4dc",
        dark=False,
    ),
    Theme(
        name="moot-contrast",
        primary="#ffff00",
        secondary="#00ffff",
        accent="#ffff00",
        success="#00ff00",
        warning="#ffff00",
        error="#ff6060",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#1c1c1c",
        dark=True,
    ),
    Theme(
        name="moot-terminal",
        primary="ansi_blue",
        secondary="ansi_green",
        accent="ansi_yellow",
        success="ansi_green",
        warning="ansi_yellow",
        error="ansi_red",
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        dark=True,
        ansi=True,
        variables=BUILTIN_THEMES["ansi-dark"].variables,
    ),
)


# How the full screen of one person looks and behaves.
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


def shades_of(variables: Mapping[str, str], *, is_ansi: bool) -> dict[str, str]:
    """Two shades between text and background, of any theme."""
    try:
        background, text = Color.parse(variables["background"]), Color.parse(variables["foreground"])
    except (KeyError, ColorParseError):
        is_ansi = True
    if is_ansi:
        return dict(_ANSI_SHADES)
    return {"dim": background.blend(text, _DIM_BLEND).hex6, "line": background.blend(text, _LINE_BLEND).hex6}
