"""The hashes of many records and of whole tiles, 32 bytes each, one behind the other.

A busy gateway has tens of thousands of records a second, each with three hashes. `_log_hashes.pyx` does them
in C where it is built; the functions here say what comes out, and are used everywhere else.
"""

from __future__ import annotations

from moot.evidence.merkle_tree import HASH_BYTES, leaf_hash, whole_subtree
from moot.store.record_chain import entry_of


def split_hashes(raw: bytes) -> list[bytes]:
    return [raw[at : at + HASH_BYTES] for at in range(0, len(raw), HASH_BYTES)]


def entries_in_python(text: bytes) -> bytes:
    """The entries of the whole lines of a text."""
    return b"".join(entry_of(line + b"\n") for line in text.split(b"\n")[:-1])


def leaf_hashes_in_python(entries: bytes) -> bytes:
    """The leaf's hash of each entry."""
    return b"".join(map(leaf_hash, split_hashes(entries)))


def tile_hash_in_python(hashes: bytes) -> bytes:
    """The hash over a power of two of hashes, at most 256."""
    return whole_subtree(split_hashes(hashes))


try:
    from moot.evidence import _log_hashes

    IS_COMPILED = True
    leaf_hashes = _log_hashes.leaf_hashes
    tile_hash = _log_hashes.tile_hash
except ImportError:
    IS_COMPILED = False
    leaf_hashes = leaf_hashes_in_python
    tile_hash = tile_hash_in_python


def entries_of(text: bytes) -> bytes:
    """The entries of the whole lines of a text."""
    found = _log_hashes.entries_of(text) if IS_COMPILED else None
    # One that was erased, or that all gateways of a cluster have, takes the long way.
    return entries_in_python(text) if found is None else found
