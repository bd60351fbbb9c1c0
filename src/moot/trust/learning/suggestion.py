"""A suggested rule, and what a person should know before accepting it: evidence, bounds, examples."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from moot.protocol.operation import Json
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.backtest import BackTest, back_test
from moot.trust.learning.bounds import DOUBT, percent, upper_bound
from moot.trust.learning.generalisation import CaseKind, Example, Generalisation
from moot.trust.learning.learning_settings import LearningSettings
from moot.trust.learning.rule_examples import near_misses, unseen_calls
from moot.trust.learning.rule_grants import RuleGrant, grant_of, why_no_grant
from moot.trust.rules.conditions import canonical
from moot.trust.rules.rule import Rule, RuleLimits, RuleOrigin
from moot.trust.rules.rule_words import count_text, describe_rule, join_names
from moot.trust.rules.rule_yaml import rule_as_json


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


def build_suggestion(
    kind: CaseKind,
    cell: Generalisation,
    covered: Sequence[Example],
    history: Sequence[HistoryProposal],
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


def _replaced_rules(
    rule: Rule, rules: Sequence[Rule], broken: Sequence[Rule], history: Sequence[HistoryProposal]
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
