"""Days in a text, in figures and in words: 2024-05-19, 19.05.2024, May 19th, the 19th of May 2024, tomorrow.

A day without a year is one by its month and day. A word like tomorrow counts from the day of the message.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from functools import lru_cache
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
# Bounded spaces: a match looks at no more than a hundred characters.
_GAP: Final = r"\s{1,3}"
_TO: Final = r"\s{0,3}(?:-|–|to|and|until)\s{0,3}(?:the\s{1,3})?"
_DATES: Final = re.compile(
    rf"(?<![\w.-])(?:"
    rf"(?P<iso>{_YEAR}[-/](?:0?[1-9]|1[0-2])[-/](?:3[01]|[12][0-9]|0?[1-9])(?![0-9]))"
    rf"|(?P<dotted>(?:3[01]|[12][0-9]|0?[1-9])[.](?:0?[1-9]|1[0-2])[.]{_YEAR})"
    rf"|(?P<month>{_MONTH}){_GAP}(?:the{_GAP})?(?P<day>{_DAY})(?:{_TO}(?P<until>{_DAY}))?"
    rf"(?:,?{_GAP}(?P<year>{_YEAR}))?"
    rf"|(?:(?P<from>{_DAY}){_TO})?(?P<day2>{_DAY}){_GAP}(?:of{_GAP})?(?P<month2>{_MONTH})"
    rf"(?:,?{_GAP}(?P<year2>{_YEAR}))?"
    rf")"
)
# With what a day in words begins, and how one in figures goes on.
DATE_HEADS: Final = frozenset(word[:3] for word in (*_MONTHS, *_WEEKDAYS, *_NEAR_DAYS))
_MAY_BE_DAY: Final = re.compile(
    r"\d{1,2}(?:st|nd|rd|th|\.)?(?:\s{1,3}[-–jfmasondtu]|[-–]\d{1,2}\D)|\d{4}[-/]\d|\d{1,2}\.\d{1,2}\.\d{4}"
)

# ("day", "2024-05-19"), or ("month-day", "05-19") where no year was said.
DayKey = tuple[str, str]


def days_at(folded: str, piece: str, start: int, at: float) -> tuple[list[DayKey], int]:
    """The days that a text in lower case names with the piece at `start`, and where that ends.

    `at` is when it was said, for days like tomorrow.
    """
    if piece[0].isdigit():
        if not _MAY_BE_DAY.match(folded, start):
            return [], start
    elif piece[:3] not in DATE_HEADS:
        return [], start
    elif days := _near_days(piece, int(at // 86_400)):
        return days, start + len(piece)
    found = _DATES.match(folded, start)
    return (_read(found), found.end()) if found else ([], start)


@lru_cache(maxsize=1024)
def _near_days(word: str, day_number: int) -> list[DayKey]:
    said = date(1970, 1, 1) + timedelta(days=day_number)
    if word in _NEAR_DAYS:
        return [_day(said + timedelta(days=_NEAR_DAYS[word]))]
    if word not in _WEEKDAYS and word.removesuffix("s") not in _WEEKDAYS:
        return []
    ahead = (_WEEKDAYS.index(word.removesuffix("s")) - said.weekday()) % 7 or 7
    # The next one, or the one after it: people mean either by "next Tuesday".
    return [_day(said + timedelta(days=ahead)), _day(said + timedelta(days=ahead + 7))]


def _read(found: re.Match[str]) -> list[DayKey]:
    if found["iso"]:
        year, month, day = re.split("[-/]", found["iso"])
        return _key(year, int(month), day)
    if found["dotted"]:
        day, month, year = found["dotted"].split(".")
        return _key(year, int(month), day)
    month = _MONTHS[(found["month"] or found["month2"]).rstrip(".")]
    year = found["year"] or found["year2"]
    days = (found["day"], found["until"]) if found["month"] else (found["from"], found["day2"])
    return [key for day in days if day for key in _key(year, month, day)]


def _key(year: str | None, month: int, day: str) -> list[DayKey]:
    number = int(re.sub("[^0-9]", "", day))
    if year is None:
        return [("month-day", f"{month:02}-{number:02}")]
    return [("day", f"{int(year):04}-{month:02}-{number:02}")]


def _day(value: date) -> DayKey:
    return "day", value.isoformat()
