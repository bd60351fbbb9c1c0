"""Ranges of digits: from this number to that one, as rules over text.

Numbers here have no sign. An integer is a string of digits, a fraction the digits after the point.
"""

from __future__ import annotations

import math
from fractions import Fraction

from moot.xprotocol.grammar.grammar_limits import (
    INTEGER_DIGITS,
    LARGEST_DOUBLE,
    LEADING_ZEROS,
    NEARLY_LARGEST_DOUBLE,
    SMALLEST_DOUBLE,
)
from moot.xprotocol.grammar.language.charsets import CharSet, charset
from moot.xprotocol.grammar.rule_book import EMPTY, NEVER, Chars, Expr, Lit, Rep, alt, joined, opt


def digit(low: int, high: int) -> Expr:
    if low > high:
        return NEVER
    if low == high:
        return Lit(str(low))
    return Chars(_digits(low, high))


def _digits(low: int, high: int) -> CharSet:
    return charset((ord("0") + low, ord("0") + high))


# Digits before an exponent, and the largest exponent that always fits a double with so many.
MANTISSA_DIGITS = 20
LARGEST_EXPONENT = INTEGER_DIGITS - MANTISSA_DIGITS
# Doubles that Python writes with an exponent begin at 1e16; they have at most 16 digits after the point.
_FRACTION_DIGITS = 16

ANY = digit(0, 9)
SOME_DIGITS = Rep(ANY, 0, None)


def whole_numbers(low: int, high: int | None) -> Expr:
    """The integers from `low` (at least 0) to `high`, without leading zeros."""
    if high is None or len(str(high)) > INTEGER_DIGITS:
        high = 10**INTEGER_DIGITS - 1
    if low > high:
        return NEVER
    ways: list[Expr] = []
    start = low
    if start == 0:
        ways.append(Lit("0"))
        start = 1
    while start <= high:
        width = len(str(start))
        end = min(high, 10**width - 1)
        if start == 10 ** (width - 1) and end == 10**width - 1:
            # All numbers of some widths in a row: one way for all of them.
            widest = len(str(high + 1)) - 1
            ways.append(joined(digit(1, 9), _exactly_or_up_to(width - 1, widest - 1)))
            start = 10**widest
            continue
        ways += same_width(str(start), str(end))
        start = end + 1
    return alt(*ways)


def _exactly_or_up_to(low: int, high: int) -> Expr:
    if high == 0:
        return EMPTY
    if (low, high) == (1, 1):
        return ANY
    return opt(ANY) if (low, high) == (0, 1) else Rep(ANY, low, high)


def same_width(low: str, high: str) -> list[Expr]:
    """The numbers between two of the same width, leading zeros kept."""
    if not low:
        return [EMPTY]
    if set(low) == {"0"} and set(high) == {"9"}:
        return [_exactly_or_up_to(len(low), len(low))]
    first, last = int(low[0]), int(high[0])
    if first == last:
        return [joined(Lit(low[0]), alt(*same_width(low[1:], high[1:])))]
    rest = len(low) - 1
    ways: list[Expr] = []
    if low[1:].strip("0"):
        ways.append(joined(Lit(low[0]), alt(*same_width(low[1:], "9" * rest))))
        first += 1
    upper: list[Expr] = []
    if high[1:].strip("9"):
        upper.append(joined(Lit(high[0]), alt(*same_width("0" * rest, high[1:]))))
        last -= 1
    if first <= last:
        ways.append(joined(digit(first, last), _exactly_or_up_to(rest, rest)))
    return ways + upper


def split(number: Fraction) -> tuple[int, str]:
    """Integer part and the digits after the point of a number that has finitely many."""
    whole, rest = divmod(number, 1)
    digits = ""
    while rest:
        up, rest = divmod(rest * 10, 1)
        digits += str(int(up))
    return int(whole), digits


def plain_decimals(low: Fraction, high: Fraction | None) -> Expr:
    """Numbers from `low` to `high` in plain notation, both included; both have finitely many digits.

    `low` 0 means more than nothing: zero itself is written elsewhere.
    """
    if low == 0:
        if high is not None and high < 1:
            return joined(Lit("0."), _small(split(high)[1]))
        return alt(joined(Lit("0."), _after_zeros()), _from_whole(1, "", high))
    return _from_whole(*split(low), high)


def _from_whole(least: int, least_rest: str, high: Fraction | None) -> Expr:
    if high is None:
        if not least_rest:
            return joined(whole_numbers(least, None), _fraction_from(""))
        first = joined(Lit(str(least)), _fraction_from(least_rest))
        return alt(first, joined(whole_numbers(least + 1, None), _fraction_from("")))
    most, most_rest = split(high)
    if least == most:
        return joined(Lit(str(least)), _fraction_between(least_rest, most_rest))
    ways = [joined(Lit(str(least)), _fraction_from(least_rest))] if least_rest else []
    middle = whole_numbers(least + 1 if least_rest else least, most - 1)
    ways.append(joined(middle, _fraction_from("")))
    ways.append(joined(Lit(str(most)), _fraction_between("", most_rest)))
    return alt(*ways)


def _after_zeros() -> Expr:
    """Digits that are not all zero; the zeros before the first other digit are few enough for a double."""
    return joined(Rep(Lit("0"), 0, LEADING_ZEROS), digit(1, 9), SOME_DIGITS)


def _small(most: str) -> Expr:
    """Digits after `0.` that say more than nothing and at most `0.most`."""
    zeros = len(most) - len(most.lstrip("0"))
    lead, rest = most[:zeros], most[zeros:]
    ways: list[Expr] = []
    # Smaller by more zeros, or by what follows the same zeros.
    room = LEADING_ZEROS - zeros - 1
    if room > 0:
        ways.append(joined(Lit(lead + "0"), Rep(Lit("0"), 0, room), digit(1, 9), SOME_DIGITS))
    first = int(rest[0])
    if first > 1:
        ways.append(joined(*_lit(lead), digit(1, first - 1), SOME_DIGITS))
    ways.append(joined(*_lit(lead), Lit(rest[0]), _up_to(rest[1:])))
    return alt(*ways)


def _lit(words: str) -> list[Expr]:
    return [Lit(words)] if words else []


def _fraction_from(least: str) -> Expr:
    """The point and digits (or nothing) worth at least `0.least`."""
    if not least:
        return opt(joined(Lit("."), Rep(ANY, 1, None)))
    return joined(Lit("."), _at_least(least))


def _at_least(least: str) -> Expr:
    """Digits whose value is not below these, which do not end in zero."""
    if not least:
        return SOME_DIGITS
    first = int(least[0])
    ways = [joined(digit(first + 1, 9), SOME_DIGITS)] if first < 9 else []
    return alt(*ways, joined(Lit(least[0]), _at_least(least[1:])))


def _up_to(most: str) -> Expr:
    """Digits, or none, whose value is not above these."""
    if not most:
        return Rep(Lit("0"), 0, None)
    return opt(_some_up_to(most))


def _some_up_to(most: str) -> Expr:
    first = int(most[0])
    ways = [joined(digit(0, first - 1), SOME_DIGITS)] if first > 0 else []
    return alt(*ways, joined(Lit(most[0]), _up_to(most[1:])))


def _fraction_between(least: str, most: str) -> Expr:
    """The point and digits (or nothing, if that is enough) from `0.least` to `0.most`."""
    if not least and not most:
        return opt(joined(Lit("."), Rep(Lit("0"), 1, None)))
    if not least:
        return opt(joined(Lit("."), _some_up_to(most)))
    return joined(Lit("."), _between(least, most))


def _between(least: str, most: str) -> Expr:
    if not least:
        return _up_to(most)
    if not most:
        return NEVER
    low, high = int(least[0]), int(most[0])
    if low == high:
        return joined(Lit(least[0]), _between(least[1:], most[1:]))
    ways = [joined(Lit(least[0]), _at_least(least[1:]))]
    if high - low > 1:
        ways.append(joined(digit(low + 1, high - 1), SOME_DIGITS))
    ways.append(joined(Lit(most[0]), _up_to(most[1:])))
    return alt(*ways)


def scientific(low: Fraction, high: Fraction) -> Expr:
    """The same numbers as one digit, a fraction and an exponent; `low` is above 0."""
    least, most = _magnitude(low), _magnitude(high)
    least_part, most_part = low / Fraction(10) ** least, high / Fraction(10) ** most
    if least == most:
        return joined(plain_decimals(least_part, most_part), exponents(least, least))
    ways: list[Expr] = []
    first = least
    if least_part != 1:
        ways.append(joined(_mantissas_from(least_part), exponents(least, least)))
        first += 1
    if first < most:
        ways.append(joined(digit(1, 9), _fraction_from(""), exponents(first, most - 1)))
    ways.append(joined(plain_decimals(Fraction(1), most_part), exponents(most, most)))
    return alt(*ways)


def _mantissas_from(least: Fraction) -> Expr:
    whole, rest = split(least)
    ways = [joined(Lit(str(whole)), _fraction_from(rest))]
    if whole < 9:
        ways.append(joined(digit(whole + 1, 9), _fraction_from("")))
    return alt(*ways)


def _magnitude(number: Fraction) -> int:
    """The exponent of ten that leaves one digit before the point."""
    guess = math.floor(math.log10(number.numerator) - math.log10(number.denominator))
    while Fraction(10) ** (guess + 1) <= number:
        guess += 1
    while Fraction(10) ** guess > number:
        guess -= 1
    return guess


def exponents(low: int, high: int) -> Expr:
    """`e` with every exponent from `low` to `high`; one leading zero is what C and Python write."""
    ways: list[Expr] = []
    if high >= 0:
        ways.append(joined(opt(Lit("+")), _padded(max(low, 0), high)))
    if low < 0:
        ways.append(joined(Lit("-"), _padded(max(-high, 1), -low)))
    return joined(Chars(charset((ord("e"), ord("e")), (ord("E"), ord("E")))), alt(*ways))


def _padded(low: int, high: int) -> Expr:
    short = joined(opt(Lit("0")), digit(low, min(high, 9))) if low <= 9 else NEVER
    return alt(short, whole_numbers(max(low, 10), high))


def point_zeros() -> Expr:
    """Nothing, or a point and zeros."""
    return opt(joined(Lit("."), Rep(Lit("0"), 1, None)))


def zero() -> Expr:
    """Nothing, as 0, 0.00 or 0e5."""
    return joined(Lit("0"), point_zeros(), opt(exponents(-LARGEST_EXPONENT, LARGEST_EXPONENT)))


def every_whole(*, zero: bool) -> Expr:
    """All whole numbers but for the sign, with or without an exponent; those that are zero, if wanted."""
    zeros = Rep(Lit("0"), 0, None)
    tails = [joined(Rep(Lit("0"), 1, None), opt(exponents(0, LARGEST_EXPONENT)))]
    for places in range(1, _FRACTION_DIGITS + 1):
        # So many digits after the point need an exponent that moves it past them.
        last = LARGEST_EXPONENT if places == _FRACTION_DIGITS else places
        tails.append(joined(Rep(ANY, 1, places), zeros, exponents(places, last)))
    tail = opt(alt(joined(Lit("."), alt(*tails)), exponents(0, LARGEST_EXPONENT)))
    natural = joined(digit(1, 9), Rep(ANY, 0, MANTISSA_DIGITS - 1))
    point = opt(joined(Lit("."), Rep(ANY, 1, _FRACTION_DIGITS)))
    return alt(
        joined(alt(Lit("0"), natural) if zero else natural, tail),
        joined(digit(1, 9), Rep(ANY, MANTISSA_DIGITS, INTEGER_DIGITS - 1), point_zeros()),
        joined(digit(1, 9), point, exponents(LARGEST_EXPONENT + 1, INTEGER_DIGITS - 1)),
    )


def every_number(*, zero: bool) -> Expr:
    """All numbers but for the sign, with or without an exponent; those that are zero, if wanted."""
    small, large = Fraction(SMALLEST_DOUBLE), Fraction(NEARLY_LARGEST_DOUBLE)
    natural = joined(digit(1, 9), Rep(ANY, 0, MANTISSA_DIGITS - 1))
    power = exponents(-LARGEST_EXPONENT, LARGEST_EXPONENT)
    return alt(
        joined(alt(Lit("0"), natural) if zero else natural, _fraction_from(""), opt(power)),
        *([] if zero else [joined(Lit("0."), _after_zeros())]),
        joined(digit(1, 9), Rep(ANY, MANTISSA_DIGITS, INTEGER_DIGITS - 1), _fraction_from("")),
        scientific(small, Fraction(10) ** -LARGEST_EXPONENT),
        scientific(Fraction(10) ** LARGEST_EXPONENT, large),
        scientific(Fraction(LARGEST_DOUBLE), Fraction(LARGEST_DOUBLE)),
    )


def not_whole(low: int, high: int | None) -> Expr:
    """Numbers above 0 that are not whole, from one whole number to another.

    Nor does a reader of doubles take them for whole: those that are closer to one than that are left out.
    """
    most = 10**_DOUBLE if high is None else min(high, 10**_DOUBLE)
    ways: list[Expr] = []
    if low == 0 and most > 0:
        ways.append(joined(Lit("0."), _between_whole(_DOUBLE, LEADING_ZEROS)))
        ways.append(joined(digit(1, 9), _fraction_from(""), exponents(-_TINIEST, -2)))
    for width in range(1, _DOUBLE):
        whole = whole_numbers(max(low, 10 ** (width - 1)), min(most, 10**width) - 1)
        ways.append(joined(whole, Lit("."), _between_whole(_DOUBLE - width, _DOUBLE - width - 1)))
    return alt(*ways)


# Digits that always tell a double from a whole number, and the exponent under which a double may be zero.
_DOUBLE = 16
_TINIEST = 323


def _between_whole(places: int, zeros: int) -> Expr:
    """Digits after the point that do not begin with so many nines, or with more than so many zeros."""
    ways = [joined(digit(1, 8), SOME_DIGITS)]
    if zeros > 0:
        ways.append(joined(Rep(Lit("0"), 1, zeros), digit(1, 9), SOME_DIGITS))
    if places > 1:
        ways.append(joined(Rep(Lit("9"), 1, places - 1), opt(joined(digit(0, 8), SOME_DIGITS))))
    return alt(*ways)
