"""Numbers and integers within bounds.

An integer is written without point and exponent. Other numbers come in the two notations that JSON writers
use: plain, and one digit with a fraction and an exponent (`5e-05`). Both obey the bounds. Bounds count as
real numbers, but a reader sees doubles: 0.99999999999999999 is 1 to it. So an exclusive bound ends where
the nearest double does, which loses no number that a writer could have meant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import count

from moot.xprotocol.grammar.charsets import chars
from moot.xprotocol.grammar.decimals import digit, exponents, plain_decimals, scientific, whole_numbers
from moot.xprotocol.grammar.grammar_limits import (
    INTEGER_DIGITS,
    LARGEST_DOUBLE,
    LISTED_MULTIPLES,
    NEARLY_LARGEST_DOUBLE,
    SMALLEST_DOUBLE,
)
from moot.xprotocol.grammar.rule_book import NEVER, Chars, Expr, Lit, Rep, RuleBook, alt, opt, seq
from moot.xprotocol.grammar.strings import Note

_LARGEST, _SMALLEST = Fraction(LARGEST_DOUBLE), Fraction(SMALLEST_DOUBLE)
_NEARLY_LARGEST = Fraction(NEARLY_LARGEST_DOUBLE)


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


def integer(book: RuleBook, bounds: NumberBounds, *, hint: str, note: Note) -> Expr:
    """The integers within the bounds."""
    low, high = bounds.whole()
    unit = _common_multiple(bounds.multiples)
    excluded = {int(number) for number in bounds.excluded if number.denominator == 1}
    if unit != 1 or excluded:
        listed = _listed(low, high, unit, excluded)
        if listed is not None:
            return book.rule(hint, listed) if listed != NEVER else NEVER
        if unit != 1:
            if excluded:
                note("not all listed numbers are kept out")
            return _multiples(book, low, high, unit, hint=hint, note=note)
        ways = [_integers(book, *part.whole(), hint=hint) for part in _around_excluded(bounds)]
        return book.rule(hint, alt(*ways))
    return _integers(book, low, high, hint=hint)


def _around_excluded(bounds: NumberBounds) -> list[NumberBounds]:
    """The same numbers as several ranges, between which the excluded ones lie."""
    parts: list[NumberBounds] = []
    rest = replace(bounds, excluded=())
    for gap in sorted(number for number in bounds.excluded if rest.admit(number)):
        parts.append(rest.from_above(gap, open=True))
        rest = rest.from_below(gap, open=True)
    return [part for part in [*parts, rest] if not part.is_empty()]


def _integers(book: RuleBook, low: int | None, high: int | None, *, hint: str) -> Expr:
    if low is not None and high is not None and low > high:
        return NEVER
    if low is None and high is None:
        return book.shared(
            "integer", alt(Lit("0"), seq(opt(Lit("-")), digit(1, 9), Rep(digit(0, 9), 0, INTEGER_DIGITS - 1)))
        )
    ways: list[Expr] = []
    if high is None or high >= 0:
        ways.append(whole_numbers(max(low or 0, 0), high))
    if low is None or low < 0:
        least = 1 if high is None else max(1, -high)
        ways.append(seq(Lit("-"), whole_numbers(least, None if low is None else -low)))
    return book.rule(hint, alt(*ways))


def _common_multiple(multiples: tuple[Fraction, ...]) -> int:
    """The integers that are multiples of all these are the multiples of this one."""
    unit = 1
    for each in multiples:
        # n is a multiple of p/q in lowest terms exactly if p divides n.
        unit = math.lcm(unit, each.numerator)
    return unit


def _listed(low: int | None, high: int | None, unit: int, excluded: set[int]) -> Expr | None:
    if low is None or high is None:
        return None
    start = -(-low // unit) * unit
    if (high - start) // unit >= LISTED_MULTIPLES:
        return None
    return alt(*(Lit(str(n)) for n in range(start, high + 1, unit) if n not in excluded))


def _multiples(
    book: RuleBook, low: int | None, high: int | None, unit: int, *, hint: str, note: Note
) -> Expr:
    """Multiples of what divides a power of ten, by their last digits; others are noted."""
    width = next((n for n in count(1) if 10**n % unit == 0 or n > 3), 4)
    # Beside another bound than zero the last digits would have to be counted along.
    simple = (low is None or -unit < low <= unit) and (high is None or -unit <= high < unit)
    if width > 3 or not simple:
        note(f"multipleOf {unit} is not enforced")
        return _integers(book, low, high, hint=hint)
    endings = alt(*(Lit(str(n).zfill(width)) for n in range(0, 10**width, unit)))
    long = seq(digit(1, 9), Rep(digit(0, 9), 0, INTEGER_DIGITS - 1 - width), endings)
    short = alt(*(Lit(str(n)) for n in range(unit, 10**width, unit)))
    above = alt(short, long)
    ways: list[Expr] = [Lit("0")] if (low or 0) <= 0 <= (high or 0) else []
    if high is None:
        ways.append(above)
    if low is None:
        ways.append(seq(Lit("-"), above))
    return book.rule(hint, alt(*ways))


def number(book: RuleBook, bounds: NumberBounds, *, hint: str, note: Note) -> Expr:
    """The numbers within the bounds, integers among them."""
    if bounds.multiples:
        if all(unit.denominator == 1 for unit in bounds.multiples):
            return _whole_as_number(book, bounds, hint=hint, note=note)
        units = ", ".join(str(float(unit)) for unit in bounds.multiples)
        note(f"multipleOf {units} is not enforced")
    if bounds.excluded:
        without = replace(bounds, multiples=())
        parts = [number(book, part, hint=hint, note=note) for part in _around_excluded(without)]
        return book.rule(hint, alt(*parts))
    low, high = _closed_low(bounds), _closed_high(bounds)
    if low is not None and high is not None and low > high:
        return NEVER
    if low is None and high is None:
        return book.shared("number", seq(opt(Lit("-")), alt(_zero(), _magnitudes(Fraction(0), None))))
    ways: list[Expr] = []
    if _holds_zero(bounds):
        ways.append(seq(opt(Lit("-")), _zero()))
    if high is None or high > 0:
        ways.append(_magnitudes(max(low or Fraction(0), Fraction(0)), high))
    if low is None or low < 0:
        least = Fraction(0) if high is None or high >= 0 else -high
        ways.append(seq(Lit("-"), _magnitudes(least, None if low is None else -low)))
    whole = alt(*ways)
    return NEVER if whole == NEVER else book.rule(hint, whole)


def _whole_as_number(book: RuleBook, bounds: NumberBounds, *, hint: str, note: Note) -> Expr:
    """Integers where the type is number: 5 may come as 5.0, and 1e16 as its writer's double."""
    zeros = opt(seq(Lit("."), Rep(Lit("0"), 1, None)))
    ways = [seq(integer(book, bounds, hint=hint, note=note), zeros)]
    if _common_multiple(bounds.multiples) == 1 and bounds.low is bounds.high is None:
        ways.append(seq(Lit("-0"), zeros))
        # With at most 16 digits after the point these are whole.
        mantissa = seq(digit(1, 9), opt(seq(Lit("."), Rep(digit(0, 9), 1, 16))))
        ways.append(seq(opt(Lit("-")), mantissa, exponents(16, 307)))
    return book.rule(hint, alt(*ways))


def _zero() -> Expr:
    return seq(Lit("0"), opt(seq(Lit("."), Rep(Lit("0"), 1, None))))


def _holds_zero(bounds: NumberBounds) -> bool:
    return NumberBounds(bounds.low, bounds.low_open, bounds.high, bounds.high_open).admit(Fraction(0))


def _magnitudes(low: Fraction, high: Fraction | None) -> Expr:
    """More than 0, from `low` to `high`, in both notations."""
    if high is not None and high <= 0:
        return NEVER
    least, most = max(low, _SMALLEST), _LARGEST if high is None else min(high, _LARGEST)
    if least > most:
        return NEVER
    plain = plain_decimals(low, high) if low < 10**INTEGER_DIGITS else NEVER
    if most == _LARGEST and least < _NEARLY_LARGEST:
        return alt(plain, scientific(least, _NEARLY_LARGEST), scientific(_LARGEST, _LARGEST))
    return alt(plain, scientific(least, most))


def _closed_low(bounds: NumberBounds) -> Fraction | None:
    if bounds.low is None or not bounds.low_open:
        return bounds.low
    return _past(bounds.low, math.inf)


def _closed_high(bounds: NumberBounds) -> Fraction | None:
    if bounds.high is None or not bounds.high_open:
        return bounds.high
    return _past(bounds.high, -math.inf)


def _past(bound: Fraction, towards: float) -> Fraction:
    """The first number past an exclusive bound that a reader of doubles tells from it.

    Seventeen digits are as many as any double needs, so between two doubles there is always one with so many.
    """
    if bound == 0:
        return Fraction(0)
    at = float(bound)
    beyond = math.nextafter(at, towards)
    if math.isinf(at) or math.isinf(beyond):
        return bound
    middle = (Fraction(at) + Fraction(beyond)) / 2
    exponent = 17 - len(str(abs(int(middle)))) if abs(middle) >= 1 else 17 + _zeros_of(middle)
    scaled = middle * Fraction(10) ** exponent
    rounded = math.ceil(scaled) if towards > 0 else math.floor(scaled)
    result = Fraction(rounded) / Fraction(10) ** exponent
    # A bound that is no double itself (0.1 written out) may lie past the middle.
    return max(result, bound) if towards > 0 else min(result, bound)


def _zeros_of(number: Fraction) -> int:
    zeros = 0
    while abs(number) * 10 < 1:
        number *= 10
        zeros += 1
    return zeros


def literal_number(value: int | float) -> Expr:
    """A listed number as JSON writers spell it: 2.0 also as 2, 1e-07 also as 1e-7 and 0.0000001."""
    if isinstance(value, int):
        return Lit(str(value))
    spellings: list[Expr] = [Lit(repr(value))]
    if value.is_integer() and abs(value) < 1e21:
        spellings.append(Lit(str(int(value))))
    mantissa, e, exponent = repr(value).partition("e")
    if e:
        sign = opt(Lit("+")) if int(exponent) >= 0 else Lit("-")
        power = seq(opt(Lit("0")), Lit(str(abs(int(exponent)))))
        spellings.append(seq(Lit(mantissa), Chars(chars("eE")), sign, power))
        if -10 < int(exponent) < 0:
            spellings.append(Lit(format(Decimal(repr(value)), "f")))
    return alt(*spellings)
