"""Whether examples support a product: all values of one part together with all of another.

A rule that lists two folders and a range of sizes says that every size is fine in both. Examples support that
only if they show it for each: a person may allow large files in one folder and small ones in the other. So

- where numbers have a range, every listed value gets a rule of its own, with the range seen for it,
- two lists, or the templates of two texts, are combined when each pair was seen,
- two ranges are combined when all four corners were seen and the numbers are not correlated,
- a list is combined with hours when none of its values is restricted to a part of the day,
- a range has no large gap.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Final

from moot.trust.history.proposal_case import Path
from moot.trust.learning.decision_tree import Split, split_by
from moot.trust.learning.generalisation import NO_POOLS, CaseKind, Example, Pools, are_one_sitting
from moot.trust.learning.text_patterns import (
    MAX_VALUES,
    MIN_NEW_VALUES,
    MIN_REPEATS,
    TextCover,
    cover_texts,
    values_recur,
)
from moot.trust.rules.conditions import DAY_MINUTES, canonical

# Below this probability something is not taken for chance.
SIGNIFICANCE: Final = 0.01

Key = Callable[[Example], object]


def split_uneven(
    kind: CaseKind, examples: Sequence[Example], *, exact: bool = False, pools: Pools = NO_POOLS
) -> Split | None:
    """How to split examples whose product would cover too much; None if it does not."""
    listed = _listed(kind, examples, exact=exact, pools=pools)
    ranged = [] if exact else _ranged(kind, examples)
    for key in listed:
        if ranged:
            return split_by(key, examples)
        for other in listed:
            if other is not key and (partners := _partners(key, other, examples)) is not None:
                return split_by(partial(_partners_of, key, partners), examples)
        if own := _with_own_hours(key, examples):
            return split_by(partial(_value_among, key, own), examples)
    return _split_at_gap(ranged, examples)


def split_touched(
    kind: CaseKind,
    these: Sequence[Example],
    taken: Sequence[Example],
    *,
    exact: bool = False,
    pools: Pools = NO_POOLS,
) -> Split | None:
    """Split off the alternatives that the others (`taken`) have in common with these; None if all have."""
    for key in _listed(kind, these, exact=exact, pools=pools):
        touched = {key(example) for example in taken}
        groups = [[e for e in these if (key(e) in touched) == side] for side in (False, True)]
        if all(groups):
            return Split(((groups[0], []), (groups[1], list(taken))), 1.0)
    return None


def ranges_are_independent(kind: CaseKind, examples: Sequence[Example]) -> bool:
    """Whether any two ranges were seen in all combinations: large with small, small with large, and so on.

    A person who compares two numbers leaves one corner empty and makes them correlated.
    """
    for one, other in combinations(_ranged(kind, examples), 2):
        first = [example.values[one] for example in examples]
        second = [example.values[other] for example in examples]
        if not _corners_seen(first, second) or _are_correlated(first, second):
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
    return len(seen) == 4 and min(seen.values()) >= MIN_REPEATS


def _outer_quarters(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return ordered[quarter - 1], ordered[-quarter]


def _are_correlated(first: Sequence[float], second: Sequence[float]) -> bool:
    """Spearman's rank correlation, either way, beyond what chance brings."""
    count = len(first)
    one, other = _ranks(first), _ranks(second)
    middle = (count - 1) / 2
    above = math.fsum((a - middle) * (b - middle) for a, b in zip(one, other, strict=True))
    spread = math.fsum((a - middle) ** 2 for a in range(count))
    # Without a tie to each other the correlation is near normal, with a spread of 1/sqrt(n - 1).
    return math.erfc(abs(above / spread) * math.sqrt((count - 1) / 2)) < SIGNIFICANCE


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
            if len(counts) >= MIN_NEW_VALUES and not values_recur(counts):
                found.append(path)
    return found


def _listed(kind: CaseKind, examples: Sequence[Example], *, exact: bool, pools: Pools) -> list[Key]:
    """What will have alternatives: values that keep coming back, and templates."""
    found: list[Key] = []
    for path, type in kind.shape:
        if type == "text":
            texts = [example.values[path] for example in examples]
            schema = {"format": kind.format_of(path)}
            cover = cover_texts(
                texts, name=path[-1], tool=kind.tool, schema=schema, exact=exact, pool=pools.get(path)
            )
            if cover is not None and cover.alternatives > 1:
                found.append(partial(_alternative, _Alternatives(cover), path))
        elif type in ("boolean", "null", "number"):
            counts = Counter(canonical(example.values[path]) for example in examples)
            if 1 < len(counts) <= MAX_VALUES and values_recur(Counter(map(str, counts.elements()))):
                found.append(partial(_value, path))
    return found


def _value(path: Path, example: Example) -> bytes:
    return canonical(example.values[path])


def _alternative(alternatives: Mapping[str, int | None], path: Path, example: Example) -> int | None:
    return alternatives[example.values[path]]


class _Alternatives(dict[str, int | None]):
    """Which alternative of a cover each text is, found once."""

    def __init__(self, cover: TextCover) -> None:
        super().__init__()
        self._cover = cover

    def __missing__(self, text: str) -> int | None:
        self[text] = found = self._cover.index_of(text)
        return found


def _partners_of(key: Key, partners: Mapping[object, object], example: Example) -> object:
    return partners.get(key(example))


def _partners(one: Key, other: Key, examples: Sequence[Example]) -> dict[object, frozenset[object]] | None:
    """With what each value of one key was seen; None if each was seen with everything.

    Values that will be left out (those seen once) say nothing.
    """
    often = [{v for v, n in Counter(map(key, examples)).items() if n >= MIN_REPEATS} for key in (one, other)]
    seen: dict[object, set[object]] = {value: set() for value in often[0]}
    for example in examples:
        if one(example) in often[0] and other(example) in often[1]:
            seen[one(example)].add(other(example))
    if all(partners == often[1] for partners in seen.values()):
        return None
    found = {value: frozenset(partners) for value, partners in seen.items()}
    if len(set(found.values())) > 1:
        return found
    return None


def _value_among(key: Key, values: Collection[object], example: Example) -> object:
    found = key(example)
    return found if found in values else None


def _with_own_hours(key: Key, examples: Sequence[Example]) -> set[object]:
    """The values that leave out a part of the day in which the others came often enough to tell."""
    if are_one_sitting(examples):
        return set()
    by_value: dict[object, list[int]] = {}
    for example in examples:
        by_value.setdefault(key(example), []).append(example.minute)
    if len(by_value) < 2:
        return set()
    own = set()
    for value, seen in by_value.items():
        minutes = sorted(set(seen))
        if value is None or len(minutes) < 2:
            continue
        gap, before = max(
            ((after - before) % DAY_MINUTES, before)
            for before, after in zip(minutes, [*minutes[1:], minutes[0]], strict=True)
        )
        others = sum(1 for example in examples if 0 < (example.minute - before) % DAY_MINUTES < gap)
        # As many gaps as values could be large by chance, each wherever it is.
        if len(seen) * (1 - others / len(examples)) ** len(seen) < SIGNIFICANCE / len(by_value):
            own.add(value)
    return own


def _split_at_gap(ranged: Sequence[Path], examples: Sequence[Example]) -> Split | None:
    """The groups on both sides of a large gap in the numbers.

    Of n uniform draws the longest gap is near ln(n)/n of the range; six times that, or half of the range, is
    large.
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
