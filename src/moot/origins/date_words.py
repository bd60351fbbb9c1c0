"""Days in a text, in figures and in words: 2024-05-19, 19.05.2024, May 19th, the 19th of May 2024, tomorrow.

A day without a year is one by its month and day. A word like tomorrow counts from the day of the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final

_MONTH_NAMES: Final = (
    "jan january januar", "feb february februar", "mar march märz", "apr april", "may mai", "jun june juni",
    "jul july juli", "aug august", "sep sept september", "oct october oktober", "nov november",
    "dec december dezember",
)  # fmt: skip
_MONTHS: Final = {name: at for at, names in enumerate(_MONTH_NAMES, start=1) for name in names.split()}
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NEAR_DAYS: Final = {"yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1}
_MONTH: Final = "(?:" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\b\.?"
_DAY: Final = r"(?:3[01]|[12][0-9]|0?[1-9])(?:st|nd|rd|th|\.)?(?![0-9:])"
_YEAR: Final = r"(?:19|20)[0-9]{2}(?![0-9])"
_DATES: Final = re.compile(
    rf"(?<![\w.-])(?:"
    rf"(?P<iso>{_YEAR}[-/](?:0?[1-9]|1[0-2])[-/](?:3[01]|[12][0-9]|0?[1-9])(?![0-9]))"
    rf"|(?P<dotted>(?:3[01]|[12][0-9]|0?[1-9])[.](?:0?[1-9]|1[0-2])[.]{_YEAR})"
    rf"|(?P<month>{_MONTH})\s+(?:the\s+)?(?P<day>{_DAY})(?:\s*(?:-|–|to|and|until)\s*(?:the\s+)?(?P<until>{_DAY}))?"
    rf"(?:,?\s+(?P<year>{_YEAR}))?"
    rf"|(?:(?P<from>{_DAY})\s*(?:-|–|to|and|until)\s*(?:the\s+)?)?(?P<day2>{_DAY})\s+(?:of\s+)?(?P<month2>{_MONTH})"
    rf"(?:,?\s+(?P<year2>{_YEAR}))?"
    rf"|(?P<near>yesterday|today|tonight|tomorrow)\b"
    rf"|(?P<weekday>{'|'.join(_WEEKDAYS)})s?\b)"
)

# ("day", "2024-05-19"), or ("month-day", "05-19") where no year was said.
DayKey = tuple[str, str]


def days_in(folded: str, at: float) -> Iterator[tuple[DayKey, int, int]]:
    """The days that a text in lower case names, each with its start and end; `at` is when it was said."""
    for found in _DATES.finditer(folded):
        for key in _read(found, at):
            yield key, found.start(), found.end()


def _read(found: re.Match[str], at: float) -> list[DayKey]:
    if found["iso"]:
        year, month, day = re.split("[-/]", found["iso"])
        return _key(year, int(month), day)
    if found["dotted"]:
        day, month, year = found["dotted"].split(".")
        return _key(year, int(month), day)
    if found["near"]:
        return [_day(_date_of(at) + timedelta(days=_NEAR_DAYS[found["near"]]))]
    if found["weekday"]:
        said = _date_of(at)
        ahead = (_WEEKDAYS.index(found["weekday"]) - said.weekday()) % 7 or 7
        # The next one, or the one after it: people mean either by "next Tuesday".
        return [_day(said + timedelta(days=ahead)), _day(said + timedelta(days=ahead + 7))]
    month = _MONTHS[(found["month"] or found["month2"]).rstrip(".")]
    year = found["year"] or found["year2"]
    days = (found["day"], found["until"]) if found["month"] else (found["from"], found["day2"])
    return [key for day in days if day for key in _key(year, month, day)]


def _key(year: str | None, month: int, day: str) -> list[DayKey]:
    number = int(re.sub("[^0-9]", "", day))
    if year is None:
        return [("month-day", f"{month:02}-{number:02}")]
    return [("day", f"{int(year):04}-{month:02}-{number:02}")]


def _date_of(at: float) -> date:
    return datetime.fromtimestamp(at, UTC).date()


def _day(value: date) -> DayKey:
    return "day", value.isoformat()
