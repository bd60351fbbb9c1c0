"""Go's own `sumdb/note` and `tlog` judge our logs: `make log-judges`, by hand (it needs Go and some minutes).

    python -m tests.evidence.log_judges GO_BINARY [LOGS [KILLS]]

The tree of a real cluster whose signers were killed, one at each step of signing: at each gateway, with each
checkpoint that was ever seen, as the gateways signed and a witness cosigned it, and with tamperings. And
1,000 random logs, each with a checkpoint that is signed and cosigned, an inclusion proof, a consistency proof
and its tiles as published; then ten tamperings of each. Go must take all of the former and none of the
latter, and our own verifier must say the same. Go's copies of its packages are used where they lie.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moot.evidence.checkpoint import Checkpoint, cosign, parse_checkpoint, signers
from moot.evidence.log_files import LogAbout, LogReader, LogWriter
from moot.evidence.log_hashes import split_hashes
from moot.evidence.log_keys import read_keys, use_keys
from moot.evidence.merkle_tree import inclusion_proof, leaf_hash, proves_consistency, proves_inclusion
from moot.evidence.signed_note import COSIGNATURE, Note, NoteError, Signature, SignerKey
from moot.evidence.tiles import tiles_of
from tests.gateway.cluster.log_failovers import NAMES
from tests.gateway.cluster.log_step_kills import COSIGNER, LogStepKills
from tests.gateway.cluster.moot_killed_at_step import STEPS

ORIGIN = "moot.example/spaces/lab/log"
TAMPERINGS = 10


@dataclass(frozen=True)
class Case:
    """One checkpoint and what is proved by it."""

    log: SignerKey
    witness: SignerKey
    note: bytes
    index: int
    entry: bytes
    proof: list[bytes]
    old: int
    old_root: bytes
    growth: list[bytes]
    tiles: str = ""

    def line(self) -> str:
        fields: dict[str, Any] = {
            "LogKey": str(self.log.verifier),
            "WitnessKey": str(self.witness.verifier),
            "Note": _text(self.note),
            "Index": self.index,
            "Entry": _text(self.entry),
            "Proof": [_text(each) for each in self.proof],
            "OldSize": self.old,
            "OldRoot": _text(self.old_root),
            "Growth": [_text(each) for each in self.growth],
            "Tiles": self.tiles,
        }
        return json.dumps(fields)

    def holds(self) -> bool:
        """What our own verifier says; it does not look at tiles."""
        try:
            found, note = parse_checkpoint(self.note)
            keys = [self.log.verifier, self.witness.verifier]
            if len(signers(note, keys)) != 2 or found.origin != keys[0].name:
                return False
        except NoteError:
            return False
        if not proves_inclusion(leaf_hash(self.entry), self.index, found.size, found.root, self.proof):
            return False
        return proves_consistency(self.old, self.old_root, found.size, found.root, self.growth)


def _text(raw: bytes) -> str:
    return b64encode(raw).decode()


def build_judge(go: str, folder: Path) -> Path:
    """Our judge with Go's packages, built without a network."""
    source = folder / "source"
    asked = subprocess.run([go, "env", "GOROOT"], capture_output=True, text=True, check=True)  # noqa: S603
    root = asked.stdout.strip()
    for name in ("note", "tlog"):
        from_ = Path(root) / "src/cmd/vendor/golang.org/x/mod/sumdb" / name
        shutil.copytree(from_, source / name, ignore=shutil.ignore_patterns("*_test.go"))
    shutil.copy(Path(__file__).with_name("log_judge.go"), source / "main.go")
    (source / "go.mod").write_text("module judge\n\ngo 1.24\n")
    environ = os.environ | {"GOPROXY": "off", "GOFLAGS": "-mod=mod", "GOCACHE": str(folder / "cache")}
    command = [go, "build", "-o", str(folder / "judge"), "."]
    subprocess.run(command, cwd=source, env=environ, check=True)  # noqa: S603
    return folder / "judge"


class Maker:
    """Random logs and what somebody might do to them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)

    def log(self, number: int) -> tuple[Case, list[tuple[str, Case]]]:
        choose = self._random
        key = SignerKey(ORIGIN, Ed25519PrivateKey.from_private_bytes(choose.randbytes(32)))
        private = Ed25519PrivateKey.from_private_bytes(choose.randbytes(32))
        witness = SignerKey("witness.example", private, COSIGNATURE)
        size = choose.choice([choose.randint(2, 9), choose.randint(2, 300), choose.randint(250, 1_400)])
        entries = [choose.randbytes(32) for _ in range(size)]
        reader = self._write(f"{number}", entries, key)
        old = choose.randint(1, size)
        index = choose.randrange(size)
        case = _case(reader, key, witness, entries, index, old, reader.root(old))
        honest = replace(case, tiles=str(self.publish(reader, f"{number}.tiles", size)))
        return honest, [self.tamper(case, entries, number) for _ in range(TAMPERINGS)]

    def _write(self, name: str, entries: list[bytes], key: SignerKey) -> LogReader:
        LogWriter.create(self._folder / name, LogAbout(origin=key.verifier.name), key)
        log = LogWriter(self._folder / name, [key.verifier])
        rest = list(entries)
        while rest:
            count = self._random.randint(1, len(rest))
            log.append(b"".join(rest[:count]))
            log.sign(key)
            del rest[:count]
        return LogReader(self._folder / name)

    def publish(self, reader: LogReader, name: str, size: int) -> Path:
        for tile in tiles_of(size):
            path = self._folder / name / tile.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(reader.tile(tile, size) or b"")
        return self._folder / name

    def tamper(self, case: Case, entries: list[bytes], number: int) -> tuple[str, Case]:
        choose = self._random
        found, note = parse_checkpoint(case.note)
        ways = [
            "text",
            "signature",
            "cut",
            "entry",
            "index",
            "resigned",
            "renamed",
            "old root",
            "fork",
        ]
        ways += ["proof"] if case.proof else []
        ways += ["proof cut"] if case.proof else []
        ways += ["reordered"] if len(case.proof) > 1 else []
        ways += ["growth"] if case.growth else []
        way = choose.choice(ways)
        match way:
            case "text":
                at = choose.randrange(len(note.text.encode()))
                return way, replace(case, note=_flipped(case.note, at, choose.randrange(7)))
            case "signature":
                at = choose.randrange(len(note.signatures))
                each = note.signatures[at]
                raw = _flipped(each.bytes, choose.randrange(len(each.bytes)), choose.randrange(8))
                changed = [*note.signatures[:at], each._replace(bytes=raw), *note.signatures[at + 1 :]]
                return way, replace(case, note=str(Note(note.text, changed)).encode())
            case "cut":
                return way, replace(case, note=case.note[: choose.randrange(len(case.note))])
            case "entry":
                return way, replace(
                    case, entry=_flipped(case.entry, choose.randrange(32), choose.randrange(8))
                )
            case "index":
                return way, replace(case, index=(case.index + choose.randrange(1, found.size)) % found.size)
            case "resigned":
                other = SignerKey(
                    case.log.verifier.name, Ed25519PrivateKey.from_private_bytes(choose.randbytes(32))
                )
                made = Signature(
                    case.log.verifier.name, case.log.verifier.key_id, other.sign(note.text.encode())
                )
                return way, replace(case, note=str(Note(note.text, (made, note.signatures[1]))).encode())
            case "renamed":
                other = SignerKey(
                    case.log.verifier.name, Ed25519PrivateKey.from_private_bytes(choose.randbytes(32))
                )
                signed = found.signed(other)
                return way, replace(case, note=str(signed.with_signatures(note.signatures[1:])).encode())
            case "old root":
                return way, replace(case, old_root=_flipped(case.old_root, choose.randrange(32), 0))
            case "fork":
                forked = list(entries)
                forked[choose.randrange(case.old)] = choose.randbytes(32)
                reader = self._write(f"{number}.fork.{choose.getrandbits(60)}", forked, case.log)
                return way, _case(reader, case.log, case.witness, forked, case.index, case.old, case.old_root)
            case "proof" | "growth":
                hashes = list(case.proof if way == "proof" else case.growth)
                at = choose.randrange(len(hashes))
                hashes[at] = _flipped(hashes[at], choose.randrange(32), choose.randrange(8))
                return way, replace(case, proof=hashes) if way == "proof" else replace(case, growth=hashes)
            case "proof cut":
                return way, replace(case, proof=case.proof[:-1])
            case _:
                return way, replace(case, proof=[*case.proof[1:], case.proof[0]])


def cluster_cases(folder: Path, kills: int) -> list[tuple[str, Case]]:
    """What three gateways signed while so many of them were killed."""
    steps = [step for step, _ in zip(cycle(STEPS), range(kills), strict=False)]
    cluster, maker = LogStepKills(folder, 39, steps), Maker(folder / "judged", seed=39)
    print(uvloop.run(cluster.run(kills)))
    witness = use_keys(folder / COSIGNER).witness()
    numbers = count(1)
    cases: list[tuple[str, Case]] = []
    for name in NAMES:
        reader, keys = cluster.reader(name), read_keys(folder / name / "data")
        found = reader.cosigned()
        assert found is not None
        assert keys is not None
        checkpoint, note = found
        log, entries = keys.signer(checkpoint.origin), split_hashes(reader.entries(0, checkpoint.size))
        tiles = str(maker.publish(reader, f"{name}.tiles", checkpoint.size))
        for old in (each for each in cluster.seen.values() if each.size <= checkpoint.size):
            number = next(numbers)
            index = number * 7 % checkpoint.size
            proof = inclusion_proof(index, checkpoint.size, reader.subtree)
            growth = reader.consistency(old.size, checkpoint.size)
            raw = str(note).encode()
            case = Case(log, witness, raw, index, entries[index], proof, old.size, old.root, growth, tiles)
            cases.append(("honest", case))
            cases += [maker.tamper(replace(case, tiles=""), entries, number) for _ in range(TAMPERINGS)]
    return cases


def _case(
    reader: LogReader,
    key: SignerKey,
    witness: SignerKey,
    entries: list[bytes],
    index: int,
    old: int,
    old_root: bytes,
) -> Case:
    found = reader.proof_of(index + 1)
    assert found is not None
    size = found.checkpoint.size
    note = _signed(found.checkpoint, key, witness)
    return Case(
        key,
        witness,
        note,
        index,
        entries[index],
        list(found.proof),
        old,
        old_root,
        reader.consistency(old, size),
    )


def _signed(checkpoint: Checkpoint, key: SignerKey, witness: SignerKey) -> bytes:
    note = checkpoint.signed(key)
    return str(note.with_signatures([cosign(note, witness, 1_700_000_000)])).encode()


def _flipped(raw: bytes, at: int, bit: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]


def main(go: str, logs: int, kills: int) -> int:
    room = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108  # nothing secret is written there
    with TemporaryDirectory(dir=room) as name, TemporaryDirectory() as built:
        judge = build_judge(go, Path(built)) if Path(go).name == "go" else Path(go)
        maker = Maker(Path(name), seed=39)
        (Path(name) / "cluster").mkdir()
        cases = cluster_cases(Path(name) / "cluster", kills) if kills else []
        print(f"{sum(way == 'honest' for way, _ in cases)} of the logs are of a cluster")
        for number in range(logs):
            honest, tampered = maker.log(number)
            cases += [("honest", honest), *tampered]
            for each in Path(name).glob(f"{number}*"):
                if not each.name.endswith(".tiles"):
                    shutil.rmtree(each)
        asked = "\n".join(case.line() for _, case in cases) + "\n"
        answered = subprocess.run([judge], input=asked, capture_output=True, text=True, check=True)  # noqa: S603
        verdicts = answered.stdout.splitlines()
    assert len(verdicts) == len(cases)
    wrong = 0
    counts: Counter[str] = Counter()
    for (way, case), verdict in zip(cases, verdicts, strict=True):
        counts[way] += 1
        expected = way == "honest"
        if (verdict == "yes") != expected or case.holds() != expected:
            wrong += 1
            print(f"{way}: Go says {verdict!r}, we say {case.holds()}")
    print(f"{counts.pop('honest')} logs taken, {sum(counts.values())} tamperings found, {wrong} wrong")
    print(", ".join(f"{way} {count}" for way, count in sorted(counts.items())))
    return 1 if wrong else 0


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[2:]]
    sys.exit(main(sys.argv[1], *(given + [1_000, len(STEPS)][len(given) :])))
