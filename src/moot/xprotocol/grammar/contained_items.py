"""Arrays of which some items must satisfy a schema of their own (`contains`), counted as they are read.

What follows after so many items, of which so many were counted, is one rule. Where only "at least" is asked,
an item that is not counted may be any; where "at most" is asked, it must be known not to satisfy the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod

from moot.xprotocol.grammar.grammar_limits import CONTAINED_COUNTS
from moot.xprotocol.grammar.json_rules import whitespace
from moot.xprotocol.grammar.negation import negation
from moot.xprotocol.grammar.rule_book import EMPTY, NEVER, Expr, Lit, RuleBook, alt, seq
from moot.xprotocol.grammar.schema import Library, Schema, SchemaId
from moot.xprotocol.grammar.strings import Note

# The expression of the schemas that hold at one place, by their numbers and a word for the rule's name.
ValueOf = Callable[[tuple[SchemaId, ...], str], Expr]


@dataclass(frozen=True, slots=True)
class ContainedCount:
    """From `low` to `high` items satisfy `id`; `opposite` is there if they must not be more than `high`."""

    id: SchemaId
    low: int
    high: int | None
    opposite: SchemaId | None


def contained_counts(
    library: Library, parts: tuple[Schema, ...], positions: int, note: Note
) -> list[ContainedCount]:
    """What is to be counted, if the grammar can; the rest is noted."""
    found: list[ContainedCount] = []
    for part in parts:
        if part.contains is None:
            continue
        low, high, opposite = part.min_contains, part.max_contains, None
        if high is not None:
            others = negation(library, part.contains)
            if others is None:
                note("maxContains is not enforced")
                high = None
            else:
                opposite = library.any_of(others) if others else library.never
        if low or high is not None:
            found.append(ContainedCount(part.contains, low, high, opposite))
    if (
        found
        and (positions + 1) * prod(max(each.low, each.high or 0) + 1 for each in found) > CONTAINED_COUNTS
    ):
        note("contains is not enforced: too many items to count")
        return []
    return found


@dataclass(slots=True)
class ContainedRow:
    """The items of an array, at least one."""

    book: RuleBook
    prefix: tuple[tuple[SchemaId, ...], ...]
    items: tuple[SchemaId, ...]
    low: int
    high: int | None
    wanted: list[ContainedCount]
    value: ValueOf
    hint: str
    known: dict[tuple[int, tuple[int, ...]], Expr] = field(default_factory=dict)

    def row(self) -> Expr:
        self.book.overlapping = True
        return self._after(0, (0,) * len(self.wanted))

    def _after(self, items: int, counts: tuple[int, ...]) -> Expr:
        """What follows so many items, with its comma."""
        key = items, counts
        if key not in self.known:
            self.known[key] = self.book.rule(f"{self.hint}-after-{items}", self._written(items, counts))
        return self.known[key]

    def _written(self, items: int, counts: tuple[int, ...]) -> Expr:
        comma = seq(Lit(","), whitespace(self.book)) if items else EMPTY
        # Beyond this many, one more makes no difference.
        onward = min(items + 1, max(1, len(self.prefix), self.low, self.high or 0))
        ways: list[Expr] = []
        loops: list[Expr] = []
        for item, counted in self._next(items, counts):
            here = seq(comma, item)
            if (onward, counted) == (items, counts):
                loops.append(here)
            else:
                ways.append(seq(here, self._after(onward, counted)))
        enough = all(count >= each.low for count, each in zip(counts, self.wanted, strict=True))
        body = alt(*ways, *([EMPTY] if items and items >= self.low and enough else []))
        loop = self.book.rule(f"{self.hint}-more", alt(*loops))
        return seq(self.book.repeat(self.hint, loop, 0, None), body)

    def _next(self, items: int, counts: tuple[int, ...]) -> Iterator[tuple[Expr, tuple[int, ...]]]:
        """The next item, in every way in which it counts or does not, with the counts after it."""
        if self.high is not None and items >= self.high:
            return
        schemas = self.prefix[items] if items < len(self.prefix) else self.items
        options: list[list[tuple[tuple[SchemaId, ...], int]]] = []
        for count, each in zip(counts, self.wanted, strict=True):
            if each.opposite is not None:
                more = [((each.id,), count + 1)] if count < (each.high or 0) else []
                options.append([*more, ((each.opposite,), count)])
            else:
                more = [((each.id,), count + 1)] if count < each.low else []
                options.append([*more, ((), count)])
        for selection in product(*options):
            extra = tuple(id for ids, _ in selection for id in ids)
            item = self.value((*schemas, *extra), f"{self.hint}-item")
            if item != NEVER:
                yield item, tuple(count for _, count in selection)
