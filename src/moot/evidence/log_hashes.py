"""The hashes of many records and of whole tiles, 32 bytes each, one behind the other.

A busy gateway has tens of thousands of records a second, each with three hashes. `store/_record_hashes.pyx`
does them in C where it is built; the functions here say what comes out, and are used everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable

from moot.evidence.merkle_tree import HASH_BYTES, leaf_hash, whole_subtree
from moot.store.record_chain import entry_of

# Entries, the number of the last record that was read and where it ends, and whether the next one is missing.
Entries = tuple[bytes, int, int, bool]


def split_hashes(raw: bytes) -> list[bytes]:
    return [raw[at : at + HASH_BYTES] for at in range(0, len(raw), HASH_BYTES)]


def entries_of(text: bytes) -> bytes:
    """The entries of the whole lines of a text."""
    return b"".join(entry_of(line + b"\n") for line in text.split(b"\n")[:-1])


def leaf_hashes_in_python(entries: bytes) -> bytes:
    """The leaf's hash of each entry."""
    return b"".join(map(leaf_hash, split_hashes(entries)))


def tile_hash_in_python(hashes: bytes) -> bytes:
    """The hash over a power of two of hashes, at most 256."""
    return whole_subtree(split_hashes(hashes))


leaf_hashes: Callable[[bytes], bytes]
tile_hash: Callable[[bytes], bytes]
try:
    # By name: what an earlier version built has others, and Python's are used then.
    from moot.store._record_hashes import entries_between as _entries_between
    from moot.store._record_hashes import leaf_hashes as _leaf_hashes
    from moot.store._record_hashes import tile_hash as _tile_hash

    IS_COMPILED = True
    leaf_hashes, tile_hash = _leaf_hashes, _tile_hash
except ImportError:
    IS_COMPILED = False
    leaf_hashes, tile_hash = leaf_hashes_in_python, tile_hash_in_python


def entries_between(text: bytes, after: int, through: int, following: int = 0) -> Entries | None:
    """The entries of the records after one number up to another; None: each line is to be looked at.

    Of a cluster, those that all gateways have, from the one on that is `following` there.
    """
    return _entries_between(text, after, through, following) if IS_COMPILED else None
