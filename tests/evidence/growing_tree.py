"""A tree that grows by one entry at a time, to hold the log's own hashes against."""

from __future__ import annotations

from collections.abc import Iterable

from moot.evidence.merkle_tree import EMPTY_ROOT, node_hash


class GrowingTree:
    """The right edge of a tree: enough to append and to know the root, whatever its size."""

    __slots__ = ("_edge", "size")

    def __init__(self, size: int = 0, edge: Iterable[bytes] = ()) -> None:
        """`edge` has the hashes of `whole_parts(0, size)`."""
        self.size = size
        self._edge = list(edge)
        if len(self._edge) != size.bit_count():
            raise ValueError(f"a tree of {size} entries has {size.bit_count()} whole parts")

    def append(self, leaf: bytes) -> None:
        """Append one entry by its leaf's hash."""
        hash = leaf
        size = self.size
        while size & 1:
            hash = node_hash(self._edge.pop(), hash)
            size >>= 1
        self._edge.append(hash)
        self.size += 1

    @property
    def root(self) -> bytes:
        if not self._edge:
            return EMPTY_ROOT
        hash = self._edge[-1]
        for each in self._edge[-2::-1]:
            hash = node_hash(each, hash)
        return hash
