"""Trees, proofs and signed checkpoints that Go's own packages made hold here, and only as they are.

`go_vectors.json` is what `log_judge.go` prints when it is asked for vectors. The other way round, Go judges
our logs by `make log-judges`.
"""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from moot.evidence.checkpoint import parse_checkpoint, signers
from moot.evidence.merkle_tree import leaf_hash, proves_consistency, proves_inclusion
from moot.evidence.signed_note import NoteError, VerifierKey

VECTORS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("go_vectors.json").read_text())


def raw_list(texts: list[str] | None) -> list[bytes]:
    return [b64decode(each) for each in texts or []]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: str(each["OldSize"]))
def test_what_go_made_holds(vector: dict[str, Any]) -> None:
    raw = b64decode(vector["Note"])
    checkpoint, note = parse_checkpoint(raw)
    key = VerifierKey.parse(vector["LogKey"])
    assert signers(note, [key]) == [key]
    proof, growth = raw_list(vector["Proof"]), raw_list(vector["Growth"])
    leaf, index = leaf_hash(b64decode(vector["Entry"])), vector["Index"]
    size, root = checkpoint.size, checkpoint.root
    assert proves_inclusion(leaf, index, size, root, proof)
    assert not proves_inclusion(leaf, index + 1, size, root, proof)
    assert not proves_inclusion(leaf_hash(b"another"), index, size, root, proof)
    if vector["OldSize"]:
        old_root = b64decode(vector["OldRoot"])
        assert proves_consistency(vector["OldSize"], old_root, size, root, growth)
        assert not proves_consistency(vector["OldSize"], bytes(32), size, root, growth)
    with pytest.raises(NoteError):
        signers(parse_checkpoint(raw.replace(b"\n%d\n" % size, b"\n%d\n" % (size + 1), 1))[1], [key])
