"""Durations as people type them: `90`, `90s`, `15m`, `1.5h`, `1d`, `2w`. One reader for every option."""

from __future__ import annotations

import argparse
import re
from typing import Final

# For the help of an option.
HOW_LONG: Final = "how long, such as 90s, 15m, 8h or 7d"
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw]?)", re.ASCII)
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def parse_duration(text: str) -> float:
    """Seconds; a number alone is seconds. Raises ArgumentTypeError, as options want it."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 90s, 15m, 1h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def parse_positive_duration(text: str) -> float:
    """The same, for what has to last."""
    seconds = parse_duration(text)
    if not seconds:
        raise argparse.ArgumentTypeError("must be longer than 0 seconds")
    return seconds
