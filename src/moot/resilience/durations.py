"""Durations as people type and read them: `90`, `90s`, `15m`, `1.5h`, `1d`, `2w`; 1 day, 8 hours."""

from __future__ import annotations

import argparse
import re
from typing import Final

# For the help of an option.
HOW_LONG: Final = "how long, such as 90s, 15m, 8h or 7d"
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw]?)", re.ASCII)
UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_WORDS: Final = {"d": "day", "h": "hour", "m": "minute", "s": "second"}


def parse_duration(text: str) -> float:
    """Seconds; a number alone is seconds. Raises ArgumentTypeError, as options want it."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 90s, 15m, 1h or 7d")
    return float(found[1]) * UNITS[found[2] or "s"]


def duration_code(seconds: float) -> str:
    """As `parse_duration` reads it: in the largest unit that makes it whole."""
    unit = next((each for each in ("w", "d", "h", "m") if seconds % UNITS[each] == 0), "s")
    return f"{seconds / UNITS[unit]:.0f}{unit}"


def duration_text(seconds: float) -> str:
    """The same in words; nobody counts in weeks."""
    unit = next((each for each in ("d", "h", "m") if seconds % UNITS[each] == 0), "s")
    count = seconds / UNITS[unit]
    return f"{count:g} {_WORDS[unit]}{'' if count == 1 else 's'}"


def parse_positive_duration(text: str) -> float:
    """The same, for what has to last."""
    seconds = parse_duration(text)
    if not seconds:
        raise argparse.ArgumentTypeError("must be longer than 0 seconds")
    return seconds
