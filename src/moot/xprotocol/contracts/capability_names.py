"""Capabilities as names: which one covers which, and what two sets of them have in common.

A capability is labels joined by dots, in full (D-60): `com.acme.filesystem.read`. A holder has exactly that,
or everything under a prefix, written with a last label `*`. The star stands on a segment's boundary and for
at least one label: `com.acme.*` covers `com.acme.crm.read`, but neither `com.acme` nor `com.acmecorp.read`.
There is no bare `*`: who may do everything is said in other ways.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from moot.protocol.operation import Json

Scopes = frozenset[str]

MAX_CAPABILITY_CHARS: Final = 256
# Of one delegation or grant; a whole organisation's namespaces fit.
MAX_CAPABILITIES: Final = 256

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*(?:\.\*)?", re.ASCII)


def is_capability(name: Json) -> bool:
    """Whether this is the name of a capability, or of all under a prefix."""
    return isinstance(name, str) and len(name) <= MAX_CAPABILITY_CHARS and _NAME.fullmatch(name) is not None


def covers(held: str, wanted: str) -> bool:
    """Whether whoever holds the one has the other; either may end in `.*`."""
    # With its dot: `com.acme.*` is not a bare prefix.
    return held == wanted or (held.endswith(".*") and wanted.startswith(held[:-1]))


def any_covers(held: Iterable[str], wanted: str) -> bool:
    return any(covers(each, wanted) for each in held)


def uncovered(held: Scopes, wanted: Scopes) -> Scopes:
    """Those of `wanted` that nothing in `held` covers."""
    return frozenset(each for each in wanted if not any_covers(held, each))
