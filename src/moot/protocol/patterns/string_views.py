"""What a MEW object is in the string notations, where they can say exactly the same (D-53).

Strings know kinds, a METHOD and a CONTEXT, all of them globs. An object is taken apart into the
alternatives of its one-ofs; each alternative that says no more than that becomes `Claims`. Regular
expressions, `!`, searching keys, `to` and other payload fields have no string, so they are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from moot.protocol.operation import CONTEXT_PATHS, Json
from moot.protocol.patterns.globs import glob, is_wild
from moot.protocol.patterns.notation import MAX_STRINGS, Claims
from moot.protocol.patterns.pattern import REQUEST_LIMIT, RESPONSE, is_regex

# The kinds that MEW's mcp/* is known to mean (D-52); MCPx has words for these and no others.
_MCP_KINDS = ("mcp/request", RESPONSE, "mcp/proposal", "mcp/withdraw", "mcp/reject")

_Constraints = dict[tuple[str, ...], str]
_METHOD = ("method",)


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
