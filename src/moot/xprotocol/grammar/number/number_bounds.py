"""Bounds of numbers: a range, units, and single numbers that are out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class NumberBounds:
    """`low_open` and `high_open`: the bound itself is out."""

    low: Fraction | None = None
    low_open: bool = False
    high: Fraction | None = None
    high_open: bool = False
    multiples: tuple[Fraction, ...] = ()
    excluded: tuple[Fraction, ...] = ()

    def from_below(self, bound: Fraction, *, open: bool) -> NumberBounds:
        """With this lower bound, too."""
        if self.low is not None and (self.low, self.low_open) >= (bound, open):
            return self
        return NumberBounds(bound, open, self.high, self.high_open, self.multiples, self.excluded)

    def from_above(self, bound: Fraction, *, open: bool) -> NumberBounds:
        if self.high is not None and (self.high, not self.high_open) <= (bound, not open):
            return self
        return NumberBounds(self.low, self.low_open, bound, open, self.multiples, self.excluded)

    def admit(self, number: Fraction) -> bool:
        if self.low is not None and (number < self.low or (self.low_open and number == self.low)):
            return False
        if self.high is not None and (number > self.high or (self.high_open and number == self.high)):
            return False
        if number in self.excluded:
            return False
        return all((number / unit).denominator == 1 for unit in self.multiples)

    def is_empty(self) -> bool:
        """Whether no real number lies within the bounds."""
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    def whole(self) -> tuple[int | None, int | None]:
        """The first and the last integer within the bounds."""
        low = high = None
        if self.low is not None:
            low = math.floor(self.low) + 1 if self.low_open else math.ceil(self.low)
        if self.high is not None:
            high = math.ceil(self.high) - 1 if self.high_open else math.floor(self.high)
        return low, high

    def around_excluded(self) -> list[NumberBounds]:
        """The same numbers as several ranges, between which the excluded ones lie."""
        parts: list[NumberBounds] = []
        rest = replace(self, excluded=())
        for gap in sorted(number for number in self.excluded if rest.admit(number)):
            parts.append(rest.from_above(gap, open=True))
            rest = rest.from_below(gap, open=True)
        return [part for part in [*parts, rest] if not part.is_empty()]
