"""Numbers within bounds.

They come in the two notations that JSON writers use: plain, and one digit with a fraction and an exponent
(`5e-05`); where no bound but zero is near, other digits may stand before the exponent (`12e5`). All obey the
bounds. Bounds count as real numbers, but a reader sees doubles: 0.99999999999999999 is 1 to it. So an
exclusive bound ends where the nearest double does, which loses no number that a writer could have meant.
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from moot.xprotocol.grammar.grammar_limits import (
    INTEGER_DIGITS,
    LARGEST_DOUBLE,
    LEADING_ZEROS,
    NEARLY_LARGEST_DOUBLE,
    SMALLEST_DOUBLE,
)
from moot.xprotocol.grammar.number.decimals import (
    every_number,
    exponents,
    not_whole,
    plain_decimals,
    point_zeros,
    scientific,
    zero,
)
from moot.xprotocol.grammar.number.integers import bounded_scientific, integer
from moot.xprotocol.grammar.number.multiples import multiples
from moot.xprotocol.grammar.number.number_bounds import NumberBounds
from moot.xprotocol.grammar.rule_book import NEVER, Expr, Lit, Rep, RuleBook, alt, joined, opt, seq
from moot.xprotocol.grammar.strings import Note

_LARGEST, _SMALLEST = Fraction(LARGEST_DOUBLE), Fraction(SMALLEST_DOUBLE)
_NEARLY_LARGEST = Fraction(NEARLY_LARGEST_DOUBLE)


def number(book: RuleBook, bounds: NumberBounds, *, hint: str, note: Note) -> Expr:
    """The numbers within the bounds, integers among them."""
    if bounds.multiples:
        found = _multiples(book, bounds, hint=hint, note=note)
        if found is not None:
            return found
    if bounds.excluded:
        without = replace(bounds, multiples=())
        parts = [number(book, part, hint=hint, note=note) for part in without.around_excluded()]
        return book.rule(hint, alt(*parts))
    low, high = _closed_low(bounds), _closed_high(bounds)
    if low is not None and high is not None and low > high:
        return NEVER
    if low is None and high is None:
        return book.shared("number", seq(opt(Lit("-")), every_number(zero=True)))
    ways: list[Expr] = []
    if _holds_zero(bounds):
        ways.append(seq(opt(Lit("-")), zero()))
    if high is None or high > 0:
        ways.append(_magnitudes(max(low or Fraction(0), Fraction(0)), high))
        ways += _whole_scientific(low, high)
    if low is None or low < 0:
        least = Fraction(0) if high is None or high >= 0 else -high
        most = None if low is None else -low
        ways.append(seq(Lit("-"), _magnitudes(least, most)))
        ways += [seq(Lit("-"), each) for each in _whole_scientific(least, most)]
    whole = alt(*ways)
    return NEVER if whole == NEVER else book.rule(hint, whole)


def _multiples(book: RuleBook, bounds: NumberBounds, *, hint: str, note: Note) -> Expr | None:
    if all(unit.denominator == 1 for unit in bounds.multiples):
        return integer(book, bounds, hint=hint, note=note)
    # A multiple of a/b and of c/d, in lowest terms, is one of lcm(a, c)/gcd(b, d).
    numerators, denominators = zip(*(unit.as_integer_ratio() for unit in bounds.multiples), strict=True)
    unit = Fraction(math.lcm(*numerators), math.gcd(*denominators))
    found = multiples(book, bounds, unit, hint=hint)
    if found is None:
        units = ", ".join(str(float(unit)) for unit in bounds.multiples)
        note(f"multipleOf {units} is not enforced")
    elif any(bounds.excluded):
        note("not all listed numbers are kept out")
    return found


def fraction(book: RuleBook, bounds: NumberBounds, *, hint: str, note: Note) -> Expr:
    """The numbers within the bounds that are not whole."""
    low, high = bounds.low, bounds.high
    edges = [edge for edge in (low, high, *bounds.excluded) if edge is not None]
    if bounds.multiples or any(edge.denominator != 1 for edge in edges):
        note("not is not fully enforced: numbers may be whole")
        return number(book, bounds, hint=hint, note=note)
    ways: list[Expr] = []
    if high is None or high > 0:
        ways.append(not_whole(max(int(low or 0), 0), None if high is None else int(high)))
    if low is None or low < 0:
        least = 0 if high is None or high >= 0 else int(-high)
        ways.append(seq(Lit("-"), not_whole(least, None if low is None else int(-low))))
    whole = alt(*ways)
    return NEVER if whole == NEVER else book.rule(hint, whole)


def _whole_scientific(low: Fraction | None, high: Fraction | None) -> list[Expr]:
    """Whole numbers with an exponent, and any digits before it."""
    if high is None and (low is None or low <= 0):
        return []
    most = None if high is None else math.floor(high)
    return bounded_scientific(max(1, math.ceil(low or 0)), most)


def _holds_zero(bounds: NumberBounds) -> bool:
    return NumberBounds(bounds.low, bounds.low_open, bounds.high, bounds.high_open).admit(Fraction(0))


def _magnitudes(low: Fraction, high: Fraction | None) -> Expr:
    """More than 0, from `low` to `high`, in both notations."""
    if low == 0 and high is None:
        return every_number(zero=False)
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
    """A listed number as JSON writers spell it: 2 also as 2.0 and 2e0, 1e-07 also as 1e-7 and 0.0000001."""
    exact = Decimal(repr(value))
    spellings: list[Expr] = [Lit(repr(value))]
    sign, digits, exponent = exact.normalize().as_tuple()
    if not isinstance(exponent, int):
        raise AssertionError(f"{value} is no JSON number")
    if abs(exact) < Decimal("1e308") and exponent > -LEADING_ZEROS:
        plain = format(exact, "f")
        whole, _, rest = plain.partition(".")
        zeros = Rep(Lit("0"), 0, None)
        tail = joined(Lit("." + rest.rstrip("0")), zeros) if rest.rstrip("0") else point_zeros()
        # With one digit before the point, or none behind it, the forms below have an exponent of 0, too.
        zeroth = [opt(exponents(0, 0))] if exponent and len(whole.lstrip("-")) > 1 else []
        spellings.append(joined(Lit(whole), tail, *zeroth))
        if not exact:
            return joined(opt(Lit("-")), zero())
    # One digit before the point; and all digits there, before an exponent that is not negative.
    minus = [Lit("-")] if sign else []
    first, more = str(digits[0]), "".join(map(str, digits[1:]))
    power = exponent + len(more)
    tail = joined(Lit("." + more), Rep(Lit("0"), 0, None)) if more else point_zeros()
    spellings.append(joined(*minus, Lit(first), tail, exponents(power, power)))
    if exponent >= 0 and more:
        spellings.append(joined(*minus, Lit(first + more), point_zeros(), exponents(exponent, exponent)))
    return alt(*spellings)
