"""`moot journal verify`, `publish`, `keys`: what was changed shows, since when, and who saw it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moot.cli import main
from moot.evidence.checkpoint import Checkpoint, cosign, parse_checkpoint
from moot.evidence.log_files import LogReader
from moot.evidence.log_keys import read_keys, use_keys
from moot.evidence.signed_note import COSIGNATURE, SignerKey, VerifierKey
from moot.gateway.evidence.space_log import SpaceLog
from moot.store.journal_segments import first_head
from moot.store.record_chain import SEAL_BYTES, entry_of, is_sealed, seal
from tests.store.journals import folder_in, segments, value_record, write

WITNESS = SignerKey("w.example", Ed25519PrivateKey.from_private_bytes(b"w" * 32), COSIGNATURE)


class Kept:
    """A journal of 600 records, its log, and what others kept of it at 100, 300 and 500."""

    def __init__(self, tmp_path: Path) -> None:
        self.data = tmp_path
        self.journal = folder_in(tmp_path)
        self.anchor = tmp_path / "anchor.jsonl"
        self.policy = tmp_path / "policy"
        if not self.journal.exists():
            self._make()
        keys = read_keys(tmp_path)
        assert keys is not None
        self.key = keys.signer(LogReader(self.journal.parent / "log").about.origin)
        self.policy.write_text(
            f"log {self.key.verifier}\nwitness w {WITNESS.verifier} http://w.example\nquorum w\n"
        )

    def _make(self) -> None:
        asyncio.run(write(self.journal, [value_record(each) for each in range(1, 601)]))
        lines = []
        log = self.log()
        for size in (100, 300, 500, 600):
            log.advance(size)
            assert log.writer is not None
            note = log.writer.note.with_signatures([cosign(log.writer.note, WITNESS, 1_700_000_000 + size)])
            if size < 600:
                lines.append(orjson.dumps({"t": 1_700_000_000 + size, "checkpoint": str(note)}))
        assert log.writer is not None
        log.writer.keep_cosigned(note)
        self.anchor.write_bytes(b"\n".join(lines) + b"\n")

    def log(self) -> SpaceLog:
        return SpaceLog("lab", self.journal, use_keys(self.data), None)

    def rewrite(self, change: Callable[[list[bytes]], list[bytes]]) -> None:
        """Another journal, sealed as it should be, and a log of it that is signed by the same key."""
        (segment,) = segments(self.journal)
        lines = segment.read_bytes().splitlines(keepends=True)
        changed = change([each[:-SEAL_BYTES] if is_sealed(each) else each[:-2] for each in lines])
        head = first_head(self.journal)
        text = b""
        for number, inside in enumerate(changed, 1):
            sealed, head = seal([inside], head, number + 1)
            text += b"".join(sealed)
        segment.write_bytes(text)
        shutil.rmtree(self.journal.parent / "log")
        self.log().advance(len(changed))


def forged(records: list[bytes]) -> list[bytes]:
    return [*records[:350], records[350].replace(b'"x":351', b'"x":0'), *records[351:]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Kept(tmp_path_factory.mktemp("kept")).data


@pytest.fixture
def kept(made: Path, tmp_path: Path) -> Kept:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return Kept(tmp_path)


def verified(kept: Kept, capsys: pytest.CaptureFixture[str], *given: object) -> tuple[int, str]:
    code = main(["journal", "verify", "--data", str(kept.data), *map(str, given)])
    return code, capsys.readouterr().out


def test_a_whole_journal_holds_and_its_witnesses_are_named(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    # A line of it was cut off in a crash.
    kept.anchor.write_bytes(kept.anchor.read_bytes() + kept.anchor.read_bytes()[:90] + b"\n")
    code, out = verified(kept, capsys, "--against", kept.anchor, "--policy", kept.policy)
    assert code == 0
    assert "the chain holds" in out
    assert "the log is signed up to record 600" in out
    assert "w saw, at 2023-11-14T22:23:20.000Z, record 600" in out
    assert "w saw, at 2023-11-14T22:15:00.000Z, record 100" in out
    assert "all that was kept elsewhere is in it, up to record 500" in out


def test_what_was_rewritten_and_signed_anew_shows_by_what_others_kept(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.rewrite(forged)
    assert verified(kept, capsys)[0] == 0
    code, out = verified(kept, capsys, "--against", kept.anchor)
    assert code == 1
    assert "rewritten or forked since record 300 (kept 2023-11-14T22:18:20.000Z)" in out
    assert "record 500 (kept 2023-11-14T22:21:40.000Z) was signed over other records" in out


def test_what_was_cut_off_and_signed_anew_shows_by_what_others_kept(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.rewrite(lambda records: records[:400])
    code, out = verified(kept, capsys, "--against", kept.anchor)
    assert code == 1
    assert "truncated: record 500 (kept 2023-11-14T22:21:40.000Z) was signed, and the log ends with" in out


def test_what_was_changed_without_the_key_shows_by_the_log_itself(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    log = kept.journal.parent / "log"
    shutil.copytree(log, kept.data / "log.kept")
    kept.rewrite(forged)
    shutil.rmtree(log)
    shutil.copytree(kept.data / "log.kept", log)
    assert "changed: record 351 is not the one that was signed" in verified(kept, capsys)[1]
    kept.rewrite(lambda records: records)
    for name, at, words in (("entries", 300 * 32, "257 to 512"), ("entries", 520 * 32, "the tree over")):
        raw = bytearray((log / name).read_bytes())
        raw[at] ^= 1
        (log / name).write_bytes(raw)
        code, out = verified(kept, capsys)
        assert (code, words in out) == (1, True), out
        raw[at] ^= 1
        (log / name).write_bytes(raw)
    other = SignerKey(kept.key.verifier.name, Ed25519PrivateKey.generate())
    checkpoint = LogReader(log).signed()[0]
    (log / "checkpoint").write_text(str(checkpoint.signed(other)))
    assert "signed by a key that is not the gateway's" in verified(kept, capsys)[1]


def test_a_checkpoint_that_the_log_did_not_sign_shows_nothing(
    kept: Kept, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = SignerKey(kept.key.verifier.name, Ed25519PrivateKey.generate())
    forged = Checkpoint(kept.key.verifier.name, 200, b"\x00" * 32).signed(other)
    (tmp_path / "forged").write_text(str(forged))
    assert (
        "is not signed by the log: it shows nothing"
        in verified(kept, capsys, "--against", tmp_path / "forged")[1]
    )
    foreign = SignerKey("other.example", Ed25519PrivateKey.generate())
    (tmp_path / "forged").write_text(str(Checkpoint("other.example", 2, b"\x00" * 32).signed(foreign)))
    assert "is of other.example" in verified(kept, capsys, "--against", tmp_path / "forged")[1]


def test_what_was_rewritten_is_not_what_its_witnesses_saw(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever rewrites a log leaves the checkpoint beside it that witnesses signed over the other records."""
    cosigned = (kept.journal.parent / "log" / "cosigned").read_bytes()
    for change in (forged, lambda records: records[:400]):
        kept.rewrite(change)
        (kept.journal.parent / "log" / "cosigned").write_bytes(cosigned)
        for given in ((), ("--policy", kept.policy)):
            code, out = verified(kept, capsys, *given)
            assert (code, "record 600 was cosigned" in out) == (1, True), out
            assert "w saw" not in out


def test_too_few_witnesses_are_a_fault(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    (kept.journal.parent / "log" / "cosigned").unlink()
    code, out = verified(kept, capsys, "--policy", kept.policy)
    assert code == 1
    assert "the policy wants the quorum w" in out


def test_a_published_log_is_whole_and_grows(
    kept: Kept, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "www" / "log"
    for _ in range(2):
        assert main(["journal", "publish", "--data", str(kept.data), str(target)]) == 0
    assert "600 entries of" in capsys.readouterr().out
    assert parse_checkpoint((target / "checkpoint").read_bytes())[0].size == 600
    bundle = (target / "tile" / "entries" / "002.p" / "88").read_bytes()
    last = segments(kept.journal)[-1].read_bytes().splitlines(keepends=True)[-1]
    assert bundle[-34:] == b"\x00\x20" + entry_of(last)
    assert (target / "tile" / "1" / "000.p" / "2").stat().st_size == 64
    assert (target / "checkpoint").stat().st_mode & 0o044 == 0o044
    assert verified(kept, capsys, "--against", target / "checkpoint")[0] == 0


def test_what_was_published_is_not_published_otherwise(
    kept: Kept, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "www"
    publish = ["journal", "publish", "--data", str(kept.data), str(target)]
    assert main(publish) == 0
    before = {each: each.read_bytes() for each in target.rglob("*") if each.is_file()}
    kept.rewrite(forged)
    assert main(publish) == 2
    assert "other records were published there" in capsys.readouterr().err
    kept.rewrite(lambda records: records[:400])
    assert main(publish) == 2
    assert "600 records were published there, and the log has 400" in capsys.readouterr().err
    log = kept.journal.parent / "log"
    shutil.rmtree(log)
    (kept.journal.parent / "log.1").mkdir()
    kept.log().advance(400)
    assert main(publish) == 2
    assert "has the log" in capsys.readouterr().err
    assert before == {each: each.read_bytes() for each in target.rglob("*") if each.is_file()}


def test_keys_are_shown_as_lines_of_a_policy_and_the_old_one_stays(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("keys", "rotate-key", "keys"):
        assert main(["journal", command, "--data", str(kept.data)]) == 0
    out = capsys.readouterr().out.splitlines()
    keys = [VerifierKey.parse(each.split()[1]) for each in out if each.startswith("log ")]
    assert keys[0] == kept.key.verifier
    assert keys[1] == keys[2] != keys[0]
    assert f"# before: log {keys[0]}" in out
    assert any(each.startswith("witness ") for each in out)
    secret = orjson.loads((kept.data / "log-keys.json").read_bytes())["log"]
    assert secret not in "".join(out)
    assert verified(kept, capsys)[0] == 0


def test_what_is_no_checkpoint_is_refused(
    kept: Kept, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "odd").write_text("nothing\n")
    for source in ("odd", "not-there"):
        assert verified(kept, capsys, "--against", tmp_path / source)[0] == 2
