"""The latest keys of senders, as many as are kept."""

from __future__ import annotations

from collections import OrderedDict


class LatestKeys:
    """So many keys, the latest; the one that was not seen for longest is forgotten first."""

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._keys: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self._max_keys:
            self._keys.popitem(last=False)
