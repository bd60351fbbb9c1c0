"""This gateway as a witness of other logs (c2sp.org/tlog-witness): it remembers, and signs what only grew.

What it saw last of each log is a file, `DATA/witness/HASH.checkpoint`, HASH being the SHA-256 of the origin.
It is on disk before the answer is given, and one request is judged after the other, so that no two answers
can follow from the same memory. A file that cannot be read is no empty memory: nothing is signed then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from moot.errors import UsageError
from moot.evidence.checkpoint import Checkpoint, parse_checkpoint
from moot.evidence.signed_note import ED25519, NoteError, SignerKey, VerifierKey
from moot.evidence.witness import Answer, judge_request
from moot.private_files import sync_folder
from moot.resilience.atomic_file import write_atomically

FOLDER: Final = "witness"


class WitnessService:
    """Knows the logs of some public keys; raises UsageError for a text that is no log's key."""

    def __init__(self, data: Path, known: Sequence[str], key: SignerKey) -> None:
        self._folder = data / FOLDER
        self._key = key
        self._logs: dict[str, list[VerifierKey]] = {}
        for text in known:
            log = VerifierKey.parse(text)
            if log.type != ED25519:
                raise UsageError(f"gateway.journal.witness_for: {log.name} is a witness's key, not a log's")
            self._logs.setdefault(log.name, []).append(log)
        self._turn = asyncio.Lock()

    async def add_checkpoint(self, raw: bytes) -> Answer:
        async with self._turn:
            return await asyncio.to_thread(self._judge, raw)

    def newest(self, name: str) -> str | None:
        """The newest checkpoint of the log whose origin has this hash, with our signature below."""
        known = {_name_of(origin) for origin in self._logs}
        path = self._folder / f"{name}.checkpoint"
        return path.read_text("utf-8") if name in known and path.exists() else None

    def _judge(self, raw: bytes) -> Answer:
        try:
            seen = {origin: found for origin in self._logs if (found := self._seen(origin)) is not None}
        except (NoteError, OSError) as fault:
            return Answer(500, f"what was seen before cannot be read: {fault}\n")
        answer = judge_request(raw, logs=self._logs, seen=seen, key=self._key, seconds=int(time.time()))
        if answer.seen is not None:
            origin = parse_checkpoint(str(answer.seen).encode())[0].origin
            write_atomically(self._path(origin), str(answer.seen).encode())
            sync_folder(self._folder)
        return answer

    def _seen(self, origin: str) -> Checkpoint | None:
        try:
            found, _ = parse_checkpoint(self._path(origin).read_bytes())
        except FileNotFoundError:
            return None
        if found.origin != origin:
            raise NoteError(f"{self._path(origin)} is of {found.origin}")
        return found

    def _path(self, origin: str) -> Path:
        return self._folder / f"{_name_of(origin)}.checkpoint"


def _name_of(origin: str) -> str:
    return sha256(origin.encode()).hexdigest()
