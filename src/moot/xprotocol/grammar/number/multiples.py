"""Multiples of a unit (`multipleOf`), as an automaton that divides while it reads.

Reading a digit takes the remainder r to 10r + d. A unit with decimals is a whole unit of the last of them:
4.5 is a multiple of 1.5 as 45 is one of 15. Multiples are written without an exponent, and with so few digits
that a double keeps them all.
"""

from __future__ import annotations

from fractions import Fraction

from moot.xprotocol.grammar.grammar_limits import (
    DECIMAL_PLACES,
    DIVISION_STATES,
    DOUBLE_DIGITS,
    INTEGER_DIGITS,
    MULTIPLE_DIGITS,
    REMAINDERS,
)
from moot.xprotocol.grammar.language.automata import Automaton, TooLarge, smallest
from moot.xprotocol.grammar.language.charsets import chars
from moot.xprotocol.grammar.language.states import chain
from moot.xprotocol.grammar.number.decimals import digit, every_whole, point_zeros
from moot.xprotocol.grammar.number.number_bounds import NumberBounds
from moot.xprotocol.grammar.rule_book import NEVER, Expr, Lit, Rep, RuleBook, alt, joined, opt

_CHARACTERS = "0123456789."
# Before anything, after a leading zero, among the digits before the point, after the point.
_START, _ZERO, _WHOLE, _POINT = -3, -2, -1, 0
# Remainder, whether a digit was not 0, one of the above or the digits after the point, and all digits.
_State = tuple[int, bool, int, int]
# Multiples that show in so many last digits need no division.
_ENDING = 3


def multiples(
    book: RuleBook, bounds: NumberBounds, unit: Fraction, *, hint: str, only_digits: bool = False
) -> Expr | None:
    """The multiples of `unit`; `None` if there is no grammar for them, or none that keeps the bounds."""
    places = next((n for n in range(DECIMAL_PLACES + 1) if (unit * 10**n).denominator == 1), None)
    if places is None or int(unit * 10**places) > REMAINDERS:
        return None
    whole = int(unit * 10**places)
    # The first multiple above zero and below it: bounds further out would have to be read along.
    low, high = bounds.low, bounds.high
    if (low is not None and not -unit < low <= unit) or (high is not None and not -unit <= high < unit):
        return None
    if (low == unit and bounds.low_open) or (high == -unit and bounds.high_open):
        return None
    try:
        magnitudes = _magnitudes(book, whole, places, hint=hint, only_digits=only_digits)
    except TooLarge:
        return None
    if magnitudes is None:
        return None
    zero = NumberBounds(low, bounds.low_open, high, bounds.high_open, (), bounds.excluded).admit(Fraction(0))
    nothing = Lit("0") if only_digits else joined(opt(Lit("-")), Lit("0"), point_zeros())
    ways = [nothing if zero else NEVER, magnitudes if high is None else NEVER]
    ways.append(joined(Lit("-"), magnitudes) if low is None else NEVER)
    return book.rule(hint, alt(*ways))


def _magnitudes(book: RuleBook, unit: int, places: int, *, hint: str, only_digits: bool) -> Expr | None:
    """Multiples above zero of `unit`, counted in the last decimal place."""
    width = next((n for n in range(1, _ENDING + 1) if 10**n % unit == 0), None)
    if places == 0 and width is not None:
        digits = _by_last_digits(unit, width)
        return digits if only_digits else joined(digits, point_zeros())
    machine = smallest(_division(unit, places, only_digits), book.work)
    if len(machine.table) > DIVISION_STATES:
        return None
    divided = chain(book, machine, hint=hint)
    # Where every whole number is a multiple, they may be longer and have exponents.
    return alt(divided, every_whole(zero=False)) if 10**places % unit == 0 else divided


def _by_last_digits(unit: int, width: int) -> Expr:
    endings = alt(*(Lit(str(n).zfill(width)) for n in range(0, 10**width, unit)))
    long = joined(digit(1, 9), Rep(digit(0, 9), 0, INTEGER_DIGITS - 1 - width), endings)
    return alt(*(Lit(str(n)) for n in range(unit, 10**width, unit)), long)


def _division(unit: int, places: int, only_digits: bool) -> Automaton:
    longest = DOUBLE_DIGITS if places else max(MULTIPLE_DIGITS, DIVISION_STATES // (unit + 1))

    def step(state: _State, character: str) -> _State | None:
        remainder, counts, after, digits = state
        if character == ".":
            may = after in (_ZERO, _WHOLE) and not only_digits and digits <= DOUBLE_DIGITS
            return (remainder, counts, _POINT, digits) if may else None
        number = int(character)
        counts = counts or number > 0
        if after == _START:
            return number % unit, counts, _WHOLE if number else _ZERO, 1
        if after == _WHOLE and digits < longest:
            return (remainder * 10 + number) % unit, counts, _WHOLE, digits + 1
        if _POINT <= after < places and (number == 0 or digits < DOUBLE_DIGITS):
            return (remainder * 10 + number) % unit, counts, after + 1, digits + 1
        return (remainder, counts, places + 1, 0) if after >= places and number == 0 else None

    def accepts(state: _State) -> bool:
        remainder, counts, after, _ = state
        left = places - min(max(after, 0), places)
        return counts and after != _POINT and remainder * 10**left % unit == 0

    states: dict[_State, int] = {(0, False, _START, 0): 0}
    table: list[tuple[int, ...]] = []
    for state in (queue := list(states)):
        row = []
        for character in _CHARACTERS:
            onward = step(state, character)
            if onward is not None and onward not in states:
                states[onward] = len(states)
                queue.append(onward)
            row.append(-1 if onward is None else states[onward])
        table.append(tuple(row))
    accepting = frozenset(number for state, number in states.items() if accepts(state))
    return Automaton(tuple(chars(character) for character in _CHARACTERS), tuple(table), accepting)
