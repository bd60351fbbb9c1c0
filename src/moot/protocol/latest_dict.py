"""A table that keeps so many entries: the oldest go first, and what is put in anew is the latest."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LatestDict(dict[K, V]):
    """Put in with `table[key] = value`; `update`, `|=` and `setdefault` drop nothing."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        while len(self) > self.most:
            del self[next(iter(self))]
