"""What differs between two lists of rules: in their text, and in what they decide.

The text is compared rule by rule. What they decide is compared by calls made up from both lists: what an
attacker would try, the edges of every rule, and the tests of the files. Cedar policies and remembered calls
decide with them, but no call is made up from a policy. Each difference that is found is real and has a call
for it; none found is not a proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Final, Literal

from moot.protocol.operation import Json
from moot.trust.checks.narrowing_proof import find_wider_part
from moot.trust.checks.rule_check import attempted_calls
from moot.trust.history.proposal_case import Case
from moot.trust.rules.cedar_policies import is_policy
from moot.trust.rules.rule import ORIGINS_UNKNOWN, Rule
from moot.trust.rules.rule_evaluation import RuleVerdict
from moot.trust.rules.rule_json import rule_as_json
from moot.trust.rules.rule_samples import arguments_at_edges, call_as_json, sample_call
from moot.trust.rules.rule_set import RuleSet

Change = Literal["added", "removed", "changed", "moved"]
# Calls that are shown, each by other rules or with other decisions.
MAX_CALLS: Final = 20


@dataclass(frozen=True, slots=True)
class RuleChange:
    """How one rule differs. `wider` is a part in which it may match more; None if it provably does not."""

    rule: str
    change: Change
    decision: str
    fields: tuple[str, ...] = ()
    wider: str | None = None


@dataclass(frozen=True, slots=True)
class CallDifference:
    """A call that the two lists decide differently, and when."""

    call: dict[str, Json]
    at: float
    old: RuleVerdict
    new: RuleVerdict


@dataclass(frozen=True, slots=True)
class RuleDiff:
    """What changed, and calls that show it."""

    changes: tuple[RuleChange, ...]
    calls: tuple[CallDifference, ...]


def compare_rules(
    old: RuleSet, new: RuleSet, now: float, tests: Iterable[tuple[Case, float | None]] = ()
) -> RuleDiff:
    """Compare two lists of rules; `tests` are further calls to compare, with their time."""
    calls = _call_differences((old, new), now, tests)
    return RuleDiff(tuple(_changes(old.all_rules, new.all_rules)), tuple(calls))


def _changes(old: Sequence[Rule], new: Sequence[Rule]) -> Iterator[RuleChange]:
    before, after = ({rule.name: rule for rule in rules} for rules in (old, new))
    for name, rule in before.items():
        if name not in after:
            yield RuleChange(name, "removed", rule.decision)
    moved = _moved([name for name in before if name in after], [name for name in after if name in before])
    for name, rule in after.items():
        if name not in before:
            yield RuleChange(name, "added", rule.decision)
            continue
        fields = _changed_fields(before[name], rule)
        if fields:
            wider = "it is written otherwise" if is_policy(rule) else find_wider_part(rule, before[name])
            yield RuleChange(name, "changed", rule.decision, fields, wider)
        if name in moved:
            yield RuleChange(name, "moved", rule.decision)


def _changed_fields(old: Rule, new: Rule) -> tuple[str, ...]:
    one, other = rule_as_json(old), rule_as_json(new)
    names = [*one, *(key for key in other if key not in one)]
    return tuple(key for key in names if one.get(key) != other.get(key))


def _moved(old: Sequence[str], new: Sequence[str]) -> set[str]:
    """Rules that now stand before another one that stood before them."""
    place = {name: at for at, name in enumerate(old)}
    least, found = len(old), set()
    for name in reversed(new):
        if place[name] > least:
            found.add(name)
        least = min(least, place[name])
    return found


def _call_differences(
    sides: tuple[RuleSet, RuleSet], now: float, tests: Iterable[tuple[Case, float | None]]
) -> Iterator[CallDifference]:
    listed = [rule for side in sides for rule in (*side.rules, *side.calls)]
    rules = list({(rule.name, repr(rule)): rule for rule in listed}.values())
    present = {name for rule in rules for name in rule.limits.while_present}
    found: set[tuple[str, str | None, str, str | None]] = set()
    # As if people had said the values, then as if nobody knew.
    by_origin = any(rule.ask for rule in rules) or any(side.policies for side in sides)
    origins = (None, ORIGINS_UNKNOWN) if by_origin else (None,)
    made_up = ((case, now) for rule in rules for case in _calls(rule))
    asked = ((case, now if at is None else at) for case, at in tests)
    for (case, moment), untrusted in product(chain(asked, made_up), origins):
        one, other = [side.decide(case, moment, present, untrusted=untrusted) for side in sides]
        key = (one.decision, _name(one), other.decision, _name(other))
        if one.decision != other.decision and key not in found:
            found.add(key)
            yield CallDifference(call_as_json(case), moment, one, other)
            if len(found) == MAX_CALLS:
                return


def _calls(rule: Rule) -> Iterator[Case]:
    """What an attacker would try first: of several calls the worst is shown."""
    base = sample_call(rule)
    yield from (case for _, _, case in attempted_calls(rule, base))
    yield base
    for part, names in (("tool", rule.tool), ("proposer", rule.proposer)):
        some = names if isinstance(names, list) else ()
        yield from (replace(base, **{part: name}) for name in some)
    yield from (replace(base, to=(host,)) for host in rule.to or ())
    yield from (replace(base, arguments=arguments) for arguments in arguments_at_edges(rule, base))


def _name(verdict: RuleVerdict) -> str | None:
    return None if verdict.rule is None else verdict.rule.name
