"""JSON that every reader reads alike (D-83).

A receiver must never see another message than the gateway checked. Parsers differ on duplicate
keys, lone surrogates, NaN, huge numbers and deep nesting, so all of these are refused.

The quick way: `orjson` parses, and when writing the value again gives the very same bytes, there was
no duplicate key and no number that lost digits. Everything else (spaces, escapes, odd numbers, errors)
takes the exact way through the standard library, which is some ten times slower and names the fault.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import orjson

from moot.errors import InvalidJson
from moot.protocol.operation import Json

# D-83: no honest message comes near; recursion in a receiver's parser does.
MAX_DEPTH: Final = 64
# Python's own bound on turning text into an integer (CVE-2020-10735); beyond it work is quadratic.
MAX_INTEGER_DIGITS: Final = 4_300

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_NOT_OPENING = bytes(byte for byte in range(256) if byte not in b"[{")
CONTAINERS: Final = frozenset((dict, list))


def parse(raw: bytes) -> Json:
    """The value of a JSON text; raises InvalidJson for anything that two readers could read differently."""
    value = parse_any_depth(raw)
    check_depth(raw, value)
    return value


def parse_any_depth(raw: bytes) -> Json:
    """`parse` without the check of depth, for callers who see at a glance that nothing nests."""
    try:
        value = orjson.loads(raw)
        if orjson.dumps(value) == raw:
            return value
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    return _parse_exactly(raw)


def check_depth(raw: bytes, value: Json) -> None:
    """Raises InvalidJson when `value`, parsed from `raw`, nests too deeply."""
    # Fewer opening brackets than levels settle it; that is five times quicker than a walk.
    if len(raw.translate(None, _NOT_OPENING)) > MAX_DEPTH and nests_deeper(value, MAX_DEPTH):
        raise _too_deep()


def encode(value: Json) -> bytes:
    """Compact JSON; integers of any size."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def nests_deeper(value: Json, depth: int) -> bool:
    """Whether containers are nested more than `depth` deep."""
    if value.__class__ is dict:
        level = [item for item in value.values() if item.__class__ in CONTAINERS]
    elif value.__class__ is list:
        level = [item for item in value if item.__class__ in CONTAINERS]
    else:
        return False
    # Level by level rather than by recursion: the depth is the peer's choice.
    for _ in range(depth - 1):
        if not level:
            return False
        level = [
            item
            for container in level
            for item in (container.values() if container.__class__ is dict else container)
            if item.__class__ in CONTAINERS
        ]
    return bool(level)


def _parse_exactly(raw: bytes) -> Json:
    if not raw.strip(b" \t\r\n"):
        raise InvalidJson("empty message: expected one JSON object")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise InvalidJson("starts with a byte order mark: send plain UTF-8")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise InvalidJson(f"not valid UTF-8 at byte {fault.start}") from None
    try:
        value = _exact_decoder.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as fault:
        raise InvalidJson(f"not JSON: {fault.msg} at character {fault.pos}") from None
    if nests_deeper(value, MAX_DEPTH):
        raise _too_deep()
    if _SURROGATE_ESCAPE.search(raw) and _has_lone_surrogate(value):
        raise InvalidJson("lone surrogate in a string: it cannot be written as UTF-8")
    return value


def _has_lone_surrogate(value: Json) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _too_deep() -> InvalidJson:
    return InvalidJson(f"nested deeper than {MAX_DEPTH} levels")


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise InvalidJson(f"duplicate key {name[:64]!r}: readers would disagree on its value")
            seen.add(name)
    return members


def _exact_integer(digits: str) -> int:
    if len(digits) > MAX_INTEGER_DIGITS + digits.startswith("-"):
        raise InvalidJson(f"integer of more than {MAX_INTEGER_DIGITS} digits")
    return int(digits)


def _finite_number(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise InvalidJson("number too large: readers would take it for infinity")
    return number


def _no_constant(name: str) -> Json:
    raise InvalidJson(f"{name} is not JSON")


_exact_decoder = json.JSONDecoder(
    object_pairs_hook=_unique_members,
    parse_int=_exact_integer,
    parse_float=_finite_number,
    parse_constant=_no_constant,
)
