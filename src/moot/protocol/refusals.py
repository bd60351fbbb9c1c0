"""Refusals as fields, and fields as exceptions of the same code (MEW 3.8.2, D-42)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from moot.errors import Refused
from moot.protocol.operation import Payload


def _descendants(root: type[Refused]) -> Iterator[type[Refused]]:
    for child in root.__subclasses__():
        yield child
        yield from _descendants(child)


# The first class of a code is the general one: InvalidRequest rather than InvalidPattern.
_BY_CODE: Final[Mapping[str, type[Refused]]] = {
    found.code: found for found in reversed(list(_descendants(Refused))) if "code" in vars(found)
}


def payload_of(refusal: Refused) -> Payload:
    """What `refusal_of` makes the exception of, for another gateway of a cluster."""
    return {"error": refusal.code, "message": refusal.message, **refusal.details}


def refusal_of(payload: Payload) -> Refused:
    """The exception for a `system/error`; `details` holds its other fields.

    A code that this version does not know makes a plain `Refused`, with the code in its details as `error`.
    """
    code = str(payload.get("error", ""))
    message = payload.get("message")
    text = message if isinstance(message, str) and message else code
    found = _BY_CODE.get(code)
    refusal = Refused(text) if found is None else found(text)
    used = ("message",) if found is None else ("error", "message")
    refusal.details = {name: value for name, value in payload.items() if name not in used}
    return refusal
