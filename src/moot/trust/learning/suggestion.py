"""A suggested rule, and what a person should know before accepting it: evidence, bounds, examples."""

from __future__ import annotations

import copy
import hashlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Literal

import msgspec

from moot.errors import InvalidPattern
from moot.protocol.operation import CONTEXT_PATHS, Json
from moot.protocol.patterns import read_capability
from moot.protocol.patterns.globs import is_wild
from moot.trust.history.proposal_case import WITH_ARGUMENTS, Case
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.backtest import BackTest, back_test
from moot.trust.learning.bounds import DOUBT, percent, upper_bound
from moot.trust.learning.generalisation import Generalisation
from moot.trust.learning.learning_settings import LearningSettings
from moot.trust.learning.lessons import CaseKind, Example
from moot.trust.rules.conditions import canonical
from moot.trust.rules.rule import Rule, RuleLimits, RuleOrigin
from moot.trust.rules.rule_json import rule_as_json
from moot.trust.rules.rule_samples import arguments_at_edges, arguments_outside
from moot.trust.rules.rule_words import count_text, describe_shortly, join_names
from moot.values.quoting import anchored

# A call that may be repeated (declared read-only or idempotent): this factor times the most that people
# approved in one hour, at least MIN_HOURLY. Any other call only as often as people approved it.
BURST_FACTOR: Final = 2.0
MIN_HOURLY: Final = 10
# The times over which calls are counted, the longest of which there were so many.
_HOUR, _DAY = 3600.0, 86_400.0
PERIODS: Final = (30 * _DAY, 7 * _DAY, _DAY, _HOUR)
MIN_PERIODS: Final = 3
# A rule that nobody renews expires.
EXPIRES_DAYS: Final = 90.0

MIN_CHECK_SHARE: Final = 0.01

# As many as people read.
MAX_EXAMPLES: Final = 5


def _untried(
    rule: Rule, seen: Sequence[Case], candidates: Iterator[dict[str, Json]], *, matched: bool
) -> tuple[dict[str, Json], ...]:
    """Some of these arguments that no call ever had, and that the rule matches, or does not."""
    base, known = seen[0], {canonical(dict(case.arguments)) for case in seen}
    found: list[dict[str, Json]] = []
    for arguments in candidates:
        text = canonical(arguments)
        if text not in known and rule.matches(replace(base, arguments=arguments), base.at) == matched:
            known.add(text)
            found.append(arguments)
            if len(found) == MAX_EXAMPLES:
                break
    return tuple(found)


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
            "back_test": _plain(self.back_test),
            "allows": [dict(each) for each in self.allows],
            "refuses": [dict(each) for each in self.refuses],
            "grant": _plain(self.grant),
            "no_grant": self.no_grant,
            "replaces": list(self.replaces),
        }


def _plain(part: BackTest | RuleGrant | None) -> Json:
    """As it is after a message, with lists for tuples."""
    return msgspec.json.decode(msgspec.json.encode(part))


def build_suggestion(
    kind: CaseKind,
    cell: Generalisation,
    covered: Sequence[Example],
    history: Sequence[HistoryProposal],
    rules: tuple[Sequence[Rule], Sequence[Rule]],
    cells: int,
    now: float,
    settings: LearningSettings,
    *,
    is_repeatable: bool = False,
) -> Suggestion:
    bare = rule_as_json(cell.rule)
    del bare["name"]
    digest = hashlib.sha256(canonical(bare)).hexdigest()[:8]
    id = f"s-{digest}"
    count, seconds, each = _usual_rate(moments_of(cell.rule, history), is_repeatable=is_repeatable)
    limits = RuleLimits(
        max_decisions=count,
        per_seconds=seconds,
        max_each=each,
        expires_at=float(round(now + EXPIRES_DAYS * 86_400)),
        # Fewer, the more it rests on.
        check_share=min(settings.check_share, max(MIN_CHECK_SHARE, 1 / len(covered))),
        review_share=settings.review_share,
    )
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{kind.tool or kind.method}-{kind.proposer}")[:54].strip("-._")
    words = describe_shortly(replace(cell.rule, limits=limits), cell.parts)
    rule = replace(
        cell.rule,
        name=f"{name or 'rule'}-{digest}",
        limits=limits,
        origin=RuleOrigin(suggestion=id),
        words=words,
    )
    # Many cells were searched, and each may be chance: the doubt is divided among them.
    doubt = DOUBT / max(1, cells)
    bound = upper_bound(len(cell.pardoned), len(covered) + len(cell.pardoned), doubt=doubt)
    new_bound = None if cell.first_times is None else upper_bound(0, cell.first_times, doubt=doubt)
    cases = [example.case for example in covered]
    ids = {case.id for case in cases}
    deciders = tuple(sorted({d.by for d in history if d.id in ids and d.by is not None}))
    return Suggestion(
        id=id,
        rule=rule,
        words=words,
        evidence=_evidence_text(len(covered), deciders, bound, cell, new_bound),
        decisions=len(covered),
        deciders=deciders,
        error_bound=bound,
        new_bound=new_bound,
        back_test=back_test(cell.rule, history),
        allows=_untried(cell.rule, cases, arguments_at_edges(cell.rule, cases[0]), matched=True),
        refuses=_untried(cell.rule, cases, arguments_outside(cell.rule, cases[0]), matched=False),
        grant=grant_of(rule),
        no_grant=why_no_grant(rule),
        replaces=_replaced_rules(rule, *rules, history),
    )


def _evidence_text(
    count: int,
    deciders: Sequence[str],
    bound: float,
    cell: Generalisation,
    new_bound: float | None,
) -> str:
    no = f"{count_text(len(cell.pardoned), 'rejection')} before them" if cell.pardoned else "no rejections"
    text = (
        f"Based on {count_text(count, 'approval')} by {join_names(deciders)} and {no}; "
        f"error rate up to {percent(bound)} (95 % confidence)."
    )
    if cell.first_times is not None and new_bound is not None and new_bound > bound:
        new = f" For values not seen before, of which there were {cell.first_times}"
        text += f"{new}: up to {percent(new_bound)}."
    return text


def _usual_rate(
    moments: Mapping[bytes, Sequence[float]], *, is_repeatable: bool
) -> tuple[int, float, int | None]:
    """How often a rule may act, in which time, and how often with the same listed values.

    As often as people approved at most. What came once a month is counted by the month, so that ten rents
    do not become ten an hour; and each landlord's is counted alone, so that one is not paid ten of them.
    """
    every = sorted(chain(*moments.values()))
    if is_repeatable:
        return max(MIN_HOURLY, round(BURST_FACTOR * most_within(every, _HOUR))), _HOUR, None
    span = every[-1] - every[0]
    period = next((each for each in PERIODS if span >= MIN_PERIODS * each), _HOUR)
    most, each = most_within(every, period), max(most_within(row, period) for row in moments.values())
    return most, period, each if each < most else None


def moments_of(rule: Rule, history: Sequence[HistoryProposal]) -> dict[bytes, list[float]]:
    """When calls that the rule matches were made that people approved, or a rule that they had accepted.

    By what they had where the rule lists several values.
    """
    found: dict[bytes, list[float]] = {}
    for decision in history:
        is_approved = decision.automated or decision.lesson == "approve"
        case = decision.case
        if is_approved and decision.status == "fulfilled" and rule.matches(case, case.at):
            found.setdefault(canonical(rule.listed_values(case)), []).append(case.at)
    return found


def most_within(moments: Iterable[float], seconds: float) -> int:
    window: deque[float] = deque()
    most = 0
    for moment in sorted(moments):
        window.append(moment)
        while window[0] <= moment - seconds:
            window.popleft()
        most = max(most, len(window))
    return most


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


# From a rule to a capability for the agent itself (MEW 9.2).
#
# A capability has patterns and hosts, nothing else, so a rule with ranges, hours, times or exact lists cannot
# become one. Restrictions of a rule that the capability would lose are listed in `loses`, so that nobody
# grants more than they know: a grant does not expire, has no limit, and allows further arguments.


@dataclass(frozen=True, slots=True)
class RuleGrant:
    """A capability that a member could be granted, and what it would allow beyond the rule."""

    participant: str
    # What of the rule it keeps, as faces read it.
    step: Literal["arguments"]
    capability: dict[str, Json]
    loses: tuple[str, ...]
    words: str


def why_no_grant(rule: Rule) -> str | None:
    """Why a rule cannot become a capability; None if it can."""
    if rule.decision != "approve":
        return "only rules that approve can become a permission"
    if not isinstance(rule.proposer, str) or is_wild(rule.proposer) or rule.proposer[:1] in ("/", "!"):
        return "it does not name a single proposer"
    if not rule.to:
        return "it does not name a host"
    if not isinstance(rule.method, str) or rule.method not in CONTEXT_PATHS or rule.tool is None:
        return "it does not name a tool"
    if len(CONTEXT_PATHS[rule.method]) != 1:
        return "its method has no single field for a name"
    conditions = [
        (rule.range, "ranges"),
        (rule.equals, "exact lists"),
        (grant_patterns(rule) is None, "the meaning of values"),
        (rule.hours, "hours"),
        (rule.after, "a start time"),
        (rule.before, "an end time"),
        (rule.ask, "where values came from"),
        (rule.undo, "whether it can be undone"),
    ]
    found = [name for condition, name in conditions if condition]
    return f"a capability cannot express {join_names(found)}" if found else None


# Kinds whose texts are compared as they stand, and slots that are plain expressions.
_PLAIN_KINDS: Final = frozenset({"path", "url", "id", "time"})
_PLAIN_SLOTS: Final = frozenset({"name", "file", "path", "digits", "hex", "uuid", "date"})


def grant_patterns(rule: Rule) -> dict[str, Json] | None:
    """The arguments as capability patterns, templates as expressions; None if a template cannot be one."""
    arguments: dict[str, Json] = copy.deepcopy(dict(rule.arguments))
    for path, values in rule.values.items():
        expressions = []
        for template in values.templates:
            plain = all(slot.kind in _PLAIN_SLOTS for slot in template.slots)
            pattern = anchored(template.expression()) if plain and values.kind in _PLAIN_KINDS else None
            if pattern is None:
                return None
            expressions.append(pattern)
        inner = arguments
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = expressions if len(expressions) > 1 else expressions[0]
    return arguments


def grant_of(rule: Rule) -> RuleGrant | None:
    """The capability that this rule could become; None if it cannot."""
    if why_no_grant(rule) is not None or not rule.to:
        return None
    ((_, field),) = CONTEXT_PATHS[rule.method]
    params: dict[str, Json] = {field: rule.tool}
    arguments = grant_patterns(rule) or {}
    if arguments:
        if rule.method in WITH_ARGUMENTS:
            params["arguments"] = arguments
        else:
            params |= arguments
    capability: dict[str, Json] = {
        "kind": "mcp/request",
        "to": list(rule.to),
        "payload": {"method": rule.method, "params": params},
    }
    try:
        read_capability(capability)
    except InvalidPattern:
        return None
    loses = ["other arguments are allowed too"] if not rule.extra_arguments else []
    slots = [slot.kind for values in rule.values.values() for each in values.templates for slot in each.slots]
    if not {"name", "file", "path"}.isdisjoint(slots):
        loses.append("names that rules leave to people (such as secrets or main) are allowed too")
    if rule.limits.max_decisions is not None:
        loses.append("the number of calls is not limited")
    if rule.limits.expires_at is not None:
        loses.append("it does not expire")
    if rule.limits.while_present:
        loses.append(f"it also applies while {join_names(rule.limits.while_present)} is away")
    which = "with these arguments" if arguments else "with any arguments"
    words = f"{rule.proposer} can call {rule.tool} on {join_names(rule.to)} {which} without asking"
    return RuleGrant(rule.proposer, "arguments", capability, tuple(loses), words)
