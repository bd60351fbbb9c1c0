"""A hash of a saved state: the same for two gateways exactly if the space is the same for both."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec


def hash_state(saved: dict[str, Any]) -> str:
    """The hash of what `Space.save` gave.

    Envelopes of the window may share a record or have equal ones: that depends on when the state was last
    loaded, and means nothing.
    """
    window = saved["window"]
    numbers: dict[bytes, int] = {}
    renamed = [numbers.setdefault(msgspec.json.encode(each), len(numbers)) for each in window["records"]]
    shown = saved | {
        "window": window
        | {
            "rows": [renamed[row] for row in window["rows"]],
            "pinned": {id: renamed[row] for id, row in window["pinned"].items()},
            "records": [each.decode() for each in numbers],
        }
    }
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()[:32]
