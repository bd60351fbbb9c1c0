"""A proposal in the parts that rules and learning work with.

A `Case` has the proposer, the hosts, the method, the tool and the arguments. Fields that fit none of these
parts are listed in `unexpected_fields`, and no rule approves a case that has any: what no rule can name,
nobody has agreed to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from moot.mcp.eras import CLIENT_CAPABILITIES_KEY, CLIENT_ERA_KEY, LOG_LEVEL_KEY, LOG_LEVELS
from moot.protocol.exact_numbers import has_rounded_number
from moot.protocol.gateway_proposal import Undo
from moot.protocol.kinds import WIDEN_BOX
from moot.protocol.operation import CONTEXT_PATHS, Json, Payload, context_of

# Methods whose arguments stand under `arguments`; of all others the params are the arguments.
WITH_ARGUMENTS: Final = frozenset({"tools/call", "prompts/get"})
# Deeper arguments are compared as a whole and never generalised.
MAX_LEAF_DEPTH: Final = 8

# W3C's trace context: version, trace, span and flags; and vendors' own text, as long as all have to carry it.
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MAX_TRACESTATE: Final = 512
_INPUT: Final = "input that the tool may ask its client for"

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One proposal as rules see it. `at` is when it was made, in seconds since 1970."""

    id: str
    proposer: str
    to: tuple[str, ...]
    method: str
    tool: str | None
    arguments: Mapping[str, Json]
    payload: Payload
    at: float = 0.0
    unexpected_fields: tuple[str, ...] = ()
    # Whether it can be undone, by what is said of its tool; where nobody has looked, the worst.
    undo: Undo = "final"


def case_of(
    id: str, proposer: str, to: Sequence[str], payload: Payload, *, at: float = 0.0, raw: bytes = b""
) -> Case:
    """Read the parts of a proposal's payload; never raises.

    `raw` is its envelope: where a number in it is another one than we read, rules leave it to people.
    """
    method = payload.get("method")
    method = method if isinstance(method, str) else ""
    params = payload.get("params", {})
    unexpected_fields: list[str] = []
    arguments: Mapping[str, Json] = {}
    if not isinstance(params, dict):
        unexpected_fields.append("params")
        params = {}
    if method in WITH_ARGUMENTS:
        given = params.get("arguments", {})
        if isinstance(given, dict):
            arguments = given
        else:
            unexpected_fields.append("params.arguments")
        unexpected_fields += [f"params.{key}" for key in params if key not in ("name", "arguments", "_meta")]
    else:
        named = {path[1] for path in CONTEXT_PATHS.get(method, ()) if len(path) == 2}
        arguments = {key: value for key, value in params.items() if key != "_meta" and key not in named}
    tool = context_of(method, payload)
    if method in CONTEXT_PATHS and tool is None:
        unexpected_fields.append("params.name")
    meta = params.get("_meta", {})
    # A progress token does not change what is done, nor do the trace that a call belongs to and what
    # `moot mcp` says of a client that cannot be asked. One that can may give a tool what no rule has seen.
    if not isinstance(meta, dict) or not all(_is_harmless(key, meta[key]) for key in meta):
        can_be_asked = isinstance(meta, dict) and bool(meta.get(CLIENT_CAPABILITIES_KEY))
        unexpected_fields.append(_INPUT if can_be_asked else "params._meta")
    if tool == WIDEN_BOX and method == "tools/call":
        # Before anything else, since the first is what people read as the reason.
        unexpected_fields.insert(0, "a wider box, about which only people decide")
    if raw and has_rounded_number(raw):
        unexpected_fields.append("a number with more digits than are compared")
    return Case(id, proposer, tuple(to), method, tool, arguments, payload, at, tuple(unexpected_fields))


def _is_harmless(key: str, value: Json) -> bool:
    if key == "traceparent":
        return isinstance(value, str) and _TRACEPARENT.fullmatch(value) is not None
    if key == "tracestate":
        return isinstance(value, str) and len(value) <= _MAX_TRACESTATE
    if key == LOG_LEVEL_KEY:
        return value in LOG_LEVELS
    if key == CLIENT_CAPABILITIES_KEY:
        return isinstance(value, dict) and not value
    if key == CLIENT_ERA_KEY:
        return isinstance(value, str) and value == "handshake"
    return key == "progressToken"


def leaves(arguments: Mapping[str, Json]) -> Iterator[tuple[Path, Json]]:
    """Every argument that is no object, with its path; an empty object and what is too deep are leaves."""
    yield from _leaves(arguments, (), MAX_LEAF_DEPTH)


def _leaves(value: Mapping[str, Json], path: Path, depth: int) -> Iterator[tuple[Path, Json]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner and depth > 1:
            yield from _leaves(inner, (*path, key), depth - 1)
        else:
            yield (*path, key), inner


def most_elements(key: str) -> int | None:
    """How many elements a list may have by a part of a path such as `[5]`; None if it is a name."""
    return int(key[1:-1]) if key[:1] == "[" and key[-1:] == "]" and key[1:-1].isdecimal() else None


def values_at(value: Json, path: Path) -> tuple[Json, ...]:
    """What stands at a path, at `[5]` in each element of a list; () if nothing does, or it is too long."""
    if not path:
        return (value,)
    if (most := most_elements(path[0])) is not None:
        rows = [values_at(each, path[1:]) for each in value] if isinstance(value, list) else []
        return tuple(each for row in rows for each in row) if len(rows) <= most and all(rows) else ()
    is_there = isinstance(value, Mapping) and path[0] in value
    return values_at(value[path[0]], path[1:]) if is_there else ()


def is_true_at(value: Json, path: Path, test: Callable[[Json], bool]) -> bool:
    """Whether there is something at a path, all of which passes."""
    found = values_at(value, path)
    return bool(found) and all(map(test, found))


def put_at(value: Json, path: Path, new: Json) -> Json:
    """A copy with another value at a path; at `[5]` a list with one element."""
    if not path:
        return new
    if most_elements(path[0]) is not None:
        return [put_at(value[0] if isinstance(value, list) and value else None, path[1:], new)]
    inner = value if isinstance(value, Mapping) else {}
    return {**inner, path[0]: put_at(inner.get(path[0]), path[1:], new)}


def without_nulls(case: Case) -> Case:
    """The case without its arguments that are null: to most tools they are as if left out."""
    if not any(value is None for _, value in leaves(case.arguments)):
        return case
    return replace(case, arguments=_without_nulls(case.arguments, MAX_LEAF_DEPTH))


def _without_nulls(value: Mapping[str, Json], depth: int) -> dict[str, Json]:
    return {
        key: _without_nulls(inner, depth - 1) if isinstance(inner, dict) and inner and depth > 1 else inner
        for key, inner in value.items()
        if inner is not None
    }


def type_of(value: Json) -> str:
    """The JSON type in one word; whole numbers and others are told apart."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "whole number"
        case float():
            return "number"
        case str():
            return "text"
        case None:
            return "null"
        case list():
            return "list"
    return "object"


def path_text(path: Path) -> str:
    return ".".join(path)
