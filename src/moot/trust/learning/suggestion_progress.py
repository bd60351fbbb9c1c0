"""Why nothing is suggested yet: how far each kind of call is from a rule, in words for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from moot.trust.history.proposal_case import path_text
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning import learner
from moot.trust.learning.generalisation import options_of
from moot.trust.learning.learning_settings import LearningSettings
from moot.trust.learning.lessons import CaseKind, Example, Lessons, ToolSchemas, group_by_kind
from moot.trust.rules.rule import Rule

# As many as people read.
MAX_REPORTED: Final = 10


@dataclass(frozen=True, slots=True)
class SuggestionProgress:
    """The approvals of one kind of call that no rule and no suggestion covers."""

    call: str
    approvals: int
    needed: int
    why: str


def suggestion_progress(
    decisions: Iterable[HistoryProposal],
    rules: Sequence[Rule],
    settings: LearningSettings,
    schemas: ToolSchemas,
) -> list[SuggestionProgress]:
    """What people approved beyond `rules`, active and suggested ones, and why no rule is suggested for it.

    One for each proposer and tool, the nearest to a suggestion first.
    """
    history = list(decisions)
    people = settings.people
    counted = [each for each in history if each.lesson == "reject" or people is None or each.by in people]
    kinds = group_by_kind(counted[-learner.MAX_DECISIONS :], schemas)
    found: dict[str, SuggestionProgress] = {}
    for kind, lessons in kinds.items():
        left = [each for each in lessons.approved if not _is_covered(each, rules)]
        if not left:
            continue
        needed = settings.min_approvals
        progress = SuggestionProgress(_call(kind), len(left), needed, _why(kind, lessons, left, needed))
        if progress.call not in found or found[progress.call].approvals < progress.approvals:
            found[progress.call] = progress
    for call, by in _uncounted(history, people).items():
        why = f"approved by {by}, who may not accept rules (trust/accept): rules are learned from people"
        found.setdefault(call, SuggestionProgress(call, 0, settings.min_approvals, why))
    return sorted(found.values(), key=lambda each: (each.approvals - each.needed, each.call), reverse=True)[
        :MAX_REPORTED
    ]


def _is_covered(example: Example, rules: Sequence[Rule]) -> bool:
    return any(rule.ask is None and rule.matches(example.case, example.case.at) for rule in rules)


def _call(kind: CaseKind) -> str:
    return _call_words(kind.proposer, kind.tool or kind.method, kind.to)


def _call_words(proposer: str, tool: str, to: Sequence[str]) -> str:
    return f"{tool} on {', '.join(to)} by {proposer}" if to else f"{tool} by {proposer}"


def _why(kind: CaseKind, lessons: Lessons, left: Sequence[Example], needed: int) -> str:
    if len(left) < needed:
        return f"{len(left)} of {needed} decisions of this kind so far"
    free = [path_text(path) for path, type in kind.shape if options_of(kind, path, type, left) is None]
    if free:
        return f"{len(left)} approvals, but {' and '.join(free)} differed too much for a narrow rule"
    if lessons.rejected:
        return (
            f"{len(left)} approvals and {len(lessons.rejected)} rejections, and nothing in the calls "
            "tells them apart"
        )
    return f"{len(left)} approvals, but their arguments differ too much for a narrow rule"


def _uncounted(history: Iterable[HistoryProposal], people: frozenset[str] | None) -> dict[str, str]:
    """Calls that somebody approved whose approvals do not count, and who that was last."""
    return {
        _call_words(each.case.proposer, each.case.tool or each.case.method, each.case.to): each.by
        for each in history
        if people is not None and each.lesson == "approve" and each.by and each.by not in people
    }
