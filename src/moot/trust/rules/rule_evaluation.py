"""What the rules say of a proposal. They are gone through in order:

does not match, expired          next rule
only observes                    next rule: it decides nothing
matches, suspended               ask, with the reason
matches, a limit is used up      ask, with the limit (a wider rule below must not undo a limit)
matches, a learned limit is      next rule: it says only how far its evidence goes
matches, asks when untrusted     ask, if a value that steers the call came from nobody trusted
a line of a plan that asks       next rule: it may be within another line
matches                          its decision, but rejecting beats approving at the same breadth
none                             ask
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from moot.trust.history.proposal_case import Case, Path, path_text, values_at
from moot.trust.rules.conditions import amount_of, canonical
from moot.trust.rules.rule import ORIGINS_UNKNOWN, Rule, RuleDecision

_NO_TIMES: Final[Mapping[str, Sequence[float]]] = {}
_NOTHING_SPENT: Final[Mapping[str, Mapping[Path, Decimal]]] = {}
_NO_REASONS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """What to do with a proposal, by which rule, and why."""

    decision: RuleDecision
    rule: Rule | None
    why: str


def evaluate(
    rules: Sequence[Rule],
    case: Case,
    now: float,
    present: Collection[str] = (),
    times: Mapping[str, Sequence[float]] = _NO_TIMES,
    *,
    suspended: Mapping[str, str] | None = None,
    me: str | None = None,
    draw: float = 1.0,
    times_now: float | None = None,
    rejected: Container[Case] = (),
    expired: Container[str] = frozenset(),
    paused: Mapping[str, str] = _NO_REASONS,
    untrusted: str | None = ORIGINS_UNKNOWN,
    observing: bool | None = False,
    unnamed_untrusted: Callable[[Rule], str | None] = lambda _: ORIGINS_UNKNOWN,
    spent: Mapping[str, Mapping[Path, Decimal]] = _NOTHING_SPENT,
) -> RuleVerdict:
    """The first rule that matches decides; `ask` if none does or its limits are used up.

    `present` are the members who are present, `times` when each rule decided, oldest first, `suspended` the
    reasons by rule, `me` who would decide (nobody approves their own proposals), `draw` a random number below
    1 for spot checks (1.0: no spot check), `times_now` the time by the clock that `times` go by, if that is
    another one, `rejected` the calls that people rejected word for word and did not approve since, `expired`
    the rules that expired before, whatever the clock says now, `paused` why rules wait for a review,
    `untrusted` why the origins of its values ask (None: they were looked at, and do not), `unnamed_untrusted`
    the same for a line of a plan, which names values itself, `spent` what the numbers of each rule came to.
    `observing`: go by the rules that only observe (None: by all rules, as if each decided).
    """
    at_limit: RuleVerdict | None = None
    if observing is not None:
        rules = [rule for rule in rules if rule.observe is observing]
    for position, rule in enumerate(rules):
        if rule.name in expired or rule.has_ended(now) or not rule.matches(case, now):
            continue
        if suspended and rule.name in suspended:
            return RuleVerdict("ask", rule, f"rule {rule.name} is suspended: {suspended[rule.name]}")
        if rule.decision == "approve":
            stricter = _equally_broad_rejection(rules[position + 1 :], rule, case, now)
            if stricter is not None:
                why = f"rule {stricter.name} rejects and is as broad as rule {rule.name}, which would approve"
                return RuleVerdict("reject", stricter, why)
            if case in rejected:
                return RuleVerdict(
                    "ask", rule, f"rule {rule.name} matches, but people rejected this very call"
                )
            if case.proposer == me:
                return RuleVerdict("ask", rule, "nobody can approve their own proposal")
        is_line = rule.origin.plan is not None
        reason = None if rule.ask is None else unnamed_untrusted(rule) if is_line else untrusted
        if reason is not None:
            verdict = RuleVerdict("ask", rule, f"rule {rule.name} asks: {reason}")
            if not is_line:
                return verdict
            at_limit = at_limit or verdict
            continue
        if rule.decision == "ask":
            return RuleVerdict("ask", rule, f"rule {rule.name} leaves the decision to people")
        if rule.name in paused:
            return RuleVerdict("ask", rule, f"rule {rule.name} matches, but {paused[rule.name]}")
        missing = [name for name in rule.limits.while_present if name not in present]
        if missing:
            return RuleVerdict("ask", rule, f"rule {rule.name} matches, but {missing[0]} is not present")
        used_up = _used_up_limit(rule, case, now if times_now is None else times_now, times)
        if used_up := used_up or _exceeded_sum(rule, case, spent.get(rule.name, {})):
            verdict = RuleVerdict("ask", rule, f"rule {rule.name} matches, but {used_up}")
            if not (rule.has_learned_limit or is_line):
                return verdict
            at_limit = at_limit or verdict
            continue
        if draw < rule.limits.check_share:
            return RuleVerdict("ask", rule, f"rule {rule.name} matches; this one is a spot check by people")
        return RuleVerdict(rule.decision, rule, f"rule {rule.name} matches")
    return at_limit or RuleVerdict("ask", None, "no rule matches")


def call_key(case: Case) -> bytes:
    """What makes two proposals the same call, whoever makes them and whenever."""
    call = canonical([list(case.to), case.method, case.tool, dict(case.arguments)])
    return hashlib.sha256(call).digest()


def _equally_broad_rejection(rules: Sequence[Rule], approving: Rule, case: Case, now: float) -> Rule | None:
    for rule in rules:
        broad = rule.decision == "reject" and rule.breadth() == approving.breadth()
        if broad and not rule.has_ended(now) and rule.matches(case, now):
            return rule
    return None


def count_recent(times: Sequence[float], seconds: float, now: float) -> int:
    """How many of these, oldest first, are no longer ago than so many seconds.

    One that is yet to come counts: a clock was set back, and that gives nobody more decisions.
    """
    return len(times) - bisect_right(times, now - seconds)


def row_name(rule: Rule, case: Case) -> str | None:
    """Under which name uses with the same listed values are counted; None if these have no limit."""
    if rule.limits.max_each is None:
        return None
    # No rule has a name with a space.
    return f"{rule.name} {hashlib.sha256(canonical(rule.listed_values(case))).hexdigest()}"


def _used_up_limit(rule: Rule, case: Case, now: float, times: Mapping[str, Sequence[float]]) -> str | None:
    limits, own = rule.limits, times.get(rule.name, ())
    if limits.gap_seconds and count_recent(own, limits.gap_seconds, now):
        return f"it decided such a call less than {limits.gap_seconds:g} seconds ago"
    most = limits.max_decisions
    if most is not None and count_recent(own, limits.per_seconds, now) >= most:
        return f"it has reached its limit of {most} decisions in {limits.per_seconds:g} seconds"
    if (row := row_name(rule, case)) and count_recent(times.get(row, ()), limits.per_seconds, now) >= (
        limits.max_each or 0
    ):
        return f"it has reached its limit of {limits.max_each} such calls in {limits.per_seconds:g} seconds"
    return None


def amounts_of(rule: Rule, case: Case) -> dict[Path, Decimal | None]:
    """What a call adds to the sums of a rule, by argument; None if that is no number that can be added."""
    found = {path: values_at(case.arguments, path) for path in rule.limits.sums}
    return {path: amount_of(values[0]) if len(values) == 1 else None for path, values in found.items()}


def _exceeded_sum(rule: Rule, case: Case, spent: Mapping[Path, Decimal]) -> str | None:
    for path, amount in amounts_of(rule, case).items():
        most, used = Decimal(str(rule.limits.sums[path])), spent.get(path, Decimal(0))
        if amount is None:
            return f"its {path_text(path)} is no number that can be added up"
        if used + amount > most:
            return f"{path_text(path)} may be {most:f} in all, and {used:f} of it is used"
    return None
