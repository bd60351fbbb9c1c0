"""Conditions of rules beyond capability patterns: ranges, exact values, hours, before and after.

Capabilities have none of these, so a rule with one cannot become a grant.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import orjson

from moot.errors import UsageError
from moot.protocol.operation import Json

DAY_MINUTES: Final = 24 * 60
_CLOCK: Final = re.compile(
    r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)(?: ([A-Za-z0-9_+/-]{1,64}))?"
)


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`, both included. Two whole bounds admit whole numbers only.

    `100.00000000000000001` is read as 100.0, which is not a whole number here.
    """

    low: float
    high: float

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def admits(self, value: Json) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.whole and not isinstance(value, int):
            return False
        return self.low <= value <= self.high

    def chosen(self, arguments: Mapping[str, Json]) -> Range | None:  # noqa: ARG002
        """The range for these arguments; None if it has none for them."""
        return self

    def is_within(self, other: Range) -> bool:
        """Whether every number that it admits is admitted by the other, whatever else is in the call."""
        if isinstance(other, RangeByText):
            return False
        return other.low <= self.low and self.high <= other.high and (self.whole or not other.whole)


@dataclass(frozen=True, slots=True)
class RangeByText(Range):
    """A range for each text of another argument, such as the amounts of each payee. For other texts none.

    `low` and `high` are the lowest and the highest of all.
    """

    of: str
    by: Mapping[str, Range]

    @classmethod
    def over(cls, of: str, by: Mapping[str, Range]) -> RangeByText:
        """Of at least one text."""
        low, high = min(each.low for each in by.values()), max(each.high for each in by.values())
        # Whole only if all are.
        whole = all(each.whole for each in by.values())
        return cls(low if whole else float(low), high if whole else float(high), of, by)

    def chosen(self, arguments: Mapping[str, Json]) -> Range | None:
        text = arguments.get(self.of)
        return self.by.get(text) if isinstance(text, str) else None

    def is_within(self, other: Range) -> bool:
        if not isinstance(other, RangeByText):
            return all(each.is_within(other) for each in self.by.values())
        return self.of == other.of and all(
            text in other.by and each.is_within(other.by[text]) for text, each in self.by.items()
        )


@dataclass(frozen=True, slots=True)
class Hours:
    """A time of day, from minute to minute, both included; past midnight when it ends before it starts."""

    start: int
    end: int
    zone: str = "UTC"

    def admits(self, moment: float) -> bool:
        return self.has_minute(minute_of_day(moment, self.zone))

    def has_minute(self, minute: int) -> bool:
        if self.start <= self.end:
            return self.start <= minute <= self.end
        return minute >= self.start or minute <= self.end

    def __str__(self) -> str:
        clock = f"{self.start // 60:02}:{self.start % 60:02}-{self.end // 60:02}:{self.end % 60:02}"
        return clock if self.zone == "UTC" else f"{clock} {self.zone}"


def read_hours(text: Json) -> Hours:
    """Read `09:00-17:00`, or with a zone `09:00-17:00 Europe/Berlin`; raises UsageError."""
    found = _CLOCK.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise UsageError('must be two times of day, as in "09:00-17:00" or "09:00-17:00 Europe/Berlin"')
    zone = found[5] or "UTC"
    try:
        _zone(zone)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"unknown time zone {zone!r}; omit it for UTC") from None
    return Hours(int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4]), zone)


def minute_of_day(moment: float, zone: str = "UTC") -> int:
    if zone == "UTC":
        return int(moment // 60) % DAY_MINUTES
    local = datetime.fromtimestamp(moment, _zone(zone))
    return local.hour * 60 + local.minute


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def read_time(value: Json) -> float:
    """Read a time in YAML (a date or RFC 3339 text) as seconds since 1970; raises UsageError."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise UsageError("must be a time such as 2026-01-31T12:00:00Z") from None
    if not isinstance(value, datetime):
        raise UsageError("must be a time such as 2026-01-31T12:00:00Z")
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    moment: float = value.timestamp()
    return moment


# A number as text: no sign, no exponent, no thousands.
_NUMBER: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,9})?", re.ASCII)


def amount_of(value: Json) -> Decimal | None:
    """A number of at least 0, exactly as it is written; None for all else, so that nothing counts as less."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        return Decimal(value) if _NUMBER.fullmatch(value) else None
    return Decimal(str(value)) if 0 <= value < 1e18 else None


def is_same_json(one: Json, other: Json) -> bool:
    """Whether two JSON values are the same, types included: 1 is not true, and not 1.0."""
    return canonical(one) == canonical(other)


def canonical(value: Json) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        # An integer of more than 64 bits: equal only to the very same digits.
        return repr(_sorted(value)).encode(errors="surrogatepass")


def _sorted(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(inner) for inner in value] if isinstance(value, list) else value


# For texts that a wildcard matches. A backslash and a percent sign can hide a slash or dots from us and show
# them to the tool; control, format and private-use characters can hide anything from people.
_ESCAPES: Final = frozenset("\\%")
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def is_plain(text: str) -> bool:
    """Whether a text means what it shows: no `..`, no escapes, nothing invisible or look-alike.

    Wildcards of an approving rule match plain texts only. Characters that turn into others when normalised
    (full-width slashes, ligatures, combining accents that have a letter of their own) are not plain.
    """
    if text.isascii():
        if not text.isprintable() or not _ESCAPES.isdisjoint(text):
            return False
    elif (
        not _ESCAPES.isdisjoint(text)
        or unicodedata.normalize("NFKC", text) != text
        or any(unicodedata.category(char) in _INVISIBLE for char in text)
    ):
        return False
    if "/" not in text:
        return text not in (".", "..")
    # One slash too many is another way to hide a segment; a URL has two behind its scheme, a folder one last.
    inner = text.split("://", 1)[-1].removeprefix("/").removesuffix("/").split("/")
    return not any(segment in ("", ".", "..") for segment in inner)
