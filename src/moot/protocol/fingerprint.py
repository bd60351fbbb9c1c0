"""What a proposal proposes, as a hash: the RFC 8785 form of {method, params} (D-28).

Two bodies with the same fingerprint call the same tool with the same arguments, however their bytes
are spaced or ordered. Numbers that a double cannot hold (RFC 7493) are compared by their very digits:
otherwise 9007199254740993 could be reviewed and 9007199254740992 be run.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Final

import rfc8785

from moot.protocol.operation import Json

_LARGEST_SAFE_INTEGER: Final = 2**53 - 1


class _Digits(str):
    """A number as it was written, because no double holds it."""


def fingerprint(raw: bytes) -> str:
    """The hash of method and params in the payload of an envelope's bytes (already accepted)."""
    payload = _decoder.decode(raw.decode()).get("payload", {})
    body = {"method": payload.get("method"), "params": payload.get("params", {})}
    return hashlib.sha256(_canonical(body).encode()).hexdigest()


def _canonical(value: Json) -> str:
    if isinstance(value, _Digits):
        return str.__str__(value)
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
        return "{" + ",".join(f"{_canonical(name)}:{_canonical(item)}" for name, item in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    return rfc8785.dumps(value).decode()


def _integer(digits: str) -> Json:
    number = int(digits)
    return number if abs(number) <= _LARGEST_SAFE_INTEGER else _Digits(number)


def _number(digits: str) -> Json:
    number = float(digits)
    return number if Decimal(repr(number)) == Decimal(digits) else _Digits(digits)


_decoder = json.JSONDecoder(parse_int=_integer, parse_float=_number)
