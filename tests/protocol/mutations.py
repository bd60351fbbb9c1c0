"""What may happen to a text on its way, for both walks along the edge of what is read."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


def mutate(random: Random, raw: bytearray, tokens: Sequence[bytes], other: bytes) -> None:
    """A bit turned, bytes gone, a token put in or in place of others, a stretch doubled, another's end."""
    at = random.randrange(len(raw) + 1)
    length = random.randrange(1, 12)
    match random.randrange(6):
        case 0 if raw:
            raw[at % len(raw)] ^= 1 << random.randrange(8)
        case 1:
            del raw[at : at + length]
        case 2:
            raw[at:at] = random.choice(tokens)
        case 3:
            raw[at : at + length] = random.choice(tokens)
        case 4:
            raw[at:at] = raw[at : at + 4 * length]
        case _:
            raw[at:] = other[random.randrange(len(other) + 1) :]
