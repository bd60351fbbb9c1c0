"""The narrowest rules for what people approved of one kind of proposal.

Every argument has some options:

    the same value each time       that value
    values that keep coming back   each of them
    dates near that of the call    how many days after it, where they are no list
    texts that are new             templates of their kind (`text_patterns`), or nothing
    numbers that are new           the range seen, in pieces where there is a large gap
    elements of a list             the same for each of them, in lists no longer than seen
    deep objects                   only as the very same JSON

Approved calls that have the same option for every argument are a *row*. A row that has a rejection in it is
tried with narrower options, and then left to people. Rows are joined where every combination of their options
is a row, so that a rule never allows a pair that nobody has seen together; where a number has a range, each
row keeps its own: as one rule, if the rows differ in one text alone (a payee), with a range for each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product, repeat
from typing import Final

from moot.errors import InvalidPattern
from moot.protocol.operation import Json
from moot.protocol.patterns.globs import is_wild
from moot.trust.history.proposal_case import Path, path_text, put_at
from moot.trust.learning.lessons import EACH, CaseKind, Example, Lessons
from moot.trust.learning.text_patterns import ALL, ArgumentOptions, cover_texts, options_of_covers
from moot.trust.rules.conditions import Range, RangeByText, canonical
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_words import range_text, template_text
from moot.values.covers import (
    MAX_VALUES,
    MIN_NEW_NUMBERS,
    MIN_NEW_VALUES,
    MIN_REPEATS,
    cover_values,
    values_recur,
)
from moot.values.kinds import ValuePattern
from moot.values.quoting import literal
from moot.values.scalars import days_until
from moot.values.templates import escape
from moot.values.word_lists import CHANGING_METHODS

# Two numbers have ranges after so many approvals, if nothing like it was ever rejected.
MIN_TWO_NUMBERS: Final = 30
# A rejection in a row is forgotten after so many approvals in it: less than 3 % would be rejected.
MIN_SINCE_REJECTION: Final = 100
# Dates are compared with that of the call if all are within so many days of it.
MAX_DAYS: Final = 62


@dataclass(frozen=True, slots=True)
class Generalisation:
    """A rule, the description of each argument, and the fewest distinct values behind a wildcard."""

    rule: Rule
    parts: Mapping[str, str]
    first_times: int | None
    # Rejections within it that many approvals came after.
    pardoned: frozenset[str] = frozenset()


# One option for each argument of a kind, in the order of its shape; or some of them.
Row = tuple[int, ...]
Box = tuple[frozenset[int], ...]


def generalise(kind: CaseKind, lessons: Lessons, *, reads: bool = False) -> Iterator[Generalisation]:
    """The narrowest rules for what was approved; none of them matches what was rejected.

    First with wide options; where one of those matches a rejection, what was approved there once more with
    narrow ones.
    """
    kind, lessons = _with_days(kind, lessons)
    left = lessons.approved
    for wide in (True, False):
        options = [
            options_of(kind, path, type, lessons.approved, wide=wide, reads=reads)
            for path, type in kind.shape
        ]
        parts = [each for each in options if each is not None]
        if len(parts) < len(options):
            return
        # Two numbers may be compared with each other, which no rule can express.
        related = sum(part.is_range for part in parts) > 1
        if related and (lessons.rejected or len(lessons.approved) < MIN_TWO_NUMBERS):
            return
        fine: list[Row] = []
        once: list[Row] = []
        ranged: dict[Row, tuple[list[ArgumentOptions], Generalisation]] = {}
        pardoned: set[str] = set()
        rows, left = _rows(kind, parts, left), []
        for row, examples in rows.items():
            box = tuple(frozenset({at}) for at in row)
            own = [
                _within_row(path, part, examples) for (path, _), part in zip(kind.shape, parts, strict=True)
            ]
            is_once = len(examples) < MIN_REPEATS
            is_known = not is_once or (wide and _opens_pages(parts, row))
            found = _rule_of(kind, own, box, lessons) if is_known else None
            if found is None:
                continue
            no = [each.case for each in lessons.rejected if found.rule.covers_call(each.case, each.case.at)]
            if wide and (no or _changes_below(parts, examples)):
                left += examples
                continue
            if no:
                since = max(case.at for case in no)
                if sum(1 for each in examples if each.case.at > since) < MIN_SINCE_REJECTION:
                    continue
                pardoned |= {case.id for case in no}
            if is_once:
                once.append(row)
            elif found.rule.range:
                ranged[row] = own, replace(found, pardoned=frozenset(case.id for case in no))
            else:
                fine.append(row)
        # A page says enough of its host only if no page of any approved host was ever rejected.
        fine += [] if left else once
        for found in filter(None, (_rule_of(kind, parts, box, lessons) for box in _joined(fine))):
            yield replace(found, pardoned=frozenset(pardoned))
        yield from _joined_ranges(kind, ranged, lessons)


def _joined_ranges(
    kind: CaseKind, rows: Mapping[Row, tuple[list[ArgumentOptions], Generalisation]], lessons: Lessons
) -> Iterator[Generalisation]:
    """Rows with ranges: as one rule where one text tells them apart, each with the range of its own text."""
    # By the place of the text and what else is in a row; one row for each text.
    groups: dict[tuple[int, Row], dict[int, Row]] = {}
    for row, (own, _) in rows.items():
        spans = [at for at, part in enumerate(own) if part.is_range]
        for at, (path, type) in enumerate(kind.shape):
            if len(spans) == 1 and len(path) == 1 and type == "text" and own[at].kind is None:
                alike = tuple(ALL if each in (at, *spans) else one for each, one in enumerate(row))
                groups.setdefault((at, alike), {}).setdefault(row[at], row)
    left = dict.fromkeys(rows)
    for (at, _), group in sorted(groups.items(), key=lambda each: -len(each[1])):
        found = [row for row in group.values() if row in left and not rows[row][1].pardoned]
        if len(found) < 2:
            continue
        own = list(rows[found[0]][0])
        number = next(place for place, part in enumerate(own) if part.is_range)
        texts = [str(own[at].options[row[at]]) for row in found]
        spans_of = [rows[row][0][number].options[0] for row in found]
        by = {text: span for text, span in zip(texts, spans_of, strict=True) if isinstance(span, Range)}
        seen = sum(rows[row][0][number].first_times[0] or 0 for row in found)
        span = RangeByText.over(kind.shape[at][0][0], by)
        own[number] = ArgumentOptions((span,) * len(own[number].options), (seen,) * len(own[number].options))
        box = tuple(frozenset({one}) for one in found[0])
        box = (*box[:at], frozenset(row[at] for row in found), *box[at + 1 :])
        joined = _rule_of(kind, own, box, lessons)
        if joined is not None:
            yield joined
            for row in found:
                del left[row]
    yield from (rows[row][1] for row in left)


def _with_days(kind: CaseKind, lessons: Lessons) -> tuple[CaseKind, Lessons]:
    """Dates as days after that of the call, where they differ and all are near it."""
    near = []
    for path, type in kind.shape if lessons.approved else ():
        texts = Counter(str(example.values[path]) for example in lessons.approved)
        if type == "text" and EACH not in path and len(texts) > 1:
            days = [days_until(each.values[path], each.case.at) for each in lessons.approved]
            is_near = all(each is not None and abs(int(each)) <= MAX_DAYS for each in days)
            # A list of dates that recur, unless many have few distances.
            is_list = values_recur(texts) and not len({*days}) < len(texts) >= MIN_NEW_VALUES
            if is_near and not is_list:
                near.append(path)
    if not near:
        return kind, lessons

    def with_days(examples: Sequence[Example]) -> list[Example]:
        return [
            Example(
                each.case,
                {**each.values, **{path: days_until(each.values[path], each.case.at) for path in near}},
            )
            for each in examples
        ]

    shape = tuple((path, "day" if path in near else type) for path, type in kind.shape)
    return replace(kind, shape=shape), Lessons(with_days(lessons.approved), with_days(lessons.rejected))


def _opens_pages(parts: Sequence[ArgumentOptions], row: Iterable[int]) -> bool:
    """Whether any page of a host is in a row."""
    return any(
        "<page>" in str(option)
        for part, at in zip(parts, row, strict=False)
        if part.kind == "url"
        for option in (part.options if at == ALL else part.options[at : at + 1])
    )


def _changes_below(parts: Sequence[ArgumentOptions], examples: Sequence[Example]) -> bool:
    """Whether these requests change something, anywhere below a host."""
    values = examples[0].values.values() if _opens_pages(parts, repeat(ALL)) else ()
    return any(isinstance(value, str) and value.upper() in CHANGING_METHODS for value in values)


def _rows(
    kind: CaseKind, parts: Sequence[ArgumentOptions], examples: Sequence[Example]
) -> dict[Row, list[Example]]:
    known: dict[tuple[Path, bytes], int | None] = {}
    rows: dict[Row, list[Example]] = {}
    for example in examples:
        row = []
        for (path, _), part in zip(kind.shape, parts, strict=True):
            key = path, canonical(example.values[path])
            if key not in known:
                known[key] = part.index_of(example.at(path), whole=EACH in path)
            if (at := known[key]) is None:
                break
            row.append(at)
        else:
            rows.setdefault(tuple(row), []).append(example)
    return rows


def _within_row(path: Path, part: ArgumentOptions, examples: Sequence[Example]) -> ArgumentOptions:
    """The same options, but a range only as far as it was seen in this row."""
    if not part.is_range:
        return part
    values = [value for example in examples for value in example.at(path)]
    whole = isinstance(part.options[0], Range) and part.options[0].whole
    low, high = min(values), max(values)
    own = Range(low, high) if whole else Range(float(low), float(high))
    return ArgumentOptions((own,) * len(part.options), (len(set(values)),) * len(part.options))


def _joined(rows: Sequence[Row]) -> list[Box]:
    """Large boxes in which every row was seen, until each row is in one: none has a pair that nobody saw."""
    seen, left = set(rows), dict.fromkeys(rows)
    found: list[Box] = []
    while left:
        first = next(iter(left))
        axes = range(len(first))
        grown = [_grown(first, order, seen) for order in (axes, axes[::-1])]
        box = max(grown, key=lambda each: sum(row in left for row in product(*each)))
        found.append(box)
        for row in product(*box):
            left.pop(row, None)
    return found


def _grown(row: Row, axes: Iterable[int], seen: Collection[Row]) -> Box:
    """A box around a row, with all that fits on one axis after another."""
    box: Box = tuple(frozenset({at}) for at in row)
    for axis in axes:
        before, after = box[:axis], box[axis + 1 :]
        fits = (
            at
            for at in {other[axis] for other in seen}
            if all(each in seen for each in product(*before, (at,), *after))
        )
        box = (*before, frozenset(fits), *after)
    return box


def options_of(
    kind: CaseKind,
    path: Path,
    type: str,
    examples: Sequence[Example],
    *,
    wide: bool = True,
    reads: bool = False,
) -> ArgumentOptions | None:
    """What an argument may be, by these examples; None if they are too different."""
    values = [value for example in examples for value in example.at(path)]
    if not values:
        return None
    match type:
        case "text":
            names = [key for key in path if key != EACH]
            return cover_texts(
                values,
                name=names[-1],
                tool=kind.tool,
                schema={"format": kind.format_of(path)},
                within=names[:-1],
                wide=wide,
                reads=reads,
            )
        case "day":
            covers = cover_values("day", values)
            return options_of_covers("day", covers) if covers else None
        case "number":
            counts = Counter(map(repr, values))
            if EACH in path or (len(counts) >= MIN_NEW_NUMBERS and not values_recur(counts)):
                ranges = tuple(_ranges(values))
                return ArgumentOptions(
                    ranges, tuple(len({v for v in values if each.admits(v)}) for each in ranges)
                )
        case "boolean" | "null":
            pass
        case _:
            return ArgumentOptions((examples[0].case.arguments[path[0]],), (None,))
    seen = Counter(canonical(value) for value in values)
    kept = {canonical(v): v for v in values if seen[canonical(v)] >= MIN_REPEATS or len(seen) == 1}
    listed = tuple(list(kept.values())[:MAX_VALUES])
    return ArgumentOptions(listed, (None,) * len(listed)) if listed else None


def _longest(place: Path, examples: Sequence[Example]) -> int:
    """How long this list was at most; 0 if it was always the same, which stays so."""
    seen = {canonical(each.case.arguments[place[0]]) for each in examples}
    return max(len(each.at(place)) for each in examples) if len(seen) > 1 else 0


def _ranges(values: Sequence[float]) -> Iterator[Range]:
    """The range of the numbers, in pieces where there is a large gap.

    Of n uniform draws the longest gap is near ln(n)/n of the range; six times that, or half of the range, is
    large.
    """
    numbers = sorted(set(values))
    allowed = min(0.5, 6 * math.log(len(values)) / len(values)) * (numbers[-1] - numbers[0])
    whole = all(isinstance(value, int) for value in values)
    low = numbers[0]
    for before, after in [*pairwise(numbers), (numbers[-1], math.inf)]:
        if after - before > allowed:
            yield Range(low, before) if whole else Range(float(low), float(before))
            low = after


def _rule_of(
    kind: CaseKind, parts: Sequence[ArgumentOptions], box: Box, lessons: Lessons
) -> Generalisation | None:
    lists = {place: _longest(place, lessons.approved) for place, _ in kind.shape if EACH in place}
    proposer, method = literal(kind.proposer), literal(kind.method)
    tool = None if kind.tool is None else literal(kind.tool)
    if proposer is None or method is None or (kind.tool is not None and tool is None):
        return None
    if any(is_wild(host) or literal(host) != host for host in kind.to):
        return None
    arguments: dict[str, Json] = {}
    spans: dict[Path, Range] = {}
    patterns: dict[Path, ValuePattern] = {}
    equals: dict[str, Json] = {}
    words: dict[str, str] = {}
    first_times: list[int] = []
    for (place, type), part, some in zip(kind.shape, parts, box, strict=True):
        chosen = frozenset(range(len(part.options))) if ALL in some else some
        path = tuple(f"[{lists[place]}]" if key == EACH else key for key in place)
        picked = [part.options[at] for at in sorted(chosen)]
        first_times += [count for at in chosen if (count := part.first_times[at]) is not None]
        shown = path_text(path)
        if type.startswith(("list ", "object ")) or lists.get(place) == 0:
            equals[path[0]] = lessons.approved[0].case.arguments[path[0]]
            words[path[0]] = "exactly the same value as before"
        elif part.kind is not None or (EACH in place and type == "text"):
            texts = [str(each) if part.kind else escape(str(each)) for each in picked]
            patterns[path] = ValuePattern(part.kind or "text", texts)
            words[shown] = template_text(patterns[path])
        elif isinstance(picked[0], Range):
            spans[path] = picked[0]
            words[shown] = range_text(picked[0])
        else:
            values = [literal(each) if isinstance(each, str) else each for each in picked]
            arguments = put_at(arguments, path, values[0] if len(values) == 1 else values)
            words[shown] = " or ".join(
                f"“{each}”" if isinstance(each, str) else canonical(each).decode() for each in picked
            )
    for top in equals:
        arguments.pop(top, None)
    try:
        rule = Rule(
            name="suggested",
            decision="approve",
            proposer=proposer,
            to=kind.to,
            method=method,
            tool=tool,
            arguments=arguments,
            range={path: span for path, span in spans.items() if path[0] not in equals},
            values={path: pattern for path, pattern in patterns.items() if path[0] not in equals},
            equals=equals,
        )
    except InvalidPattern:
        return None  # larger than a capability may be
    return Generalisation(rule, words, min(first_times, default=None))
