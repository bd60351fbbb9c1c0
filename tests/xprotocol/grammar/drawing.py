"""Random strings and numbers that a schema's keywords suggest; a validator says which of them are right."""

from __future__ import annotations

import random
from collections.abc import Iterator

from moot.protocol.operation import Json
from moot.xprotocol.grammar.language.regex import (
    Anchor,
    Char,
    Choice,
    Concat,
    LookAround,
    Pattern,
    PatternUnsupported,
    Repeat,
    parse,
)

WORDS = [
    *("", "a", "hello", "x y", 'say "hi"', "back\\slash", "tab\there", "new\nline"),
    *("über", "日本", "😀", "/p/q", "0", "null", "A1-b_2", "\x7f\x01"),
]
FORMATS = {
    "date-time": [
        *("2024-02-29T12:30:00Z", "1999-12-31T23:59:59.123+05:30"),
        *("2000-02-29t00:00:00z", "2016-12-31T23:59:60Z"),
    ],
    "date": ["2024-02-29", "1999-12-31", "2023-02-28"],
    "time": ["12:30:00Z", "23:59:59.5-08:00", "23:59:60Z"],
    "duration": ["P1D", "PT5M", "P1Y2M3DT4H5M6S", "P2W"],
    "uri": [
        "https://example.com/a?b=c#d",
        "mailto:x@y.org",
        "urn:isbn:123",
        "http://[::1]:80/",
        "ftp://u:p@h/",
    ],
    "uri-reference": ["/a/b?c", "x", "#f", "https://example.com", "//h/p"],
    "iri": ["https://example.com/ü"],
    "iri-reference": ["/ü"],
    "email": ["a@b.co", "first.last+tag@sub.example.org"],
    "hostname": ["example.com", "a-b.c", "localhost"],
    "ipv4": ["127.0.0.1", "255.255.255.255"],
    "ipv6": ["::1", "2001:db8::8a2e:370:7334", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"],
    "json-pointer": ["", "/a/0", "/a~1b"],
    "relative-json-pointer": ["0", "1/a", "2#"],
}
# Longer texts than this are not tried.
_LONGEST = 3_000


def count_of(schema: dict[str, Json], word: str) -> int | None:
    value = schema.get(word)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def draw_string(schema: dict[str, Json], chance: random.Random) -> str:
    low, high = count_of(schema, "minLength") or 0, count_of(schema, "maxLength")
    if isinstance(schema.get("pattern"), str):
        return draw_match(schema["pattern"], chance)
    if schema.get("format") in FORMATS and chance.random() < 0.95:
        return chance.choice(FORMATS[schema["format"]])
    text = chance.choice(WORDS)
    while len(text) < low:
        text += chance.choice(WORDS) + "z"
    if low and chance.random() < 0.5:
        text = text[:low]
    if high is not None and (len(text) > high or chance.random() < 0.2):
        text = (text + "y" * min(high, _LONGEST))[: min(high, _LONGEST)]
    return text


def draw_match(pattern: str, chance: random.Random) -> str:
    """A text in which the pattern is probably found, with something around it if it is not anchored."""
    try:
        tree = parse(pattern)
    except PatternUnsupported:
        return chance.choice(WORDS)
    left = "" if "^" in pattern or chance.random() < 0.5 else chance.choice(WORDS)
    right = "" if "$" in pattern or chance.random() < 0.5 else chance.choice(WORDS)
    return left + "".join(_drawn(tree, chance)) + right


def _drawn(tree: Pattern, chance: random.Random) -> Iterator[str]:
    match tree:
        case Char(members):
            low, high = chance.choice(members.ranges)
            yield chr(chance.randint(low, min(high, low + 60)))
        case Concat(items):
            for item in items:
                yield from _drawn(item, chance)
        case Choice(items):
            yield from _drawn(chance.choice(items), chance)
        case Repeat(item, low, high):
            top = low + 3 if high is None else min(high, low + 5)
            most = high if high is not None and high < 200 else low
            for _ in range(chance.choice([low, chance.randint(low, top), most])):
                yield from _drawn(item, chance)
        case Anchor() | LookAround():
            return


def draw_integer(schema: dict[str, Json], chance: random.Random) -> int:
    low, high = _bounds(schema)
    step = schema.get("multipleOf")
    picks = [0, 1, -1, 7, 100, 2**31, -(10**12), 10**25, chance.randint(-1000, 1000)]
    if low is not None or high is not None:
        near = [n for n in (low, high) if n is not None]
        picks = [int(n) + d for n in near for d in (-1, 0, 1, 2, 10)]
        if low is not None and high is not None and int(high) > int(low):
            picks += [chance.randint(int(low), int(high)) for _ in range(8)]
    value = chance.choice(picks)
    return value - value % step if isinstance(step, int) and step > 0 else value


def draw_number(schema: dict[str, Json], chance: random.Random) -> float:
    if chance.random() < 0.3 or "multipleOf" in schema:
        return draw_integer(schema, chance)
    low, high = _bounds(schema)
    if low is not None and high is not None:
        within = chance.uniform(low, high)
        return chance.choice([low, high, within, round(within, 2), low + (high - low) * 1e-9])
    steps = [0, 1e-9, 0.1, 0.5, 1, 1e6, 1e20, chance.random()]
    if low is not None:
        return low + chance.choice(steps)
    if high is not None:
        return high - chance.choice(steps)
    extremes = [1e-07, 3e22, 1.5e308, 1.7976931348623157e308, 5e-324]
    return chance.choice([0.0, -0.0, 0.5, -2.75, *extremes, chance.uniform(-1e6, 1e6)])


def _bounds(schema: dict[str, Json]) -> tuple[float | None, float | None]:
    def given(*words: str) -> list[float]:
        values = [schema.get(word) for word in words]
        return [n for n in values if isinstance(n, int | float) and not isinstance(n, bool)]

    return (
        max(given("minimum", "exclusiveMinimum"), default=None),
        min(given("maximum", "exclusiveMaximum"), default=None),
    )
