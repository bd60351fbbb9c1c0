"""Gateways witness each other: what was seen is on disk before it is signed, and only growth is signed."""

from __future__ import annotations

import asyncio
import os
from hashlib import sha256
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moot.errors import UsageError
from moot.evidence.checkpoint import Checkpoint, cosigned_at, parse_checkpoint, signers
from moot.evidence.log_check import parse_kept
from moot.evidence.log_files import LogReader
from moot.evidence.log_keys import use_keys
from moot.evidence.signed_note import COSIGNATURE, SignerKey, parse_signatures
from moot.evidence.witness import WitnessRequest
from moot.gateway.evidence import log_keeper, witness_client
from moot.gateway.evidence.witness_service import WitnessService
from tests.evidence.test_log_files import KEY, ORIGIN, entry, new_log, root_at
from tests.gateway.running_gateway import participants, running_gateway
from tests.waiting import until

WITNESS = SignerKey("w.example/witness", Ed25519PrivateKey.from_private_bytes(b"w" * 32), COSIGNATURE)
PEOPLE = participants(alice=["*"])


class Asked:
    """A log, and a witness of it."""

    def __init__(self, tmp_path: Path) -> None:
        self.log = new_log(tmp_path / "log")
        self.data = tmp_path / "data"
        self.witness = WitnessService(self.data, [str(KEY.verifier)], WITNESS)

    async def ask(self, old: int, size: int, *, root: bytes | None = None) -> tuple[int, str]:
        if size > self.log.size:
            self.log.append(b"".join(map(entry, range(self.log.size, size))))
        checkpoint = Checkpoint(ORIGIN, size, root or root_at(size))
        proof = self.log.consistency(old, size) if old <= size else []
        request = WitnessRequest(old, proof, checkpoint, checkpoint.signed(KEY))
        answer = await self.witness.add_checkpoint(str(request).encode())
        return answer.status, answer.body

    def seen(self) -> int:
        found = self.witness.newest(sha256(ORIGIN.encode()).hexdigest())
        return 0 if found is None else parse_checkpoint(found.encode())[0].size


async def test_a_witness_signs_what_only_grew_and_says_what_it_saw(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    status, line = await asked.ask(0, 5)
    assert status == 200
    (signature,) = parse_signatures(line)
    assert (signature.name, signature.key_id) == (WITNESS.verifier.name, WITNESS.verifier.key_id)
    assert cosigned_at(signature.bytes) > 1_600_000_000
    assert await asked.ask(0, 7) == (409, "5\n")
    assert (await asked.ask(5, 7, root=root_at(6)))[0] == 422
    assert (await asked.ask(5, 5, root=root_at(6)))[0] == 422
    assert (await asked.ask(9, 7))[0] == 400
    assert asked.seen() == 5
    assert (await asked.ask(5, 7))[0] == 200
    # Another run of it has the same memory.
    again = WitnessService(asked.data, [str(KEY.verifier)], WITNESS)
    asked.witness = again
    assert await asked.ask(5, 8) == (409, "7\n")
    note = parse_checkpoint((again.newest(sha256(ORIGIN.encode()).hexdigest()) or "").encode())[1]
    assert len(signers(note, [KEY.verifier, WITNESS.verifier])) == 2


@pytest.mark.parametrize("step", ["fsync", "replace"])
async def test_a_witness_whose_disk_fails_signs_nothing_and_remembers_what_it_did(
    tmp_path: Path, step: str
) -> None:
    asked = Asked(tmp_path)
    assert (await asked.ask(0, 5))[0] == 200

    def down(*_given: object, **_more: object) -> None:
        raise OSError("down")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, step, down)
        with pytest.raises(OSError, match="down"):
            await asked.ask(5, 7)
    assert asked.seen() == 5
    assert (await asked.ask(5, 8))[0] == 200


async def test_a_memory_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    assert (await asked.ask(0, 5))[0] == 200
    file = next((asked.data / "witness").iterdir())
    file.write_bytes(file.read_bytes()[:30])
    assert (await asked.ask(0, 5))[0] == 500


def test_only_logs_can_be_witnessed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a witness's key"):
        WitnessService(tmp_path, [str(WITNESS.verifier)], WITNESS)


async def test_a_gateway_has_its_log_witnessed_by_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_keeper, "ROUND_SECONDS", 0.05)
    monkeypatch.setattr(witness_client, "_RETRY_SECONDS", 0.05)
    for name in ("ours", "theirs"):
        (tmp_path / name / "data").mkdir(parents=True, mode=0o700)
    keys, theirs = use_keys(tmp_path / "ours" / "data"), use_keys(tmp_path / "theirs" / "data")
    log = keys.signer(keys.origin("lab", None)).verifier
    witness = theirs.witness().verifier
    policy, anchor = tmp_path / "policy", tmp_path / "anchor.jsonl"
    async with running_gateway(tmp_path / "theirs", PEOPLE, journal={"witness_for": [str(log)]}) as other:
        url = f"{other.gateway.url}/witness"
        policy.write_text(f"log {log}\nwitness them {witness} {url}\nquorum them\n")
        settings = {"witnesses": str(policy), "anchor": str(anchor)}
        async with running_gateway(tmp_path / "ours", PEOPLE, journal=settings) as gateway:
            folder = gateway.journal().parent / "log"
            await until((folder / "cosigned").exists)
            alice = await gateway.join("alice")
            await alice.ask("chat", {"text": "witness this"})
            last = gateway.gateway.directory.hosts["lab"].journal.next_number - 1
            await until(lambda: (LogReader(folder).cosigned() or (Checkpoint("", 0, b""),))[0].size >= last)
            proof = await gateway.gateway.logs.proof_of("lab", last)
            assert proof is not None
            assert gateway.gateway.logs.unwitnessed_seconds("lab") == 0
            assert set(signers(proof.note, [log, witness])) == {log, witness}
            seen = await other.http.get(f"/witness/{sha256(log.name.encode()).hexdigest()}/checkpoint")
            assert parse_checkpoint(seen.content)[0].size >= last
            await until(anchor.exists)
            anchored = orjson.loads(anchor.read_bytes().splitlines()[0])["checkpoint"]
            assert parse_checkpoint(anchored.encode())[0].origin == log.name
        too_large = await other.http.post("/witness/add-checkpoint", content=b"x" * (129 << 10))
        assert too_large.status_code == 413
    assert (await _posted_to_a_gateway_that_is_no_witness(tmp_path)) == 404


async def test_what_comes_after_an_anchor_is_anchored_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever cuts off the end of a day cuts off what no anchor has."""
    monkeypatch.setattr(log_keeper, "ROUND_SECONDS", 0.05)
    anchor = tmp_path / "anchor.jsonl"
    anchor.write_text('{"t": 1.0, "checkpoi')
    # Nobody is there to sign: the anchor waits for no witness.
    (tmp_path / "policy").write_text(
        f"log {KEY.verifier}\nwitness w {WITNESS.verifier} http://127.0.0.1:9\nquorum w\n"
    )
    settings = {"anchor": str(anchor), "witnesses": str(tmp_path / "policy")}
    async with running_gateway(tmp_path, PEOPLE, journal=settings) as gateway:
        await until(lambda: anchor.read_bytes().endswith(b"}\n"))
        alice = await gateway.join("alice")
        await alice.ask("chat", {"text": "after the anchor"})
        await until(lambda: gateway.gateway.logs.unwitnessed_seconds("lab") > 0)
        assert 'moot_log_unwitnessed_seconds{space="lab"} 0\n' not in gateway.gateway.metrics()
        folder = gateway.journal().parent / "log"
    kept = parse_kept(anchor.read_bytes().partition(b"\n")[2])
    assert kept[-1].checkpoint.size == LogReader(folder).signed()[0].size > kept[0].checkpoint.size


async def test_a_witness_that_was_wrong_once_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that it saw more than there is: a lie, or somebody on the way."""
    monkeypatch.setattr(log_keeper, "ROUND_SECONDS", 0.05)
    monkeypatch.setattr(witness_client, "_RETRY_SECONDS", 0.05)
    (tmp_path / "data").mkdir(mode=0o700)
    log = use_keys(tmp_path / "data")
    key = log.signer(log.origin("lab", None)).verifier
    witness = WitnessService(tmp_path / "theirs", [str(key)], WITNESS)
    answers = [(409, "123456789\n"), (409, "123456789\n")]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length:")[2].split()[0])
        found = await witness.add_checkpoint(await reader.readexactly(size))
        status, body = answers.pop() if answers else (found.status, found.body)
        text = (
            f"HTTP/1.1 {status} X\r\nContent-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n{body}"
        )
        writer.write(text.encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        (tmp_path / "policy").write_text(f"log {key}\nwitness w {WITNESS.verifier} {url}\nquorum w\n")
        settings = {"witnesses": str(tmp_path / "policy")}
        async with running_gateway(tmp_path, PEOPLE, journal=settings) as gateway:
            await until((gateway.journal().parent / "log" / "cosigned").exists)
    assert not answers


async def _posted_to_a_gateway_that_is_no_witness(tmp_path: Path) -> int:
    async with running_gateway(tmp_path / "ours", PEOPLE) as gateway:
        return (await gateway.http.post("/witness/add-checkpoint", content=b"old 0\n")).status_code
