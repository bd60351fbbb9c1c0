"""A point in time as people type it: a date, a moment, seconds since 1970, or how long ago."""

from __future__ import annotations

import argparse
import re
import time
from datetime import UTC, datetime
from typing import Final

TIME_HELP: Final = "2026-01-31, 2026-01-31T12:00Z, or 90m ago"
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def parse_time(text: str) -> float:
    """Seconds since 1970; raises ArgumentTypeError."""
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text):
        return time.time() - float(ago[1]) * _UNITS[ago[2]]
    if re.fullmatch(r"\d{9,}(\.\d+)?", text):
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write 2026-01-31, 2026-01-31T12:00:00Z, or 90m (also s, h, d, w) ago"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
