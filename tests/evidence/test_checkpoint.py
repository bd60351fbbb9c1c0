"""Signed notes, checkpoints, cosignatures, proofs in a file, tiles and policies, as C2SP writes them."""

from __future__ import annotations

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moot.evidence.checkpoint import Checkpoint, cosign, cosigned_at, parse_checkpoint, signers
from moot.evidence.inclusion_file import InclusionFile, parse_inclusion_file
from moot.evidence.merkle_tree import inclusion_proof, leaf_hash, root_of, whole_subtree
from moot.evidence.signed_note import (
    COSIGNATURE,
    NoteError,
    SignerKey,
    VerifierKey,
    parse_note,
    verifies_ed25519,
)
from moot.evidence.tiles import Tile, bundle, parse_tile, tiles_of
from moot.evidence.witness_policy import parse_policy

# The example of c2sp.org/signed-note.
FOREIGN_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
FOREIGN_NOTE = (
    "This is an example message.\n\n— example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
)


def key(name: str, seed: int, type: int = 1) -> SignerKey:
    return SignerKey(name, Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32), type)


LOG = key("moot.example/lab", 1)
ANA = key("ana.example/witness", 2, COSIGNATURE)
BEN = key("ben.example/witness", 3, COSIGNATURE)
CHECKPOINT = Checkpoint("moot.example/lab", 42, bytes(range(32)))


def test_a_note_that_another_program_signed_is_verified() -> None:
    note = parse_note(FOREIGN_NOTE.encode())
    foreign = VerifierKey.parse(FOREIGN_KEY)
    assert str(foreign) == FOREIGN_KEY
    assert note.signers([foreign], verifies_ed25519) == [foreign]
    assert str(note) == FOREIGN_NOTE
    assert note.signers([LOG.verifier], verifies_ed25519) == []
    changed = parse_note(FOREIGN_NOTE.replace("example message", "other message").encode())
    with pytest.raises(NoteError, match="does not fit"):
        changed.signers([foreign], verifies_ed25519)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"text\n",
        b"text\n\n",
        b"text\n\n\xe2\x80\x94 name AAAA",
        b"text\n\n\xe2\x80\x94 name AAAA\n",
        b"text\n\n- name AAAAAAAA\n",
        b"text\n\n\xe2\x80\x94 na+me AAAAAAAA\n",
        b"text\n\n\xe2\x80\x94  AAAAAAAA\n",
        b"te\x00xt\n\n\xe2\x80\x94 name AAAAAAAA\n",
        b"te\xffxt\n\n\xe2\x80\x94 name AAAAAAAA\n",
        b"text\n\n\xe2\x80\x94 name AAAAAAA*\n",
        b"x" * 70_000,
        b"text\n\n" + b"\xe2\x80\x94 name AAAAAAAA\n" * 65,
    ],
)
def test_what_is_no_note_is_refused(raw: bytes) -> None:
    with pytest.raises(NoteError):
        parse_note(raw)


@pytest.mark.parametrize(
    "text",
    [
        "name",
        "name+530d903a",
        "name+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "na me" + FOREIGN_KEY.removeprefix("example.com/foo"),
        FOREIGN_KEY.replace("+A", "+B"),
        FOREIGN_KEY[:-4],
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(NoteError, match="no public key"):
        VerifierKey.parse(text)


def test_a_checkpoint_is_signed_by_its_log_and_cosigned_by_witnesses() -> None:
    note = CHECKPOINT.signed(LOG)
    note = note.with_signatures([cosign(note, ANA, 1_700_000_000)])
    read, parsed = parse_checkpoint(str(note).encode())
    assert read == CHECKPOINT
    known = [LOG.verifier, ANA.verifier, BEN.verifier]
    assert signers(parsed, known) == [LOG.verifier, ANA.verifier]
    assert cosigned_at(parsed.signatures[1].bytes) == 1_700_000_000
    later = bytearray(parsed.signatures[1].bytes)
    later[7] ^= 1
    forged = parsed._replace(
        signatures=(parsed.signatures[0], parsed.signatures[1]._replace(bytes=bytes(later)))
    )
    with pytest.raises(NoteError, match="ana"):
        signers(forged, known)


def test_a_log_key_cannot_cosign_and_a_witness_key_cannot_sign() -> None:
    note = CHECKPOINT.signed(LOG)
    as_log = VerifierKey(ANA.verifier.name, 1, ANA.verifier.public)
    assert signers(note.with_signatures([cosign(note, ANA, 1)]), [as_log]) == []


@pytest.mark.parametrize(
    "text",
    [
        "\n42\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        "origin\n042\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        "origin\n-1\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        "origin\n42\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=\n",
        "origin\n42\nAAEC\n",
        "origin\n42\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    note = CHECKPOINT.signed(LOG)._replace(text=text)
    with pytest.raises(NoteError, match="three lines"):
        parse_checkpoint(str(note).encode())


def test_a_proof_in_a_file_shows_its_entry_and_no_other() -> None:
    entries = [f"entry {n}".encode() for n in range(11)]

    def subtree(level: int, index: int) -> bytes:
        return whole_subtree([leaf_hash(each) for each in entries[index << level : (index + 1) << level]])

    checkpoint = Checkpoint("moot.example/lab", 11, root_of(11, subtree))
    note = checkpoint.signed(LOG)
    for index in range(11):
        file = InclusionFile(index, inclusion_proof(index, 11, subtree), note, checkpoint, b"salt")
        read = parse_inclusion_file(str(file).encode())
        assert read.extra == b"salt"
        assert [read.proves(each) for each in entries] == [at == index for at in range(11)]
    bare = str(msgspec.structs.replace(file, extra=b""))
    assert parse_inclusion_file(bare.encode()).proves(entries[10])
    for wrong in (
        bare.replace("index 10", "index 010"),
        bare.replace("@v1", "@v2"),
        bare.replace("index", ""),
    ):
        with pytest.raises(NoteError):
            parse_inclusion_file(wrong.encode())


def test_tiles_have_one_path_each() -> None:
    assert Tile(0, 1_234_067).path == "tile/0/x001/x234/067"
    assert Tile(None, 5, 7).path == "tile/entries/005.p/7"
    for tile in (Tile(0, 0), Tile(3, 999), Tile(1, 1_000, 255), Tile(None, 70_000_123)):
        assert parse_tile(tile.path) == tile
    for wrong in (
        "tile/0/x000/001",
        "tile/64/000",
        "tile/0/1",
        "tile/0/000.p/256",
        "tile/0/000.p/0",
        "tile/00/000",
    ):
        assert parse_tile(wrong) is None
    of_70000 = tiles_of(70_000)
    assert [sum(tile.level == level for tile in of_70000) for level in (None, 0, 1, 2, 3)] == [
        274,
        274,
        2,
        1,
        0,
    ]
    assert Tile(0, 273, 112) in of_70000
    assert Tile(1, 1, 17) in of_70000
    assert Tile(2, 0, 1) in of_70000
    assert all(tile.is_in(70_000) for tile in of_70000)
    assert not Tile(0, 273, 113).is_in(70_000)
    assert tiles_of(0) == []
    assert bundle([b"ab", b""]) == b"\x00\x02ab\x00\x00"


POLICY = f"""
# Who has to have seen it.
log {LOG.verifier}
witness ana {ANA.verifier} https://ana.example/
witness\tben  {BEN.verifier}
group both all ana ben
quorum both
"""


def test_a_policy_says_how_many_witnesses_are_needed() -> None:
    policy = parse_policy(POLICY.encode())
    note = CHECKPOINT.signed(LOG)
    one = note.with_signatures([cosign(note, ANA, 1_700_000_000)])
    both = one.with_signatures([cosign(note, BEN, 1_700_000_001)])
    assert policy.judge(CHECKPOINT, both) == ["ana", "ben"]
    with pytest.raises(NoteError, match="quorum both; of its witnesses ana cosigned"):
        policy.judge(CHECKPOINT, one)
    any_of_them = parse_policy(POLICY.replace("both all", "both any").encode())
    assert any_of_them.judge(CHECKPOINT, one) == ["ana"]
    nobody = parse_policy(f"log {LOG.verifier}\nquorum none\n".encode())
    assert nobody.judge(CHECKPOINT, note) == []
    with pytest.raises(NoteError, match="no log"):
        nobody.judge(CHECKPOINT, CHECKPOINT.signed(key("moot.example/lab", 9)))
    with pytest.raises(NoteError, match="no log"):
        nobody.judge(CHECKPOINT._replace(origin="other"), note)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("quorum both", ""), "no quorum"),
        (("quorum both", "quorum both\nquorum both"), "line 8 .*second quorum"),
        (("quorum both", "quorum ben"), "counts twice"),
        (("all ana ben", "3 ana ben"), "line 6 .*up to 2"),
        (("all ana ben", "all ana cid"), "not defined above"),
        (("all ana ben", "all"), "is no log"),
        (("group both", "group ana"), "is taken"),
        (("group both", "group none"), "is taken"),
        ((str(BEN.verifier), str(ANA.verifier)), "stands there already"),
        ((str(BEN.verifier), str(LOG.verifier)), "other sort"),
        (("# Who", "# Wh\x01"), None),
        (("log ", "log\x01 "), "control character"),
    ],
)
def test_a_wrong_policy_says_where(change: tuple[str, str], says: str | None) -> None:
    raw = POLICY.replace(*change).encode()
    if says is None:
        parse_policy(raw)
        return
    with pytest.raises(NoteError, match=says):
        parse_policy(raw)
