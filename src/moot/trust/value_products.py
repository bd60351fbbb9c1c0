"""Whether examples carry a product: all values of one part together with all of another.

A rule that lists two folders and a range of sizes says that every size is fine in both. Examples show that
only if they show it for each: a person may let large files into one folder and small ones into the other. So

- where numbers have a range, every listed value gets a rule of its own, with the range that it was seen with,
- two lists are combined when each pair was seen,
- two ranges are combined when all four corners were seen and the numbers do not rise together,
- a list is combined with hours when none of its values keeps to a part of the day that others do not,
- a range has no hole that nobody went through.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Final

from moot.trust.conditions import DAY_MINUTES, canonical
from moot.trust.decision_tree import Split, split_by
from moot.trust.generalisation import CaseKind, Example
from moot.trust.proposal_case import Path
from moot.trust.text_patterns import MANY, MOST_VALUES, TWICE, settled

# What chance would bring less often than this is not taken for chance.
ODD: Final = 0.01

Key = Callable[[Example], object]


def uneven(kind: CaseKind, examples: Sequence[Example]) -> Split | None:
    """How to split examples of which the product would say too much; None when it does not."""
    listed = _listed(kind, examples)
    ranged = _ranged(kind, examples)
    for key in listed:
        if ranged or any(_pairs_missing(key, other, examples) for other in listed if other is not key):
            return split_by(key, examples)
        if _keeps_hours(key, examples):
            return split_by(key, examples)
    return _at_hole(ranged, examples)


def goes_together(kind: CaseKind, examples: Sequence[Example]) -> bool:
    """Whether any two ranges were seen in all combinations: large with small, small with large, and so on.

    A person who compares two numbers leaves one corner empty for ever, and makes them rise together.
    """
    for one, other in combinations(_ranged(kind, examples), 2):
        first = [example.values[one] for example in examples]
        second = [example.values[other] for example in examples]
        if not _corners_seen(first, second) or _rise_together(first, second):
            return False
    return True


def _corners_seen(first: Sequence[float], second: Sequence[float]) -> bool:
    if len(first) < 8:
        return False
    (low, high), (left, right) = _outer_quarters(first), _outer_quarters(second)
    seen = Counter(
        (a <= low, b <= left)
        for a, b in zip(first, second, strict=True)
        if (a <= low or a >= high) and (b <= left or b >= right)
    )
    return len(seen) == 4 and min(seen.values()) >= TWICE


def _outer_quarters(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return ordered[quarter - 1], ordered[-quarter]


def _rise_together(first: Sequence[float], second: Sequence[float]) -> bool:
    """Spearman's rank correlation, either way, beyond what chance brings."""
    count = len(first)
    one, other = _ranks(first), _ranks(second)
    middle = (count - 1) / 2
    above = math.fsum((a - middle) * (b - middle) for a, b in zip(one, other, strict=True))
    spread = math.fsum((a - middle) ** 2 for a in range(count))
    # Without a tie to each other the correlation is near normal, with a spread of 1/sqrt(n - 1).
    return math.erfc(abs(above / spread) * math.sqrt((count - 1) / 2)) < ODD


def _ranks(values: Sequence[float]) -> list[int]:
    ranks = [0] * len(values)
    for rank, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        ranks[at] = rank
    return ranks


def _ranged(kind: CaseKind, examples: Sequence[Example]) -> list[Path]:
    """The numbers that will have a range."""
    found = []
    for path, type in kind.shape:
        if type == "number":
            counts = Counter(repr(example.values[path]) for example in examples)
            if len(counts) >= MANY and not settled(counts):
                found.append(path)
    return found


def _listed(kind: CaseKind, examples: Sequence[Example]) -> list[Key]:
    """What will be a list: values that keep coming back, and folders of paths that do."""
    found: list[Key] = []
    for path, type in kind.shape:
        keys: tuple[Key, ...] = ()
        if type == "text":
            keys = (partial(_value, path), partial(_folder, path))
        elif type in ("boolean", "null") or type == "number":
            keys = (partial(_value, path),)
        for key in keys:
            counts = Counter(str(key(example)) for example in examples)
            if 1 < len(counts) <= MOST_VALUES and settled(counts):
                found.append(key)
                break
    return found


def _value(path: Path, example: Example) -> bytes:
    return canonical(example.values[path])


def _folder(path: Path, example: Example) -> str:
    folder: str = example.values[path].rpartition("/")[0]
    return folder


def _pairs_missing(one: Key, other: Key, examples: Sequence[Example]) -> bool:
    firsts, seconds = {one(example) for example in examples}, {other(example) for example in examples}
    return len({(one(e), other(e)) for e in examples}) < len(firsts) * len(seconds)


def _keeps_hours(key: Key, examples: Sequence[Example]) -> bool:
    """Whether a value leaves out a part of the day in which the others came often enough to tell."""
    for value, count in Counter(map(key, examples)).items():
        minutes = sorted({example.minute for example in examples if key(example) == value})
        if len(minutes) < 2:
            continue
        pause, before = max(
            ((after - before) % DAY_MINUTES, before)
            for before, after in zip(minutes, [*minutes[1:], minutes[0]], strict=True)
        )
        others = sum(1 for example in examples if 0 < (example.minute - before) % DAY_MINUTES < pause)
        if (1 - others / len(examples)) ** count < ODD:
            return True
    return False


def _at_hole(ranged: Sequence[Path], examples: Sequence[Example]) -> Split | None:
    """The groups on both sides of a stretch of numbers that nobody went through.

    Of n even draws the longest gap is near ln(n)/n of the whole; six times that, or half of it, is a hole.
    """
    count = len(examples)
    allowed = min(0.5, 6 * math.log(count) / count) if count > 1 else 1.0
    for path in ranged:
        numbers = sorted({example.values[path] for example in examples})
        gap, cut = max((after - before, after) for before, after in pairwise(numbers))
        if gap > allowed * (numbers[-1] - numbers[0]):
            low = [example for example in examples if example.values[path] < cut]
            high = [example for example in examples if example.values[path] >= cut]
            return Split(((low, []), (high, [])), 1.0)
    return None
