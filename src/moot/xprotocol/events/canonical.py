"""The one byte string that stands for a JSON value (RFC 8785), which is what gets hashed and signed.

Two ways to the same bytes. `rfc8785` follows the RFC to the letter and is slow. `orjson` with sorted keys is
some 40 times faster and gives the same bytes as long as nothing stands in the value that the two write
differently; `canonical_header` looks for that first:

- member names beyond ASCII: the RFC sorts by UTF-16 code units, `orjson` by UTF-8;
- fractions: the RFC writes them as JavaScript does, 1.0 as 1 and 1e16 as 10000000000000000;
- integers that a double cannot hold: every other implementation would round them.
"""

from __future__ import annotations

from typing import Final

import orjson
import rfc8785

from moot.errors import MalformedEvent
from moot.protocol.operation import Json

# RFC 7493: beyond it two integers can be the same double.
LARGEST_INTEGER: Final = 2**53 - 1

_SORTED: Final = orjson.OPT_SORT_KEYS
# Without bool: it is an int to Python, but not on the wire.
_FLAT: Final = frozenset({str, int, type(None)})


def canonical_header(members: dict[str, Json]) -> bytes:
    """The canonical bytes of a flat object of texts, integers and nulls; raises MalformedEvent for others."""
    if not _FLAT.issuperset(map(type, members.values())):
        raise MalformedEvent("only text, whole numbers and null stand in a directed event")
    if not "".join(members).isascii():
        raise MalformedEvent("a member's name beyond ASCII, whose place in the order readers dispute")
    for value in members.values():
        if value.__class__ is int and not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            raise MalformedEvent("an integer beyond 2^53 - 1, which readers round differently")
    return sorted_json(members)


def sorted_json(members: dict[str, Json]) -> bytes:
    """`canonical_header` without its look, for members that were seen to be fit in another way."""
    try:
        return orjson.dumps(members, option=_SORTED)
    except orjson.JSONEncodeError:
        raise MalformedEvent("a text that is not UTF-8") from None


def canonical_json(value: Json) -> bytes:
    """The canonical bytes of any JSON value; raises MalformedEvent when it has none."""
    try:
        return rfc8785.dumps(value)
    except RecursionError:
        raise MalformedEvent("nested too deeply") from None
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        # A lone surrogate in a member's name escapes `rfc8785` as UnicodeEncodeError.
        raise MalformedEvent("no canonical form: a number or a text that JSON cannot hold exactly") from None
