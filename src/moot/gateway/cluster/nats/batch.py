"""What one NATS message holds: inputs of one gateway, in its order.

    {"v":1,"gateway":"a","epoch":3,"number":17,…}\\n   then for each input: sizes of head and raw, head, raw

The raw bytes of an envelope stand beside its JSON and not in it, so that no reader has to find its end. One
input that is larger than a message of NATS may be, such as the state of a large space, is cut into parts:
`{"v":2,…,"part":0,"parts":3}\\n` and that much of its bytes. It counts when the last part is there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from moot.errors import UsageError

# Readers refuse what they do not know: a newer gateway must not be misunderstood.
FORMAT: Final = 1
_PART_FORMAT: Final = 2
_SIZES: Final = struct.Struct(">II")
SIZES_BYTES: Final = _SIZES.size


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
    # Which part of an input this is, and how many there are; 0: whole inputs.
    part: int = 0
    parts: int = 0


class LoggedInput(NamedTuple):
    """One input: JSON without an envelope, and the very bytes of the envelope."""

    head: bytes
    raw: bytes


class LogBatch(NamedTuple):
    head: BatchHead
    inputs: list[LoggedInput]
    # Of an input in parts.
    part: bytes = b""


_head_decoder = msgspec.json.Decoder(BatchHead)


def encode_batch(head: BatchHead, inputs: bytes) -> bytes:
    """`inputs` as `encode_inputs` returns them."""
    return msgspec.json.encode(head) + b"\n" + inputs


def encode_part(head: BatchHead, part: int, parts: int, data: bytes) -> bytes:
    return encode_batch(msgspec.structs.replace(head, v=_PART_FORMAT, part=part, parts=parts), data)


def encode_inputs(inputs: Iterable[LoggedInput]) -> bytes:
    parts: list[bytes] = []
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
    if head.v == _PART_FORMAT and 0 <= head.part < head.parts:
        return LogBatch(head, [], rest)
    if head.v != FORMAT:
        raise UsageError(
            f"gateway {head.gateway} writes the log in format {head.v}, and this one reads format {FORMAT}: "
            "run one version of Moot in a cluster"
        )
    return LogBatch(head, _decode_inputs(rest))


def _decode_inputs(data: bytes) -> list[LoggedInput]:
    inputs, place, end = [], 0, len(data)
    while place < end:
        start = place + SIZES_BYTES
        if start > end:
            raise UsageError("a message of the log is cut off")
        head_bytes, raw_bytes = _SIZES.unpack_from(data, place)
        middle = start + head_bytes
        place = middle + raw_bytes
        if place > end:
            raise UsageError("a message of the log is cut off")
        inputs.append(LoggedInput(data[start:middle], data[middle:place]))
    return inputs


class InputParts:
    """Parts of inputs until the last is there: one input for each gateway, which sends them one by one.

    What a gateway began and did not end is dropped with its sessions: at its next start, or when it is gone.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[bytes]] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def drop(self, gateway: str) -> None:
        self._parts.pop(gateway, None)

    def add(self, head: BatchHead, part: bytes) -> list[LoggedInput]:
        """The input, with its last part; nothing before, and where its first parts were dropped."""
        if head.part == 0:
            self._parts[head.gateway] = []
        parts = self._parts.get(head.gateway, [])
        if len(parts) != head.part:
            return []
        parts.append(part)
        if len(parts) < head.parts:
            return []
        self.drop(head.gateway)
        return _decode_inputs(b"".join(parts))
