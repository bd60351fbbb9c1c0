"""Integers within bounds, in the spellings that JSON has for them.

To JSON Schema 1.0 and 12e5 are integers like 1 and 1200000 (to draft 4 they are not). So a whole number may
end in `.0`, and may have an exponent that leaves it whole. At most 20 digits stand before an exponent, so
that no reader of doubles meets an infinite number.
"""

from __future__ import annotations

import math
from fractions import Fraction

from moot.xprotocol.grammar.grammar_limits import INTEGER_DIGITS, LISTED_MULTIPLES
from moot.xprotocol.grammar.number.decimals import (
    ANY,
    LARGEST_EXPONENT,
    MANTISSA_DIGITS,
    digit,
    every_whole,
    exponents,
    point_zeros,
    whole_numbers,
    zero,
)
from moot.xprotocol.grammar.number.multiples import multiples
from moot.xprotocol.grammar.number.number_bounds import NumberBounds
from moot.xprotocol.grammar.rule_book import NEVER, Expr, Lit, Rep, RuleBook, alt, joined, opt, seq
from moot.xprotocol.grammar.strings import Note


def integer(
    book: RuleBook, bounds: NumberBounds, *, hint: str, note: Note, only_digits: bool = False
) -> Expr:
    """The integers within the bounds; `only_digits`: without point and exponent, as draft 4 has it."""
    unit = _common_multiple(bounds.multiples)
    low, high = bounds.whole()
    excluded = {int(number) for number in bounds.excluded if number.denominator == 1}
    if unit != 1 or excluded:
        listed = _listed(low, high, unit, excluded)
        if listed is not None:
            return book.rule(hint, listed if only_digits else seq(listed, point_zeros()))
        if unit != 1:
            if excluded:
                note("not all listed numbers are kept out")
            found = multiples(book, bounds, Fraction(unit), hint=hint, only_digits=only_digits)
            if found is not None:
                return found
            note(f"multipleOf {unit} is not enforced")
            excluded = set()
    if excluded:
        ranges = [part.whole() for part in bounds.around_excluded()]
        ways = [_integers(book, *each, hint=hint, only_digits=only_digits) for each in ranges]
        return book.rule(hint, alt(*ways))
    return _integers(book, low, high, hint=hint, only_digits=only_digits)


def _integers(book: RuleBook, low: int | None, high: int | None, *, hint: str, only_digits: bool) -> Expr:
    if low is not None and high is not None and low > high:
        return NEVER
    if low is None and high is None:
        digits = alt(Lit("0"), joined(digit(1, 9), Rep(digit(0, 9), 0, INTEGER_DIGITS - 1)))
        return book.shared("integer", seq(opt(Lit("-")), digits if only_digits else every_whole(zero=True)))
    ways: list[Expr] = []
    if high is None or high >= 0:
        ways.append(_magnitudes(max(low or 0, 0), high, only_digits))
    if low is None or low < 0:
        least = 1 if high is None else max(1, -high)
        ways.append(joined(Lit("-"), _magnitudes(least, None if low is None else -low, only_digits)))
    if not only_digits and (low or 0) <= 0 <= (high or 0):
        ways.append(joined(Lit("-"), zero()))
    return book.rule(hint, alt(*ways))


def _magnitudes(low: int, high: int | None, only_digits: bool) -> Expr:
    """From `low` (at least 0) to `high`, without a sign."""
    digits = whole_numbers(low, high)
    if only_digits or digits == NEVER:
        return digits
    if high is None and low <= 1:
        return every_whole(zero=low == 0)
    return alt(joined(digits, point_zeros()), *bounded_scientific(low, high))


def bounded_scientific(low: int, high: int | None) -> list[Expr]:
    """Whole numbers before each exponent that the bounds leave room for."""
    if high is not None and low > high:
        return []
    ways: list[Expr] = []
    last = min(len(str(low if high is None else high)), MANTISSA_DIGITS)
    for exponent in range(last):
        power = 10**exponent
        most = 10**MANTISSA_DIGITS - 1 if high is None else min(high // power, 10**MANTISSA_DIGITS - 1)
        whole = whole_numbers(-(-low // power), most)
        ways.append(joined(whole, point_zeros(), exponents(exponent, exponent)))
    if high is None:
        whole = joined(digit(1, 9), Rep(ANY, 0, MANTISSA_DIGITS - 1), point_zeros())
        ways.append(joined(whole, exponents(last, LARGEST_EXPONENT)))
    return ways


def _common_multiple(units: tuple[Fraction, ...]) -> int:
    """The integers that are multiples of all these are the multiples of this one."""
    unit = 1
    for each in units:
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
