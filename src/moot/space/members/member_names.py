"""Which names a member may have (D-03, D-19, D-23)."""

from __future__ import annotations

import re
from typing import Final

from moot.errors import InvalidRequest
from moot.protocol.operation import JsonValue
from moot.space.config import Name

# D-23; `:` only in runtime ids, so that no logical name looks like the gateway's.
_LOGICAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_RUNTIME_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
_RESERVED: Final = frozenset({"gateway", "system"})


def logical_name(name: JsonValue) -> Name:
    """D-23: a name that a participant may have, or InvalidRequest."""
    if not isinstance(name, str) or _LOGICAL_NAME.fullmatch(name) is None:
        wrong = "; this one has invalid characters" if name and isinstance(name, str) else ""
        raise InvalidRequest(
            "a participant id has 1 to 64 letters, digits, '.', '_' or '-', and starts with a letter or digit"
            + wrong
        )
    if is_gateway(name):
        raise InvalidRequest(f"{name!r} is reserved for the gateway")
    return Name(name)


def check_runtime_id(id: str) -> None:
    """D-03, D-19: nobody can take the gateway's names."""
    if _RUNTIME_ID.fullmatch(id) is None:
        raise InvalidRequest("a participant id has 1 to 128 letters, digits, '.', '_', ':' or '-'")
    if is_gateway(id):
        raise InvalidRequest(f"{id!r} is reserved for the gateway")


def is_gateway(name: str) -> bool:
    """D-03: the gateway's own addresses, and whatever a reader would take for them."""
    folded = name.casefold()
    return folded in _RESERVED or folded.startswith("system:")
