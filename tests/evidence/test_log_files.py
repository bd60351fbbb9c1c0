"""The log on disk: what is signed is what the files hold, whatever happens between two steps."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from random import Random
from subprocess import run

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moot.errors import UsageError
from moot.evidence import log_hashes
from moot.evidence.checkpoint import cosign, parse_checkpoint, signers
from moot.evidence.inclusion_file import parse_inclusion_file
from moot.evidence.log_files import LogAbout, LogBroken, LogReader, LogWriter
from moot.evidence.merkle_tree import leaf_hash, proves_consistency
from moot.evidence.signed_note import COSIGNATURE, SignerKey
from moot.evidence.tiles import Tile, tiles_of
from moot.store.record_chain import entry_of, number_in, shared_number
from tests.evidence.growing_tree import GrowingTree

ORIGIN = "moot.example/spaces/lab/log"
KEY = SignerKey(ORIGIN, Ed25519PrivateKey.from_private_bytes(b"k" * 32))


def entry(number: int) -> bytes:
    return sha256(b"%d" % number).digest()


def root_at(size: int) -> bytes:
    tree = GrowingTree()
    for number in range(size):
        tree.append(leaf_hash(entry(number)))
    return tree.root


def new_log(folder: Path, *, first: int = 1) -> LogWriter:
    LogWriter.create(folder, LogAbout(origin=ORIGIN, first=first), KEY)
    return LogWriter(folder, [KEY.verifier])


def grow(log: LogWriter, size: int) -> None:
    log.append(b"".join(entry(number) for number in range(log.size, size)))
    log.sign(KEY)


def test_each_size_has_the_root_of_its_entries_and_proves_them(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log", first=11)
    sizes = [1, 2, 255, 256, 257, 511, 512, 700, 1280]
    for size in sizes:
        grow(log, size)
        checkpoint, note = LogReader(log.folder).signed()
        assert checkpoint == (ORIGIN, size, root_at(size))
        assert signers(note, [KEY.verifier]) == [KEY.verifier]
    reader = LogReader(log.folder)
    for old in sizes:
        assert proves_consistency(
            old, root_at(old), sizes[-1], checkpoint.root, reader.consistency(old, sizes[-1])
        )
    for record in (11, 12, 266, 267, 11 + 1279):
        proof = reader.proof_of(record)
        assert proof is not None
        assert parse_inclusion_file(str(proof).encode()).proves(entry(record - 11))
        assert reader.entry_of_record(record) == entry(record - 11)
    assert reader.proof_of(11 + 1280) is None
    with pytest.raises(UsageError, match="begins with 11"):
        reader.proof_of(10)


def test_tiles_hold_the_hashes_of_the_tree_and_its_entries(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    grow(log, 700)
    found = {tile.path: log.tile(tile, 700) for tile in tiles_of(700)}
    assert sorted(found) == [
        "tile/0/000", "tile/0/001", "tile/0/002.p/188", "tile/1/000.p/2",
        "tile/entries/000", "tile/entries/001", "tile/entries/002.p/188",
    ]  # fmt: skip
    assert found["tile/0/002.p/188"] == b"".join(leaf_hash(entry(number)) for number in range(512, 700))
    assert found["tile/entries/002.p/188"] == b"".join(
        b"\x00\x20" + entry(number) for number in range(512, 700)
    )
    tree = GrowingTree()
    for number in range(256):
        tree.append(leaf_hash(entry(number)))
    raw = found["tile/1/000.p/2"]
    assert raw is not None
    assert raw[:32] == tree.root
    assert log.tile(Tile(0, 2, 189), 700) is None


class Crash(OSError):
    """The machine went down."""


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    """Fail at this call of the operating system and all that follow; a write is cut in half."""
    calls = 0

    def failing(name: str) -> None:
        real = getattr(os, name)

        def call(*given: object, **more: object) -> object:
            nonlocal calls
            calls += 1
            if calls > step:
                raise Crash("down")
            if calls == step:
                if name == "pwrite":
                    file, raw, offset = given
                    real(file, raw[: len(raw) // 2], offset)  # type: ignore[index,arg-type]
                raise Crash("down")
            return real(*given, **more)

        monkeypatch.setattr(os, name, call)

    for name in ("pwrite", "fsync", "replace", "ftruncate", "truncate"):
        failing(name)
    return lambda: calls


@pytest.mark.parametrize("before", [0, 250, 512])
def test_a_crash_at_any_step_leaves_one_root_for_each_size_and_none_ahead_of_the_disk(
    tmp_path: Path, before: int
) -> None:
    """Appending, signing, cosigning: whatever the step, the next start goes on from what was signed."""
    witness = SignerKey("w.example", Ed25519PrivateKey.from_private_bytes(b"w" * 32), COSIGNATURE)
    step = 0
    while True:
        step += 1
        log = new_log(tmp_path / f"{step}")
        if before:
            grow(log, before)
        with pytest.MonkeyPatch.context() as patched:
            came = crash_at(patched, step)
            try:
                grow(log, before + 300)
                log.add_signatures(log.size, [cosign(log.note, witness, 1)])
            except Crash:
                pass
            done = came() < step
        checkpoint, note = LogReader(log.folder).signed()
        assert checkpoint.size in (before, before + 300)
        assert checkpoint.root == root_at(checkpoint.size)
        assert signers(note, [KEY.verifier, witness.verifier])[0] == KEY.verifier
        again = LogWriter(log.folder, [KEY.verifier])
        assert again.size == checkpoint.size
        assert (again.folder / "entries").exists() or not again.size
        if again.size:
            assert (again.folder / "entries").stat().st_size == again.size * 32
        grow(again, before + 301)
        assert again.checkpoint.root == root_at(before + 301)
        if done:
            break
    assert step > 8


@pytest.mark.parametrize("step", range(1, 9))
def test_a_crash_while_a_log_is_made_leaves_none_or_a_whole_one(tmp_path: Path, step: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, step)
        with suppress(Crash, UsageError):
            new_log(tmp_path / "log")
    if (tmp_path / "log" / "about.json").exists():
        log = LogWriter(tmp_path / "log", [KEY.verifier])
    else:
        log = new_log(tmp_path / "log")
    grow(log, 3)
    assert log.checkpoint.root == root_at(3)


@pytest.mark.parametrize(
    ("name", "size"),
    [("entries", 0), ("entries", 31), ("entries", 699 * 32), ("level-1", 0), ("level-1", 33)],
)
def test_a_checkpoint_ahead_of_its_files_is_followed_by_no_other(
    tmp_path: Path, name: str, size: int
) -> None:
    log = new_log(tmp_path / "log")
    grow(log, 700)
    os.truncate(log.folder / name, size)
    with pytest.raises(LogBroken, match="shorter than what was signed"):
        LogWriter(log.folder, [KEY.verifier])


def test_files_that_were_changed_are_not_signed_for(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    grow(log, 700)
    for name, at in (("entries", 520 * 32), ("level-1", 40)):
        raw = bytearray((log.folder / name).read_bytes())
        raw[at] ^= 1
        kept = (log.folder / name).read_bytes()
        (log.folder / name).write_bytes(raw)
        with pytest.raises(LogBroken, match="not those that were signed"):
            LogWriter(log.folder, [KEY.verifier])
        log.append(entry(log.size))
        with pytest.raises(LogBroken, match="not those that were signed"):
            log.sign(KEY)
        (log.folder / name).write_bytes(kept)
        log = LogWriter(log.folder, [KEY.verifier])


def test_a_checkpoint_that_is_lost_foreign_or_of_another_key_stops_the_log(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    grow(log, 5)
    path = log.folder / "checkpoint"
    kept = path.read_bytes()
    other = SignerKey(ORIGIN, Ed25519PrivateKey.from_private_bytes(b"o" * 32))
    with pytest.raises(LogBroken, match="a key that is not"):
        LogWriter(log.folder, [other.verifier])
    path.unlink()
    with pytest.raises(LogBroken, match="is gone"):
        LogWriter(log.folder, [KEY.verifier])
    path.write_bytes(kept.replace(b"/lab/", b"/lob/"))
    with pytest.raises(LogBroken, match=r"is of moot\.example/spaces/lob"):
        LogWriter(log.folder, [KEY.verifier])
    path.write_bytes(kept[:40])
    with pytest.raises(LogBroken, match="damaged"):
        LogWriter(log.folder, [KEY.verifier])


def test_a_proof_is_by_the_checkpoint_that_witnesses_signed_where_one_covers_it(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    witness = SignerKey("w.example", Ed25519PrivateKey.from_private_bytes(b"w" * 32), COSIGNATURE)
    grow(log, 5)
    note = log.add_signatures(5, [cosign(log.note, witness, 7)])
    assert note is not None
    log.keep_cosigned(note)
    grow(log, 9)
    assert log.add_signatures(5, note.signatures) is None
    early, late = log.proof_of(5), log.proof_of(6)
    assert early is not None
    assert late is not None
    assert early.checkpoint.size == 5
    assert witness.verifier in signers(early.note, [witness.verifier])
    assert late.checkpoint.size == 9
    assert parse_checkpoint((log.folder / "cosigned").read_bytes())[0].size == 5


compiled = pytest.mark.skipif(not log_hashes.IS_COMPILED, reason="built without a C compiler")
SEAL = b',"h":"%b"}\n' % (b"0" * 64)


def random_lines(random: Random, first: int, shared: int = 0) -> list[bytes]:
    """Lines of a journal; of a cluster, with numbers that all gateways have from this one on."""
    lines = []
    for number in range(first, first + random.randrange(80)):
        inside = b'{"n":%d,"t":1,"x":"%b"' % (
            number,
            b"y" * random.choice([0, 19, 20, random.randrange(700)]),
        )
        if shared and random.random() < 0.8:
            inside += b',"c":%d,"s":"%b"' % (shared, b"aZ09_-" * 3 + b"salt")
            shared += 1
        elif random.random() < 0.5:
            inside += random.choice([b',"s":"%b"' % (b"s" * 22), b',"c":7,"s":"%b"' % (b"." * 22)])
        lines.append(inside + random.choice([b"}\n", SEAL]))
    return lines


@compiled
@pytest.mark.parametrize("lanes", [False, True])
def test_the_compiled_entries_are_those_of_python(lanes: bool) -> None:
    """With lanes the processor needs wide vectors; where it has none there is one way only."""
    from moot.store import _record_hashes

    if lanes and not _record_hashes.HAS_LANES:
        pytest.skip("this processor hashes one text after the other")
    random = Random(1)
    for _ in range(300):
        first, shared = random.choice([1, 98, 12345]), random.choice([0, 1, 999])
        lines = random_lines(random, first, shared)
        after, through = first + random.randrange(-1, 9), first + random.randrange(90)
        read = [each for each in lines if after < number_in(each) <= through]
        wanted = [each for each in read if not shared or shared_number(each)]
        following = shared and (shared_number(wanted[0]) if wanted else shared)
        found = _record_hashes.entries_between(b"".join(lines), after, through, following, lanes)
        assert found is not None
        last = number_in(read[-1]) if read else after
        end = sum(len(each) for each in lines if number_in(each) <= max(last, after))
        assert found == (b"".join(map(entry_of, wanted)), last, end, False)


def test_a_python_that_has_openssl_built_in_can_keep_a_log() -> None:
    """As those that uv installs: there is no file of `_hashlib` whose OpenSSL could be found."""
    code = (
        "import _hashlib; del _hashlib.__file__; from moot.evidence import log_hashes;"
        "print(log_hashes.IS_COMPILED, log_hashes.leaf_hashes(bytes(32)).hex())"
    )
    ran = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert ran.stdout.split() == ["False", leaf_hash(bytes(32)).hex()]


@compiled
def test_of_a_damaged_text_the_compiled_entries_are_those_of_python_or_none() -> None:
    from moot.store._record_hashes import entries_between

    random = Random(2)
    read = 0
    for _ in range(3_000):
        shared = random.choice([0, 1])
        text = bytearray(b"".join(random_lines(random, 1, shared)[:6]) or b"\n")
        for _ in range(random.choice([1, 3])):
            text[random.randrange(len(text))] = random.choice(b'{}[],:"0123456789nchs\n\r\x00\xff')
        found = entries_between(bytes(text), 0, 99, shared)
        if found is not None:
            entries, last, end, _ = found
            lines = [each + b"\n" for each in bytes(text[:end]).split(b"\n")[:-1]]
            lines = [each for each in lines if number_in(each)]
            assert not lines or number_in(lines[-1]) == last
            assert entries == b"".join(entry_of(each) for each in lines if not shared or shared_number(each))
            read += len(lines)
    assert read > 3_000


@compiled
def test_what_is_rare_or_not_there_is_left_to_python() -> None:
    from moot.store._record_hashes import entries_between

    ends = b'"t":1,"c":%d,"s":"' + b"x" * 22 + b'"}\n'
    plain = b'{"n":4,"t":1}\n{"n":5,"t":1}\n'
    both = b'{"n":4,' + ends % 8 + b'{"n":5,' + ends % 9
    erased = b'{"n":6,"erased":"%b","t":1}\n' % (b"ab" * 32)
    for text in (b"\n", b"}\n", b"{}\n", b'{"n":"4"}\n', b'{"n":4}\n', plain + erased, plain + b"{\n"):
        assert entries_between(text, 3, 9) is None
    # Of an erased record only what is left says what it was; of a cluster, that it is in the log already.
    assert entries_between(both, 3, 9) is None
    assert entries_between(both, 3, 9, 9) is None
    assert entries_between(plain, 3, 9)[1:] == (5, len(plain), False)  # type: ignore[index]
    assert entries_between(plain, 2, 9)[1:] == (2, 0, True)  # type: ignore[index]
    assert entries_between(plain.replace(b"5", b"6"), 3, 9)[1:] == (4, 14, True)  # type: ignore[index]
    assert entries_between(plain.replace(b"5", b"6"), 3, 5)[1:] == (4, 14, True)  # type: ignore[index]
    assert entries_between(plain.replace(b"5", b"6"), 3, 4)[1:] == (4, 14, False)  # type: ignore[index]
    assert entries_between(both, 3, 9, 7)[1:] == (3, 0, True)  # type: ignore[index]
    assert entries_between(both, 4, 9, 9)[1:] == (5, len(both), False)  # type: ignore[index]


@compiled
@pytest.mark.parametrize("lanes", [False, True])
def test_the_compiled_hashes_of_trees_are_those_of_python(lanes: bool) -> None:
    from moot.store import _record_hashes

    if lanes and not _record_hashes.HAS_LANES:
        pytest.skip("this processor hashes one text after the other")
    hashes = Random(1).randbytes(256 * 32)
    for count in (0, 1, 15, 16, 17, 40, 256):
        part = hashes[: count * 32]
        assert _record_hashes.leaf_hashes(part, lanes) == log_hashes.leaf_hashes_in_python(part)
    for count in (1, 2, 32, 64, 256):
        part = hashes[: count * 32]
        assert _record_hashes.tile_hash(part, lanes) == log_hashes.tile_hash_in_python(part)
    for wrong in (b"", hashes[:96], hashes[:33], hashes * 2):
        with pytest.raises(ValueError, match="a power of two"):
            _record_hashes.tile_hash(wrong, lanes)


def test_a_log_that_was_set_back_is_not_gone_on_with(tmp_path: Path) -> None:
    """A checkpoint from a copy, and entries of now: what witnesses signed since would be signed otherwise."""
    log = new_log(tmp_path / "log")
    grow(log, 5)
    old = (tmp_path / "log" / "checkpoint").read_bytes()
    grow(log, 9)
    log.keep_cosigned(log.note)
    LogWriter(tmp_path / "log", [KEY.verifier])
    (tmp_path / "log" / "checkpoint").write_bytes(old)
    with pytest.raises(LogBroken, match="witnesses signed 9 entries, and the checkpoint has 5"):
        LogWriter(tmp_path / "log", [KEY.verifier])


def test_the_files_of_a_log_are_no_links(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    grow(log, 300)
    for name in ("entries", "level-1"):
        place = tmp_path / "log" / name
        elsewhere = tmp_path / f"elsewhere-{name}"
        place.rename(elsewhere)
        before = elsewhere.read_bytes() + b"more"
        elsewhere.write_bytes(before)
        place.symlink_to(elsewhere)
        with pytest.raises(LogBroken, match="is a link"):
            LogWriter(tmp_path / "log", [KEY.verifier])
        assert elsewhere.read_bytes() == before
        place.unlink()
        elsewhere.rename(place)
