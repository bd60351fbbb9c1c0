"""Which releases of Moot can serve one cluster together, so that it can be upgraded one gateway at a time."""

from __future__ import annotations

import re
from typing import Final

_RELEASE: Final = re.compile(r"(\d+\.\d+)\.\d+", re.ASCII)


def decide_alike(one: str, other: str) -> bool:
    """Whether gateways of these two versions decide alike.

    Patch releases of one series do, by promise; snapshots compare states, so one that breaks it is noticed.
    What is no release (`0.2.0.dev0`) can be anything: it is alike to itself only.
    """
    if one == other:
        return True
    first, second = _RELEASE.fullmatch(one), _RELEASE.fullmatch(other)
    return first is not None and second is not None and first[1] == second[1]
