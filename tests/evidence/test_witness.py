"""What a witness answers: each status that c2sp.org/tlog-witness names, and never two trees of one log."""

from __future__ import annotations

import random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moot.evidence.checkpoint import Checkpoint, parse_checkpoint, signers
from moot.evidence.merkle_tree import (
    EMPTY_ROOT,
    consistency_proof,
    leaf_hash,
    root_of,
    whole_subtree,
)
from moot.evidence.signed_note import COSIGNATURE, SignerKey
from moot.evidence.witness import Answer, WitnessRequest, judge_request

ORIGIN = "moot.example/lab"
LOG = SignerKey(ORIGIN, Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32))
WITNESS = SignerKey("ana.example", Ed25519PrivateKey.from_private_bytes(bytes([2]) * 32), COSIGNATURE)


class Log:
    """A log of our own making, and one that parts from it at some entry."""

    def __init__(self, fork_at: int = 1_000) -> None:
        self._entries = [f"entry {n}{' forked' if n >= fork_at else ''}".encode() for n in range(100)]

    def subtree(self, level: int, index: int) -> bytes:
        return whole_subtree(
            [leaf_hash(each) for each in self._entries[index << level : (index + 1) << level]]
        )

    def request(self, old: int, size: int, key: SignerKey = LOG) -> bytes:
        checkpoint = Checkpoint(ORIGIN, size, root_of(size, self.subtree))
        proof = consistency_proof(old, size, self.subtree) if old <= size else []
        return str(WitnessRequest(old, proof, checkpoint, checkpoint.signed(key))).encode()


class Memory:
    """A witness that remembers as it should."""

    def __init__(self) -> None:
        self.seen: dict[str, Checkpoint] = {}

    def ask(self, raw: bytes) -> Answer:
        answer = judge_request(
            raw, logs={ORIGIN: [LOG.verifier]}, seen=self.seen, key=WITNESS, seconds=1_700_000_000
        )
        if answer.seen is not None:
            self.seen[ORIGIN], _ = parse_checkpoint(str(answer.seen).encode())
        return answer


def test_a_log_that_only_grows_is_cosigned() -> None:
    witness, log = Memory(), Log()
    for old, size in ((0, 0), (0, 7), (7, 7), (7, 8), (8, 100)):
        answer = witness.ask(log.request(old, size))
        assert answer.status == 200
        assert answer.seen is not None
        assert str(answer.seen).endswith(answer.body)
        assert signers(answer.seen, [LOG.verifier, WITNESS.verifier]) == [LOG.verifier, WITNESS.verifier]


def test_each_refusal_has_its_status() -> None:
    witness, log = Memory(), Log()
    assert witness.ask(log.request(0, 50)).status == 200
    fork = Log(fork_at=20)
    cases = {
        "what is no request": (b"old 5\n", 400),
        "old larger than the size": (log.request(60, 55), 400),
        "another log": (log.request(50, 60).replace(ORIGIN.encode() + b"\n60", b"other\n60"), 404),
        "signed by another key": (log.request(50, 60, SignerKey(ORIGIN, Ed25519PrivateKey.generate())), 403),
        "a signature that does not fit": (log.request(50, 60).replace(b"\n60\n", b"\n61\n"), 403),
        "not where the witness stands": (log.request(40, 60), 409),
        "smaller than what was seen": (log.request(0, 40), 409),
        "a fork": (fork.request(50, 60), 422),
        "another root of one size": (fork.request(50, 50), 422),
    }
    for name, (raw, status) in cases.items():
        answer = witness.ask(raw)
        assert answer.status == status, name
        assert answer.seen is None, name
    told = witness.ask(log.request(40, 60))
    assert (told.body, told.content_type) == ("50\n", "text/x.tlog.size")
    assert witness.seen[ORIGIN].size == 50


def test_an_empty_tree_has_one_root_and_the_first_checkpoint_needs_no_proof() -> None:
    witness = Memory()
    odd = Checkpoint(ORIGIN, 0, leaf_hash(b""))
    assert witness.ask(str(WitnessRequest(0, [], odd, odd.signed(LOG))).encode()).status == 422
    first = Checkpoint(ORIGIN, 3, leaf_hash(b""))
    assert witness.ask(str(WitnessRequest(0, [EMPTY_ROOT], first, first.signed(LOG))).encode()).status == 422


@pytest.mark.parametrize("seed", range(5))
def test_whatever_two_parted_logs_ask_only_one_of_them_is_cosigned_beyond_the_fork(seed: int) -> None:
    chance = random.Random(seed)
    witness = Memory()
    logs = {"honest": Log(), "forked": Log(fork_at=30)}
    beyond: set[str] = set()
    for _ in range(300):
        name = chance.choice(list(logs))
        old = witness.seen[ORIGIN].size if witness.seen and chance.random() < 0.8 else chance.randrange(100)
        size = chance.randrange(100)
        if witness.ask(logs[name].request(old, size)).status == 200 and size > 30:
            beyond.add(name)
    assert len(beyond) == 1
