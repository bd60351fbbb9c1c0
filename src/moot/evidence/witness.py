"""What a witness answers (c2sp.org/tlog-witness): it cosigns a checkpoint that only adds to what it saw.

Pure: whoever keeps the witness's memory on disk asks, and writes `Answer.seen` there before it answers.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from moot.evidence.checkpoint import Checkpoint, cosign, parse_checkpoint, signers
from moot.evidence.merkle_tree import EMPTY_ROOT, HASH_BYTES, proves_consistency
from moot.evidence.signed_note import Note, NoteError, SignerKey, VerifierKey, decode_base64

SIZE_TYPE: Final = "text/x.tlog.size"
MAX_REQUEST_BYTES: Final = 128 << 10
MAX_PROOF_HASHES: Final = 63
_OLD: Final = re.compile(r"old (0|[1-9][0-9]{0,18})")


class Answer(NamedTuple):
    """`seen` is to be on disk, in place of what was seen before, ahead of a 200."""

    status: int
    body: str
    seen: Note | None = None
    content_type: str = "text/plain; charset=utf-8"


class WitnessRequest(NamedTuple):
    old: int
    proof: Sequence[bytes]
    checkpoint: Checkpoint
    note: Note

    def __str__(self) -> str:
        hashes = "".join(f"{b64encode(each).decode()}\n" for each in self.proof)
        return f"old {self.old}\n{hashes}\n{self.note}"


def parse_request(raw: bytes) -> WitnessRequest:
    """Raises NoteError if it is no add-checkpoint."""
    above, empty, note_text = raw.partition(b"\n\n")
    lines = above.decode("utf-8", "replace").split("\n")
    old = _OLD.fullmatch(lines.pop(0))
    hashes = [decode_base64(line) for line in lines]
    proof = [hash for hash in hashes if hash is not None and len(hash) == HASH_BYTES]
    if not empty or old is None or len(proof) != len(lines) or len(proof) > MAX_PROOF_HASHES:
        raise NoteError("send `old N`, hashes in base64, an empty line and a checkpoint")
    checkpoint, note = parse_checkpoint(note_text)
    return WitnessRequest(int(old[1]), proof, checkpoint, note)


def judge_request(
    raw: bytes,
    *,
    logs: Mapping[str, Sequence[VerifierKey]],
    seen: Mapping[str, Checkpoint],
    key: SignerKey,
    seconds: int,
) -> Answer:
    """Answer an add-checkpoint. `logs` has the keys of each origin, `seen` the newest checkpoint of each."""
    try:
        request = parse_request(raw)
    except NoteError as fault:
        return Answer(400, f"{fault}\n")
    checkpoint, note = request.checkpoint, request.note
    keys = logs.get(checkpoint.origin)
    if keys is None:
        return Answer(404, "this log is not known here\n")
    try:
        is_signed = bool(signers(note, keys))
    except NoteError:
        is_signed = False
    if not is_signed:
        return Answer(403, "no key that is known of this log signed the checkpoint\n")
    if request.old > checkpoint.size:
        return Answer(400, "old is larger than the checkpoint\n")
    before = seen.get(checkpoint.origin, Checkpoint(checkpoint.origin, 0, EMPTY_ROOT))
    if request.old != before.size:
        return Answer(409, f"{before.size}\n", content_type=SIZE_TYPE)
    if not _grew(before, request):
        return Answer(422, "the proof does not lead from what was seen before to this checkpoint\n")
    cosignature = cosign(note, key, seconds)
    known = {(each.name, each.key_id) for each in keys}
    by_log = [each for each in note.signatures if (each.name, each.key_id) in known]
    return Answer(200, cosignature.line(), Note(note.text, (*by_log, cosignature)))


def _grew(before: Checkpoint, request: WitnessRequest) -> bool:
    new = request.checkpoint
    if new.size == 0 and new.root != EMPTY_ROOT:
        return False
    return proves_consistency(before.size, before.root, new.size, new.root, request.proof)
