"""Asks the witnesses of a policy to sign the checkpoints of our logs, and keeps what they signed.

Each log has one round of questions at a time; a checkpoint that comes meanwhile is the next one's. A witness
says itself how much it has seen (409), so nothing about it needs to be remembered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from moot.errors import Unavailable, Unreachable
from moot.evidence.checkpoint import Checkpoint, verifies
from moot.evidence.log_files import LogReader
from moot.evidence.signed_note import Note, NoteError, Signature, parse_signatures
from moot.evidence.witness import WitnessRequest
from moot.evidence.witness_policy import Policy, Witness
from moot.gateway.evidence.log_keeper import LogKeeper
from moot.gateway.evidence.space_log import SpaceLog
from moot.net.http_client import HttpClient
from moot.private_files import append_lines
from moot.resilience.task_set import TaskSet

log = logging.getLogger(__name__)

_ANSWER_SECONDS: Final = 10.0
# While too few of them have signed, they are asked again after this.
_RETRY_SECONDS: Final = 30.0
# How often a checkpoint is added to the file of anchors.
_ANCHOR_SECONDS: Final = 600.0
# At the end a disk that does not answer is left alone after this.
_STOP_SECONDS: Final = 1.0
# What a witness saw may change between its answer and the next question, if it is asked by two.
_TRIES: Final = 3


class WitnessClient:
    """Follows the logs of a keeper. `anchor` is a file elsewhere that gets a checkpoint now and then."""

    def __init__(self, keeper: LogKeeper, policy: Policy | None, anchor: Path | None) -> None:
        self._keeper = keeper
        self._policy = policy
        self._anchor = anchor
        self._client = HttpClient(timeout_seconds=_ANSWER_SECONDS)
        self._tasks = TaskSet("witnesses")
        # The logs that are asked about now, and those that are anchored when it is time.
        self._asking: set[str] = set()
        self._anchoring: set[str] = set()
        # How much of each log the file of anchors has.
        self._anchored: dict[str, int] = {}
        # How much each witness has seen of each origin, as far as we know.
        self._sizes: dict[tuple[str, str], int] = {}
        keeper.on_signed = self.look_at

    def look_at(self, found: SpaceLog) -> None:
        """A log has a new checkpoint."""
        if found.writer is not None and found.name not in self._asking:
            self._asking.add(found.name)
            self._tasks.start(self._follow(found))

    async def close(self) -> None:
        """After the logs were signed for the last time: what was signed since the last anchor is anchored."""
        await self._tasks.close()
        if self._anchor is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    for found in list(self._keeper.logs.values()):
                        await self._add_anchor(found, self._anchor)

    async def _follow(self, found: SpaceLog) -> None:
        try:
            done = -1
            while found.writer is not None and found.writer.checkpoint.size != done:
                checkpoint, note = found.writer.checkpoint, found.writer.note
                done = checkpoint.size
                policy = self._policy
                is_enough = policy is None or await self._ask_all(found, checkpoint, note, policy)
                self._anchor_later(found)
                if not is_enough:
                    done = -1
                    await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self._asking.discard(found.name)

    def _anchor_later(self, found: SpaceLog) -> None:
        if self._anchor is not None and found.name not in self._anchoring:
            self._anchoring.add(found.name)
            self._tasks.start(self._keep_anchored(found, self._anchor))

    async def _keep_anchored(self, found: SpaceLog, anchor: Path) -> None:
        """At once, and what came meanwhile when it is time again: also where nothing comes after it."""
        try:
            while await self._add_anchor(found, anchor):
                await asyncio.sleep(_ANCHOR_SECONDS)
        finally:
            self._anchoring.discard(found.name)

    async def _ask_all(self, found: SpaceLog, checkpoint: Checkpoint, note: Note, policy: Policy) -> bool:
        reader = LogReader(found.folder)
        witnesses = [each for each in policy.witnesses if each.url]
        answers = await asyncio.gather(*(self._ask(reader, checkpoint, note, each) for each in witnesses))
        signed = note.with_signatures(each for each in answers if each is not None)
        try:
            policy.judge(checkpoint, signed)
            is_enough = True
            found.unwitnessed_since = 0.0
        except NoteError as fault:
            is_enough = False
            found.unwitnessed_since = found.unwitnessed_since or time.monotonic()
            log.warning("a checkpoint is not witnessed as the policy asks", extra={"why": str(fault)})
        await self._keeper.in_thread(lambda: _keep(found, checkpoint, signed, is_enough=is_enough))
        if is_enough:
            try:
                await found.share_cosigned(signed)
            except Unavailable as fault:
                log.warning("the other gateways are not told of witnesses", extra={"why": fault.message})
        return is_enough

    async def _ask(
        self, reader: LogReader, checkpoint: Checkpoint, note: Note, witness: Witness
    ) -> Signature | None:
        """The witness's signature, None if it gives none; why not is in the log."""
        try:
            return await self._ask_for(reader, checkpoint, note, witness)
        except (NoteError, Unreachable) as fault:
            log.warning("a witness did not sign", extra={"witness": witness.name, "why": str(fault)})
            return None

    async def _ask_for(
        self, reader: LogReader, checkpoint: Checkpoint, note: Note, witness: Witness
    ) -> Signature:
        place = (witness.name, checkpoint.origin)
        for _ in range(_TRIES):
            old = self._sizes.get(place, 0)
            if old > checkpoint.size:
                # Asked anew the next time: it may have been wrong, or told so by somebody on the way.
                self._sizes.pop(place, None)
                raise NoteError(f"it saw a log of {old} entries, and ours has {checkpoint.size}")
            proof = await asyncio.to_thread(reader.consistency, old, checkpoint.size)
            body = str(WitnessRequest(old, proof, checkpoint, note)).encode()
            answer = await self._client.post(f"{witness.url.rstrip('/')}/add-checkpoint", body, {})
            text = answer.body.decode("utf-8", "replace").strip()
            if answer.status == 200:
                self._sizes[place] = checkpoint.size
                return _signature_in(f"{text}\n", witness, note)
            if answer.status != 409 or not (text.isascii() and text.isdigit() and len(text) < 20):
                raise NoteError(f"{answer.status} {text[:200]}")
            self._sizes[place] = int(text)
        raise NoteError("somebody else asks it about the same log")

    async def _add_anchor(self, found: SpaceLog, anchor: Path) -> bool:
        """Whether there was something to anchor."""
        if found.writer is None or found.writer.checkpoint.size == self._anchored.get(found.name):
            return False
        size, note = found.writer.checkpoint.size, found.writer.note
        line = msgspec.json.encode({"t": round(time.time(), 3), "checkpoint": str(note)}) + b"\n"
        try:
            await asyncio.to_thread(append_lines, anchor, line)
            self._anchored[found.name] = size
        except OSError as fault:
            log.warning("checkpoint not anchored", extra={"file": str(anchor), "why": str(fault)})
        return True


def _keep(found: SpaceLog, checkpoint: Checkpoint, note: Note, *, is_enough: bool) -> None:
    writer = found.writer
    if writer is not None:
        writer.add_signatures(checkpoint.size, note.signatures)
        if is_enough:
            writer.keep_cosigned(note)


def _signature_in(text: str, witness: Witness, note: Note) -> Signature:
    key = witness.key
    for each in parse_signatures(text):
        if (each.name, each.key_id) == (key.name, key.key_id) and verifies(key, note.text, each.bytes):
            return each
    raise NoteError("what it answers is not signed by its key")
