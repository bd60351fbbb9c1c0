"""The rights of one member, asked for every message it sends.

Asking each capability in turn would cost microseconds; this costs a fraction of one. For each kind
there is a plan, made when the kind is first seen:

    no pattern's kind matches            -> False, always
    one matches and limits nothing else  -> True, always
    otherwise                            -> the fields that the matching patterns look at, their
                                            values in this message, and a memo from values to answer

When the memo does not know the values, an index by the literal that most patterns ask of one field
(usually params.name) leaves only the few patterns that can still match. Patterns that search
(JSONPath, `**`, wildcard keys) depend on more than named fields: they are tried every time.

LegacyDialect senders: string capabilities are matched on the claim, under a memo of their own; objects go
through a second set of plans that leaves the strings out.

Everything is bounded, because a sender chooses kinds and values: what is full is emptied and filled
anew. The answer is always that of `any(capability.matches(…))`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from moot.protocol.operation import Json, Operation, Payload
from moot.protocol.patterns.capability import Capability
from moot.protocol.patterns.jsonpath import MessageVisits
from moot.protocol.patterns.pattern import (
    Fields,
    Node,
    Pattern,
    Text,
    compares_numbers,
    leaves_of,
    searches_within,
)

# Longer values are not kept: they rarely come twice, and a thousand of them would be megabytes.
MAX_KEPT_CHARS: Final = 256
MAX_KEPT_ADDRESSEES: Final = 16
# D-08 knows some forty kinds; a sender that makes up more only empties its own plans.
MAX_PLANS: Final = 256


class _KeyMarker:
    """In a memo key: marks a value that is no scalar. Patterns distinguish these, but not their contents."""

    __slots__ = ()

    def get(self, _key: str, _default: object) -> _KeyMarker:
        """What is absent has no members."""
        return self


_ABSENT: Final = _KeyMarker()
_OBJECT: Final = _KeyMarker()
_LIST: Final = _KeyMarker()

_FieldPath = tuple[str, ...]


class Rights:
    """An unchanging set of capabilities with fast answers. `memo` bounds how many answers are kept."""

    __slots__ = (
        "_claimed",
        "_facts",
        "_memo",
        "_objects",
        "_plans",
        "_strings",
        "capabilities",
        "compares_numbers",
    )

    def __init__(self, capabilities: Iterable[Capability], *, memo: int = 4096) -> None:
        self.capabilities: tuple[Capability, ...] = tuple(capabilities)
        self._strings = [c.claims for c in self.capabilities if c.claims is not None]
        # Whether payloads have to be read to the last digit (`exact_numbers`).
        self.compares_numbers = any(
            pattern.payload is not None and compares_numbers(pattern.payload)
            for capability in self.capabilities
            for pattern in capability.patterns
        )
        self._facts = _Plans([p for c in self.capabilities for p in c.patterns], memo)
        self._objects = self._facts
        if self._strings:
            objects = [c for c in self.capabilities if c.claims is None]
            self._objects = _Plans([p for c in objects for p in c.patterns], memo)
        self._plans = self._facts.plans
        self._memo = memo
        self._claimed: dict[tuple[str, Operation], bool] = {}

    # Not keyword-only from `asked` on: CPython pays for every keyword that is left out, 0.06 µs here.
    def allow(
        self,
        kind: str,
        payload: Payload,
        to: Sequence[str] = (),
        asked: Operation | None = None,
        claim: Operation | None = None,
        agreed: bool = True,
    ) -> bool:
        """Whether some capability matches; the arguments are those of `Capability.matches`."""
        if claim is not None:
            return self._claims_allow(kind, claim) or (
                agreed and self._objects.allow(kind, payload, to, claim)
            )
        try:
            plan = self._plans[kind]
            if plan is True or plan is False:
                return plan
            if plan.quick:
                known: Json = plan.known
                for path in plan.paths:
                    value: Json = payload
                    for key in path:
                        value = value.get(key, _ABSENT)
                    known = known[value]
                if plan.looks_beyond:
                    known = known[plan.routing_key(to, asked)]
                answer: bool = known
                return answer
        except (KeyError, TypeError, AttributeError):
            # Not in the memo, or of a shape that is not looked up as it is. The slow path always answers.
            pass
        return self._facts.allow(kind, payload, to, asked)

    def allow_all(self, kind: str) -> bool:
        """Whether every message of this kind is allowed, whatever its payload and its addressees."""
        return self._facts.allow_all(kind)

    def allow_some(self, kind: str) -> bool:
        """Whether messages of this kind are allowed, if only with some payloads or to some addressees."""
        return bool(kind) and any(
            pattern.kind.matches(kind) for capability in self.capabilities for pattern in capability.patterns
        )

    def _claims_allow(self, kind: str, claim: Operation) -> bool:
        if not self._strings:
            return False
        key = (kind, claim)
        known = self._claimed.get(key)
        if known is None:
            known = any(string.match(kind, claim) for string in self._strings)
            if all(len(part or "") <= MAX_KEPT_CHARS for part in (kind, *claim)):
                if len(self._claimed) >= self._memo:
                    self._claimed.clear()
                self._claimed[key] = known
        return known


class _Plans:
    """The plans of a set of patterns, by kind, and the count of the answers that they keep together."""

    __slots__ = ("_patterns", "capacity", "kept", "plans")

    def __init__(self, patterns: list[Pattern], capacity: int) -> None:
        self._patterns = patterns
        self.plans: dict[str, bool | _Plan] = {}
        self.capacity = capacity
        self.kept = 0

    def allow(self, kind: str, payload: Payload, to: Sequence[str], operation: Operation | None) -> bool:
        plan = self.plans.get(kind)
        if plan is None:
            plan = self._plan_for(kind)
        return plan if isinstance(plan, bool) else plan.allows(payload, to, operation)

    def allow_all(self, kind: str) -> bool:
        plan = self.plans.get(kind)
        return (self._plan_for(kind) if plan is None else plan) is True

    def _plan_for(self, kind: str) -> bool | _Plan:
        candidates = [pattern for pattern in self._patterns if pattern.kind.matches(kind)]
        plan: bool | _Plan
        if any(p.payload is None and p.to is None and p.request is None for p in candidates):
            plan = True
        else:
            plan = _Plan(self, kind, candidates) if candidates else False
        if len(kind) <= MAX_KEPT_CHARS:
            if len(self.plans) >= MAX_PLANS:
                self.plans.clear()
                self.kept = 0
            self.plans[kind] = plan
        return plan

    def make_room(self) -> None:
        """Count one more answer to keep, after forgetting all if there are too many."""
        if self.kept >= self.capacity:
            for plan in self.plans.values():
                if isinstance(plan, _Plan):
                    plan.known.clear()
            self.kept = 0
        self.kept += 1


class _Plan:
    """How messages of one kind are decided.

    `known` is the memo: a dictionary by the value of the first field, in it dictionaries by that of the
    second, and so on, the last one holding the answers. If a pattern limits addressees or the request
    answered (`looks_beyond`), these come last. `quick` plans have no search.
    """

    __slots__ = (
        "_by_literal",
        "_index_path",
        "_kind",
        "_looks_at_request",
        "_looks_at_to",
        "_others",
        "_plans",
        "_searching",
        "known",
        "looks_beyond",
        "paths",
        "quick",
    )

    def __init__(self, plans: _Plans, kind: str, candidates: list[Pattern]) -> None:
        self._plans = plans
        self._kind = kind
        plain: list[Pattern] = []
        self._searching: list[Pattern] = []
        for pattern in candidates:
            searching = pattern.payload is not None and searches_within(pattern.payload)
            (self._searching if searching else plain).append(pattern)
        self._looks_at_to = any(p.to is not None for p in plain)
        self._looks_at_request = any(p.request is not None for p in plain)
        self.looks_beyond = self._looks_at_to or self._looks_at_request
        paths = {path for p in plain if p.payload is not None for path in _paths(p.payload, ())}
        # The shallow first: `method` has few values, so the dictionaries below it are few.
        self.paths = sorted(paths, key=lambda path: (len(path), path))
        self._index_path, self._by_literal, self._others = _build_index(plain)
        self.known: dict[object, Json] = {}
        self.quick = not self._searching

    def allows(self, payload: Payload, to: Sequence[str], operation: Operation | None) -> bool:
        key_parts = [_key_part(_value_at(payload, path)) for path in self.paths]
        if self.looks_beyond:
            key_parts.append(self.routing_key(to, operation))
        allowed: Json = self.known
        for part in key_parts:
            allowed = allowed.get(part)
            if allowed is None:
                allowed = self._decide(payload, to, operation)
                self._keep(key_parts, allowed)
                break
        if allowed is True or not self._searching:
            return allowed is True
        facts, visits = _as_dict(payload), MessageVisits()
        return any(p.admits(self._kind, facts, to, operation, visits) for p in self._searching)

    def routing_key(self, to: Sequence[str], operation: Operation | None) -> object:
        """What of a message, apart from its payload, the answer depends on."""
        return (tuple(to) if self._looks_at_to else None, operation if self._looks_at_request else None)

    def _keep(self, key_parts: list[object], allowed: bool) -> None:
        if not all(_is_small(part) for part in key_parts):
            return
        self._plans.make_room()
        known = self.known
        for part in key_parts[:-1]:
            known = known.setdefault(part, {})
        known[key_parts[-1]] = allowed

    def _decide(self, payload: Payload, to: Sequence[str], operation: Operation | None) -> bool:
        facts = _as_dict(payload)
        patterns = self._others
        if self._by_literal:
            value = _value_at(facts, self._index_path)
            if isinstance(value, str):
                patterns = self._by_literal.get(value, []) + patterns
        return any(p.admits(self._kind, facts, to, operation) for p in patterns)


def _as_dict(payload: Payload) -> dict[str, Json]:
    return payload if isinstance(payload, dict) else dict(payload)


def _value_at(payload: Payload, path: _FieldPath) -> Json:
    value: Json = payload.get(path[0], _ABSENT)
    for key in path[1:]:
        if not isinstance(value, dict):
            return _ABSENT
        value = value.get(key, _ABSENT)
    return value


def _key_part(value: Json) -> object:
    """The value as part of a memo key. The type goes along: to a dict, 1, 1.0 and True are one key."""
    if value.__class__ is str or value is _ABSENT:
        return value
    if isinstance(value, dict):
        return _OBJECT
    if isinstance(value, list):
        return _LIST
    return (value.__class__, value)


def _is_small(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_KEPT_CHARS
    if isinstance(value, tuple):
        return len(value) <= MAX_KEPT_ADDRESSEES and all(_is_small(part) for part in value)
    return not isinstance(value, int) or value.bit_length() <= 64


def _paths(node: Node, path: _FieldPath) -> Iterator[_FieldPath]:
    """Every field whose value decides whether the node matches."""
    for leaf in leaves_of(node):
        if isinstance(leaf, Fields) and leaf.literal:
            for name, inner in leaf.literal:
                yield from _paths(inner, (*path, name))
        else:
            # An object pattern without keys only asks whether there is an object.
            yield path


_Index = tuple[_FieldPath, dict[str, list[Pattern]], list[Pattern]]


def _build_index(patterns: list[Pattern]) -> _Index:
    """The field whose literals distinguish the patterns best, those by literal, and the rest."""
    asked: dict[_FieldPath, dict[str, list[Pattern]]] = {}
    for pattern in patterns:
        for path, literals in literals_of(pattern.payload, ()) if pattern.payload is not None else ():
            for literal in literals:
                asked.setdefault(path, {}).setdefault(literal, []).append(pattern)
    best = max(asked, key=lambda path: len(asked[path]), default=())
    by_literal = asked.get(best, {})
    indexed = {id(pattern) for group in by_literal.values() for pattern in group}
    return best, by_literal, [pattern for pattern in patterns if id(pattern) not in indexed]


def literals_of(node: Node, path: _FieldPath) -> Iterator[tuple[_FieldPath, set[str]]]:
    """The fields of which the node asks to be one of some literals."""
    if isinstance(node, Fields):
        for name, inner in node.literal:
            yield from literals_of(inner, (*path, name))
        return
    literals = {leaf.glob.literal if isinstance(leaf, Text) else None for leaf in leaves_of(node)}
    if None not in literals:
        yield path, {literal for literal in literals if literal is not None}
