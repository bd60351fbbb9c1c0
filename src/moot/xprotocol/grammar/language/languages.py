"""Regular languages over characters, before they are spelled as JSON.

`Many` and friends are built from patterns, formats and length bounds. `Both` and `Not` only ever stand at
the top (or under `Either` there); whatever has them goes through an automaton.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from moot.xprotocol.grammar.language.charsets import EVERY, NONE, CharSet


@dataclass(frozen=True, slots=True)
class One:
    """One character of the set."""

    members: CharSet


@dataclass(frozen=True, slots=True)
class Concatenation:
    items: tuple[Language, ...]


@dataclass(frozen=True, slots=True)
class Either:
    items: tuple[Language, ...]


@dataclass(frozen=True, slots=True)
class Many:
    item: Language
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Both:
    items: tuple[Language, ...]


@dataclass(frozen=True, slots=True)
class Not:
    item: Language


Language: TypeAlias = One | Concatenation | Either | Many | Both | Not

NOTHING = Concatenation(())
NO_TEXT = Either(())
ANYTHING = Many(One(EVERY), 0, None)


def chain(*items: Language) -> Language:
    flat: list[Language] = []
    for item in items:
        if item == NO_TEXT:
            return NO_TEXT
        flat += item.items if isinstance(item, Concatenation) else (item,)
    return flat[0] if len(flat) == 1 else Concatenation(tuple(flat))


def either(*items: Language) -> Language:
    flat: dict[Language, None] = {}
    for item in items:
        for each in item.items if isinstance(item, Either) else (item,):
            flat[each] = None
    singles = [each.members for each in flat if isinstance(each, One)]
    if len(singles) > 1:
        merged = NONE
        for members in singles:
            merged = merged | members
        flat = {each: None for each in flat if not isinstance(each, One)} | {One(merged): None}
    return next(iter(flat)) if len(flat) == 1 else Either(tuple(flat))


def both(*items: Language) -> Language:
    flat: dict[Language, None] = {}
    for item in items:
        for each in item.items if isinstance(item, Both) else (item,):
            flat[each] = None
    return next(iter(flat)) if len(flat) == 1 else Both(tuple(flat))


def many(item: Language, low: int, high: int | None) -> Language:
    if high == 0 or item == NOTHING:
        return NOTHING
    if item == NO_TEXT:
        return NOTHING if low == 0 else NO_TEXT
    return item if (low, high) == (1, 1) else Many(item, low, high)


def length_between(low: int, high: int | None) -> Language:
    return many(One(EVERY), low, high)


def is_plain(language: Language) -> bool:
    """Whether it can be written down without an automaton."""
    match language:
        case One():
            return True
        case Concatenation(items) | Either(items):
            return all(is_plain(item) for item in items)
        case Many(item, low, high):
            # Repeating what may be empty sends llama.cpp round in circles.
            return is_plain(item) and (shortest(item) > 0 or (low <= 1 and high == 1))
        case Both() | Not():
            return False
        case _:
            assert_never(language)


def shortest(language: Language) -> int:
    """No text of the language is shorter than this."""
    match language:
        case One():
            return 1
        case Concatenation(items):
            return sum(shortest(item) for item in items)
        case Either(items):
            return min((shortest(item) for item in items), default=0)
        case Many(item, low, _):
            return low * shortest(item)
        case Both(items):
            return max(shortest(item) for item in items)
        case Not():
            return 0
        case _:
            assert_never(language)


def longest(language: Language) -> int | None:
    """No text of the language is longer than this; `None`: no such bound is known."""
    match language:
        case One():
            return 1
        case Concatenation(items):
            lengths = [longest(item) for item in items]
            return None if None in lengths else sum(n for n in lengths if n is not None)
        case Either(items):
            lengths = [longest(item) for item in items]
            return None if None in lengths else max((n for n in lengths if n is not None), default=0)
        case Many(item, _, high):
            inner = longest(item)
            return None if high is None or inner is None else high * inner
        case Both(items):
            known = [n for n in map(longest, items) if n is not None]
            return min(known, default=None)
        case Not():
            return None
        case _:
            assert_never(language)


def first_characters(language: Language) -> CharSet | None:
    """What the texts can begin with; `None` if one of them may be empty or it is not known."""
    match language:
        case One(members):
            return members
        case Concatenation(items) if items:
            return first_characters(items[0])
        case Either(items):
            return _union(first_characters(item) for item in items)
        case Many(item, low, _) if low > 0:
            return first_characters(item)
    return None


def last_characters(language: Language) -> CharSet | None:
    match language:
        case One(members):
            return members
        case Concatenation(items) if items:
            return last_characters(items[-1])
        case Either(items):
            return _union(last_characters(item) for item in items)
        case Many(item, low, _) if low > 0:
            return last_characters(item)
    return None


def _union(sets: Iterator[CharSet | None]) -> CharSet | None:
    total = NONE
    for each in sets:
        if each is None:
            return None
        total = total | each
    return total


def with_length(language: Language, low: int, high: int | None) -> Language | None:
    """The texts of these lengths without an automaton, if the language is simple enough to say so.

    Simple is: its lengths fit already, or all but one repeated character have a fixed length.
    """
    least, most = shortest(language), longest(language)
    if least >= low and (high is None or (most is not None and most <= high)):
        return language
    items = language.items if isinstance(language, Concatenation) else (language,)
    loose = [n for n, item in enumerate(items) if shortest(item) != longest(item)]
    if len(loose) != 1:
        return None
    part = items[loose[0]]
    if not (isinstance(part, Many) and isinstance(part.item, One)):
        return None
    fixed = least - part.low
    most_here = part.high if high is None else min(high - fixed, high if part.high is None else part.high)
    least_here = max(part.low, low - fixed)
    if most_here is not None and most_here < least_here:
        return NO_TEXT
    return chain(*items[: loose[0]], many(part.item, least_here, most_here), *items[loose[0] + 1 :])
