"""The tree of RFC 6962 over SHA-256: roots, proofs that an entry is in it, proofs that it only grew.

A tree of N entries is named by its size. `Subtree` tells the hash of a whole one inside it: of 2**level
entries from index * 2**level on. Whoever keeps a tree keeps those, and everything else follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Final

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = sha256().digest()

# The hash of the whole subtree at (level, index).
Subtree = Callable[[int, int], bytes]


def leaf_hash(entry: bytes) -> bytes:
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def whole_subtree(hashes: Sequence[bytes]) -> bytes:
    """The hash over a power of two of hashes that stand side by side."""
    level = list(hashes)
    while len(level) > 1:
        level = [node_hash(level[at], level[at + 1]) for at in range(0, len(level), 2)]
    return level[0]


def whole_parts(start: int, end: int) -> list[tuple[int, int]]:
    """The fewest whole subtrees, as (level, index), that cover the entries from `start` to `end`, in order.

    `start` is a multiple of the largest power of two below the length, as in every part of a proof.
    """
    parts = []
    while start < end:
        level = (end - start).bit_length() - 1
        parts.append((level, start >> level))
        start += 1 << level
    return parts


def root_of(size: int, subtree: Subtree) -> bytes:
    """The root of the tree of this size."""
    return _hash_of(0, size, subtree) if size else EMPTY_ROOT


def inclusion_proof(index: int, size: int, subtree: Subtree) -> list[bytes]:
    """The hashes that lead from the entry at `index` to the root, its neighbour's first."""
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} entries has none at {index}")
    proof = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            proof.append(_hash_of(middle, end, subtree))
            end = middle
        else:
            proof.append(_hash_of(start, middle, subtree))
            start = middle
    return proof[::-1]


def consistency_proof(old: int, size: int, subtree: Subtree) -> list[bytes]:
    """The hashes that show that the tree of `old` entries is the beginning of the one of `size`."""
    if not 0 <= old <= size:
        raise ValueError(f"a tree of {size} entries does not begin with {old}")
    if old in (0, size):
        return []
    proof = []
    start, end = 0, size
    # Whether the part looked at is the whole old tree, whose hash the other side has.
    known = True
    while old != end:
        middle = start + _split(end - start)
        if old <= middle:
            proof.append(_hash_of(middle, end, subtree))
            end = middle
        else:
            proof.append(_hash_of(start, middle, subtree))
            start = middle
            known = False
    if not known:
        proof.append(_hash_of(start, end, subtree))
    return proof[::-1]


def proves_inclusion(leaf: bytes, index: int, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether the proof leads from this leaf's hash at `index` to the root of the tree of `size`."""
    if not 0 <= index < size:
        return False
    turns = list(_turns(index, size - 1))
    if len(turns) != len(proof):
        return False
    hash = leaf
    for is_left, each in zip(turns, proof, strict=True):
        hash = node_hash(each, hash) if is_left else node_hash(hash, each)
    return hash == root


def proves_consistency(old: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether the proof shows that the tree with `old_root` is the beginning of the one with `root`."""
    if old == size:
        return not proof and old_root == root
    if not 0 <= old < size:
        return False
    if old == 0:
        return not proof and old_root == EMPTY_ROOT
    hashes = list(proof)
    if old & (old - 1) == 0:
        hashes.insert(0, old_root)
    if not hashes:
        return False
    position, last = old - 1, size - 1
    while position & 1:
        position >>= 1
        last >>= 1
    before = after = hashes.pop(0)
    turns = list(_turns(position, last))
    if len(turns) != len(hashes):
        return False
    for is_left, each in zip(turns, hashes, strict=True):
        if is_left:
            before = node_hash(each, before)
        after = node_hash(each, after) if is_left else node_hash(after, each)
    return before == old_root and after == root


def _turns(position: int, last: int) -> Iterator[bool]:
    """From a node up to the root of the tree that ends at `last`: whether the next hash is the left one."""
    while last:
        is_left = bool(position & 1) or position == last
        while is_left and position and not position & 1:
            position >>= 1
            last >>= 1
        yield is_left
        position >>= 1
        last >>= 1


def _split(length: int) -> int:
    """The largest power of two smaller than a length over 1."""
    return 1 << (length - 1).bit_length() - 1


def _hash_of(start: int, end: int, subtree: Subtree) -> bytes:
    parts = [subtree(level, index) for level, index in whole_parts(start, end)]
    hash = parts[-1]
    for each in parts[-2::-1]:
        hash = node_hash(each, hash)
    return hash
