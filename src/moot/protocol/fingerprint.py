"""What a proposal proposes, as a hash of {method, params} (D-28).

Two bodies with the same fingerprint call the same tool with the same arguments, however their bytes are
spaced or ordered: the canonical form of RFC 8785 but for the order of exotic keys, which only has to be the
same every time. Numbers that a double cannot hold (RFC 7493) are compared by their very digits: otherwise
9007199254740993 could be reviewed and 9007199254740992 be run.

Bodies come from the least trusted members and may have a megabyte, so the work is done by the C coder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Set
from decimal import Decimal
from functools import lru_cache
from typing import Final

import orjson

from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json, Payload
from moot.protocol.ordinary_envelope import is_plain, plain_fingerprint

_LARGEST_SAFE_INTEGER: Final = 2**53
# Up to 15 significant digits every decimal has a double of its own.
_SURELY_EXACT_CHARS: Final = 15
# With that many digits, numbers up to this exponent are far from where doubles lose digits (308).
_SURELY_EXACT_EXPONENT: Final = 290
# A lone surrogate is in no accepted text (D-83), so what starts with it collides with nothing.
_DIGITS: Final = "\ud800"


def fingerprint_of(envelope: Envelope) -> str:
    """The fingerprint of an envelope that was decoded, which mostly need not be parsed again for that."""
    return plain_fingerprint(envelope.raw, envelope.payload) or fingerprint(envelope.raw)


# Whoever gets a request compares it when it is checked and when its proposal is settled.
@lru_cache(maxsize=4)
def fingerprint(raw: bytes, *, without: Set[str] = frozenset()) -> str:
    """The hash of method and params in the payload of an envelope's bytes (already accepted).

    `without`: params that do not count.
    """
    # What all coders read and write alike is left to the fastest: the text to be hashed is the same.
    plain = is_plain(raw)
    payload = (orjson.loads(raw) if plain else _decoder.decode(raw.decode())).get("payload", {})
    params = payload.get("params", {})
    if without and isinstance(params, dict):
        params = {name: value for name, value in params.items() if name not in without}
    if plain:
        return _hash_plain(payload, params)
    body = {"method": payload.get("method"), "params": params}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _hash_plain(payload: Payload, params: Json) -> str:
    body = {"method": payload.get("method"), "params": params}
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _number(digits: str) -> Json:
    number = float(digits)
    if len(digits) <= _SURELY_EXACT_CHARS:
        exponent = digits.lower().partition("e")[2]
        exact = not exponent or abs(int(exponent)) <= _SURELY_EXACT_EXPONENT
    else:
        exact = repr(number) == digits
    # Seen without arithmetic where that is possible: it takes several times as long.
    if not exact and Decimal(repr(number)) != Decimal(digits):
        return _DIGITS + digits
    # 1.0 and 1 are the same number (RFC 8785).
    return int(number) if abs(number) < _LARGEST_SAFE_INTEGER and number.is_integer() else number


_decoder = json.JSONDecoder(parse_float=_number)
