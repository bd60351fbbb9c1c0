"""Finds what separates approvals from rejections: a tree of few, significant splits.

A split is needed if the narrowest rule for all approvals would match rejections. Candidates are
thresholds on numbers and on the time of day, and the values of texts, of their first segments and of their
endings. The one least likely by chance is taken, if it is unlikely enough (G-test, corrected for the number
of candidates). What no split separates is *mixed*: people decide by something that is not in the
proposals, and everything else needs more evidence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Path
from moot.trust.learning.generalisation import CaseKind, Example
from moot.trust.rules.conditions import DAY_MINUTES, canonical

# A split must be this unlikely by chance, all candidates together.
SIGNIFICANT: Final = 0.01
# People's policies have few parts, and each level has less evidence.
MAX_DEPTH: Final = 5
# Values with fewer cases are not a group of their own.
_MIN_GROUP: Final = 2
_MAX_GROUPS: Final = 40


# The time of day, or the path of an argument that is a number.
Axis = Path | Literal["hours"]


@dataclass(frozen=True, slots=True)
class Split:
    """The groups of one split, each (these, those), and the axis that was cut in two, if any."""

    groups: tuple[tuple[list[Example], list[Example]], ...]
    chance: float
    axis: Axis | None = None


def best_split(kind: CaseKind, these: Sequence[Example], those: Sequence[Example]) -> Split | None:
    """The split that best separates the two; None if none is better than chance."""
    tried = list(_candidates(kind, these, those))
    found = [split for split in tried if split is not None]
    if not found:
        return None
    best = min(found, key=lambda split: split.chance)
    return best if best.chance * len(tried) <= SIGNIFICANT else None


def _candidates(kind: CaseKind, these: Sequence[Example], those: Sequence[Example]) -> Iterator[Split | None]:
    yield _threshold(these, those, lambda example: example.minute, axis="hours")
    yield _part_of_day(these, those)
    for path, type in kind.shape:

        def value(example: Example, path: Path = path) -> Json:
            return example.values[path]

        if type == "number":
            yield _threshold(these, those, value, axis=path)
        elif type == "text":
            for key in _text_keys(value, [*these, *those]):
                yield _groups(these, those, key)
        else:
            yield _groups(these, those, partial(_canonical_value, path))


def _text_keys(
    value: Callable[[Example], str], examples: Sequence[Example]
) -> Iterator[Callable[[Example], object]]:
    yield value
    yield lambda example: value(example).rpartition(".")[2]
    # What a command is, and whose an address is.
    for count in (1, 2, 3):
        yield partial(_first_words, value, count)
    yield lambda example: value(example).rpartition("@")[2]
    depth = max(value(example).count("/") for example in examples)
    # The first segments, down to some folders deep.
    for at in range(1, min(depth, 6) + 1):
        yield partial(_first_segments, value, at + 1)


def _canonical_value(path: Path, example: Example) -> bytes:
    return canonical(example.values[path])


def _first_words(value: Callable[[Example], str], count: int, example: Example) -> tuple[str, ...]:
    return tuple(value(example).split()[:count])


def _first_segments(value: Callable[[Example], str], count: int, example: Example) -> tuple[str, ...]:
    return tuple(value(example).split("/")[:count])


def split_by(
    key: Callable[[Example], object], these: Sequence[Example], those: Sequence[Example] = ()
) -> Split | None:
    """Split by the values of one key, whether or not that is significant."""
    return _groups(these, those, key)


def _groups(
    these: Sequence[Example], those: Sequence[Example], key: Callable[[Example], object]
) -> Split | None:
    keys = [[key(example) for example in side] for side in (these, those)]
    yes, no = Counter(keys[0]), Counter(keys[1])
    values = [value for value in yes | no if yes[value] + no[value] >= _MIN_GROUP]
    if len(values) < 2 or len(values) > _MAX_GROUPS:
        return None
    table = [(yes[value], no[value]) for value in values]
    statistic = _g(table)
    groups = tuple(
        (
            [example for example, found in zip(these, keys[0], strict=True) if found == value],
            [example for example, found in zip(those, keys[1], strict=True) if found == value],
        )
        for value in values
    )
    return Split(groups, _survival(statistic, len(values) - 1))


def _threshold(
    these: Sequence[Example],
    those: Sequence[Example],
    value: Callable[[Example], float],
    *,
    axis: Axis,
) -> Split | None:
    """The best threshold for numbers."""
    points = sorted([(value(e), True) for e in these] + [(value(e), False) for e in those])
    total_yes, total = len(these), len(points)
    best, cut = 0.0, None
    yes = 0
    cuts = 0
    for at in range(1, total):
        yes += points[at - 1][1]
        if points[at - 1][0] == points[at][0]:
            continue
        cuts += 1
        statistic = _g([(yes, at - yes), (total_yes - yes, total - at - (total_yes - yes))])
        if statistic > best:
            best, cut = statistic, points[at][0]
    if cut is None:
        return None
    groups = tuple(
        ([e for e in these if (value(e) < cut) == left], [e for e in those if (value(e) < cut) == left])
        for left in (True, False)
    )
    # Neighbouring cuts are nearly the same split; this many count as different ones.
    tries = min(cuts, 10)
    return Split(groups, min(1.0, tries * _survival(best, 1)), axis)


def _part_of_day(these: Sequence[Example], those: Sequence[Example]) -> Split | None:
    """The part of the day in which all of these came, which may go past midnight, against the rest of it."""
    minutes = sorted({example.minute for example in these})
    _, start, end = max(
        ((after - before) % DAY_MINUTES or DAY_MINUTES, after, before)
        for before, after in zip(minutes, [*minutes[1:], minutes[0]], strict=True)
    )
    inside = [e for e in those if (e.minute - start) % DAY_MINUTES <= (end - start) % DAY_MINUTES]
    outside = len(those) - len(inside)
    if not outside:
        return None
    chance = _survival(_g([(len(these), len(inside)), (0, outside)]), 1)
    # As with thresholds: this many parts of the day count as different ones.
    return Split(((list(these), inside),), min(1.0, 10 * chance), "hours")


def _g(table: Sequence[tuple[int, int]]) -> float:
    """The G statistic of a table of two columns."""
    yes = sum(row[0] for row in table)
    no = sum(row[1] for row in table)
    total = yes + no
    if not yes or not no:
        return 0.0
    found = 0.0
    for a, b in table:
        row = a + b
        if a:
            found += a * math.log(a * total / (row * yes))
        if b:
            found += b * math.log(b * total / (row * no))
    return 2 * found


def _survival(statistic: float, freedom: int) -> float:
    """The chance of a chi-squared value at least this large; exact for one degree, Wilson-Hilferty's else."""
    if statistic <= 0:
        return 1.0
    if freedom == 1:
        return math.erfc(math.sqrt(statistic / 2))
    spread = 2 / (9 * freedom)
    return 0.5 * math.erfc((((statistic / freedom) ** (1 / 3)) - (1 - spread)) / math.sqrt(2 * spread))
