"""From decisions to suggestions: the narrowest rules that cover enough approvals and no rejection.

Only what people decided counts; what a rule decided proves nothing about the rule. Proposals of one kind are
generalised together (`generalising`) and split where they have to be (`splitting`). A rule is suggested when

- it covers at least `approvals` of them and not a single rejection (or the other way round, to reject),
- luck does not explain it: where people decide by something that cannot be seen in proposals, a row of
  approvals must be longer than chance would bring, given how mixed their decisions are,
- it would have spared people some questions that the rules there are do not.

Nothing becomes active here: a suggestion is a value, and a person accepts, narrows or dismisses it.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.trust.backtest import BackTest, back_test
from moot.trust.bounds import DOUBT, needed_for, percent, upper_bound
from moot.trust.conditions import canonical
from moot.trust.decision_ledger import Decision, Lesson
from moot.trust.decision_tree import DEEPEST, Line, Split, best_split
from moot.trust.generalisation import CaseKind, Example, Generalisation, generalise, kind_of
from moot.trust.narrowing_proof import wider_in
from moot.trust.rule_grants import RuleGrant, grant_of, why_no_grant
from moot.trust.rule_words import counted, list_of, rule_in_words
from moot.trust.rule_yaml import rule_as_json
from moot.trust.rules import Rule, RuleLimits, RuleOrigin
from moot.trust.value_products import goes_together, uneven


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """What it takes to be suggested."""

    # k: ten in a row leave room for one rejection in four (`bounds`), which is what a suggestion then says.
    approvals: int = 10
    # By how many decisions a suggestion must go beyond the rules that there are.
    fresh: int = 3
    # How likely luck may be where decisions are mixed; small, since it is tried again with every decision.
    chance: float = 1e-4
    # Mixed decisions from which on people are taken to decide by something unseen.
    mixed: int = 5
    # The share that stays with people, so that a rule that goes wrong is noticed.
    check: float = 0.05
    # How often in an hour a rule may act: times the most that people approved in one, and at least so often.
    burst: float = 2.0
    least_count: int = 10
    # A rule that nobody renews ends.
    expires_days: float = 90.0
    # Whether to suggest rejecting rules, too.
    rejecting: bool = True
    # Rules come out of the latest so many decisions by people (some seconds of work); none that any older
    # rejection contradicts is suggested.
    latest: int = 5_000
    # Whose approvals teach; None: everybody's who could fulfil. Anybody's rejection counts.
    people: frozenset[str] | None = None


DEFAULTS: Final = LearningSettings()


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rule that a person could accept, and all that they should know before."""

    id: str
    rule: Rule
    words: str
    evidence: str
    decisions: int
    deciders: tuple[str, ...]
    # With 95 % confidence no more than this share of such proposals would have been decided otherwise;
    # of those with values never seen before, no more than `new_bound`.
    error_bound: float
    new_bound: float | None
    back_test: BackTest
    grant: RuleGrant | None
    no_grant: str | None
    # Names of learned rules that this one takes the place of.
    replaces: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Json]:
        """The payload of `trust/suggestion`."""
        return {
            "suggestion": self.id,
            "rule": rule_as_json(self.rule),
            "words": self.words,
            "evidence": self.evidence,
            "decisions": self.decisions,
            "deciders": list(self.deciders),
            "error_bound": round(self.error_bound, 4),
            "new_bound": None if self.new_bound is None else round(self.new_bound, 4),
            "back_test": self.back_test.as_json(),
            "grant": None if self.grant is None else self.grant.as_json(),
            "no_grant": self.no_grant,
            "replaces": list(self.replaces),
        }


@dataclass(slots=True)
class _Lessons:
    """What people said about one kind of proposal."""

    approve: list[Example] = field(default_factory=list)
    reject: list[Example] = field(default_factory=list)

    def of(self, lesson: Lesson) -> list[Example]:
        return self.approve if lesson == "approve" else self.reject


@dataclass(slots=True)
class _Search:
    """One look through all kinds: the cells found, and how mixed the rest is."""

    cells: list[tuple[CaseKind, Lesson, Generalisation]] = field(default_factory=list)
    approved: int = 0
    rejected: int = 0


def suggest(
    decisions: Iterable[Decision],
    rules: Sequence[Rule] = (),
    *,
    dismissed: Sequence[Rule] = (),
    now: float,
    settings: LearningSettings = DEFAULTS,
) -> list[Suggestion]:
    """What the history would let people automate next, the most sparing first. Pure, and the same each time.

    `dismissed` are rules that people did not want: nothing is suggested that adds little to them.
    """
    history = list(decisions)
    lessons = [decision for decision in history if _teaches(decision, settings)]
    kinds = _kinds(lessons[-settings.latest :])
    search = _searched(kinds, settings)
    alive = [rule for rule in rules if rule.limits.expires is None or now < rule.limits.expires]
    known = (*alive, *dismissed)
    found: list[Suggestion] = []
    for kind, lesson, cell in search.cells:
        these, those = kinds[kind].of(lesson), kinds[kind].of("reject" if lesson == "approve" else "approve")
        rule = cell.rule
        covered = [example for example in these if rule.matches(example.case, example.case.at)]
        # Parts are narrowed one by one, and a narrower part can be a wider pattern: look at all again.
        if any(rule.matches(example.case, example.case.at) for example in those):
            continue
        if len(covered) < _needed(search, lesson, settings):
            continue
        fresh = sum(1 for example in covered if not _decided_by(known, example, lesson))
        if fresh < min(settings.fresh, len(covered)):
            continue
        suggestion = _suggestion(kind, cell, covered, history, alive, len(search.cells), now, settings)
        if not suggestion.back_test.conflicts:
            found.append(suggestion)
    found.sort(key=lambda suggestion: (-suggestion.decisions, suggestion.id))
    return found


def _teaches(decision: Decision, settings: LearningSettings) -> bool:
    lesson = decision.lesson
    return lesson == "reject" or (
        lesson == "approve" and (settings.people is None or decision.by in settings.people)
    )


def _kinds(history: Iterable[Decision]) -> dict[CaseKind, _Lessons]:
    kinds: dict[CaseKind, _Lessons] = {}
    for decision in history:
        lesson = decision.lesson
        known = kind_of(decision.case) if lesson is not None else None
        if lesson is not None and known is not None:
            kinds.setdefault(known[0], _Lessons()).of(lesson).append(known[1])
    return kinds


def _searched(kinds: dict[CaseKind, _Lessons], settings: LearningSettings) -> _Search:
    search = _Search()
    for kind, lessons in kinds.items():
        approving = list(_cells(kind, lessons.approve, lessons.reject, "approve"))
        rejecting = list(_cells(kind, lessons.reject, lessons.approve, "reject"))
        mixed = [leaf for leaf in approving if isinstance(leaf, _Mixed)]
        search.approved += sum(leaf.these for leaf in mixed)
        search.rejected += sum(leaf.those for leaf in mixed)
        mixed += [leaf for leaf in rejecting if isinstance(leaf, _Mixed)]
        both: tuple[tuple[Lesson, list[_Cell | _Mixed]], ...] = (
            ("approve", approving),
            ("reject", rejecting),
        )
        for lesson, leaves in both[: 1 + settings.rejecting]:
            for leaf in leaves:
                # Where cutting lines into pieces left some of it mixed, the pieces are luck, too.
                if isinstance(leaf, _Cell) and not (mixed and leaf.lines):
                    search.cells.append((kind, lesson, leaf.general))
    return search


def _needed(search: _Search, lesson: Lesson, settings: LearningSettings) -> int:
    """How many decisions a cell takes: more, the more of the others are mixed without a visible reason."""
    mixed = search.approved + search.rejected
    if mixed < settings.mixed:
        return settings.approvals
    this_way = search.approved if lesson == "approve" else search.rejected
    share = (this_way + 0.5) / (mixed + 1)
    return max(settings.approvals, needed_for(share, settings.chance / max(1, len(search.cells))))


@dataclass(frozen=True, slots=True)
class _Cell:
    """A rule over part of a kind, and the lines that had to be cut to get there."""

    general: Generalisation
    lines: frozenset[Line]


@dataclass(frozen=True, slots=True)
class _Mixed:
    """What no question told apart."""

    these: int
    those: int


def _cells(
    kind: CaseKind,
    these: Sequence[Example],
    those: Sequence[Example],
    decision: Lesson,
    *,
    against: Sequence[Example] | None = None,
    lines: frozenset[Line] = frozenset(),
    depth: int = 0,
) -> Iterator[_Cell | _Mixed]:
    """Rules over parts of these that take none of those along, and what stayed mixed."""
    if not these:
        return
    against = those if against is None else against
    hours = True if "hours" in lines else None
    general = generalise(kind, these, name="suggested", decision=decision, hours=hours)
    taken = list(those)
    if general is not None:
        rule = general.rule
        taken = [example for example in against if rule.matches(example.case, example.case.at)]
        if not taken:
            split = uneven(kind, these) if depth < DEEPEST else None
            if split is not None:
                yield from _within(kind, split, against, decision, lines, depth)
            elif goes_together(kind, these):
                yield _Cell(general, lines)
            return
    if not taken:
        return
    split = best_split(kind, these, taken) if depth < DEEPEST else None
    # Two numbers that have to be cut in turns are compared with each other, which no rule can say.
    numbers = {line for line in (*lines, split.line if split else None) if line not in (None, "hours")}
    if split is None or len(numbers) > 1:
        yield _Mixed(len(these), len(taken))
        return
    yield from _within(kind, split, against, decision, lines, depth)


def _within(
    kind: CaseKind,
    split: Split,
    against: Sequence[Example],
    decision: Lesson,
    lines: frozenset[Line],
    depth: int,
) -> Iterator[_Cell | _Mixed]:
    if split.line is not None:
        lines |= {split.line}
    for these, those in split.groups:
        yield from _cells(kind, these, those, decision, against=against, lines=lines, depth=depth + 1)


def _decided_by(rules: Sequence[Rule], example: Example, lesson: Lesson) -> bool:
    return any(rule.decision == lesson and rule.matches(example.case, example.case.at) for rule in rules)


# Putting it into words


def _suggestion(
    kind: CaseKind,
    cell: Generalisation,
    covered: Sequence[Example],
    history: Sequence[Decision],
    rules: Sequence[Rule],
    cells: int,
    now: float,
    settings: LearningSettings,
) -> Suggestion:
    bare = rule_as_json(cell.rule)
    del bare["name"]
    digest = hashlib.sha256(canonical(bare)).hexdigest()[:8]
    id = f"s-{digest}"
    limits = RuleLimits(
        count=_burst(covered, settings),
        seconds=3600.0,
        expires=float(round(now + settings.expires_days * 86_400)),
        check=settings.check,
    )
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{kind.tool or kind.method}-{kind.proposer}")[:54].strip("-._")
    words = rule_in_words(cell.rule, cell.parts)
    rule = replace(
        cell.rule,
        name=f"{name or 'rule'}-{digest}",
        limits=limits,
        origin=RuleOrigin(suggestion=id),
        words=words,
    )
    # Looked for in many places, so each of them may be luck: the doubt is shared out among them.
    doubt = DOUBT / max(1, cells)
    bound = upper_bound(0, len(covered), doubt=doubt)
    new_bound = None if cell.first_times is None else upper_bound(0, cell.first_times, doubt=doubt)
    ids = {example.case.id for example in covered}
    deciders = tuple(sorted({d.by for d in history if d.id in ids and d.by is not None}))
    return Suggestion(
        id=id,
        rule=rule,
        words=words,
        evidence=_evidence(rule, len(covered), deciders, bound, cell.first_times, new_bound),
        decisions=len(covered),
        deciders=deciders,
        error_bound=bound,
        new_bound=new_bound,
        back_test=back_test(cell.rule, history),
        grant=grant_of(rule),
        no_grant=why_no_grant(rule),
        replaces=_replaced(rule, rules, history),
    )


def _evidence(
    rule: Rule,
    count: int,
    deciders: Sequence[str],
    bound: float,
    first_times: int | None,
    new_bound: float | None,
) -> str:
    done, otherwise = ("approval", "rejection") if rule.decision == "approve" else ("rejection", "approval")
    said = (
        f"Based on {counted(count, done)} by {list_of(deciders)} and no {otherwise}s; "
        f"error rate up to {percent(bound)} (95 % confidence)."
    )
    if first_times is not None and new_bound is not None and new_bound > bound:
        said += f" For values not seen before, of which there were {first_times}: up to {percent(new_bound)}."
    return said


def _burst(covered: Sequence[Example], settings: LearningSettings) -> int:
    """The most of them within one hour, times what a rule may exceed it by."""
    window: deque[float] = deque()
    most = 0
    for moment in sorted(example.case.at for example in covered):
        window.append(moment)
        while window[0] <= moment - 3600.0:
            window.popleft()
        most = max(most, len(window))
    return max(settings.least_count, round(settings.burst * most))


def _replaced(rule: Rule, rules: Sequence[Rule], history: Sequence[Decision]) -> tuple[str, ...]:
    """Learned rules for the same kind that decide nothing in this history that the new one does not."""
    names = []
    for old in rules:
        same = all(
            getattr(old, part) == getattr(rule, part)
            for part in ("decision", "proposer", "to", "method", "tool")
        )
        if same and old.origin.suggestion is not None:
            cases = [decision.case for decision in history]
            if all(rule.matches(case, case.at) for case in cases if old.matches(case, case.at)):
                names.append(old.name)
    return tuple(names)


def accepted(
    rules: Sequence[Rule], suggestion: Suggestion, *, by: str, now: float, rule: Rule | None = None
) -> tuple[Rule, ...]:
    """The rules with a suggestion taken in; `rule` is what the person made of it, when they narrowed it.

    Raises UsageError when that is wider than what was suggested.
    """
    taken = rule or suggestion.rule
    wider = wider_in(taken, suggestion.rule)
    if wider is not None:
        raise UsageError(f"{wider} is wider than in the suggestion; a suggestion can only be narrowed")
    taken = replace(taken, origin=RuleOrigin(suggestion.id, by, now))
    return with_rule(rules, taken, replaces=suggestion.replaces)


def with_rule(rules: Sequence[Rule], rule: Rule, *, replaces: Sequence[str] = ()) -> tuple[Rule, ...]:
    """The rules with one more, without those it takes the place of; rejecting rules come first."""
    kept = [old for old in rules if old.name not in replaces and old.name != rule.name]
    return (rule, *kept) if rule.decision == "reject" else (*kept, rule)
