"""JSON that every reader reads alike (D-83).

A receiver must never see another message than the gateway checked. Parsers differ on duplicate
keys, lone surrogates, NaN, huge numbers and deep nesting, so all of these are refused.

The quick way: `orjson` parses, and when writing the value again gives the very same bytes, there was
no duplicate key and no number that lost digits. With spaces, escapes or odd numbers the bytes differ; then
the strings of both are counted, for a duplicate key is one string less. Only what `orjson` does not take or
would round (integers beyond 64 bits, errors) goes through the standard library, which names the fault.

Work is bounded before anything is parsed. It goes by objects and arrays rather than by bytes, so these are
counted, as fast as memory is read. Nothing calls back into Python for each value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import orjson

from moot.errors import InvalidJson
from moot.protocol.operation import Json

# D-83: no honest message comes near; recursion in a receiver's parser does.
MAX_DEPTH: Final = 64
# Python's own bound on turning text into an integer (CVE-2020-10735); beyond it work is quadratic.
MAX_INTEGER_DIGITS: Final = 4_300
# Objects and arrays in one text: 0.1 ms for a hundred of them, whatever else is in it. A megabyte of tool
# definitions has some 30,000, a megabyte of coordinates 50,000.
MAX_CONTAINERS: Final = 50_000

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
# To find an integer that may not fit into 64 bits: all digits alike, then so many of them.
_DIGITS_ALIKE = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))
_LONG_INTEGER: Final = b"0" * 19
_SIXTEEN_DIGITS: Final = b"0" * 16
# Between two numbers or words, outside of strings.
_SEPARATORS_TO_SPACES = bytes(ord(" ") if byte in b"[]{},:" else byte for byte in range(256))
# To name a duplicate key takes a look at every member, which a larger text is not worth.
_NAMED_BYTES: Final = 65_536
# The shortest number that is infinite to a reader.
_INFINITE_CHARS: Final = len("1e309")
# The beginning of a number with a fraction or an exponent, once for each.
_DECIMAL = re.compile(rb"[0-9](?:\.[0-9]+|[eE])")
_NOT_OPENING = bytes(byte for byte in range(256) if byte not in b"[{")
CONTAINERS: Final = frozenset((dict, list))


def parse(raw: bytes, *, max_containers: int = MAX_CONTAINERS) -> Json:
    """The value of a JSON text; raises InvalidJson for anything that two readers could read differently."""
    check_containers(raw, max_containers)
    value = parse_any_depth(raw)
    check_depth(raw, value)
    return value


def parse_any_depth(raw: bytes) -> Json:
    """`parse` without the check of depth, for callers who see at a glance that nothing nests."""
    try:
        value = orjson.loads(raw)
        again = orjson.dumps(value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return _parse_exactly(raw)
    return value if again == raw else accept_differing(raw, value, again)


def accept_differing(raw: bytes, value: Json, again: bytes) -> Json:
    """The value of a text of which orjson made `value`, which it writes as `again`, with other bytes."""
    _check_unique(raw, again)
    if _LONG_INTEGER in raw.translate(_DIGITS_ALIKE):
        # orjson rounds what it cannot hold; the standard library does not.
        return _decode(_decoder, raw.decode("utf-8"))
    return value


def check_containers(raw: bytes, max_containers: int) -> None:
    """Raises InvalidJson when there are more objects and arrays than that. Nothing is parsed."""
    # Each takes two bytes at least.
    if len(raw) >> 1 > max_containers and raw.count(b"[") + raw.count(b"{") > max_containers:
        outside = _outside_strings(raw)
        if outside.count(b"[") + outside.count(b"{") > max_containers:
            raise InvalidJson(f"more than {max_containers} objects and arrays: split it, or send a stream")


def has_more_decimals(raw: bytes, most: int) -> bool:
    """Whether a JSON text has more numbers with a fraction or an exponent than that. Nothing is parsed."""
    # Each takes four bytes at least, its comma included.
    if len(raw) >> 2 <= most or raw.count(b".") + raw.count(b"e") + raw.count(b"E") <= most:
        return False
    found = _DECIMAL.finditer(_outside_strings(raw))
    return next(islice(found, most, None), None) is not None


def is_plain_in_python(raw: bytes) -> bool:
    """Whether all coders read and write an accepted text alike: ASCII, and whole numbers of few digits."""
    if not raw.isascii() or b"\\u" in raw or b"\x7f" in raw:
        return False
    words = _outside_strings(raw).translate(_DIGITS_ALIKE).replace(b"true", b"").replace(b"false", b"")
    # Fractions, exponents, signs and many digits: written otherwise, or rounded.
    return not (b"." in words or b"e" in words or b"E" in words or b"-" in words or _SIXTEEN_DIGITS in words)


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
    value = _decode(_decoder, text)
    if nests_deeper(value, MAX_DEPTH):
        raise _too_deep()
    if _SURROGATE_ESCAPE.search(raw) and _has_lone_surrogate(value):
        raise InvalidJson("lone surrogate in a string: it cannot be written as UTF-8")
    if _has_infinity(raw):
        raise InvalidJson("number too large: readers would take it for infinity")
    _check_unique(raw, orjson.dumps(_decode(_string_decoder, text)))
    return value


def _check_unique(raw: bytes, again: bytes) -> None:
    """Raises InvalidJson when the value of `raw`, written as `again`, has fewer strings: a key came twice."""
    if _string_count(again) == _string_count(raw):
        return
    if len(raw) <= _NAMED_BYTES:
        # Once more, with a look at every member: it raises, and names the key.
        _decode(_naming_decoder, raw.decode("utf-8"))
    raise InvalidJson("duplicate key: readers would disagree on its value")


def _decode(decoder: json.JSONDecoder, text: str) -> Json:
    try:
        return decoder.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as fault:
        raise InvalidJson(f"not JSON: {fault.msg} at character {fault.pos}") from None
    except ValueError:
        # Python's own bound.
        raise InvalidJson(f"integer of more than {MAX_INTEGER_DIGITS} digits") from None


def _string_count(raw: bytes) -> int:
    """Twice the number of strings in a JSON text that a parser has accepted."""
    return _without_escapes(raw).count(b'"')


def _outside_strings(raw: bytes) -> bytes:
    """A JSON text without its strings; of what is no JSON, something."""
    return b"".join(_without_escapes(raw).split(b'"')[::2])


def _without_escapes(raw: bytes) -> bytes:
    """A JSON text in which every quote begins or ends a string."""
    # Backslashes are in strings only, and each belongs to the next character: pairs from the left.
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw


def _has_infinity(raw: bytes) -> bool:
    """Whether a number with a fraction or an exponent is beyond what readers can hold."""
    for word in _outside_strings(raw).translate(_SEPARATORS_TO_SPACES).split():
        if len(word) < _INFINITE_CHARS or word[0] not in b"-0123456789":
            continue
        if not word.lstrip(b"-").isdigit() and math.isinf(float(word)):
            return True
    return False


def _has_lone_surrogate(value: Json) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def texts_in(value: Json) -> Iterator[str]:
    """Every text of a value, names of members included."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)
    elif isinstance(value, str):
        yield value


def map_texts(value: Json, change: Callable[[str], str]) -> Json:
    """The same value with all of these changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(name): map_texts(inner, change) for name, inner in value.items()}
    if isinstance(value, list):
        return [map_texts(inner, change) for inner in value]
    return value


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


def _no_constant(name: str) -> Json:
    raise InvalidJson(f"{name} is not JSON")


# No call for each value: the first one does all of its work in C.
_decoder = json.JSONDecoder(parse_constant=_no_constant)
# For the strings of a text: how long a number is does for the number, and costs nothing to write again.
_string_decoder = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=_no_constant)
_naming_decoder = json.JSONDecoder(object_pairs_hook=_unique_members, parse_constant=_no_constant)
