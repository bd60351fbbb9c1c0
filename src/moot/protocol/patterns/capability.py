"""A capability as it was written, what it stands for, and how it is read (MEW 4.1, D-90)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Final

import msgspec

from moot.errors import InvalidPattern
from moot.protocol.kinds import KINDS
from moot.protocol.operation import CONTEXT_PATHS, Json, Operation, Payload
from moot.protocol.patterns.compiler import compile_object
from moot.protocol.patterns.globs import glob, includes, is_wild
from moot.protocol.patterns.notation import (
    MAX_STRINGS,
    Claims,
    Notation,
    notation_of,
    objects_of,
    read_string,
    strings_of,
    widest_objects_of,
)
from moot.protocol.patterns.pattern import REQUEST_LIMIT, RESPONSE, Pattern, Text, is_regex, leaves_of

# One capability as JSON, labels included: every welcome repeats it. 256 tools by name take half of this.
MAX_BYTES: Final = 16 * 1024

# Most members of a space have the same rights as others: what was just read is not compiled again. Short
# ones alone, so that nobody fills memory with theirs.
_KEPT_CAPABILITIES: Final = 1024
_KEPT_CHARACTERS: Final = 512

# D-10: what only the gateway sends.
_GATEWAY_KINDS: Final = ("system/*", *(name for name, kind in KINDS.items() if kind.sender == "gateway"))
# The kinds that MEW's mcp/* is known to mean (D-52); MCPx has words for these and no others.
_MCP_KINDS = ("mcp/request", RESPONSE, "mcp/proposal", "mcp/withdraw", "mcp/reject")

_Constraints = dict[tuple[str, ...], str]
_METHOD = ("method",)


class Capability(msgspec.Struct, frozen=True, eq=False):
    """One right. Two are equal when they are the same JSON, labels included, in the same notation.

    `original` is what is enforced, kept as given; `patterns` are the MEW objects that it stands for,
    compiled. A string that asks a CONTEXT of a method without a field for it stands for none: it can
    only ever match what a legacy sender's kind claims.
    """

    original: Json
    notation: Notation
    patterns: tuple[Pattern, ...]
    # Names only kinds that members can never send (D-10); to be warned about.
    inert: bool
    # Of a string notation: what a legacy sender is matched on, and objects at least as wide as that.
    claims: Claims | None
    reach: tuple[Pattern, ...]
    _canonical: str
    _views: dict[Notation, list[Json]] = msgspec.field(default_factory=dict)

    def matches(
        self,
        kind: str,
        payload: Payload,
        to: Sequence[str] = (),
        *,
        asked: Operation | None = None,
        claim: Operation | None = None,
        agreed: bool = True,
    ) -> bool:
        """Whether this right covers a message of a canonical kind.

        `asked` is the operation of the request that a response answers, None if unknown. `claim` is
        what is in the kind of a legacy sender (None for MEW senders), `agreed` whether it equals
        the payload's facts.
        """
        if claim is not None:
            if self.claims is not None:
                return self.claims.match(kind, claim)
            if not agreed:
                return False
        facts = payload if isinstance(payload, dict) else dict(payload)
        operation = asked if claim is None else claim
        return any(pattern.matches(kind, facts, to, operation) for pattern in self.patterns)

    def view(self, notation: Notation) -> list[Json]:
        """How this right is shown in a notation: MEW objects, or strings. To be read, not changed.

        Never wider than the right (D-53); empty when the notation cannot say it.
        """
        shown = self._views.get(notation)
        if shown is None:
            shown = self._views[notation] = self._shown(notation)
        return list(shown)

    def _shown(self, notation: Notation) -> list[Json]:
        if notation == "mew":
            return [pattern.source for pattern in self.patterns]
        if notation == self.notation:
            return [self.original]
        rights = [self.claims] if self.claims is not None else claims_of(self.patterns[0].source)
        return list(strings_of(rights, notation))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Capability)
            and other.notation == self.notation
            and other._canonical == self._canonical
        )

    def __hash__(self) -> int:
        return hash((self.notation, self._canonical))


def read_capability(value: Json, *, notation: Notation | None = None, place: Notation = "mew") -> Capability:
    """The capability that a JSON value is (D-90); raises InvalidPattern saying what to write instead.

    An object is MEW wherever it is written. A string is read in `notation` if that is given, else by its
    shape and the `place` where it is written.
    """
    if isinstance(value, dict):
        text = _json_text(value)
        return _kept_object(text) if len(text) <= _KEPT_CHARACTERS else _read_object(text)
    if not isinstance(value, str) or not value:
        raise InvalidPattern('a capability is an object, as in {"kind": "chat"}, or a string, as in "chat"')
    notation = notation or notation_of(value, place)
    return _kept_string(value, notation) if len(value) <= _KEPT_CHARACTERS else _read_string(value, notation)


def _read_object(text: str) -> Capability:
    # A copy that nobody else can change, and the text by which objects are compared.
    original = json.loads(text)
    canonical = json.dumps(original, sort_keys=True)
    if len(canonical) > MAX_BYTES:
        raise InvalidPattern(f"capability is longer than {MAX_BYTES} bytes; split it into several")
    return _capability(original, "mew", (compile_object(original),), None, canonical)


def _read_string(value: str, notation: Notation) -> Capability:
    if notation == "mew":
        return _capability(value, notation, (compile_object({"kind": value}),), None, json.dumps(value))
    claims = read_string(value, notation)
    patterns = tuple(compile_object(source) for source in objects_of(claims))
    return _capability(value, notation, patterns, claims, json.dumps(value))


_kept_object = lru_cache(_KEPT_CAPABILITIES)(_read_object)
_kept_string = lru_cache(_KEPT_CAPABILITIES)(_read_string)


def read_capabilities(
    values: Json, *, notation: Notation | None = None, place: Notation = "mew"
) -> tuple[Capability, ...]:
    """Every capability of a JSON list, in order; raises InvalidPattern if one cannot be read."""
    if not isinstance(values, list):
        raise InvalidPattern('capabilities must be a list, as in [{"kind": "chat"}]')
    return tuple(read_capability(value, notation=notation, place=place) for value in values)


def _capability(
    original: Json, notation: Notation, patterns: tuple[Pattern, ...], claims: Claims | None, canonical: str
) -> Capability:
    reach = patterns
    if claims is not None and any(claims.reach_beyond_objects(kind) for kind in claims.kinds):
        reach = tuple(compile_object(source) for source in widest_objects_of(claims))
    inert = all(_only_the_gateway_sends(pattern) for pattern in reach)
    return Capability(original, notation, patterns, inert, claims, reach, canonical)


def _only_the_gateway_sends(pattern: Pattern) -> bool:
    return all(
        isinstance(leaf, Text) and any(includes(glob(kind), leaf.glob) for kind in _GATEWAY_KINDS)
        for leaf in leaves_of(pattern.kind)
    )


def _json_text(value: Json) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InvalidPattern("capability holds something that is not JSON, or is nested too deep") from None


# What a MEW object is in the string notations, where they can say exactly the same (D-53).
#
# Strings know kinds, a METHOD and a CONTEXT, all of them globs. An object is taken apart into the
# alternatives of its one-ofs; each alternative that says no more than that becomes `Claims`. Regular
# expressions, `!`, searching keys, `to` and other payload fields have no string, so they are not shown.


class _TooManyViews(Exception):
    """More alternatives than would be shown."""


def claims_of(source: Mapping[str, Json]) -> list[Claims]:
    """The claims that match no more than this (valid) capability object; none where no string says it."""
    payload = source.get("payload") or None
    request = source.get(REQUEST_LIMIT)
    kinds = tuple(dict.fromkeys(_kinds_of(source["kind"])))
    if not kinds or "to" in source or (payload and request):
        return []
    if request is not None:
        # Only a response answers a request, whatever else the kind would match.
        if not any(glob(kind).matches(RESPONSE) for kind in kinds):
            return []
        parts = product(_parts_of(request.get("method")), _parts_of(request.get("context")))
        return [Claims((RESPONSE,), method, context) for method, context in parts]
    if payload is None:
        return [Claims(kinds)]
    operations = list(_operations_of(payload))
    return [
        Claims((kind,), method, context)
        for kind in ("mcp/request", "mcp/proposal")
        if kind in kinds
        for method, context in operations
    ]


def _kinds_of(value: Json) -> Iterator[str]:
    for kind in _globs_of(value):
        if glob(kind).lone:
            yield "*"
        elif kind.startswith("mcp/") and is_wild(kind):
            yield from (known for known in _MCP_KINDS if glob(kind).matches(known))
        else:
            yield kind


def _globs_of(value: Json) -> Iterator[str]:
    if isinstance(value, list):
        for alternative in value:
            yield from _globs_of(alternative)
    elif isinstance(value, str) and not value.startswith("!") and not is_regex(value):
        yield value


def _parts_of(value: Json) -> list[str | None]:
    return [None] if value is None else [_part(text) for text in _globs_of(value)]


def _part(text: str) -> str:
    # A lone `*` in an object asks for a string; as a part of a string it would ask for nothing.
    return "**" if glob(text).lone else text


def _operations_of(payload: Json) -> Iterator[tuple[str, str | None]]:
    """The (METHOD, CONTEXT) pairs that together say what the payload pattern says."""
    try:
        alternatives = _alternatives_of(payload, ())
    except _TooManyViews:
        return
    partial: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for constraints in alternatives:
        method = constraints.pop(_METHOD, None)
        if method is None or len(constraints) > 1:
            continue
        if not constraints:
            yield _part(method), None
            continue
        ((path, text),) = constraints.items()
        # A CONTEXT may stand in several fields (completion/complete): the object must name them all.
        seen = partial.setdefault((method, text), set())
        seen.add(path)
        if seen == set(CONTEXT_PATHS.get(method, ())):
            yield method, _part(text)


def _alternatives_of(value: Json, path: tuple[str, ...]) -> list[_Constraints]:
    """The pattern as alternatives of {path: glob}; what no glob on a named field says is left out."""
    if isinstance(value, list):
        return [constraints for part in value for constraints in _alternatives_of(part, path)]
    if not isinstance(value, dict):
        return [{path: text} for text in _globs_of(value)]
    alternatives: list[_Constraints] = [{}] if value else []
    for key, part in value.items():
        if key.startswith("$") or is_wild(key):
            return []
        inside = _alternatives_of(part, (*path, key))
        # Two fields can hold one CONTEXT, so twice as many alternatives as strings.
        if len(alternatives) * len(inside) > 2 * MAX_STRINGS:
            raise _TooManyViews
        alternatives = [{**left, **right} for left in alternatives for right in inside]
    return alternatives
