"""Tiles (c2sp.org/tlog-tiles): where the hashes of a tree and its entries are found, 256 at a time.

A tile of level L has hashes over 256**L entries each; only the last tile of a level may be narrower, and its
path says how wide it is. A tree of any size is made of few tiles, all but the last of which never change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from moot.evidence.merkle_tree import HASH_BYTES, Subtree, whole_subtree

WIDTH: Final = 256
_LEVEL_BITS: Final = 8
_PATH: Final = re.compile(
    r"tile/(?P<level>entries|[0-9]|[1-5][0-9]|6[0-3])/(?P<index>(?:x\d{3}/){0,6}\d{3})"
    r"(?:\.p/(?P<width>[1-9]\d{0,2}))?"
)


class Tile(msgspec.Struct, frozen=True):
    """`level` is None for the entries themselves."""

    level: int | None
    index: int
    width: int = WIDTH

    @property
    def path(self) -> str:
        digits = f"{self.index:03d}"
        groups = [digits[max(0, at - 3) : at].zfill(3) for at in range(len(digits), 0, -3)][::-1]
        index = "/".join([f"x{each}" for each in groups[:-1]] + groups[-1:])
        level = "entries" if self.level is None else str(self.level)
        return f"tile/{level}/{index}" + (f".p/{self.width}" if self.width < WIDTH else "")

    @property
    def first(self) -> int:
        """The position, among the hashes of its level, of its first one."""
        return self.index * WIDTH

    def is_in(self, size: int) -> bool:
        """Whether a tree of this size has all hashes of this tile."""
        return self.first + self.width <= size >> _LEVEL_BITS * (self.level or 0)


def parse_tile(path: str) -> Tile | None:
    """The tile of a path, None if it is none."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    index = int(found["index"].replace("x", "").replace("/", ""))
    width = int(found["width"] or WIDTH)
    level = None if found["level"] == "entries" else int(found["level"])
    tile = Tile(level, index, width)
    # One path for each tile: no zeros in front, no width that stands for the whole.
    return tile if tile.path == path else None


def tiles_of(size: int) -> list[Tile]:
    """All tiles that a tree of this size has, entries included."""
    found = []
    for level in (None, *range((max(size, 1).bit_length() + _LEVEL_BITS - 1) // _LEVEL_BITS)):
        whole, rest = divmod(size >> _LEVEL_BITS * (level or 0), WIDTH)
        found += [Tile(level, index) for index in range(whole)]
        if rest:
            found.append(Tile(level, whole, rest))
    return found


def bundle(entries: Iterable[bytes]) -> bytes:
    """Entries as a tile of entries has them: each behind its length."""
    return b"".join(len(each).to_bytes(2, "big") + each for each in entries)


def subtree_from(hashes: Callable[[int, int, int], bytes]) -> Subtree:
    """The tree behind `hashes(level, first, count)`, which tells that many hashes of a level of tiles."""

    def subtree(level: int, index: int) -> bytes:
        tile_level, below = divmod(level, _LEVEL_BITS)
        raw = hashes(tile_level, index << below, 1 << below)
        return whole_subtree([raw[at : at + HASH_BYTES] for at in range(0, len(raw), HASH_BYTES)])

    return subtree
