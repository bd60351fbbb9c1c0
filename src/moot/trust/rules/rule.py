"""Rules: an ordered list, each with patterns, a decision, limits and its origin.

A rule looks at five parts of a proposal: proposer, to, method, tool and arguments. Their patterns are those
of capabilities (`moot.protocol.patterns`). `rule_evaluation` goes through them in order.

An approving rule is *closed*: it does not match if there are arguments that it does not name
(`extra_arguments: true` allows them) or other fields in the params, and its wildcards match plain texts only
(`is_plain`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from moot.protocol.patterns.globs import glob
from moot.protocol.patterns.pattern import Fields, Node, NotText, OneOf, Pattern, Regex, Text
from moot.trust.history.proposal_case import (
    Case,
    Path,
    is_true_at,
    leaves,
    path_text,
    values_at,
    without_nulls,
)
from moot.trust.rules.conditions import (
    Hours,
    Range,
    RangeByText,
    is_plain,
    is_same_json,
)
from moot.values.kinds import ValuePattern

RuleDecision = Literal["approve", "reject", "ask"]
DECISIONS: Final = ("approve", "reject", "ask")
# What an approving rule asks people about, though it matches.
AskCondition = Literal["when_untrusted"]
ASK_CONDITIONS: Final = ("when_untrusted",)
# Why such a rule asks where nobody has looked.
ORIGINS_UNKNOWN: Final = "where its values came from is not known here"
_PARTS: Final = ("proposer", "method", "tool", "arguments")


@dataclass(frozen=True, slots=True)
class RuleLimits:
    """At most `max_decisions` in `per_seconds`; people still decide `check_share` of the matches.

    `max_each` is the most of these with the same of the values that the rule lists, such as one payee.
    `sums` are the most that the numbers of an argument may come to, in all calls that it approves together.
    `gap_seconds` is the shortest time between two decisions: none, unless the same thing must not be done
    twice by mistake.
    `review_share` is the share of its decisions that may be unreviewed before people are asked to look at
    them (`rule_reviews`); 0 if nobody has to.
    """

    max_decisions: int | None = None
    per_seconds: float = 3600.0
    expires_at: float | None = None
    while_present: tuple[str, ...] = ()
    check_share: float = 0.0
    review_share: float = 0.0
    sums: Mapping[Path, float] = field(default_factory=dict)
    gap_seconds: float = 0.0
    max_each: int | None = None


@dataclass(frozen=True, slots=True)
class RuleOrigin:
    """Where a rule came from: a suggestion or plan, who accepted it, who else had to and did, when.

    `limited_by` is who gave it another limit than was suggested.
    """

    suggestion: str | None = None
    accepted_by: str | None = None
    accepted: float | None = None
    seconded_by: tuple[str, ...] = ()
    limited_by: str | None = None
    plan: str | None = None

    @property
    def people(self) -> tuple[str, ...]:
        """Who accepted it."""
        return tuple(name for name in (self.accepted_by, *self.seconded_by) if name)


NO_LIMITS: Final = RuleLimits()
NO_ORIGIN: Final = RuleOrigin()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Raises InvalidPattern if a pattern cannot be read.

    `to` is None for any host and () for proposals without a host. `range` and `values` have paths of
    arguments, in which `[5]` means each of up to five elements of a list, `equals` whole arguments that must
    be exactly this JSON. `ask` leaves those to people that a value steers which
    nobody trusted said (`moot.origins`). With `observe` it decides nothing: what it would have decided is
    compared with what people decide.
    """

    name: str
    decision: RuleDecision
    proposer: Json = None
    to: tuple[str, ...] | None = None
    method: Json = None
    tool: Json = None
    undo: Json = None
    arguments: Mapping[str, Json] = field(default_factory=dict)
    range: Mapping[Path, Range] = field(default_factory=dict)
    values: Mapping[Path, ValuePattern] = field(default_factory=dict)
    equals: Mapping[str, Json] = field(default_factory=dict)
    hours: Hours | None = None
    after: float | None = None
    before: float | None = None
    extra_arguments: bool = False
    ask: AskCondition | None = None
    observe: bool = False
    limits: RuleLimits = NO_LIMITS
    origin: RuleOrigin = NO_ORIGIN
    words: str = ""
    _pattern: Pattern = field(init=False, repr=False, compare=False)
    _nodes: Mapping[str, Node] = field(init=False, repr=False, compare=False)
    # The arguments that it names, but for those in `equals`, which are named with all that is in them.
    named_paths: frozenset[Path] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        source = self.capability_source()
        if self.undo is not None:
            source["payload"]["undo"] = self.undo
        pattern = read_capability(source).patterns[0]
        object.__setattr__(self, "_pattern", pattern)
        object.__setattr__(self, "_nodes", dict(pattern.payload.literal) if pattern.payload else {})
        # Its texts are written out where a range is for each of them.
        texts = [(span.of,) for span in self.range.values() if isinstance(span, RangeByText)]
        named = (*dict(self.argument_nodes()), *self.range, *self.values, *texts)
        object.__setattr__(self, "named_paths", frozenset(named))

    def capability_source(self) -> dict[str, Json]:
        """Its proposer, hosts, method, tool and arguments as one capability pattern."""
        parts = {name: getattr(self, name) for name in ("proposer", "method", "tool")}
        view: dict[str, Json] = {key: value for key, value in parts.items() if value is not None}
        if self.arguments:
            view["arguments"] = dict(self.arguments)
        return {"kind": "mcp/request", "payload": view} | ({"to": list(self.to)} if self.to else {})

    @property
    def is_careful(self) -> bool:
        """Whether wildcards match plain texts only: for approving; rejecting and asking may match more."""
        return self.decision == "approve"

    @property
    def has_learned_limit(self) -> bool:
        """Whether its limit is how often people approved such calls, and nobody's wish."""
        is_learned = self.origin.suggestion is not None and self.origin.limited_by is None
        return is_learned and self.decision == "approve"

    @property
    def ends_at(self) -> float | None:
        """From when on it decides nothing any more; None if it has no end."""
        return min((each for each in (self.limits.expires_at, self.before) if each is not None), default=None)

    def has_ended(self, now: float) -> bool:
        return self.ends_at is not None and now >= self.ends_at

    def matches(self, case: Case, now: float) -> bool:
        return next(self._iter_mismatches(case, now), None) is None

    def covers_call(self, case: Case, now: float) -> bool:
        """Whether it matches this proposal, or would without what is null in it."""
        if self.matches(case, now):
            return True
        bare = without_nulls(case)
        return bare is not case and self.covers_call(bare, now)

    def mismatches(self, case: Case, now: float) -> tuple[str, ...]:
        """The parts of the proposal that do not match; empty if the rule matches."""
        return tuple(self._iter_mismatches(case, now))

    def _iter_mismatches(self, case: Case, now: float) -> Iterator[str]:
        nodes, careful = self._nodes, self.is_careful
        for part in ("tool", "proposer", "method", "undo"):
            if part in nodes and not admits(nodes[part], getattr(case, part), careful=careful):
                yield part
        if not self._matches_hosts(case.to):
            yield "to"
        yield from self._argument_mismatches(case, now)
        if careful and case.unexpected_fields:
            yield from case.unexpected_fields
        if self.hours is not None and not self.hours.admits(now):
            yield "hours"
        if self.after is not None and now < self.after:
            yield "after"
        if self.before is not None and now >= self.before:
            yield "before"

    def covers_proposer(self, proposer: str) -> bool:
        """Whether it can match proposals of this member."""
        node = self._nodes.get("proposer")
        return node is None or node.matches(proposer)

    def covers_host(self, host: str) -> bool:
        """Whether it can match proposals for this host; a rule without hosts matches any."""
        return not self.to or any(glob(name).matches(host) for name in self.to)

    def _matches_hosts(self, to: tuple[str, ...]) -> bool:
        if self.to is None:
            return True
        if not self.to or not to:
            return not self.to and not to
        globs, careful = self._pattern.to or (), self.is_careful
        return all(
            any(g.matches(name) and (not careful or g.literal is not None or is_plain(name)) for g in globs)
            for name in to
        )

    def _argument_mismatches(self, case: Case, now: float) -> Iterator[str]:
        node, careful = self._nodes.get("arguments"), self.is_careful
        if isinstance(node, Fields):
            for name, inner in node.literal:
                if name not in case.arguments or not admits(inner, case.arguments[name], careful=careful):
                    yield f"arguments.{name}"
            if node.searches and not Fields((), node.searches).matches(dict(case.arguments)):
                yield "arguments"
        for path, span in self.range.items():
            own = span.chosen(case.arguments)
            if own is None or not is_true_at(case.arguments, path, own.admits):
                yield f"range.{path_text(path)}"
        for path, pattern in self.values.items():
            test = partial(pattern.admits_at, moment=now) if pattern.kind == "day" else pattern.admits
            if not is_true_at(case.arguments, path, test):
                yield f"arguments.{path_text(path)}"
        for name, value in self.equals.items():
            if name not in case.arguments or not is_same_json(case.arguments[name], value):
                yield f"equals.{name}"
        if careful and not self.extra_arguments:
            yield from (
                f"extra argument {path_text(path)}" for path in self.unnamed_arguments(case.arguments)
            )

    def node(self, part: str) -> Node | None:
        """The pattern of a part: proposer, method, tool or arguments; None if any will do."""
        return self._nodes.get(part)

    def argument_nodes(self) -> Iterator[tuple[Path, Node]]:
        """The patterns of single arguments, with their paths."""
        return _leaf_nodes(self._nodes.get("arguments"), ())

    def unnamed_arguments(self, arguments: Mapping[str, Json]) -> Iterator[Path]:
        """The arguments that the rule does not name."""
        compared = {name: value for name, value in arguments.items() if name not in self.equals}
        yield from _unnamed(compared, self.named_paths, ())

    def listed_paths(self) -> tuple[Path, ...]:
        """Where the rule lists several values."""
        listed = [path for path, pattern in leaves(self.arguments) if isinstance(pattern, list)]
        listed += [(span.of,) for span in self.range.values() if isinstance(span, RangeByText)]
        return tuple(dict.fromkeys(listed))

    def listed_values(self, case: Case) -> tuple[tuple[Json, ...], ...]:
        """What a call has where the rule lists several values: which payee, or which of its folders."""
        return tuple(values_at(case.arguments, path) for path in self.listed_paths())

    def breadth(self) -> tuple[tuple[str, int], ...]:
        """How broad each part is: 0 one value, 1 several, 2 a pattern or range, 3 anything."""
        ranks = {part: _rank(self._nodes.get(part)) for part in _PARTS[:3]}
        addressed = 3 if self.to is None else int(len(self.to) > 1)
        ranks["to"] = 2 if any(glob(name).literal is None for name in self.to or ()) else addressed
        node = self._nodes.get("arguments")
        if isinstance(node, Fields):
            ranks |= {f"arguments.{name}": _rank(inner) for name, inner in node.literal}
            ranks |= {f"arguments.{search.key}": 3 for search in node.searches}
        ranks |= {f"arguments.{path_text(path)}": 2 for path in (*self.range, *self.values)}
        ranks |= {f"arguments.{name}": 0 for name in self.equals}
        if self.hours is not None:
            ranks["hours"] = 2
        return tuple(sorted(ranks.items()))


def _leaf_nodes(node: Node | None, path: Path) -> Iterator[tuple[Path, Node]]:
    options = node.alternatives if isinstance(node, OneOf) else (node,)
    fields = [each for option in options if isinstance(option, Fields) for each in option.literal]
    for name, inner in fields:
        yield from _leaf_nodes(inner, (*path, name))
    if path and node is not None and not fields:
        yield path, node


def _unnamed(value: Json, named: Iterable[Path], path: Path) -> Iterator[Path]:
    """What is in a value at a path that none of these paths names."""
    below = [each for each in named if each[: len(path)] == path and len(each) > len(path)]
    if isinstance(value, dict):
        names = {each[len(path)] for each in below}
        for name, inner in value.items():
            if name in names:
                yield from _unnamed(inner, below, (*path, name))
            else:
                yield (*path, name)
    elif isinstance(value, list):
        for each in {each[len(path)] for each in below}:
            for inner in value:
                yield from _unnamed(inner, below, (*path, each))


def admits(node: Node, value: Json, *, careful: bool = True) -> bool:
    """Match as capabilities do; with `careful`, a wildcard matches plain texts only."""
    # The most frequent first: a text that is written out.
    if not careful or (type(node) is Text and node.glob.literal is not None):
        return node.matches(value)
    match node:
        case OneOf():
            return any(admits(inner, value) for inner in node.alternatives)
        case Fields():
            return node.matches(value) and all(admits(inner, value[name]) for name, inner in node.literal)
        case Text():
            if not node.glob.lone and isinstance(value, str):
                return node.matches(value) and is_plain(value)
        case NotText():
            return node.matches(value) and isinstance(value, str) and is_plain(value)
    return node.matches(value)


def _rank(node: Node | None) -> int:
    match node:
        case None:
            return 3
        case Text():
            return 0 if node.glob.literal is not None else 3 if node.glob.lone else 2
        case OneOf():
            return max(1, *(_rank(inner) for inner in node.alternatives))
        case Regex() | NotText():
            return 2
        case Fields():
            ranks = [_rank(inner) for _, inner in node.literal]
            return 3 if node.searches else max(ranks, default=3)
    return 0
