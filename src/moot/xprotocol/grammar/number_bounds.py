"""Bounds of numbers: a range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class NumberBounds:
    """`low_open` and `high_open`: the bound itself is out."""

    low: Fraction | None = None
    low_open: bool = False
    high: Fraction | None = None
    high_open: bool = False

    def from_below(self, bound: Fraction, *, open: bool) -> NumberBounds:
        """With this lower bound, too."""
        if self.low is not None and (self.low, self.low_open) >= (bound, open):
            return self
        return NumberBounds(bound, open, self.high, self.high_open)

    def from_above(self, bound: Fraction, *, open: bool) -> NumberBounds:
        if self.high is not None and (self.high, not self.high_open) <= (bound, not open):
            return self
        return NumberBounds(self.low, self.low_open, bound, open)

    def admit(self, number: Fraction) -> bool:
        if self.low is not None and (number < self.low or (self.low_open and number == self.low)):
            return False
        return self.high is None or not (number > self.high or (self.high_open and number == self.high))

    def whole(self) -> tuple[int | None, int | None]:
        """The first and the last integer within the bounds."""
        low = high = None
        if self.low is not None:
            low = math.floor(self.low) + 1 if self.low_open else math.ceil(self.low)
        if self.high is not None:
            high = math.ceil(self.high) - 1 if self.high_open else math.floor(self.high)
        return low, high
