"""A point in time as people type it: a date, a moment, seconds since 1970, or a duration from now."""

from __future__ import annotations

import argparse
import re
import time
from datetime import UTC, datetime
from typing import Final

from moot.resilience.durations import UNITS

TIME_HELP: Final = "2026-01-31, 2026-01-31T12:00Z, or 90m ago"
_UNITS: Final = UNITS | {"y": 365 * UNITS["d"]}


def parse_time(text: str) -> float:
    """Seconds since 1970; a duration is so long ago. Raises ArgumentTypeError."""
    return _parse(text, -1, "90m (also s, h, d, w, y) ago")


def parse_end_time(text: str) -> int:
    """The same; a duration is so long from now."""
    return int(_parse(text, 1, "90d (also s, m, h, w, y) from now"))


def _parse(text: str, direction: int, durations: str) -> float:
    if duration := re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)([smhdwy])", text):
        return time.time() + direction * float(duration[1]) * _UNITS[duration[2]]
    if re.fullmatch(r"\d{9,15}(\.\d+)?", text):
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write 2026-01-31, 2026-01-31T12:00:00Z, or {durations}"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
