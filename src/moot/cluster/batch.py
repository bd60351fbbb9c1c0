"""What one NATS message holds: inputs of one gateway, in its order.

    {"v":1,"gateway":"a","epoch":3,"number":17,…}\\n   then for each input: sizes of head and raw, head, raw

The raw bytes of an envelope stand beside its JSON and not in it, so that no reader has to find its end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from moot.errors import UsageError

# Readers refuse what they do not know: a newer gateway must not be misunderstood.
FORMAT: Final = 1
_SIZES: Final = struct.Struct(">II")


class BatchHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who wrote a batch, and what all of its inputs have in common."""

    v: int
    gateway: str
    # Counts the starts of a gateway: what an earlier process wrote late is known by it.
    epoch: int
    # Counts the batches of one process.
    number: int
    # What the ids of its inputs are made of: random, so that nobody can know them before.
    seed: str
    # A heartbeat: written every `heartbeat_seconds`, and only then.
    beat: bool = False
    # When it was made, by the writer's clock: NATS' own may be wrong. Not in those of 0.2.0.
    made_at: float = 0.0


class LoggedInput(NamedTuple):
    """One input: JSON without an envelope, and the very bytes of the envelope."""

    head: bytes
    raw: bytes

    @property
    def size(self) -> int:
        return _SIZES.size + len(self.head) + len(self.raw)


class LogBatch(NamedTuple):
    head: BatchHead
    inputs: list[LoggedInput]


_head_decoder = msgspec.json.Decoder(BatchHead)


def encode_batch(head: BatchHead, inputs: Iterable[LoggedInput]) -> bytes:
    parts = [msgspec.json.encode(head), b"\n"]
    for each in inputs:
        parts += (_SIZES.pack(len(each.head), len(each.raw)), each.head, each.raw)
    return b"".join(parts)


def decode_batch(data: bytes) -> LogBatch:
    """Raises UsageError for what no gateway of this version wrote."""
    line, _, rest = data.partition(b"\n")
    try:
        head = _head_decoder.decode(line)
    except msgspec.MsgspecError as fault:
        raise UsageError(f"a message of the log that no gateway wrote: {fault}") from None
    if head.v != FORMAT:
        raise UsageError(
            f"gateway {head.gateway} writes the log in format {head.v}, and this one reads format {FORMAT}: "
            "run one version of Moot in a cluster"
        )
    inputs, place, end = [], 0, len(rest)
    while place < end:
        if place + _SIZES.size > end:
            raise UsageError("a message of the log is cut off")
        head_bytes, raw_bytes = _SIZES.unpack_from(rest, place)
        middle = place + _SIZES.size + head_bytes
        place, start = middle + raw_bytes, place + _SIZES.size
        if place > end:
            raise UsageError("a message of the log is cut off")
        inputs.append(LoggedInput(rest[start:middle], rest[middle:place]))
    return LogBatch(head, inputs)
