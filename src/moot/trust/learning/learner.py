"""From decisions to suggestions: the narrowest rules that cover enough approvals and no rejection.

Only decisions by people count; what a rule decided proves nothing about the rule. Proposals of one kind are
generalised together (`generalisation`). A rule is suggested if

- it covers at least `min_approvals` of them and not a single rejection,
- it would have decided some proposals that the existing rules do not.

Nothing becomes active here: a suggestion is a value, and a person accepts, narrows or dismisses it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.generalisation import generalise
from moot.trust.learning.learning_settings import DEFAULTS, LearningSettings
from moot.trust.learning.lessons import NO_SCHEMAS, CaseKind, Example, ToolSchemas, group_by_kind
from moot.trust.learning.suggestion import Suggestion, build_suggestion, moments_of, most_within
from moot.trust.rules.rule import Rule

# Decisions that a suggestion must cover beyond the existing rules.
MIN_NEW_DECISIONS: Final = 3
# And this share of all that it covers: people should not read the same rule again for little.
MIN_NEW_SHARE: Final = 0.05
# A rule is suggested again if such calls came so many times as often as it may act.
MORE_OFTEN: Final = 1.5
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
    repeatable: Container[tuple[str, str | None]] = frozenset(),
    reading: Container[tuple[str, str | None]] = frozenset(),
) -> list[Suggestion]:
    """Suggest rules from the history, those that cover the most decisions first. Pure and deterministic.

    `dismissed` are rules that people did not want: nothing is suggested that adds little to them. `suspended`
    are names among the rules: where people contradicted a learned one, a rule for the rest may replace it.
    `schemas` are those of the tools' arguments, as far as they are known; `repeatable` the hosts and tools
    that are declared read-only or idempotent, and accepted as such, `reading` those that are read-only.
    """
    history = list(decisions)
    lessons = [decision for decision in history if _counts(decision, settings)]
    kinds = group_by_kind(lessons[-MAX_DECISIONS:], schemas)
    alive = tuple(rule for rule in rules if rule.limits.expires_at is None or now < rule.limits.expires_at)
    broken = tuple(rule for rule in alive if rule.name in suspended and _is_contradicted(rule, history))
    alive = tuple(rule for rule in alive if rule not in broken)
    cells = [
        (kind, cell)
        for kind, found in kinds.items()
        for cell in generalise(kind, found, reads=_is_among(reading, kind))
    ]
    suggestions: dict[str, Suggestion] = {}
    for kind, cell in cells:
        rule = cell.rule
        covered = [each for each in kinds[kind].approved if rule.matches(each.case, each.case.at)]
        fresh = sum(1 for each in covered if not _is_approved_by((*alive, *dismissed), each))
        needed = min(max(MIN_NEW_DECISIONS, MIN_NEW_SHARE * len(covered)), len(covered))
        if len(covered) < settings.min_approvals:
            continue
        if fresh < needed and not _acts_more_often(rule, alive, history):
            continue
        suggestion = build_suggestion(
            kind,
            cell,
            covered,
            history,
            (alive, broken),
            len(cells),
            now,
            settings,
            is_repeatable=_is_among(repeatable, kind),
        )
        if cell.pardoned.issuperset(suggestion.back_test.conflicts):
            suggestions[suggestion.id] = suggestion
    return sorted(suggestions.values(), key=lambda suggestion: (-suggestion.decisions, suggestion.id))


def _counts(decision: HistoryProposal, settings: LearningSettings) -> bool:
    lesson = decision.lesson
    return lesson == "reject" or (
        lesson == "approve" and (settings.people is None or decision.by in settings.people)
    )


def _is_among(tools: Container[tuple[str, str | None]], kind: CaseKind) -> bool:
    return any((host, kind.tool) in tools for host in kind.to)


def _acts_more_often(rule: Rule, rules: Sequence[Rule], history: Sequence[HistoryProposal]) -> bool:
    """Whether such calls came so much more often than a rule may act that it should be accepted anew."""
    for old in rules:
        most = old.limits.max_decisions
        bare = replace(
            old, name=rule.name, limits=rule.limits, origin=rule.origin, words=rule.words, ask=rule.ask
        )
        if old.origin.suggestion is not None and most is not None and bare == rule:
            rows, seconds = moments_of(rule, history).values(), old.limits.per_seconds
            each = old.limits.max_each
            return most_within(chain(*rows), seconds) >= MORE_OFTEN * most or (
                each is not None and max(most_within(row, seconds) for row in rows) >= MORE_OFTEN * each
            )
    return False


def _is_approved_by(rules: Sequence[Rule], example: Example) -> bool:
    # What goes by origins left it to people, but for a learned rule: that is not suggested again.
    return any(
        rule.decision == "approve"
        and (rule.ask is None or rule.origin.suggestion is not None)
        and rule.matches(example.case, example.case.at)
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
