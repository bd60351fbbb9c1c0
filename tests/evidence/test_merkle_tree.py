"""Roots and proofs of RFC 6962, against the definition written down once more, for every small tree."""

from __future__ import annotations

import random
from hashlib import sha256

import pytest

from moot.evidence.merkle_tree import (
    EMPTY_ROOT,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    proves_consistency,
    proves_inclusion,
    root_of,
    whole_parts,
)
from moot.evidence.tiles import subtree_from
from tests.evidence.growing_tree import GrowingTree

SIZES = range(40)
ENTRIES = [f"entry {n}".encode() for n in SIZES]


def defined_root(entries: list[bytes]) -> bytes:
    """The definition of RFC 6962, word for word."""
    if not entries:
        return sha256(b"").digest()
    if len(entries) == 1:
        return sha256(b"\x00" + entries[0]).digest()
    half = 1
    while half * 2 < len(entries):
        half *= 2
    return sha256(b"\x01" + defined_root(entries[:half]) + defined_root(entries[half:])).digest()


def subtree(level: int, index: int) -> bytes:
    return defined_root(ENTRIES[index << level : (index + 1) << level])


ROOTS = [defined_root(ENTRIES[:size]) for size in SIZES]


def test_a_tree_that_grows_has_the_root_that_is_defined() -> None:
    tree = GrowingTree()
    assert tree.root == EMPTY_ROOT == ROOTS[0]
    for size in SIZES:
        assert tree.root == ROOTS[size] == root_of(size, subtree)
        edge = [subtree(*part) for part in whole_parts(0, size)]
        assert GrowingTree(size, edge).root == ROOTS[size]
        tree.append(leaf_hash(ENTRIES[size]))


def test_every_entry_of_every_small_tree_is_proven_to_be_in_it_and_in_no_other() -> None:
    for size in SIZES:
        for index in range(size):
            proof = inclusion_proof(index, size, subtree)
            leaf = leaf_hash(ENTRIES[index])
            assert proves_inclusion(leaf, index, size, ROOTS[size], proof)
            assert not proves_inclusion(leaf, index, size, ROOTS[size - 1], proof)
            assert not proves_inclusion(leaf_hash(b"other"), index, size, ROOTS[size], proof)
            assert not proves_inclusion(leaf, index, size, ROOTS[size], [*proof, leaf])
            assert size == 1 or not proves_inclusion(leaf, index, size, ROOTS[size], proof[1:])
            assert size == 1 or not proves_inclusion(leaf, (index + 1) % size, size, ROOTS[size], proof)


def test_every_small_tree_is_proven_to_be_the_beginning_of_every_larger_one() -> None:
    for size in SIZES:
        for old in range(size + 1):
            proof = consistency_proof(old, size, subtree)
            assert proves_consistency(old, ROOTS[old], size, ROOTS[size], proof)
            assert not proves_consistency(old, ROOTS[old], size, sha256(b"fork").digest(), proof) or not old
            assert not proves_consistency(old, sha256(b"fork").digest(), size, ROOTS[size], proof)
            assert not proves_consistency(old, ROOTS[old], size, ROOTS[size], [*proof, EMPTY_ROOT])


def test_a_changed_bit_of_a_proof_is_found() -> None:
    chance = random.Random(6962)
    for _ in range(2_000):
        size = chance.randrange(2, len(ENTRIES))
        index = chance.randrange(size)
        proof = inclusion_proof(index, size, subtree)
        at = chance.randrange(len(proof))
        changed = bytearray(proof[at])
        changed[chance.randrange(32)] ^= 1 << chance.randrange(8)
        proof[at] = bytes(changed)
        assert not proves_inclusion(leaf_hash(ENTRIES[index]), index, size, ROOTS[size], proof)


def test_what_a_tree_does_not_have_cannot_be_asked_of_it() -> None:
    with pytest.raises(ValueError, match="has none at 5"):
        inclusion_proof(5, 5, subtree)
    with pytest.raises(ValueError, match="does not begin with 6"):
        consistency_proof(6, 5, subtree)
    with pytest.raises(ValueError, match="2 whole parts"):
        GrowingTree(3, [])


def test_tiles_tell_every_subtree() -> None:
    leaves = [leaf_hash(n.to_bytes(4, "big")) for n in range(1_000)]
    levels = {0: b"".join(leaves)}
    levels[1] = b"".join(_root(leaves[at : at + 256]) for at in range(0, 768, 256))

    def hashes(level: int, first: int, count: int) -> bytes:
        return levels[level][first * 32 : (first + count) * 32]

    told = subtree_from(hashes)
    for size in (1, 255, 256, 257, 700, 1_000):
        assert root_of(size, told) == _root(leaves[:size])


def _root(leaves: list[bytes]) -> bytes:
    tree = GrowingTree()
    for each in leaves:
        tree.append(each)
    return tree.root
