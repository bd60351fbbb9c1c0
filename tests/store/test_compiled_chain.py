"""The chain of hashes, followed in C: as far as in Python, whatever stands in a segment."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

import pytest

from moot.store import record_chain
from moot.store.record_chain import ChainHead, follow, follow_in_python, line, seal
from tests.examples import examples

record_hashes = pytest.importorskip("moot.store._record_hashes")

# What damage looks like, and what is almost a record or a seal.
PIECES = (b"\n", b"\0", b"0", b'"}\n', b',"h":"', b'{"n":1,', b'{"n":01,', b',"erased":"', b"}\n", b"\r", b"")


def random_batches(random: Random, head: ChainHead) -> list[bytes]:
    """What a gateway wrote in so many ticks; of some records only a stub is left."""
    batches = []
    for _ in range(random.randrange(1, 40)):
        number = head.number
        count = random.choice([1, 1, 1, 2, 3, 70])
        fillings = [b"x" * random.choice([0, 1, 40, 55, 56, 63, 64, 300]) for _ in range(count)]
        records = [line(number + each, b'"x":"%b"' % text) for each, text in enumerate(fillings)]
        (text, end), head = seal(records, head, number + count)
        lines = (text + end).splitlines(keepends=True)
        if random.random() < 0.1:
            at = random.randrange(count)
            last = lines[at][-73:] if at == count - 1 else b"}\n"
            lines[at] = b'{"n":%d,"erased":"%b"%b' % (number + at, b"0" * 64, last)
        batches.append(b"".join(lines))
    return batches


def damaged(random: Random, batches: list[bytes]) -> bytes:
    """Nothing happened, or something did to a byte, a line, a batch or the end."""
    text = bytearray(b"".join(batches))
    at = random.randrange(len(text) + 1)
    match random.randrange(6):
        case 1:
            text[at : at + random.choice([0, 1, 1, 8])] = random.choice(PIECES)
        case 2:
            text = text[:at]
        case 3:
            lines = bytes(text).splitlines(keepends=True)
            del lines[random.randrange(len(lines))]
            text = bytearray(b"".join(lines))
        case 4:
            batches = batches[:]
            random.shuffle(batches)
            text = bytearray(b"".join(batches))
        case 5:
            text[at : at + 1] = bytes([random.randrange(256)])
    return bytes(text)


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_it_holds_as_far_as_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: bool, block_bytes: int
) -> None:
    """Blocks that are smaller than a line, or larger than the segment."""
    if lanes and not record_hashes.HAS_LANES:
        pytest.skip("this processor hashes one text after the other")
    monkeypatch.setattr(record_chain, "_FOLLOWED_BYTES", block_bytes)
    monkeypatch.setattr(record_chain, "_sealed_batches", partial(record_hashes.sealed_batches, lanes=lanes))
    random = Random(block_bytes)
    path, whole = tmp_path / "segment.jsonl", 0
    for _ in range(examples(200)):
        head = ChainHead(random.choice([1, 9, 10, 98, 10**9]), random.choice([b"lab", b"a" * 64, b"b" * 130]))
        path.write_bytes(damaged(random, random_batches(random, head)))
        found = follow(path, head)
        assert found == follow_in_python(path, head), path.read_bytes()
        whole += found.whole
    assert whole > examples(200) / 10


def test_an_empty_segment_holds(tmp_path: Path) -> None:
    path, head = tmp_path / "segment.jsonl", ChainHead(7, b"lab")
    path.touch()
    assert follow(path, head) == follow_in_python(path, head) == (head, 0, 0, True)


def test_each_byte_of_a_segment_counts(tmp_path: Path) -> None:
    """A zero in the place of any byte, and the batch that has it does not hold."""
    path, head = tmp_path / "segment.jsonl", ChainHead(1, b"lab")
    batches = []
    before = head
    for count in (1, 3):
        numbers = range(before.number, before.number + count)
        lines, before = seal([line(each, b'"x":1') for each in numbers], before, numbers[-1] + 1)
        batches.append(b"".join(lines))
    text = b"".join(batches)
    for at in range(len(text)):
        path.write_bytes(text[:at] + b"\0" + text[at + 1 :])
        found = follow(path, head)
        assert not found.whole
        assert found.size == (0 if at < len(batches[0]) else len(batches[0])), at


def test_a_record_of_a_cluster_ends_alike_in_both() -> None:
    """Gateways with and without the compiled part serve one space."""
    random = Random(41)
    for _ in range(examples(3_000)):
        seed, space = (
            random.randbytes(random.choice([0, 16, 32, 400])),
            random.randbytes(random.randrange(99)),
        )
        number = random.choice([1, random.randrange(1, 10**6), 10**18 - 1])
        assert record_hashes.shared_ending(seed, space, number) == record_chain.shared_ending_in_python(
            seed, space, number
        )
