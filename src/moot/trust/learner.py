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

import hashlib
import re
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from moot.protocol.operation import Json
from moot.trust.backtest import BackTest, back_test
from moot.trust.bounds import DOUBT, decisions_needed, percent, upper_bound
from moot.trust.conditions import canonical
from moot.trust.decision_ledger import Decision, Lesson
from moot.trust.decision_tree import MAX_DEPTH, Axis, Split, best_split
from moot.trust.generalisation import CaseKind, Example, Generalisation, Pools, generalise, kind_of
from moot.trust.proposal_case import Path
from moot.trust.rule_examples import near_misses, unseen_calls
from moot.trust.rule_grants import RuleGrant, grant_of, why_no_grant
from moot.trust.rule_words import count_text, describe_rule, join_names
from moot.trust.rule_yaml import rule_as_json
from moot.trust.rules import Rule, RuleLimits, RuleOrigin
from moot.trust.tool_schemas import NO_SCHEMAS, ToolSchemas, formats_of
from moot.trust.value_products import ranges_are_independent, split_touched, split_uneven


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """What a suggestion requires, and the limits of a suggested rule."""

    # Ten in a row still allow an error rate of one in four (`bounds`), which the suggestion states.
    min_approvals: int = 10
    # Decisions that a suggestion must cover beyond the existing rules.
    min_new_decisions: int = 3
    # And this share of all that it covers: people should not read the same rule again for little.
    min_new_share: float = 0.05
    # How likely chance may be where decisions are mixed; small, since it is tried again with every decision.
    max_chance: float = 1e-4
    # From this many mixed decisions on, with so many of each, people are assumed to decide by something that
    # proposals do not show.
    min_mixed: int = 5
    min_contradictions: int = 3
    # The share of matches that people still decide, so that a wrong rule is noticed.
    check_share: float = 0.05
    # The share of a rule's decisions that may be unreviewed before people are asked to look at them.
    review_share: float = 0.02
    # The hourly limit of a rule: this factor times the most that people approved in one hour, at least
    # min_hourly.
    burst_factor: float = 2.0
    min_hourly: int = 10
    # A rule that nobody renews expires.
    expires_days: float = 90.0
    # Whether to suggest rejecting rules, too.
    rejecting: bool = True
    # Rules are learned from this many of the latest decisions by people (some seconds of work); older
    # rejections still prevent suggestions.
    max_decisions: int = 5_000
    # Whose approvals count; None: those of everyone who could fulfil. Anyone's rejection counts.
    people: frozenset[str] | None = None


DEFAULTS: Final = LearningSettings()


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rule that a person could accept, and what they should know before."""

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
    # Arguments at its edges that it would approve though they were never seen, and some just outside.
    allows: tuple[Mapping[str, Json], ...]
    refuses: tuple[Mapping[str, Json], ...]
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
            "allows": [dict(each) for each in self.allows],
            "refuses": [dict(each) for each in self.refuses],
            "grant": None if self.grant is None else self.grant.as_json(),
            "no_grant": self.no_grant,
            "replaces": list(self.replaces),
        }


@dataclass(slots=True)
class _Lessons:
    """What people decided about one kind of proposal."""

    approve: list[Example] = field(default_factory=list)
    reject: list[Example] = field(default_factory=list)
    # Shared by all kinds of one proposer and tool: the texts of each argument, by lesson.
    pools: dict[Lesson, dict[Path, list[str]]] = field(default_factory=dict)

    def of(self, lesson: Lesson) -> list[Example]:
        return self.approve if lesson == "approve" else self.reject


# What an unexplained rejection can concern: the same call of the same host, whoever proposes it.
_Scope = tuple[tuple[str, ...], str, str | None]


@dataclass(slots=True)
class _Search:
    """The result of searching all kinds: the cells found, and how mixed the rest is, by scope."""

    cells: list[tuple[CaseKind, Lesson, Generalisation]] = field(default_factory=list)
    approved: Counter[_Scope] = field(default_factory=Counter)
    rejected: Counter[_Scope] = field(default_factory=Counter)


def _scope(kind: CaseKind) -> _Scope:
    return kind.to, kind.method, kind.tool


def suggest(
    decisions: Iterable[Decision],
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
    kinds = _kinds(lessons[-settings.max_decisions :], schemas)
    search = _search_cells(kinds, settings)
    alive = tuple(rule for rule in rules if rule.limits.expires_at is None or now < rule.limits.expires_at)
    broken = tuple(rule for rule in alive if rule.name in suspended and _is_contradicted(rule, history))
    alive = tuple(rule for rule in alive if rule not in broken)
    known = (*alive, *dismissed)
    found: dict[str, Suggestion] = {}
    cells = deque((kind, lesson, cell, known) for kind, lesson, cell in search.cells)
    while cells:
        kind, lesson, cell, known = cells.popleft()
        these, those = kinds[kind].of(lesson), kinds[kind].of("reject" if lesson == "approve" else "approve")
        rule = cell.rule
        covered = [example for example in these if rule.matches(example.case, example.case.at)]
        # Parts are narrowed one by one, and a narrower part can be a wider pattern: check all again.
        if any(rule.covers_call(example.case, example.case.at) for example in those):
            continue
        if len(covered) < _min_decisions(search, kind, lesson, settings):
            continue
        fresh = sum(1 for example in covered if not _decided_by(known, example, lesson))
        needed = max(settings.min_new_decisions, settings.min_new_share * len(covered))
        if fresh < min(needed, len(covered)):
            if _is_wide(rule) and known != alive:
                # Somebody dismissed so wide a rule: the very same calls may still be welcome.
                exact = _Cells(kind, kinds[kind].pools[lesson], lesson).of(these, those, exact=True)
                rest = (*alive, *(each for each in dismissed if not _is_wide(each)))
                cells.extend((kind, lesson, leaf.general, rest) for leaf in exact if isinstance(leaf, _Cell))
            continue
        suggestion = _suggestion(
            kind, cell, covered, history, (alive, broken), len(search.cells), now, settings
        )
        if not suggestion.back_test.conflicts:
            found[suggestion.id] = suggestion
    return sorted(found.values(), key=lambda suggestion: (-suggestion.decisions, suggestion.id))


def _is_wide(rule: Rule) -> bool:
    """Whether a rule allows what was never seen."""
    return bool(rule.values or rule.range)


def _counts(decision: Decision, settings: LearningSettings) -> bool:
    lesson = decision.lesson
    return lesson == "reject" or (
        lesson == "approve" and (settings.people is None or decision.by in settings.people)
    )


def _kinds(history: Iterable[Decision], schemas: ToolSchemas) -> dict[CaseKind, _Lessons]:
    kinds: dict[CaseKind, _Lessons] = {}
    pools: dict[tuple[str, _Scope], dict[Lesson, dict[Path, list[str]]]] = {}
    for decision in history:
        lesson = decision.lesson
        known = kind_of(decision.case) if lesson is not None else None
        if lesson is None or known is None:
            continue
        kind, example = known
        if kind not in kinds and schemas:
            kind = replace(kind, formats=formats_of(kind, schemas))
        pool = pools.setdefault((kind.proposer, _scope(kind)), {"approve": {}, "reject": {}})
        kinds.setdefault(kind, _Lessons(pools=pool)).of(lesson).append(example)
        for path, value in example.values.items():
            if isinstance(value, str):
                pool[lesson].setdefault(path, []).append(value)
    return kinds


def _search_cells(kinds: dict[CaseKind, _Lessons], settings: LearningSettings) -> _Search:
    search = _Search()
    for kind, lessons in kinds.items():
        approving = list(
            _Cells(kind, lessons.pools["approve"], "approve").of(lessons.approve, lessons.reject)
        )
        rejecting = list(_Cells(kind, lessons.pools["reject"], "reject").of(lessons.reject, lessons.approve))
        mixed = [leaf for leaf in approving if isinstance(leaf, _Mixed)]
        search.approved[_scope(kind)] += sum(leaf.these for leaf in mixed)
        search.rejected[_scope(kind)] += sum(leaf.those for leaf in mixed)
        mixed += [leaf for leaf in rejecting if isinstance(leaf, _Mixed)]
        both: tuple[tuple[Lesson, list[_Cell | _Mixed]], ...] = (
            ("approve", approving),
            ("reject", rejecting),
        )
        for lesson, leaves in both[: 1 + settings.rejecting]:
            for leaf in leaves:
                # If splitting an axis left some of it mixed, the pieces are chance, too.
                if isinstance(leaf, _Cell) and not (mixed and leaf.axes and not leaf.exact):
                    search.cells.append((kind, lesson, leaf.general))
    return search


def _min_decisions(search: _Search, kind: CaseKind, lesson: Lesson, settings: LearningSettings) -> int:
    """How many decisions a cell needs: more, the more of the same calls are mixed for no visible reason."""
    approved, rejected = search.approved[_scope(kind)], search.rejected[_scope(kind)]
    if approved + rejected < settings.min_mixed or min(approved, rejected) < settings.min_contradictions:
        return settings.min_approvals
    share = ((approved if lesson == "approve" else rejected) + 0.5) / (approved + rejected + 1)
    return max(
        settings.min_approvals, decisions_needed(share, settings.max_chance / max(1, len(search.cells)))
    )


@dataclass(frozen=True, slots=True)
class _Cell:
    """A rule for part of a kind, and the axes that were split to get it."""

    general: Generalisation
    axes: frozenset[Axis]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class _Mixed:
    """Decisions that no split separates."""

    these: int
    those: int


@dataclass(frozen=True, slots=True)
class _Cells:
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
    ) -> Iterator[_Cell | _Mixed]:
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
                split = split_uneven(kind, these, exact=exact, pools=pools) if depth < MAX_DEPTH else None
                if split is not None:
                    yield from within(split)
                elif ranges_are_independent(kind, these):
                    yield _Cell(general, axes, exact)
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
            yield _Mixed(len(these), len(taken))
            yield from self.of(these, those, against=against, axes=axes, exact=True)

    def _within(
        self,
        split: Split,
        *,
        against: Sequence[Example],
        axes: frozenset[Axis],
        depth: int,
        exact: bool,
    ) -> Iterator[_Cell | _Mixed]:
        if split.axis is not None:
            axes |= {split.axis}
        for these, those in split.groups:
            yield from self.of(these, those, against=against, axes=axes, depth=depth + 1, exact=exact)


def _decided_by(rules: Sequence[Rule], example: Example, lesson: Lesson) -> bool:
    return any(rule.decision == lesson and rule.matches(example.case, example.case.at) for rule in rules)


# Building a suggestion


def _suggestion(
    kind: CaseKind,
    cell: Generalisation,
    covered: Sequence[Example],
    history: Sequence[Decision],
    rules: tuple[Sequence[Rule], Sequence[Rule]],
    cells: int,
    now: float,
    settings: LearningSettings,
) -> Suggestion:
    bare = rule_as_json(cell.rule)
    del bare["name"]
    digest = hashlib.sha256(canonical(bare)).hexdigest()[:8]
    id = f"s-{digest}"
    limits = RuleLimits(
        max_decisions=_hourly_limit(covered, settings),
        per_seconds=3600.0,
        expires_at=float(round(now + settings.expires_days * 86_400)),
        check_share=settings.check_share,
        review_share=settings.review_share if cell.rule.decision == "approve" else 0.0,
    )
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{kind.tool or kind.method}-{kind.proposer}")[:54].strip("-._")
    words = describe_rule(cell.rule, cell.parts)
    rule = replace(
        cell.rule,
        name=f"{name or 'rule'}-{digest}",
        limits=limits,
        origin=RuleOrigin(suggestion=id),
        words=words,
    )
    # Many cells were searched, and each may be chance: the doubt is divided among them.
    doubt = DOUBT / max(1, cells)
    bound = upper_bound(0, len(covered), doubt=doubt)
    new_bound = None if cell.first_times is None else upper_bound(0, cell.first_times, doubt=doubt)
    cases = [example.case for example in covered]
    ids = {case.id for case in cases}
    deciders = tuple(sorted({d.by for d in history if d.id in ids and d.by is not None}))
    return Suggestion(
        id=id,
        rule=rule,
        words=words,
        evidence=_evidence_text(rule, len(covered), deciders, bound, cell.first_times, new_bound),
        decisions=len(covered),
        deciders=deciders,
        error_bound=bound,
        new_bound=new_bound,
        back_test=back_test(cell.rule, history),
        allows=tuple(unseen_calls(cell.rule, cases)),
        refuses=tuple(near_misses(cell.rule, cases)),
        grant=grant_of(rule),
        no_grant=why_no_grant(rule),
        replaces=_replaced_rules(rule, *rules, history),
    )


def _evidence_text(
    rule: Rule,
    count: int,
    deciders: Sequence[str],
    bound: float,
    first_times: int | None,
    new_bound: float | None,
) -> str:
    done, otherwise = ("approval", "rejection") if rule.decision == "approve" else ("rejection", "approval")
    text = (
        f"Based on {count_text(count, done)} by {join_names(deciders)} and no {otherwise}s; "
        f"error rate up to {percent(bound)} (95 % confidence)."
    )
    if first_times is not None and new_bound is not None and new_bound > bound:
        text += f" For values not seen before, of which there were {first_times}: up to {percent(new_bound)}."
    return text


def _hourly_limit(covered: Sequence[Example], settings: LearningSettings) -> int:
    """The hourly limit: a multiple of the most decisions within one hour."""
    window: deque[float] = deque()
    most = 0
    for moment in sorted(example.case.at for example in covered):
        window.append(moment)
        while window[0] <= moment - 3600.0:
            window.popleft()
        most = max(most, len(window))
    return max(settings.min_hourly, round(settings.burst_factor * most))


def _is_contradicted(rule: Rule, history: Sequence[Decision]) -> bool:
    """Whether people decided otherwise about a call that a learned rule covers."""
    return rule.origin.suggestion is not None and any(
        decision.lesson not in (None, rule.decision) and rule.covers_call(decision.case, decision.case.at)
        for decision in history
    )


def _replaced_rules(
    rule: Rule, rules: Sequence[Rule], broken: Sequence[Rule], history: Sequence[Decision]
) -> tuple[str, ...]:
    """Learned rules for the same kind whose past matches the new rule all covers.

    Of those that people contradicted (`broken`), the ones with which it has a match in common: what they
    covered besides is left to people again.
    """
    names = []
    for old in (*rules, *broken):
        same = all(
            getattr(old, part) == getattr(rule, part)
            for part in ("decision", "proposer", "to", "method", "tool")
        )
        if same and old.origin.suggestion is not None:
            cases = [decision.case for decision in history]
            common = [rule.matches(case, case.at) for case in cases if old.matches(case, case.at)]
            if any(common) if old in broken else all(common):
                names.append(old.name)
    return tuple(names)


def add_rule(rules: Sequence[Rule], rule: Rule, *, replaces: Sequence[str] = ()) -> tuple[Rule, ...]:
    """The rules with one added, without those it replaces; rejecting rules come first."""
    kept = [old for old in rules if old.name not in replaces and old.name != rule.name]
    return (rule, *kept) if rule.decision == "reject" else (*kept, rule)
