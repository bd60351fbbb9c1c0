"""Numbers that a reader would round, as a right must see them.

Messages are read with doubles, so that 0.1 and 0.1000000000000000055 become one number. The host may read
every digit. So where a right compares numbers, those that a double does not hold as they are written equal
nothing. Integers are exact whatever their size.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final

from moot.protocol.operation import Json, Payload

# Up to 15 significant digits every decimal has a double of its own, away from where doubles end.
_PERHAPS_ROUNDED: Final = re.compile(rb"[0-9.]{16}|[0-9][eE][+-]?[0-9]{3}")


class RoundedNumber:
    """Stands for a number with more digits than a double has. It equals nothing but itself."""

    __slots__ = ()


def with_exact_numbers(raw: bytes, payload: Payload) -> Payload:
    """The payload of an accepted envelope, with a RoundedNumber in place of each number that was rounded."""
    if _PERHAPS_ROUNDED.search(raw) is None:
        return payload
    exact: Any = _decoder.decode(raw.decode()).get("payload")
    return exact if isinstance(exact, dict) else payload


def has_rounded_number(raw: bytes) -> bool:
    """Whether some number in a JSON text is another one to a reader of doubles."""
    if _PERHAPS_ROUNDED.search(raw) is None:
        return False
    found: list[bool] = []
    json.JSONDecoder(parse_float=lambda digits: found.append(_is_rounded(digits))).decode(raw.decode())
    return any(found)


def _is_rounded(digits: str) -> bool:
    number = repr(float(digits))
    return number != digits and Decimal(number) != Decimal(digits)


def _number(digits: str) -> Json:
    return RoundedNumber() if _is_rounded(digits) else float(digits)


_decoder: Final = json.JSONDecoder(parse_float=_number)
