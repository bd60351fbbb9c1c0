"""Sets of characters as sorted ranges of code points, never with a surrogate in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class CharSet:
    """`ranges` are inclusive, sorted, disjoint and not adjacent; build with `charset`."""

    ranges: tuple[tuple[int, int], ...]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, code: int) -> bool:
        return any(low <= code <= high for low, high in self.ranges)

    def __or__(self, other: CharSet) -> CharSet:
        return charset(*self.ranges, *other.ranges)

    def __and__(self, other: CharSet) -> CharSet:
        return charset(
            *(
                (max(low, first), min(high, last))
                for low, high in self.ranges
                for first, last in other.ranges
                if max(low, first) <= min(high, last)
            )
        )

    def __sub__(self, other: CharSet) -> CharSet:
        return self & other.complement()

    def complement(self) -> CharSet:
        return charset(*_gaps(self.ranges))

    def single(self) -> int | None:
        """The only member, if there is only one."""
        low, high = self.ranges[0] if len(self.ranges) == 1 else (0, 1)
        return low if low == high else None


def charset(*ranges: tuple[int, int]) -> CharSet:
    """The set of these ranges, in any order, overlapping or not."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(_without_surrogates(ranges)):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return CharSet(tuple(merged))


def chars(text: str) -> CharSet:
    return charset(*((ord(c), ord(c)) for c in text))


def span(first: str, last: str) -> CharSet:
    return charset((ord(first), ord(last)))


def partition(sets: Iterable[CharSet]) -> list[CharSet]:
    """The coarsest disjoint classes of which every given set is a union; they cover everything."""
    # Every range edge cuts the line; slices that lie in the same sets are one class.
    listed = list(dict.fromkeys(sets))
    edges = sorted(
        {0, LAST + 1, *_SURROGATE_EDGES}
        | {low for each in listed for low, _ in each.ranges}
        | {high + 1 for each in listed for _, high in each.ranges}
    )
    slices: dict[tuple[bool, ...], list[tuple[int, int]]] = {}
    for low, after in pairwise(edges):
        if low == _SURROGATES[0]:
            continue
        slices.setdefault(tuple(low in each for each in listed), []).append((low, after - 1))
    return [charset(*ranges) for ranges in slices.values()]


_SURROGATE_EDGES = (_SURROGATES[0], _SURROGATES[1] + 1)


def _without_surrogates(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    first, last = _SURROGATES
    for low, high in ranges:
        if high < first or low > last:
            yield low, high
            continue
        if low < first:
            yield low, first - 1
        if high > last:
            yield last + 1, high


def _gaps(ranges: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int]]:
    start = 0
    for low, high in ranges:
        if low > start:
            yield start, low - 1
        start = high + 1
    if start <= LAST:
        yield start, LAST


NONE = CharSet(())
EVERY = charset((0, LAST))
ASCII = charset((0, 0x7F))
NOT_ASCII = EVERY - ASCII
CONTROLS = charset((0, 0x1F))
DIGITS = span("0", "9")
LETTERS = span("a", "z") | span("A", "Z")
WORD = DIGITS | LETTERS | chars("_")
HEX = DIGITS | span("a", "f") | span("A", "F")
# ECMA-262 WhiteSpace and LineTerminator.
SPACE = chars("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff") | charset((0x2000, 0x200A))
NEWLINES = chars("\n\r\u2028\u2029")
