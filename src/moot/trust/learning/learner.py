"""From decisions to suggestions: the narrowest rules that cover enough approvals and no rejection.

Only decisions by people count; what a rule decided proves nothing about the rule. Proposals of one kind are
generalised together (`generalisation`) and split if needed (`decision_tree`). A rule is suggested if

- it covers at least `approvals` of them and not a single rejection (or the other way round, to reject),
- chance does not explain it: where people decide by something that is not in the proposals, a row of
  approvals must be longer than chance would produce, given how mixed their decisions are,
- it would have decided some proposals that the existing rules do not.

Nothing becomes active here: a suggestion is a value, and a person accepts, narrows or dismisses it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Final

from moot.trust.history.proposal_history import HistoryProposal, Lesson
from moot.trust.learning.cell_search import (
    NO_SCHEMAS,
    Cell,
    CellFinder,
    ToolSchemas,
    group_by_kind,
    min_decisions,
    search_cells,
)
from moot.trust.learning.generalisation import Example
from moot.trust.learning.learning_settings import DEFAULTS, LearningSettings
from moot.trust.learning.suggestion import Suggestion, build_suggestion
from moot.trust.rules.rule import Rule

# Decisions that a suggestion must cover beyond the existing rules.
MIN_NEW_DECISIONS: Final = 3
# And this share of all that it covers: people should not read the same rule again for little.
MIN_NEW_SHARE: Final = 0.05
# Rules are learned from this many of the latest decisions by people (some seconds of work); older
# rejections still prevent suggestions.
MAX_DECISIONS: Final = 5_000


def suggest(
    decisions: Iterable[HistoryProposal],
    rules: Sequence[Rule] = (),
    *,
    dismissed: Sequence[Rule] = (),
    suspended: Container[str] = frozenset(),
    now: float,
    settings: LearningSettings = DEFAULTS,
    schemas: ToolSchemas = NO_SCHEMAS,
) -> list[Suggestion]:
    """Suggest rules from the history, those that cover the most decisions first. Pure and deterministic.

    `dismissed` are rules that people did not want: nothing is suggested that adds little to them. `suspended`
    are names among the rules: where people contradicted a learned one, a rule for the rest may replace it.
    `schemas` are those of the tools' arguments, as far as they are known.
    """
    history = list(decisions)
    lessons = [decision for decision in history if _counts(decision, settings)]
    kinds = group_by_kind(lessons[-MAX_DECISIONS:], schemas)
    search = search_cells(kinds, settings)
    alive = tuple(rule for rule in rules if rule.limits.expires_at is None or now < rule.limits.expires_at)
    broken = tuple(rule for rule in alive if rule.name in suspended and _is_contradicted(rule, history))
    alive = tuple(rule for rule in alive if rule not in broken)
    known = (*alive, *dismissed)
    found: dict[str, Suggestion] = {}
    cells = deque((kind, lesson, cell, known) for kind, lesson, cell in search.cells)
    while cells:
        kind, lesson, cell, known = cells.popleft()
        these, those = kinds[kind].of(lesson), kinds[kind].against(lesson)
        rule = cell.rule
        covered = [example for example in these if rule.matches(example.case, example.case.at)]
        # Parts are narrowed one by one, and a narrower part can be a wider pattern: check all again.
        if any(rule.covers_call(example.case, example.case.at) for example in those):
            continue
        if len(covered) < min_decisions(search, kind, lesson, settings):
            continue
        fresh = sum(1 for example in covered if not _decided_by(known, example, lesson))
        needed = max(MIN_NEW_DECISIONS, MIN_NEW_SHARE * len(covered))
        if fresh < min(needed, len(covered)):
            if _is_wide(rule) and known != alive:
                # Somebody dismissed so wide a rule: the very same calls may still be welcome.
                exact = CellFinder(kind, kinds[kind].pools[lesson], lesson).of(these, those, exact=True)
                rest = (*alive, *(each for each in dismissed if not _is_wide(each)))
                cells.extend((kind, lesson, leaf.general, rest) for leaf in exact if isinstance(leaf, Cell))
            continue
        suggestion = build_suggestion(
            kind, cell, covered, history, (alive, broken), len(search.cells), now, settings
        )
        if not suggestion.back_test.conflicts:
            found[suggestion.id] = suggestion
    return sorted(found.values(), key=lambda suggestion: (-suggestion.decisions, suggestion.id))


def _is_wide(rule: Rule) -> bool:
    """Whether a rule allows what was never seen."""
    return bool(rule.values or rule.range)


def _counts(decision: HistoryProposal, settings: LearningSettings) -> bool:
    lesson = decision.lesson
    return lesson == "reject" or (
        lesson == "approve" and (settings.people is None or decision.by in settings.people)
    )


def _decided_by(rules: Sequence[Rule], example: Example, lesson: Lesson) -> bool:
    # What goes by origins left it to people.
    return any(
        rule.decision == lesson and rule.ask is None and rule.matches(example.case, example.case.at)
        for rule in rules
    )


def _is_contradicted(rule: Rule, history: Sequence[HistoryProposal]) -> bool:
    """Whether people decided otherwise about a call that a learned rule covers."""
    return rule.origin.suggestion is not None and any(
        decision.lesson not in (None, rule.decision) and rule.covers_call(decision.case, decision.case.at)
        for decision in history
    )


def add_rule(rules: Sequence[Rule], rule: Rule, *, replaces: Sequence[str] = ()) -> tuple[Rule, ...]:
    """The rules with one added, without those it replaces; rejecting rules come first.

    Last are those that ask when a value is untrusted: what they leave to people may be what was learned.
    """
    kept = [old for old in rules if old.name not in replaces and old.name != rule.name]
    if rule.decision == "reject":
        return (rule, *kept)
    end = len(kept)
    while end and kept[end - 1].ask is not None:
        end -= 1
    return (*kept[:end], rule, *kept[end:])
