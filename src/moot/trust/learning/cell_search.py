"""Searches what people decided for cells: parts of one kind of proposal that one rule can cover.

Proposals of one kind are generalised together (`generalisation`), split where a rejection is among them
(`decision_tree`), and what no split separates is counted as mixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Case, Path, without_nulls
from moot.trust.history.proposal_history import HistoryProposal, Lesson
from moot.trust.learning.bounds import decisions_needed
from moot.trust.learning.decision_tree import MAX_DEPTH, Axis, Split, best_split
from moot.trust.learning.generalisation import CaseKind, Example, Generalisation, Pools, generalise, kind_of
from moot.trust.learning.learning_settings import LearningSettings
from moot.trust.learning.value_products import ranges_are_independent, split_touched, split_uneven

# How likely chance may be where decisions are mixed; small, since it is tried again with every decision.
MAX_CHANCE: Final = 1e-4
# From this many mixed decisions on, with so many of each, people are assumed to decide by something that
# proposals do not show.
MIN_MIXED: Final = 5
MIN_CONTRADICTIONS: Final = 3

# By host and tool.
ToolSchemas = Mapping[tuple[str, str], Json]
NO_SCHEMAS: Final[ToolSchemas] = {}
# What an unexplained rejection can concern: the same call of the same host, whoever proposes it.
Scope = tuple[tuple[str, ...], str, str | None]


def formats_of(kind: CaseKind, schemas: ToolSchemas) -> tuple[tuple[Path, str], ...]:
    """The formats of the texts in these proposals, where their tool declares any."""
    if len(kind.to) != 1 or kind.tool is None:
        return ()
    schema = schemas.get((kind.to[0], kind.tool))
    found = ((path, _format_at(schema, path)) for path, type in kind.shape if type == "text")
    return tuple((path, format) for path, format in found if format is not None)


def _format_at(schema: Json, path: Path) -> str | None:
    """Only what stands plainly in `properties`: references and alternatives are not followed."""
    for key in path:
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        schema = properties.get(key) if isinstance(properties, Mapping) else None
    format = schema.get("format") if isinstance(schema, Mapping) else None
    return format if isinstance(format, str) else None


@dataclass(slots=True)
class Lessons:
    """What people decided about one kind of proposal."""

    approve: list[Example] = field(default_factory=list)
    reject: list[Example] = field(default_factory=list)
    # Rejections of the same calls with an argument that is null: who rejects one means the other, too.
    implied: list[Example] = field(default_factory=list)
    # Shared by all kinds of one proposer and tool: the texts of each argument, by lesson.
    pools: dict[Lesson, dict[Path, list[str]]] = field(default_factory=dict)

    def of(self, lesson: Lesson) -> list[Example]:
        return self.approve if lesson == "approve" else self.reject

    def against(self, lesson: Lesson) -> list[Example]:
        return self.approve if lesson == "reject" else [*self.reject, *self.implied]


@dataclass(slots=True)
class CellSearch:
    """The result of searching all kinds: the cells found, and how mixed the rest is, by scope."""

    cells: list[tuple[CaseKind, Lesson, Generalisation]] = field(default_factory=list)
    approved: Counter[Scope] = field(default_factory=Counter)
    rejected: Counter[Scope] = field(default_factory=Counter)


def scope_of(kind: CaseKind) -> Scope:
    return kind.to, kind.method, kind.tool


def group_by_kind(history: Iterable[HistoryProposal], schemas: ToolSchemas) -> dict[CaseKind, Lessons]:
    kinds: dict[CaseKind, Lessons] = {}
    pools: dict[tuple[str, Scope], dict[Lesson, dict[Path, list[str]]]] = {}

    def lessons_like(case: Case) -> tuple[Lessons, Example] | None:
        known = kind_of(case)
        if known is None:
            return None
        kind, example = known
        if kind not in kinds and schemas:
            kind = replace(kind, formats=formats_of(kind, schemas))
        pool = pools.setdefault((kind.proposer, scope_of(kind)), {"approve": {}, "reject": {}})
        return kinds.setdefault(kind, Lessons(pools=pool)), example

    for decision in history:
        case, lesson = decision.case, decision.lesson
        if lesson is None:
            continue
        if (known := lessons_like(case)) is not None:
            lessons, example = known
            lessons.of(lesson).append(example)
            for path, value in example.values.items():
                if isinstance(value, str):
                    lessons.pools[lesson].setdefault(path, []).append(value)
        bare = without_nulls(case)
        if lesson == "reject" and bare is not case and (known := lessons_like(bare)) is not None:
            known[0].implied.append(known[1])
    return kinds


def search_cells(kinds: dict[CaseKind, Lessons], settings: LearningSettings) -> CellSearch:
    search = CellSearch()
    for kind, lessons in kinds.items():
        approving = list(
            CellFinder(kind, lessons.pools["approve"], "approve").of(
                lessons.approve, lessons.against("approve")
            )
        )
        rejecting = list(
            CellFinder(kind, lessons.pools["reject"], "reject").of(lessons.reject, lessons.against("reject"))
        )
        mixed = [leaf for leaf in approving if isinstance(leaf, MixedDecisions)]
        search.approved[scope_of(kind)] += sum(leaf.these for leaf in mixed)
        search.rejected[scope_of(kind)] += sum(leaf.those for leaf in mixed)
        mixed += [leaf for leaf in rejecting if isinstance(leaf, MixedDecisions)]
        both: tuple[tuple[Lesson, list[Cell | MixedDecisions]], ...] = (
            ("approve", approving),
            ("reject", rejecting),
        )
        for lesson, leaves in both[: 1 + settings.rejecting]:
            for leaf in leaves:
                # If splitting an axis left some of it mixed, the pieces are chance, too.
                if isinstance(leaf, Cell) and not (mixed and leaf.axes and not leaf.exact):
                    search.cells.append((kind, lesson, leaf.general))
    return search


def min_decisions(search: CellSearch, kind: CaseKind, lesson: Lesson, settings: LearningSettings) -> int:
    """How many decisions a cell needs: more, the more of the same calls are mixed for no visible reason."""
    approved, rejected = search.approved[scope_of(kind)], search.rejected[scope_of(kind)]
    if approved + rejected < MIN_MIXED or min(approved, rejected) < MIN_CONTRADICTIONS:
        return settings.min_approvals
    share = ((approved if lesson == "approve" else rejected) + 0.5) / (approved + rejected + 1)
    return max(settings.min_approvals, decisions_needed(share, MAX_CHANCE / max(1, len(search.cells))))


@dataclass(frozen=True, slots=True)
class Cell:
    """A rule for part of a kind, and the axes that were split to get it."""

    general: Generalisation
    axes: frozenset[Axis]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class MixedDecisions:
    """Decisions that no split separates."""

    these: int
    those: int


@dataclass(frozen=True, slots=True)
class CellFinder:
    """Searches one kind of proposals for rules with one decision."""

    kind: CaseKind
    pools: Pools
    decision: Lesson

    def of(
        self,
        these: Sequence[Example],
        those: Sequence[Example],
        *,
        against: Sequence[Example] | None = None,
        axes: frozenset[Axis] = frozenset(),
        depth: int = 0,
        exact: bool = False,
    ) -> Iterator[Cell | MixedDecisions]:
        """Rules for parts of `these` that match none of `those`, and what stayed mixed."""
        if not these:
            return
        kind, pools = self.kind, self.pools
        against = those if against is None else against
        within = partial(self._within, against=against, axes=axes, depth=depth, exact=exact)
        general = generalise(
            kind,
            these,
            name="suggested",
            decision=self.decision,
            hours="hours" in axes,
            exact=exact,
            pools=pools,
        )
        taken = list(those)
        if general is not None:
            rule = general.rule
            taken = [example for example in against if rule.covers_call(example.case, example.case.at)]
            if not taken:
                split = split_uneven(kind, these, exact=exact, pools=pools)
                if split is not None:
                    # Too deep: the rule would cover pairs that nobody has seen.
                    if depth < MAX_DEPTH:
                        yield from within(split)
                elif ranges_are_independent(kind, these):
                    yield Cell(general, axes, exact)
                return
        if not taken:
            return
        split = best_split(kind, these, taken) if depth < MAX_DEPTH and not exact else None
        # Two numbers that are split in turns are compared with each other, which no rule can express.
        numbers = {axis for axis in (*axes, split.axis if split else None) if axis not in (None, "hours")}
        if split is not None and len(numbers) <= 1:
            yield from within(split)
            return
        split = split_touched(kind, these, taken, exact=exact, pools=pools) if depth < MAX_DEPTH else None
        if split is not None:
            # Alternatives that no rejection touches stand for themselves.
            yield from within(split)
            return
        if not exact:
            yield MixedDecisions(len(these), len(taken))
            yield from self.of(these, those, against=against, axes=axes, exact=True)

    def _within(
        self,
        split: Split,
        *,
        against: Sequence[Example],
        axes: frozenset[Axis],
        depth: int,
        exact: bool,
    ) -> Iterator[Cell | MixedDecisions]:
        if split.axis is not None:
            axes |= {split.axis}
        for these, those in split.groups:
            yield from self.of(these, those, against=against, axes=axes, depth=depth + 1, exact=exact)
